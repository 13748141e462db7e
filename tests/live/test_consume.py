"""Consume with a handler, against a real server."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consumer import Consumer
from jsclient.jetstream.message import JetStreamMsg
from jsclient.testing import NatsServer, wait_until


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


def test_a_handler_that_raises_does_not_end_it(js: JetStream, caplog: pytest.LogCaptureFixture) -> None:
    publish(js, 10)
    failures: list[Exception] = []
    seen: list[int] = []

    def handler(message: JetStreamMsg) -> None:
        message.ack()
        seen.append(int(message.data))
        if int(message.data) % 2:
            raise ValueError(message.data.decode())

    with durable(js).consume(handler, on_error=failures.append):
        wait_until(lambda: len(seen) == 10, 5)
    assert [str(error) for error in failures] == ["1", "3", "5", "7", "9"]

    def bad_hook(error: Exception) -> None:
        raise RuntimeError("hook")

    publish(js, 10)
    with (
        caplog.at_level(logging.CRITICAL, "jsclient"),
        js.consumer("H", "C").consume(handler, on_error=bad_hook),
    ):
        wait_until(lambda: len(seen) == 20, 5)


def test_workers_share_the_work(js: JetStream) -> None:
    publish(js, 8)
    together = threading.Barrier(4)

    def handler(message: JetStreamMsg) -> None:
        together.wait(10)
        message.ack()

    consumer = durable(js)
    with consumer.consume(handler, workers=4):
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 8, 10)


def test_leaving_waits_for_the_handler_in_flight(js: JetStream) -> None:
    publish(js, 5)
    consumer = durable(js, ack_wait=2.0)
    started, release, finished = threading.Event(), threading.Event(), threading.Event()

    def handler(message: JetStreamMsg) -> None:
        started.set()
        release.wait(10)
        message.ack()
        finished.set()

    with consumer.consume(handler):
        assert started.wait(5)
        threading.Timer(0.2, release.set).start()
    assert finished.is_set()
    js.nc.flush()
    back: set[int] = set()
    while len(back) < 4:
        back.add(consumer.next(timeout=5).metadata.stream_seq)
    assert back == {2, 3, 4, 5}


def test_drain_handles_what_was_received(js: JetStream) -> None:
    publish(js, 100)
    consumer = durable(js)
    seen: list[int] = []

    def handler(message: JetStreamMsg) -> None:
        message.ack()
        seen.append(int(message.data))

    running = consumer.consume(handler)
    wait_until(lambda: len(seen) > 0, 5)
    running.drain()
    assert running.closed
    js.nc.flush()
    info = consumer.info()
    assert (info.num_ack_pending, info.delivered.stream_seq) == (0, len(seen))


def test_a_drain_that_takes_too_long_stops(js: JetStream) -> None:
    publish(js, 5)
    release = threading.Event()
    running = durable(js).consume(lambda message: release.wait(10))
    wait_until(lambda: running.messages.delivered == 1, 5)
    with pytest.raises(errors.DrainTimeout):
        running.drain(timeout=0.2)
    release.set()
    assert running.wait(timeout=5)


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


def test_a_deleted_consumer_ends_it_with_its_error(js: JetStream, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = []
    with caplog.at_level(logging.CRITICAL, "jsclient"):
        running = durable(js).consume(lambda message: None, workers=2, heartbeat=1, on_error=failures.append)
        wait_until(lambda: js.consumer("H", "C").info().num_waiting == 1, 5)
        started = time.monotonic()
        js.delete_consumer("H", "C")
        with pytest.raises(errors.ConsumerDeleted):
            running.wait(timeout=10)
    assert time.monotonic() - started < 3
    assert isinstance(running.error, errors.ConsumerDeleted)
    assert len([error for error in failures if isinstance(error, errors.ConsumerDeleted)]) == 1


def test_closing_the_connection_ends_it(server: NatsServer, js: JetStream) -> None:
    durable(js)
    nc = jsclient.connect(server.url)
    running = JetStream(nc).consumer("H", "C").consume(lambda message: None)
    nc.close()
    assert running.wait(timeout=5)


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


@pytest.mark.parametrize(("handler", "workers"), [(None, 1), ("text", 1), (print, 0)])
def test_wrong_arguments_are_refused(js: JetStream, handler: Any, workers: int) -> None:
    with pytest.raises(errors.ConfigError):
        durable(js).consume(handler, workers=workers)
