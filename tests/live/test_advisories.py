"""Advisories as typed events, and the trace of a message."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.jetstream.advisories import (
    AckSample,
    Advisory,
    ConsumerAction,
    ConsumerPaused,
    ConsumerPinned,
    ConsumerUnpinned,
    MaxDeliveries,
    MessageNaked,
    MessageTerminated,
    OfConsumer,
    StreamAction,
    event_subject,
    parse_advisory,
)
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def stream(js: JetStream) -> Stream:
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    for number in range(3):
        js.publish(f"s.{number}", b"x")
    return stream


def test_naks_terms_and_max_deliveries(js: JetStream, stream: Stream, server: NatsServer) -> None:
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C", max_deliver=1, ack_wait=0.5, sample_freq="100"))
    with (
        js.advisories(MaxDeliveries, stream="S", consumer="C") as dead,
        js.advisories(MessageNaked) as naked,
        js.advisories(MessageTerminated, stream="S") as terminated,
        js.advisories(AckSample) as samples,
    ):
        js.nc.flush()
        js.publish("s.forgotten", b"x")
        first, second, third, _ = consumer.fetch(4, timeout=5)
        first.ack()
        second.nak()
        reason = "it is broken" if server.version >= (2, 10, 4) else ""
        third.term(reason) if reason else third.term()
        js.nc.flush()
        sample = samples.next(5)
        assert (sample.stream, sample.consumer, sample.stream_seq, sample.deliveries) == ("S", "C", 1, 1)
        assert sample.ack_time is not None
        assert 0 < sample.ack_time < 30
        assert naked.next(5).stream_seq == 2
        event = terminated.next(5)
        assert event.stream_seq == 3
        assert event.reason == reason
        assert event.timestamp is not None
        if server.version < (2, 10):
            return  # 2.9 says so only when it delivers something else
        with consumer.messages(expires=2, heartbeat=0.5):  # with a pull waiting the server looks at its limits
            gone = dead.next(10)
        assert (gone.stream, gone.consumer, gone.stream_seq, gone.deliveries) == ("S", "C", 4, 1)


def test_actions_on_streams_and_consumers(js: JetStream, stream: Stream) -> None:
    with js.advisories() as everything, js.advisories(StreamAction) as actions, js.advisories(ConsumerAction) as made:
        js.nc.flush()
        js.create_stream(StreamConfig(name="T"))
        js.delete_stream("T")
        stream.create_consumer(ConsumerConfig(durable_name="C"))
        stream.delete_consumer("C")
        assert [(event.stream, event.action) for event in (actions.next(5), actions.next(5))] == [
            ("T", "create"),
            ("T", "delete"),
        ]
        assert [event.action for event in (made.next(5), made.next(5))] == ["create", "delete"]
        kinds: set[str] = set()
        while not {"StreamAction", "ConsumerAction"} <= kinds:
            event = everything.next(5)
            assert event.raw["type"] == event.type
            kinds.add(type(event).__name__)


def test_pauses_and_pins(js: JetStream, stream: Stream, server: NatsServer) -> None:
    if server.version < (2, 11):
        pytest.skip("pauses and pins begin with nats-server 2.11")
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    pinned = stream.create_consumer(
        ConsumerConfig(durable_name="P", priority_groups=["g"], priority_policy="pinned_client")
    )
    with (
        js.advisories(ConsumerPaused) as pauses,
        js.advisories(ConsumerPinned) as pins,
        js.advisories(ConsumerUnpinned) as unpins,
    ):
        js.nc.flush()
        state = stream.pause_consumer("C", 60)
        event = pauses.next(5)
        assert (event.paused, event.pause_until) == (True, state.pause_until)
        stream.resume_consumer("C")
        event = pauses.next(5)
        assert (event.paused, event.pause_until) == (False, None)
        assert len(pinned.fetch(1, timeout=5, group="g")) == 1
        assert pins.next(5).group == "g"
        stream.unpin_consumer("P", "g")
        assert unpins.next(5).reason == "admin"


def test_callbacks_and_iteration(js: JetStream) -> None:
    seen: list[StreamAction] = []
    with js.advisories(StreamAction, callback=seen.append):
        js.nc.flush()
        js.create_stream(StreamConfig(name="T"))
        wait_until(lambda: len(seen) == 1, 5)
    events = js.advisories(StreamAction)
    js.nc.flush()
    js.delete_stream("T")
    threading.Timer(0.5, events.close).start()
    assert [event.action for event in events] == ["delete"]


@pytest.mark.parametrize(
    ("kind", "options", "subject"),
    [
        (Advisory, {}, "$JS.EVENT.ADVISORY.>"),
        (OfConsumer, {"stream": "S"}, "$JS.EVENT.ADVISORY.CONSUMER.*.S.*"),
        (MaxDeliveries, {"stream": "S", "consumer": "C"}, "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C"),
        (AckSample, {}, "$JS.EVENT.METRIC.CONSUMER.ACK.*.*"),
    ],
)
def test_subjects(kind: type[Advisory], options: dict[str, str], subject: str) -> None:
    assert event_subject(kind, **options) == subject


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Advisory, {"stream": "S"}), (StreamAction, {"consumer": "C"}), (MaxDeliveries, {"stream": "a.b"}), (dict, {})],
)
def test_subjects_that_do_not_exist(kind: Any, options: dict[str, str]) -> None:
    with pytest.raises(errors.ConfigError):
        event_subject(kind, **options)


def test_unknown_kinds_and_rubbish() -> None:
    event = parse_advisory(b'{"type":"io.nats.jetstream.advisory.v9.later","id":"1","thing":5}')
    assert type(event) is Advisory
    assert event.raw["thing"] == 5
    for data in (b"", b"[]", b"{}", b'{"type":5}'):
        with pytest.raises(errors.BadResponse):
            parse_advisory(data)
