"""Push consumers against a real server."""

from __future__ import annotations

import gc
import threading

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consuming.push import PushConsumer
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="P", subjects=["p.>"], storage="memory"))
    return js


def publish(js: JetStream, count: int, size: int = 0) -> None:
    for number in range(1, count + 1):
        js.nc.publish("p.a", (b"%d " % number).ljust(size, b"."))
    js.nc.flush()


def push(js: JetStream, **config: object) -> PushConsumer:
    config = {"durable_name": "C", "deliver_subject": js.nc.new_inbox(), **config}
    return js.create_push_consumer("P", ConsumerConfig(**config))  # type: ignore[arg-type]


def test_messages_and_acks(js: JetStream) -> None:
    publish(js, 500)
    consumer = push(js, max_ack_pending=1000)
    with consumer.messages() as messages:
        for expected in range(1, 501):
            message = messages.next(timeout=5)
            assert message.metadata.stream_seq == expected
            message.ack()
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0.1)
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 500, 5)
        assert consumer.info().push_bound
    wait_until(lambda: not consumer.info().push_bound, 5)
    assert list(messages) == []
    with pytest.raises(errors.IteratorClosed):
        messages.next(timeout=1)


def test_flow_control_is_answered(js: JetStream) -> None:
    """nats.js #430: an unanswered request stops the delivery after 16 chunks."""
    publish(js, 3000, size=10_000)
    consumer = push(js, flow_control=True, idle_heartbeat=1.0, ack_policy="none")
    with consumer.messages() as messages:
        assert [int(messages.next(timeout=10).data.split()[0]) for _ in range(3000)] == list(range(1, 3001))
        assert messages.missed_heartbeats == 0


def test_flow_control_bounds_what_is_buffered(js: JetStream) -> None:
    publish(js, 10_000, size=10_000)
    consumer = push(js, flow_control=True, idle_heartbeat=1.0, ack_policy="none")
    with consumer.messages() as messages:
        messages.next(timeout=5)
        time_passes(1, "the server sends all that it may")
        assert messages.buffered < 9_000
        for _ in range(9_999):
            messages.next(timeout=10)


def test_without_flow_control_overflow_is_reported(js: JetStream) -> None:
    publish(js, 1000)
    reported: list[Exception] = []
    consumer = push(js, ack_policy="none")
    with consumer.messages(pending_messages=100, on_error=reported.append) as messages:
        wait_until(lambda: messages.buffered == 100, 5)
        for _ in range(100):
            messages.next(timeout=5)
    assert isinstance(reported[0], errors.SlowConsumer)
    assert reported[0].dropped > 0


def test_consume_in_order(js: JetStream) -> None:
    publish(js, 300)
    seen: list[int] = []
    failures: list[Exception] = []

    def handler(message: object) -> None:
        seen.append(message.metadata.stream_seq)  # type: ignore[attr-defined]
        message.ack()  # type: ignore[attr-defined]
        if len(seen) == 5:
            raise ValueError("five")

    with push(js).consume(handler, on_error=failures.append) as running:
        wait_until(lambda: len(seen) == 300, 10)
        running.drain()
    assert seen == list(range(1, 301))
    assert [str(error) for error in failures] == ["five"]


def test_a_queue_group_shares(js: JetStream) -> None:
    consumer = push(js, deliver_group="g", ack_policy="explicit")
    seen: list[int] = []

    def handler(message: object) -> None:
        message.ack()  # type: ignore[attr-defined]
        seen.append(message.metadata.stream_seq)  # type: ignore[attr-defined]

    with consumer.consume(handler) as one, js.push_consumer("P", "C").consume(handler) as two:
        publish(js, 200)
        wait_until(lambda: len(seen) == 200, 10)
        assert one.messages.delivered > 0
        assert two.messages.delivered > 0
    assert sorted(seen) == list(range(1, 201))


def test_a_second_subscriber_without_a_group_is_refused(js: JetStream) -> None:
    consumer = push(js)
    with consumer.messages():
        js.nc.flush()
        with pytest.raises(errors.ConsumerAlreadyBound):
            js.push_consumer("P", "C").messages()


def test_missing_heartbeats_are_reported(server: NatsServer, js: JetStream) -> None:
    reported: list[Exception] = []
    with push(js, idle_heartbeat=0.5).messages(on_error=reported.append) as messages:
        with pytest.raises(errors.NoMessages):
            messages.next(timeout=0.1)
        server.pause()
        try:
            with pytest.raises(errors.NoMessages):
                messages.next(timeout=1.6)
        finally:
            server.resume()
        assert isinstance(reported[0], errors.NoHeartbeat)
        publish(js, 1)
        assert messages.next(timeout=5)


def test_it_goes_on_after_a_reconnect(server: NatsServer, js: JetStream) -> None:
    consumer = push(js, idle_heartbeat=1.0, ack_wait=1.0)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        with JetStream(nc).push_consumer("P", "C").messages() as messages:
            publish(js, 10)
            for _ in range(10):
                messages.next(timeout=5).ack()
            nc.flush()
            proxy.cut()
            wait_until(lambda: not nc.is_connected or nc.stats().reconnects > 0, 5)
            publish(js, 10)
            seen = {messages.next(timeout=10).metadata.stream_seq for _ in range(10)}
    assert seen == set(range(11, 21))
    assert consumer.info().delivered.stream_seq == 20


def test_the_kinds_are_not_mixed(js: JetStream) -> None:
    push(js)
    with pytest.raises(errors.NotPullConsumer):
        js.consumer("P", "C")
    js.create_consumer("P", ConsumerConfig(durable_name="D"))
    with pytest.raises(errors.NotPushConsumer):
        js.push_consumer("P", "D")
    with pytest.raises(errors.ConfigError):
        js.create_push_consumer("P", ConsumerConfig(durable_name="E"))
    with pytest.raises(errors.ConfigError):
        js.create_consumer("P", ConsumerConfig(durable_name="E", deliver_subject="x"))
    reported: list[Exception] = []
    bound = js.consumer("P", "C", fetch_info=False)
    with bound.messages(heartbeat=0.5, expires=1, on_error=reported.append) as messages:
        with pytest.raises((errors.NotPullConsumer, errors.NoMessages)):
            messages.next(timeout=4)


def test_a_forgotten_iterator_unsubscribes(js: JetStream) -> None:
    consumer = push(js)
    messages = consumer.messages()
    wait_until(lambda: consumer.info().push_bound, 5)
    del messages
    gc.collect()
    wait_until(lambda: not consumer.info().push_bound, 5)


def test_a_handle_without_a_question(js: JetStream) -> None:
    """For accounts that may subscribe and ack, and not ask."""
    made = push(js)
    asked: list[str] = []
    quiet = JetStream(js.nc, on_request=lambda subject, payload: asked.append(subject))
    consumer = quiet.push_consumer("P", "C", config=made.config)
    assert consumer.cached_info is None
    publish(js, 5)
    with consumer.messages() as messages:
        for seq in range(1, 6):
            message = messages.next(timeout=5)
            assert message.metadata.stream_seq == seq
            message.ack()
    assert asked == []
    assert consumer.info().name == "C"
    with pytest.raises(errors.ConfigError):
        quiet.push_consumer("P", "C", config=ConsumerConfig(durable_name="C"))


def test_stop_releases_a_blocked_next(js: JetStream) -> None:
    messages = push(js).messages()
    timer = threading.Timer(0.2, messages.stop)
    timer.start()
    with pytest.raises(errors.IteratorClosed):
        messages.next(timeout=20)
    timer.join()
    assert messages.closed
