"""A drain loses nothing of a pull consumer with ack policy none, which counts as delivered what it has sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consumer import Consumer
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def other(server: NatsServer) -> Iterator[JetStream]:
    """Another connection, with the stream M."""
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="M", subjects=["m.>"], storage="memory"))
        yield js
        js.delete_stream("M")


@contextmanager
def full_flow(server: NatsServer, crowd: int) -> Iterator[None]:
    """A thread of another connection publishes without a pause, so many until the stream has them."""
    over = threading.Event()

    def publish() -> None:
        with jsclient.connect(server.url) as nc:
            js = JetStream(nc)
            while not over.is_set():
                for _ in range(crowd - 1):
                    nc.publish("m.a", b"x" * 64)
                js.publish("m.a", b"x" * 64)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)


def in_loop(consumer: Consumer, handle: Callable[[Any], None], told: list[Any]) -> tuple[Callable[[], None], Any]:
    """messages() in a thread; how to drain it, and how to wait for the end of its loop."""
    messages = consumer.messages(on_error=told.append)

    def loop() -> None:
        for message in messages:
            handle(message)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    return messages.drain, lambda: thread.join(20)


def by_consume(consumer: Consumer, handle: Callable[[Any], None], told: list[Any]) -> tuple[Callable[[], None], Any]:
    running = consumer.consume(handle, on_error=lambda error, message: told.append(error))
    return running.drain, lambda: running.wait(20)


@pytest.mark.parametrize("repeat", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
@pytest.mark.parametrize("crowd", [4, 2000])
@pytest.mark.parametrize("drained", ["itself", "connection"])
@pytest.mark.parametrize("take", [in_loop, by_consume])
def test_what_was_counted_as_delivered_is_handed_out(
    server: NatsServer, other: JetStream, take: Any, drained: str, crowd: int, repeat: int
) -> None:
    """The connection lost something in 8 to 11 of 12 drains, an iterator in 1 to 3."""
    other.create_consumer("M", ConsumerConfig(durable_name="C", ack_policy="none"))
    nc = jsclient.connect(server.url)
    seen: list[int] = []
    told: list[Any] = []
    with full_flow(server, crowd):
        consumer = JetStream(nc).consumer("M", "C")
        drain, wait = take(consumer, lambda message: seen.append(message.metadata.consumer_seq), told)
        wait_until(lambda: len(seen) > 500 * (repeat + 1), 20)
        (nc.drain if drained == "connection" else drain)()
        wait()
    info = other.consumer("M", "C").info()
    assert (len(seen), told) == (info.delivered.consumer_seq, [])
    assert seen == list(range(1, len(seen) + 1))
    nc.close()


@pytest.mark.parametrize("drained", ["itself", "connection"])
def test_a_drain_where_nothing_comes_ends_soon(server: NatsServer, other: JetStream, drained: str) -> None:
    """The pull is open, and would be for 30 s."""
    consumer = other.create_consumer("M", ConsumerConfig(durable_name="C", ack_policy="none"))
    other.publish("m.a", b"x")
    with jsclient.connect(server.url) as nc, JetStream(nc).consumer("M", "C").messages() as messages:
        messages.next(timeout=5)
        wait_until(lambda: consumer.info().num_waiting == 1, 5)
        begun = time.monotonic()
        (nc.drain if drained == "connection" else messages.drain)(timeout=20)
        assert time.monotonic() - begun < 2
        assert list(messages) == []
    wait_until(lambda: consumer.info().num_waiting == 0, 5)


@pytest.mark.parametrize("drained", ["itself", "connection"])
def test_a_drain_of_a_silent_server_ends_in_time(
    server: NatsServer, other: JetStream, proxy: Proxy, drained: str
) -> None:
    other.create_consumer("M", ConsumerConfig(durable_name="C", ack_policy="none"))
    other.publish("m.a", b"x")
    with jsclient.connect(proxy.url) as nc:
        messages = JetStream(nc).consumer("M", "C").messages()
        messages.next(timeout=5)
        proxy.stall()
        begun = time.monotonic()
        if drained == "itself":
            messages.drain(0.5)
        else:
            with pytest.raises(errors.DrainTimeout):
                nc.drain(0.5)
        assert time.monotonic() - begun < 1.5
        proxy.resume()
