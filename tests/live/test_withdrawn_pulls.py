"""How pulls and subscriptions end on the server: at once, and what was given back does not come again to its giver."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

Count = Callable[[int, int], int]


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="W", subjects=["w.>"], storage="memory"))
    return js


def waiting(js: JetStream) -> int:
    info = js.consumer_info("W", "C")
    return info.num_waiting or int(info.push_bound)


def test_stop_takes_the_pull_back_at_once(js: JetStream) -> None:
    consumer = js.create_consumer("W", ConsumerConfig(durable_name="C"))
    messages = consumer.messages()
    with pytest.raises(errors.NoMessages):
        messages.next(timeout=0.01)
    wait_until(lambda: waiting(js) == 1, 5)
    messages.stop()
    wait_until(lambda: waiting(js) == 0, 2)
    js.publish("w.a", b"for somebody else")
    assert consumer.next(timeout=2).metadata.num_delivered == 1
    messages.close()


def test_stop_unsubscribes_push_at_once(js: JetStream) -> None:
    config = ConsumerConfig(durable_name="C", deliver_subject=js.nc.new_inbox())
    messages = js.create_push_consumer("W", config).messages()
    wait_until(lambda: waiting(js) == 1, 5)
    messages.stop()
    wait_until(lambda: waiting(js) == 0, 2)
    messages.close()


def test_stop_in_a_signal_handler_takes_the_pull_back_at_once(server: NatsServer, js: JetStream, count: Count) -> None:
    """The handler may interrupt its own thread anywhere, also within a subscription."""
    consumer = js.create_consumer("W", ConsumerConfig(durable_name="C"))
    before = signal.getsignal(signal.SIGALRM)
    try:
        for number in range(count(50, 5)):
            messages = consumer.messages()
            stopped = threading.Event()

            def stop(*_: Any, messages: Any = messages, stopped: Any = stopped) -> None:
                messages.stop()
                stopped.set()

            with pytest.raises(errors.NoMessages):
                messages.next(timeout=0.01)
            signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + number * 0.0003)
            while not stopped.is_set():
                js.nc.subscribe("nobody.here").close()
            with jsclient.connect(server.url) as other:
                wait_until(lambda other=other: waiting(JetStream(other)) == 0, 2)  # type: ignore[misc]
            messages.close()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_orderly_ends_double_nothing_and_hold_nothing_back(js: JetStream, count: Count) -> None:
    for round_ in range(count(20, 5)):
        total = 60
        consumer = js.create_consumer("W", ConsumerConfig(durable_name="C", ack_wait=30))
        for number in range(total):
            js.nc.publish("w.a", b"%d" % number)
        js.nc.flush()
        seen: list[int] = []
        enough = threading.Event()

        def handle(message: Any, seen: list[int] = seen, enough: threading.Event = enough) -> None:
            seen.append(message.metadata.stream_seq)
            message.ack()
            if len(seen) >= 5:
                enough.set()

        with consumer.consume(handle, workers=1 + round_ % 3, max_messages=20) as running:
            assert enough.wait(10)
            running.stop()
            assert running.wait(10)
        started = time.monotonic()
        while len(seen) < total:
            for message in consumer.fetch(total - len(seen), timeout=5):
                seen.append(message.metadata.stream_seq)
                message.ack()
            assert time.monotonic() - started < 5, f"round {round_}: {total - len(seen)} held back"
        assert len(set(seen)) == total, f"round {round_}: delivered twice"
        js.delete_consumer("W", "C")
        js.stream("W").purge()


def test_what_a_forgotten_iterator_holds_goes_back(js: JetStream) -> None:
    consumer = js.create_consumer("W", ConsumerConfig(durable_name="C", ack_wait=30))
    for _ in range(10):
        js.publish("w.a", b"x")
    messages = [consumer.messages()]
    messages[0].next(timeout=5).ack()
    wait_until(lambda: messages[0].buffered == 9, 5)
    messages.clear()
    gc.collect()
    assert len(consumer.fetch(9, timeout=5)) == 9
