"""Callers read the socket themselves: that they do, and what happens when something else is wanted meanwhile."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until


def borrowed(nc: jsclient.Connection) -> int:
    link = engine_of(nc).session.link
    return 0 if link is None else link.reading.borrowed


def ask_until_borrowed(nc: jsclient.Connection, subject: str = "read.echo") -> None:
    """Requests one after the other until the reader has lent its right; a slow machine needs a few more."""
    before = borrowed(nc)
    for _ in range(5000):
        nc.request(subject, b"?", timeout=5)
        if borrowed(nc) > before + 3:
            return
    pytest.fail("the reader lends nothing")


@pytest.fixture
def echo(server: NatsServer) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url) as other:
        other.subscribe("read.echo", lambda message: message.respond(message.data))
        other.subscribe("read.silent", lambda message: None)
        other.flush()
        yield other


def filled(server: NatsServer, name: str, count: int) -> Any:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], storage="memory"))
        for number in range(count):
            nc.publish(f"{name}.x", b"%d" % number)
        nc.flush()
        wait_until(lambda: stream.info().state.messages == count, 20)


def consumer_of(nc: jsclient.Connection, name: str) -> Any:
    return JetStream(nc).create_consumer(name, ConsumerConfig(ack_policy="none"))


def test_who_waits_for_a_reply_reads_it(server: NatsServer, echo: jsclient.Connection) -> None:
    with jsclient.connect(server.url) as nc:
        for number in itertools.count(1):
            payload = b"%d" % number
            assert nc.request("read.echo", payload, timeout=5).data == payload
            if borrowed(nc) > 20:
                break
        assert nc.stats().messages_in == number
        with pytest.raises(errors.NoResponders):
            nc.request("read.nobody", timeout=5)
        with pytest.raises(errors.RequestTimeout):
            nc.request("read.silent", timeout=0.05)
        health = nc.health()
        assert health.last_frame_age is not None
        assert health.last_frame_age < 5


def test_who_waits_for_messages_reads_them(server: NatsServer) -> None:
    filled(server, "READA", 20_000)
    with jsclient.connect(server.url) as nc:
        with consumer_of(nc, "READA").messages(max_messages=500) as messages:
            numbers = [int(message.data) for message in itertools.islice(messages, 20_000)]
        assert numbers == list(range(20_000))
        assert borrowed(nc) > 3


def test_large_messages_are_the_readers(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="READL", subjects=["READL.>"], storage="memory"))
        for number in range(100):
            js.publish("READL.x", b"%06d" % number * 20_000)
        before = borrowed(nc)
        with consumer_of(nc, "READL").messages() as messages:
            numbers = [int(message.data[:6]) for message in itertools.islice(messages, 100)]
        assert numbers == list(range(100))
        assert borrowed(nc) - before < 20


def test_others_may_begin_to_wait_at_any_time(server: NatsServer, echo: jsclient.Connection) -> None:
    """One thread asks and asks; a subscription, a flush and requests of other threads are not held up by it."""
    stopping = threading.Event()
    slow: list[float] = []
    with jsclient.connect(server.url) as nc:

        def ask() -> None:
            while not stopping.is_set():
                nc.request("read.echo", b"1", timeout=5)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            wait_until(lambda: borrowed(nc) > 3, 10)
            for _ in range(50):
                start = time.monotonic()
                with nc.subscribe("read.other") as subscription:
                    nc.flush(timeout=5)
                    echo.publish("read.other", b"x")
                    assert subscription.next(timeout=5).data == b"x"
                assert nc.request("read.echo", b"2", timeout=5).data == b"2"
                slow.append(time.monotonic() - start)
        finally:
            stopping.set()
            thread.join()
    assert sorted(slow)[len(slow) // 2] < 0.1


def test_a_subscription_made_while_nobody_reads_is_served_at_once(
    server: NatsServer, echo: jsclient.Connection
) -> None:
    slow: list[float] = []
    with jsclient.connect(server.url) as nc:
        for _ in range(30):
            ask_until_borrowed(nc)
            with nc.subscribe("read.other") as subscription:
                start = time.monotonic()
                nc.publish("read.other", b"x")
                assert subscription.next(timeout=5).data == b"x"
                slow.append(time.monotonic() - start)
    assert sorted(slow)[len(slow) // 2] < 0.05


def test_a_dead_link_is_noticed_while_a_caller_reads(echo: jsclient.Connection) -> None:
    with (
        Proxy(int(echo.connected_url.rpartition(":")[2])) as proxy,
        jsclient.connect(proxy.url, ping_interval=0.4, max_pings_out=2) as nc,
    ):
        ask_until_borrowed(nc)
        proxy.stall()
        start = time.monotonic()
        with pytest.raises(errors.ConnectionLost):
            nc.request("read.echo", b"x", timeout=20)
        assert time.monotonic() - start < 3
        proxy.heal()
        wait_until(lambda: nc.is_connected, 10)
        ask_until_borrowed(nc)
        proxy.cut()
        wait_until(lambda: nc.stats().reconnects == 2, 10)
        ask_until_borrowed(nc)


@pytest.mark.parametrize("end", ["close", "drain", "cut"])
def test_a_caller_who_reads_is_let_go(echo: jsclient.Connection, end: str) -> None:
    with Proxy(int(echo.connected_url.rpartition(":")[2])) as proxy, jsclient.connect(proxy.url) as nc:
        ask_until_borrowed(nc)
        before = borrowed(nc)
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                nc.request("read.silent", timeout=20)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: borrowed(nc) > before or bool(engine_of(nc).requests.waiting), 5)
        start = time.monotonic()
        ends: dict[str, Callable[[], object]] = {"close": nc.close, "drain": nc.drain, "cut": proxy.cut}
        ends[end]()
        thread.join(10)
        assert time.monotonic() - start < 1
        assert isinstance(failures[0], errors.ConnectionLost if end == "cut" else errors.ConnectionClosed)


def test_messages_that_are_read_by_their_taker_are_stopped_at_once(server: NatsServer) -> None:
    filled(server, "READB", 3000)
    with jsclient.connect(server.url) as nc:
        for _ in range(5):
            messages = consumer_of(nc, "READB").messages()
            taken = []
            thread = threading.Thread(target=lambda: taken.extend(messages))  # noqa: B023
            thread.start()
            wait_until(lambda: len(taken) == 3000, 10)  # noqa: B023
            start = time.monotonic()
            messages.stop()
            thread.join(10)
            assert time.monotonic() - start < 0.5
            messages.close()


def test_takers_who_share_get_every_message_once(server: NatsServer) -> None:
    filled(server, "READC", 20_000)
    with jsclient.connect(server.url) as nc, consumer_of(nc, "READC").messages() as messages:
        shares: list[list[int]] = [[] for _ in range(4)]

        def take(share: list[int]) -> None:
            share.extend(int(message.data) for message in messages)

        threads = [threading.Thread(target=take, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(map(len, shares)) >= 20_000, 30)
        messages.stop()
        for thread in threads:
            thread.join(10)
        assert sorted(itertools.chain(*shares)) == list(range(20_000))
        assert all(share == sorted(share) for share in shares)


def test_acks_that_are_confirmed_amid_messages(server: NatsServer) -> None:
    """Two kinds of waiting in one thread, both on what comes over the same socket."""
    filled(server, "READD", 500)
    with jsclient.connect(server.url) as nc:
        consumer = JetStream(nc).create_consumer("READD", ConsumerConfig(ack_policy="explicit"))
        with consumer.messages(max_messages=100) as messages:
            for number, message in enumerate(itertools.islice(messages, 500)):
                assert int(message.data) == number
                message.double_ack(timeout=5)
        assert consumer.info().ack_floor.stream_seq == 500


def test_large_replies_come_in_many_chunks(server: NatsServer, echo: jsclient.Connection) -> None:
    with jsclient.connect(server.url) as nc:
        for size in (0, 1, 1000, 60_000, 200_000, 900_000):
            ask_until_borrowed(nc)
            for _ in range(5):
                assert len(nc.request("read.echo", b"x" * size, timeout=5).data) == size
