"""Instruments: what they are told of a connection, and the adapters for OpenTelemetry and Prometheus."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest

import jsclient
from jsclient import errors, services
from jsclient.connection import engine_of
from jsclient.instruments import Instrumentation, Operation, Together
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, PushConsumer, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until
from jsclient.workers import WorkerPool


class Recorder(Instrumentation):
    """Notes what began, and how it ended."""

    def __init__(self) -> None:
        self.began: list[Operation] = []
        self.ended: list[tuple[str, str, BaseException | None]] = []

    def begin(self, operation: Operation) -> Any:
        self.began.append(operation)
        return lambda error: self.ended.append((operation.kind, operation.subject, error))

    def of(self, kind: str) -> list[tuple[str, str]]:
        """(subject, outcome) of those that have ended."""
        ended = [(subject, error) for one, subject, error in self.ended if one == kind]
        return [(subject, "ok" if error is None else type(error).__name__) for subject, error in ended]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def nc(server: NatsServer, recorder: Recorder) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url, instrumentation=recorder) as nc:
        yield nc


@pytest.fixture
def js(server: NatsServer) -> Iterator[JetStream]:
    """Without an instrument."""
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="I", subjects=["i.>"], storage="memory"))
        yield js
        js.delete_stream("I")


def test_core_operations(nc: jsclient.Connection, recorder: Recorder) -> None:
    def answer(message: jsclient.Msg) -> None:
        if message.data == b"fail":
            raise RuntimeError("as asked for")
        message.respond(b"pong")

    nc.subscribe("ask", callback=answer)
    taken = nc.subscribe("taken")
    assert nc.request("ask", b"ping").data == b"pong"
    nc.publish("ask", b"fail")
    with pytest.raises(errors.InvalidSubject):
        nc.publish("two words", b"")
    nc.publish("taken", b"12345")
    assert taken.next(timeout=5).data == b"12345"
    nc.publish("taken", b"6")
    wait_until(lambda: taken.pending == 1)
    assert next(taken).data == b"6"
    with pytest.raises(errors.NoResponders):
        nc.request("nobody")
    wait_until(lambda: ("ask", "RuntimeError") in recorder.of("deliver"))
    assert recorder.of("request") == [("ask", "ok"), ("nobody", "NoResponders")]
    assert [one for one in recorder.of("deliver") if one[0] == "taken"] == [("taken", "ok")] * 2
    assert ("two words", "InvalidSubject") in recorder.of("publish")
    assert len(recorder.of("publish")) == 5  # the answer, too
    handled = [operation.handled for operation in recorder.began if operation.kind == "deliver"]
    assert sorted(handled) == [False, False, True, True]


def test_jetstream_operations(nc: jsclient.Connection, recorder: Recorder, js: JetStream) -> None:
    """A publish is one operation until its ack, however often it is sent; a handler is one, with its outcome."""
    mine = JetStream(nc)
    mine.publish("i.a", b"1")
    mine.publish_async("i.a", b"2")
    mine.publish_async_complete(timeout=20)
    with pytest.raises(errors.NoStreamForSubject):
        mine.publish("nowhere", b"")
    wait_until(lambda: len(recorder.of("publish")) == 3)
    assert sorted(recorder.of("publish")) == [("i.a", "ok"), ("i.a", "ok"), ("nowhere", "NoStreamForSubject")]
    consumer = mine.create_consumer("I", ConsumerConfig(durable_name="C", ack_wait=60))
    assert ("$JS.API.CONSUMER.CREATE.I.C", "ok") in recorder.of("request")
    first, second = consumer.fetch(2, timeout=5)
    first.double_ack()
    second.nak()
    with consumer.messages() as messages:
        messages.next(timeout=5).term()
    acks = [(operation.detail, operation.subject.split(".")) for operation in recorder.began if operation.kind == "ack"]
    assert [word for word, _ in acks][:3] == ["ack", "nak", "term"]
    assert all(subject[:2] == ["$JS", "ACK"] and {"I", "C"} <= set(subject) for _, subject in acks)
    assert recorder.of("deliver") == [("i.a", "ok")] * 3
    mine.publish("i.a", b"3")
    failed = threading.Event()

    def fail(message: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("once")
        message.ack()

    with consumer.consume(fail, on_error=lambda error, message: message.nak()) as running:
        wait_until(lambda: recorder.of("deliver")[3:] == [("i.a", "RuntimeError"), ("i.a", "ok")])
        running.stop()
    mine.publish("i.a", b"4")
    with WorkerPool(consumer, lambda message: None):
        wait_until(lambda: len(recorder.of("deliver")) == 6)
    assert [operation.kind for operation in recorder.began].count("ack") >= 6


def test_every_way_of_taking_is_told(nc: jsclient.Connection, recorder: Recorder, js: JetStream) -> None:
    """Also loops, which take a shorter way than `next` does."""
    for _ in range(3):
        js.publish("i.a", b"1")
    mine = JetStream(nc)
    stream = mine.stream("I")
    end = stream.info().state.last_seq

    def consumer() -> Consumer:
        return stream.create_consumer(ConsumerConfig(ack_policy="explicit", inactive_threshold=60))

    def push() -> PushConsumer:
        subject = nc.new_inbox()
        return stream.create_push_consumer(ConsumerConfig(deliver_subject=subject, ack_policy="explicit"))

    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "fetch": lambda: consumer().fetch(3, timeout=5),
        "fetch_no_wait": lambda: consumer().fetch_no_wait(3),
        "fetch_each": lambda: consumer().fetch_each(3, timeout=5),
        "messages": lambda: consumer().messages(stop_after=3),
        "messages, decoded": lambda: consumer().typed(int).messages(stop_after=3),
        "read_until": lambda: stream.ordered_consumer().read_until(end),
        "read_until, decoded": lambda: stream.ordered_consumer().typed(int).read_until(end),
        "ordered": lambda: stream.ordered_consumer().messages(stop_after=3),
        "ordered, decoded": lambda: stream.ordered_consumer().typed(int).messages(stop_after=3),
        "ordered fetch": lambda: stream.ordered_consumer().fetch(3, timeout=5),
        "ordered push": lambda: islice(stream.ordered_push_consumer().messages(), 3),
        "push": lambda: islice(push().messages(), 3),
        "ack_next": lambda: [first := consumer().next(timeout=5), first.ack_next(timeout=5).ack_next(timeout=5)],
    }
    told = {}
    for way, take in ways.items():
        before = len(recorder.of("deliver"))
        for message in take():
            assert message.subject == "i.a"
        told[way] = len(recorder.of("deliver")) - before
    assert told == dict.fromkeys(ways, 3)


def test_services_are_handlers(nc: jsclient.Connection, recorder: Recorder) -> None:
    with services.add_service(nc, services.ServiceConfig(name="s", version="1.0.0")) as service:
        service.add_endpoint("work", lambda request: request.respond(b"done"))
        assert nc.request("work", b"x").data == b"done"
    assert ("work", "ok") in recorder.of("deliver")


def test_outages_and_slow_consumers(server: NatsServer, recorder: Recorder) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, instrumentation=recorder) as nc:
        nc.flush()
        proxy.cut()
        wait_until(lambda: recorder.of("reconnect") == [("", "ok")])
        slow = nc.subscribe("slow", pending_messages=1)
        nc.flush()
        for _ in range(10):
            nc.publish("slow", b"x")
        wait_until(lambda: recorder.of("slow consumer") == [("slow", "SlowConsumer")])
        assert slow.dropped


def test_an_instrument_that_fails_harms_nobody(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Instrumentation):
        def begin(self, operation: Operation) -> Any:
            if operation.kind == "publish":
                raise RuntimeError("begin")

            def end(error: BaseException | None) -> None:
                raise RuntimeError("end")

            return end

    with jsclient.connect(server.url, instrumentation=Broken()) as nc:
        nc.subscribe("a", callback=lambda message: message.respond(b"x"))
        assert nc.request("a").data == b"x"
    assert "an instrument failed" in caplog.text


def test_without_an_instrument_the_functions_are_the_plain_ones(server: NatsServer) -> None:
    """That it costs nothing is in how it is built: nothing asks for every message whether there is one."""
    with jsclient.connect(server.url) as nc:
        engine: Any = engine_of(nc)
        assert "publish" not in vars(nc)
        assert engine.request == engine.requests.request
        assert engine.enqueue == engine.outbox.enqueue
        assert "publish" not in vars(JetStream(nc))
        assert inspect.unwrap(engine.request) == engine.request


def test_traces_go_from_the_publisher_to_the_handler(server: NatsServer, js: JetStream) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from jsclient.instruments.tracing import OpenTelemetry

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("test")
    recorder = Recorder()
    both = Together(OpenTelemetry(tracer), recorder)
    with jsclient.connect(server.url, instrumentation=both) as nc:
        mine = JetStream(nc)
        with tracer.start_as_current_span("order"):
            mine.publish("i.a", b"1", headers={"Mine": "kept"})
            mine.publish_async("i.a", b"2").result(timeout=20)
        seen: list[Any] = []

        def handle(message: Any) -> None:
            seen.append(message.headers)
            nc.publish("next", b"")
            message.double_ack()
            if message.data == b"2":
                raise RuntimeError("two")

        consumer = mine.create_consumer("I", ConsumerConfig(durable_name="C"))
        with consumer.consume(handle, on_error=lambda error: None):
            wait_until(lambda: recorder.of("deliver") == [("i.a", "ok"), ("i.a", "RuntimeError")])
        assert seen[0]["Mine"] == "kept"
        assert "traceparent" in seen[1]
    done: dict[str, list[Any]] = {}
    for span in spans.get_finished_spans():
        done.setdefault(span.name, []).append(span)
    (order,) = done["order"]
    trace = order.context.trace_id
    assert [span.context.trace_id for span in done["publish i.a"]] == [trace, trace]
    assert [span.context.trace_id for span in done["deliver i.a"]] == [trace, trace]
    assert [span.context.trace_id for span in done["publish next"]] == [trace, trace]  # within the handler's span
    parents = {span.context.span_id for span in done["publish i.a"]}
    assert {span.parent.span_id for span in done["deliver i.a"]} == parents
    assert [span.status.is_ok for span in done["deliver i.a"]] == [True, False]
    assert done["deliver i.a"][1].attributes["error.type"] == "RuntimeError"


def test_figures_for_prometheus(server: NatsServer, js: JetStream) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    from jsclient.instruments.metrics import Prometheus

    registry = prometheus.CollectorRegistry()
    instrument = Prometheus(registry, label=lambda operation: operation.subject.split(".")[0])
    with jsclient.connect(server.url, instrumentation=instrument) as nc:
        mine = JetStream(nc)
        for _ in range(3):
            mine.publish("i.a", b"12345")
        with pytest.raises(errors.NoResponders):
            nc.request("nobody")
    labels = {"operation": "publish", "outcome": "ok", "label": "i"}
    assert registry.get_sample_value("jsclient_operations_total", labels) == 3
    assert registry.get_sample_value("jsclient_operation_seconds_count", labels) == 3
    sent = {"operation": "publish", "label": "i"}
    assert registry.get_sample_value("jsclient_payload_bytes_total", sent) == 15
    refused = {"operation": "request", "outcome": "NoResponders", "label": "nobody"}
    assert registry.get_sample_value("jsclient_operations_total", refused) == 1
