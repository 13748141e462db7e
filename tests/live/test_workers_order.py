"""Order by key in a WorkerPool when deliveries are lost, and when the consumer is shared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until
from jsclient.waiting import Gate
from jsclient.workers import WorkerPool

ACK_WAIT = 2.0


@pytest.fixture
def stream(server: NatsServer) -> Iterator[Stream]:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        made = js.create_stream(StreamConfig(name="ORDER", subjects=["order.>"], storage="memory"))
        made.create_consumer(ConsumerConfig(durable_name="keyed", ack_wait=ACK_WAIT, max_ack_pending=-1))
        yield made
        js.delete_stream("ORDER")


def subject_of(message: Any) -> str:
    return str(message.subject)


class Seen:
    """What was handled, in this order."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, message: Any) -> None:
        self.numbers.append(int(message.data))


def lose_a_delivery(stream: Stream, proxy: Proxy, seen: Seen, held: int = 0) -> None:
    """0 is handled; 1 is sent down a link that then breaks; 2 is stored after it. `held`: what others hold."""
    info = stream.consumer("keyed").info
    stream.js.publish("order.a", b"0")
    wait_until(lambda: seen.numbers == [0] and info().num_ack_pending == held, 10)
    proxy.stall("down")
    stream.js.publish("order.a", b"1")
    wait_until(lambda: info().num_ack_pending == held + 1, 10)
    proxy.cut()
    proxy.resume()
    stream.js.publish("order.a", b"2")


def test_a_delivery_that_was_lost_with_its_link_is_waited_for(stream: Stream, server: NatsServer) -> None:
    seen = Seen()
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        consumer = JetStream(nc).consumer("ORDER", "keyed")
        with WorkerPool(consumer, seen, threads=3, key=subject_of) as pool:
            lose_a_delivery(stream, proxy, seen)
            wait_until(lambda: len(seen.numbers) == 3, 30)
            assert seen.numbers == [0, 1, 2]
            stream.js.publish("order.a", b"3")  # and it goes on
            wait_until(lambda: len(seen.numbers) == 4, 10)
            assert pool.snapshot().redelivered >= 1  # a machine that stands still lets ack_wait run out once more
        proxy.cut()


@pytest.mark.slow
def test_what_others_hold_is_not_waited_for(stream: Stream, server: NatsServer) -> None:
    """Two pools on one consumer: the order of a key is not promised, and a lost link must not stop them."""
    seen, held = Seen(), Gate()
    told: list[int] = []

    def hold(message: Any) -> None:
        told.append(int(message.data))
        held.wait(60)

    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        with WorkerPool(stream.consumer("keyed"), hold, threads=1, key=subject_of):
            stream.js.publish("order.held", b"100")
            wait_until(lambda: told == [100], 10)
            consumer = JetStream(nc).consumer("ORDER", "keyed")
            with WorkerPool(consumer, seen, threads=1, key=subject_of):
                lose_a_delivery(stream, proxy, seen, held=1)
                wait_until(lambda: 2 in seen.numbers, 30)
                held.set()
        proxy.cut()


def test_what_was_handled_is_not_handled_again_when_its_ack_was_lost(stream: Stream, server: NatsServer) -> None:
    seen = Seen()
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        info = stream.consumer("keyed").info
        begun, finish = Gate(), Gate()

        def handle(message: Any) -> None:
            begun.set()
            finish.wait(30)
            seen(message)

        with WorkerPool(JetStream(nc).consumer("ORDER", "keyed"), handle, threads=2, key=subject_of) as pool:
            stream.js.publish("order.a", b"0")
            assert begun.wait(10)
            proxy.stall("up")  # its ack goes nowhere
            finish.set()
            wait_until(lambda: pool.snapshot().handled == 1, 10)
            proxy.cut()
            proxy.resume("up")
            wait_until(lambda: info().num_ack_pending == 0, 30)
            assert seen.numbers == [0]
        proxy.cut()


def test_a_message_that_the_handler_gave_back_is_handled_again(stream: Stream) -> None:
    given: list[int] = []

    def handle(message: Any) -> None:
        given.append(int(message.data))
        if len(given) == 1:
            message.nak()

    with WorkerPool(stream.consumer("keyed"), handle, threads=2, key=subject_of):
        stream.js.publish("order.a", b"0")
        wait_until(lambda: given == [0, 0], 20)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_consumer_that_was_reset_begins_again(stream: Stream, server: NatsServer, threads: int) -> None:
    if server.version < (2, 14, 0):
        return  # it cannot be reset
    seen, lock = Seen(), threading.Lock()

    def handle(message: Any) -> None:
        with lock:
            seen(message)

    with WorkerPool(stream.consumer("keyed"), handle, threads=threads, key=subject_of):
        for number in range(3):
            stream.js.publish("order.a", b"%d" % number)
        wait_until(lambda: seen.numbers == [0, 1, 2], 10)
        stream.consumer("keyed").reset(1)
        wait_until(lambda: seen.numbers == [0, 1, 2, 0, 1, 2], 20)
