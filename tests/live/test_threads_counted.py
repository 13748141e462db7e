"""Counts what many threads share: with the interpreter lock and, in `make test-pythons`, without it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

THREADS = 4

Count = Callable[[int, int], int]


@pytest.fixture(autouse=True)
def threads_change_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def at_once(target: Callable[[int], Any], threads: int = THREADS) -> None:
    """Run `target(number)` in threads that begin together; raises the first failure."""
    begun = threading.Barrier(threads)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        begun.wait(20)
        try:
            target(number)
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(50)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def test_publishes_and_requests_are_counted(server: NatsServer, count: Count) -> None:
    publishes, requests = count(20_000, 5_000), count(1_000, 200)
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        other.subscribe("counted.echo", lambda message: message.respond(b"x"))
        other.flush()
        nc.flush()
        before = nc.stats()

        def run(number: int) -> None:
            for _ in range(publishes):
                nc.publish("counted", b"x")
            for _ in range(requests):
                nc.request("counted.echo", b"x", timeout=20)

        at_once(run)
        nc.flush()
        after = nc.stats()
        assert after.messages_out - before.messages_out == THREADS * (publishes + requests)
        assert after.messages_in - before.messages_in == THREADS * requests
        assert nc.health().buffered_bytes == 0
        assert other.stats().messages_in == THREADS * requests


def test_a_flush_of_one_thread_confirms_what_it_has_sent(server: NatsServer, count: Count) -> None:
    """A PONG names no PING: threads that flush together must not get each other's."""
    with jsclient.connect(server.url) as nc:

        def run(number: int) -> None:
            subject = f"flushed.{number}"
            with nc.subscribe(subject) as sub:
                for turn in range(count(1_000, 150)):
                    nc.publish(subject, b"%d" % turn)
                    nc.flush(timeout=20)
                    assert sub.next(timeout=0).data == b"%d" % turn  # it came before the PONG

        at_once(run)
        assert nc.stats().reconnects == 0


def test_subscriptions_of_many_threads_get_their_own_messages(server: NatsServer, count: Count) -> None:
    with jsclient.connect(server.url) as nc:

        def run(number: int) -> None:
            for turn in range(count(1_000, 150)):
                subject = f"own.{number}.{turn}"
                with nc.subscribe(subject) as sub:
                    nc.publish(subject, subject.encode())
                    assert sub.next(timeout=20).data == subject.encode()

        at_once(run)
        assert nc.stats().subscriptions == 0


def test_a_callback_with_its_own_thread_has_one(server: NatsServer, count: Count) -> None:
    """Also while it ends, by an unsubscribe of another thread, and while messages still come."""
    with jsclient.connect(server.url) as nc:
        for turn in range(count(300, 40)):
            threads: set[int] = set()
            begun: list[int] = []

            def take(message: jsclient.Msg, threads: set[int] = threads, begun: list[int] = begun) -> None:
                threads.add(threading.get_ident())
                begun.append(1)

            subs = [nc.subscribe(f"single.{turn}", take, thread="own")]

            def publish(number: int, subs: list[jsclient.Subscription] = subs, turn: int = turn) -> None:
                for _ in range(20):
                    nc.publish(f"single.{turn}", b"x")
                if number == 0:
                    subs[0].unsubscribe(max_messages=30)

            at_once(publish)
            nc.flush()
            wait_until(lambda begun=begun, subs=subs: len(begun) >= 30 and subs[0].closed, 20)  # type: ignore[misc]
            assert len(threads) == 1, f"{len(threads)} threads in turn {turn}"


def test_of_many_threads_one_acks_a_message(server: NatsServer, count: Count) -> None:
    messages = count(2_000, 300)
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="ONE_ACK", subjects=["one.ack"], storage="memory"))
        consumer = js.create_consumer("ONE_ACK", ConsumerConfig(ack_policy="explicit", max_ack_pending=messages))
        for _ in range(messages):
            js.publish_async("one.ack", b"x")
        js.publish_async_complete(20)
        batch = consumer.fetch(messages, timeout=20)
        assert len(batch) == messages
        acked: list[int] = []
        steps = threading.Barrier(THREADS)

        def run(number: int) -> None:
            for message in batch:
                steps.wait(20)
                try:
                    message.ack()
                except errors.MsgAlreadyAcked:
                    continue
                acked.append(number)

        at_once(run)
        assert len(acked) == messages
        wait_until(lambda: consumer.info().num_ack_pending == 0, 20)
        js.delete_stream("ONE_ACK")


def test_messages_of_one_subscription_go_to_one_of_many_threads(server: NatsServer, count: Count) -> None:
    messages = count(20_000, 4_000)
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        sub = nc.subscribe("shared", pending_messages=10**6)
        nc.flush()
        got: list[bytes] = []

        def run(number: int) -> None:
            if number == 0:
                for at in range(messages):
                    other.publish("shared", b"%d" % at)
                other.flush()
                return
            while len(got) < messages:
                try:
                    got.append(sub.next(timeout=0.5).data)
                except errors.TimedOut:
                    continue

        at_once(run)
        assert sorted(map(int, got)) == list(range(messages))
        assert sub.dropped == 0
