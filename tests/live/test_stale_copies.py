"""Confirmed acks of messages from before a crash of the server: what it has forgotten is told apart, not waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig, double_ack_many
from jsclient.testing import NatsServer, wait_until

COPIES = 66


@pytest.fixture
def js() -> Iterator[JetStream]:
    """A server of its own: it is killed."""
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        for number in range(100):
            nc.publish("s.a", b"%d" % number)
        nc.flush()
        js.create_consumer("S", ConsumerConfig(durable_name="C", ack_wait=2))
        js.crash = lambda: crash(server, js)  # type: ignore[attr-defined]
        yield js


def crash(server: NatsServer, js: JetStream) -> None:
    server.kill()
    server.start()
    wait_until(lambda: js.nc.is_connected, 10)
    wait_until(lambda: js.stream_names() and js.consumer_info("S", "C"), 10)


def one_by_one(messages: list[JetStreamMsg]) -> set[int]:
    confirmed = set()
    for message in messages:
        try:
            message.double_ack(timeout=2)
            confirmed.add(message.metadata.stream_seq)
        except errors.StaleDelivery:
            pass
    return confirmed


def together(messages: list[JetStreamMsg]) -> set[int]:
    return {message.metadata.stream_seq for message in double_ack_many(messages, timeout=20).confirmed}


@pytest.mark.parametrize("ack", [one_by_one, pytest.param(together, marks=pytest.mark.slow)])
def test_stale_copies_are_not_waited_for(js: Any, ack: Callable[[list[JetStreamMsg]], set[int]]) -> None:
    consumer = js.consumer("S", "C")
    messages = list(consumer.fetch(100, timeout=5))
    for message in messages[: 100 - COPIES]:
        message.double_ack()
    js.crash()
    started = time.monotonic()
    confirmed = ack(messages[100 - COPIES :])
    assert time.monotonic() - started < 5
    # What was not confirmed comes again, and then it can be confirmed.
    left = set(range(100 - COPIES + 1, 101)) - confirmed
    deadline = time.monotonic() + 20
    while left:
        for message in consumer.fetch(100, timeout=3):
            message.double_ack()
            left.discard(message.metadata.stream_seq)
        assert time.monotonic() < deadline


def test_stale_copies_of_a_push_consumer_are_not_waited_for(js: Any) -> None:
    config = ConsumerConfig(durable_name="P", deliver_subject="to.p", ack_policy="explicit", ack_wait=20)
    with js.create_push_consumer("S", config).messages(leave_buffered=True) as pushed:
        messages = [pushed.next(timeout=5) for _ in range(100)]
        for message in messages[:80]:
            message.double_ack()
        js.crash()
        started = time.monotonic()
        one_by_one(messages[80:])
        assert time.monotonic() - started < 5


def test_a_confirmation_that_is_only_slow_is_waited_for(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
        js.publish("s.a", b"1")
        message = js.create_consumer("S", ConsumerConfig(durable_name="C")).next(timeout=5)
        server.pause()
        try:
            started = time.monotonic()
            with pytest.raises(errors.RequestTimeout):
                message.double_ack(timeout=1.2)
            assert 1.1 < time.monotonic() - started < 2
        finally:
            server.resume()
        message.double_ack(timeout=5)  # the first one has arrived meanwhile: acked twice is acked
        js.delete_stream("S")
