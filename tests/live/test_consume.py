"""Consume with a handler, against a real server."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consumer import Consumer
from jsclient.jetstream.message import JetStreamMsg
from jsclient.testing import wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="H", subjects=["h.>"], storage="memory"))
    return js


def publish(js: JetStream, count: int) -> None:
    for number in range(1, count + 1):
        js.nc.publish("h.a", b"%d" % number)
    js.nc.flush()


def durable(js: JetStream, **config: Any) -> Consumer:
    return js.create_consumer("H", ConsumerConfig(durable_name="C", **config))


def test_the_handler_gets_every_message_in_order(js: JetStream) -> None:
    publish(js, 1000)
    consumer = durable(js)
    seen: list[int] = []

    def handler(message: JetStreamMsg) -> None:
        message.ack()
        seen.append(int(message.data))

    with consumer.consume(handler) as running:
        wait_until(lambda: len(seen) == 1000, 10)
        assert not running.closed
        assert not running.wait(timeout=0.05)
    assert running.closed
    assert running.wait(timeout=1)
    assert seen == list(range(1, 1001))


def test_workers_share_the_work(js: JetStream) -> None:
    publish(js, 8)
    together = threading.Barrier(4)

    def handler(message: JetStreamMsg) -> None:
        together.wait(10)
        message.ack()

    consumer = durable(js)
    with consumer.consume(handler, workers=4):
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 8, 10)


def test_stop_and_drain_in_the_handler(js: JetStream) -> None:
    publish(js, 10)
    consumer = durable(js)
    seen: list[int] = []
    assigned = threading.Event()

    def handler(message: JetStreamMsg) -> None:
        assert assigned.wait(5)
        message.ack()
        seen.append(1)
        if len(seen) == 3:
            running.stop()

    running = consumer.consume(handler)
    assigned.set()
    assert running.wait(timeout=5)
    assert len(seen) == 3
    running.stop()
    running.close()

    def draining(message: JetStreamMsg) -> None:
        ready.wait(5)
        message.ack()
        seen.append(1)
        again.drain()

    ready = threading.Event()
    again = consumer.consume(draining)
    ready.set()
    assert again.wait(timeout=5)


def test_stop_after_ends_it(js: JetStream) -> None:
    publish(js, 30)
    seen: list[int] = []

    def handler(message: JetStreamMsg) -> None:
        message.ack()
        seen.append(1)

    running = durable(js).consume(handler, workers=3, stop_after=20, max_messages=10)
    assert running.wait(timeout=10)
    assert len(seen) == 20


def test_fetch_consume_and_messages_at_once(js: JetStream) -> None:
    """The first example of nats.go's jetstream README."""
    for number in range(100):
        js.publish("h.new", b"hello message %d" % number)
    consumer = durable(js)
    seen: list[int] = []

    def take(message: JetStreamMsg) -> None:
        message.ack()
        seen.append(message.metadata.stream_seq)

    for message in consumer.fetch(10):
        take(message)
    assert seen == list(range(1, 11))
    with consumer.consume(take, max_messages=10), consumer.messages(max_messages=10) as messages:
        while len(seen) < 100:
            try:
                take(messages.next(timeout=0.2))
            except errors.NoMessages:
                pass
    assert sorted(set(seen)) == list(range(1, 101))
    wait_until(lambda: consumer.info().num_ack_pending == 0, 5)
