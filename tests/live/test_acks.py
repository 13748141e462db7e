"""What acks do on a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.deadline_rig import in_calm
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consumer import Consumer
from jsclient.jetstream.consuming.double_ack import double_ack_many
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="A", subjects=["a.>"], storage="memory"))
    for number in range(1, 11):
        js.publish("a.b", b"%d" % number)
    return js


def durable(js: JetStream, **config: Any) -> Consumer:
    return js.create_consumer("A", ConsumerConfig(durable_name="C", **config))


def test_a_confirmed_ack_is_known_to_the_server_when_it_returns(js: JetStream) -> None:
    consumer = durable(js)
    consumer.next().double_ack()
    assert consumer.info().ack_floor.stream_seq == 1


def test_a_plain_ack_arrives(js: JetStream) -> None:
    consumer = durable(js)
    for message in consumer.fetch(10):
        message.ack()
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 10, 5)


def test_nak_brings_it_back_at_once_or_later(js: JetStream) -> None:
    consumer = durable(js, ack_wait=30.0)
    consumer.fetch(10)[0].nak()
    again = consumer.next(timeout=5)
    assert (again.metadata.stream_seq, again.metadata.num_delivered) == (1, 2)
    started = time.monotonic()
    again.nak(delay=0.5)
    assert consumer.next(timeout=5).metadata.num_delivered == 3
    assert time.monotonic() - started > 0.4


def test_term_ends_it(js: JetStream, server: NatsServer) -> None:
    consumer = durable(js, ack_wait=1.0)
    advisories = js.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.A.C")
    js.nc.flush()
    message = consumer.next()
    if server.version < (2, 10, 4):
        with pytest.raises(errors.NotSupported):
            message.term("bad data")
        message.term()
    else:
        message.term("bad data")
        assert b'"reason":"bad data"' in advisories.next(timeout=5).data
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 1, 5)


def test_in_progress_restarts_the_clock(js: JetStream) -> None:
    def redelivered() -> int:
        consumer = durable(js, ack_wait=0.6, max_deliver=2)
        message = consumer.next()
        for _ in range(6):
            message.in_progress()
            js.nc.flush()
            time_passes(0.2, "in all it takes longer than ack_wait")
        count = consumer.info().num_redelivered
        message.double_ack()
        consumer.delete()
        return count

    assert in_calm(redelivered, calm=0.3) == 0


def test_one_ack_covers_all_before_it(js: JetStream) -> None:
    consumer = durable(js, ack_policy="all")
    batch = consumer.fetch(10)
    batch[6].double_ack()
    assert consumer.info().ack_floor.stream_seq == 7


def test_ack_and_next_in_one_frame(js: JetStream) -> None:
    consumer = durable(js, max_ack_pending=1)
    message = consumer.next()
    for expected in range(2, 11):
        message = message.ack_next(timeout=5)
        assert message.metadata.stream_seq == expected
    with pytest.raises(errors.NoMessages) as none:
        message.ack_next(timeout=0.2)
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 10, 5)
    if "acked;" in str(none.value):  # else the answer came late: it may be acked again
        with pytest.raises(errors.MsgAlreadyAcked):
            message.ack()


def test_many_acks_with_one_wait(js: JetStream) -> None:
    consumer = durable(js)
    batch = consumer.fetch(10)
    result = double_ack_many(batch[:8])
    assert result
    assert result.confirmed == list(batch[:8])
    assert consumer.info().ack_floor.stream_seq == 8
    with pytest.raises(errors.MsgAlreadyAcked):
        double_ack_many(batch)
    assert not batch[9].is_acked
    assert double_ack_many([]) == ([], [], [])


def test_ack_next_without_waiting(js: JetStream) -> None:
    consumer = durable(js)
    message = consumer.next(timeout=5)
    while True:
        started = time.monotonic()
        try:
            message = message.ack_next(timeout=0)
        except errors.NoMessages:
            break
    assert time.monotonic() - started < 0.5
    assert consumer.info().num_waiting == 0


def test_acks_of_a_deleted_consumer_are_not_confirmed(js: JetStream) -> None:
    batch = durable(js).fetch(5)
    js.delete_consumer("A", "C")
    result = double_ack_many(batch, timeout=2)
    assert not result
    assert result.unconfirmed == list(batch)
    assert [type(error) for error in result.errors] == [errors.NoResponders] * 5
    with pytest.raises(errors.NoResponders):
        batch[0].double_ack(timeout=2)
    assert not batch[0].is_acked


def test_acks_that_time_out_are_unknown_and_may_be_repeated(server: NatsServer, js: JetStream) -> None:
    batch = durable(js).fetch(5)
    server.pause()
    try:
        result = double_ack_many(batch, timeout=0.3)
        assert result.unconfirmed == list(batch)
        assert [type(error) for error in result.errors] == [errors.RequestTimeout] * 5
        with pytest.raises(errors.RequestTimeout):
            batch[0].double_ack(timeout=0.2)
    finally:
        server.resume()
    assert double_ack_many(batch, timeout=5)


def test_some_of_many_acks_fail_and_a_thousand_are_one_wait(js: JetStream) -> None:
    """Some belong to a consumer that is gone: each message is told apart."""
    for _ in range(1000):
        js.publish_async("a.b", b"x")
    js.publish_async_complete()
    first = js.create_consumer("A", ConsumerConfig(durable_name="one", max_ack_pending=2000))
    second = js.create_consumer("A", ConsumerConfig(durable_name="two", max_ack_pending=2000))
    mixed = [message for pair in zip(first.fetch(1000), second.fetch(1000), strict=True) for message in pair]
    js.delete_consumer("A", "two")
    result = double_ack_many(mixed, timeout=10)
    assert result.confirmed == mixed[::2]
    assert result.unconfirmed == mixed[1::2]
    assert all(isinstance(error, errors.NoResponders) for error in result.errors)
    assert first.info().num_ack_pending == 0
    assert not engine_of(js.nc).requests.waiting


def test_acks_while_disconnected_arrive_later(js: JetStream) -> None:
    with NatsServer() as other, jsclient.connect(other.url) as nc:
        elsewhere = JetStream(nc)
        elsewhere.create_stream(StreamConfig(name="A", subjects=["a.>"]))
        for _ in range(5):
            elsewhere.publish("a.b", b"x")
        consumer = elsewhere.create_consumer("A", ConsumerConfig(durable_name="C", ack_wait=60.0))
        batch = consumer.fetch(5)
        other.stop()
        wait_until(lambda: not nc.is_connected, 5)
        for message in batch:
            message.ack()
        other.start()
        wait_until(lambda: nc.is_connected, 10)
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 5)
