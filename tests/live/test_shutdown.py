"""close() and drain(): every blocked call is let go, nothing is cut short, interpreter exit flushes."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import ConnectionState, Msg, errors
from jsclient.connection import engine_of
from jsclient.jetstream import AsyncPublisher, ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until


def offline(nc: jsclient.Connection) -> bool:
    """The loss was noticed and what was queued is set aside: from now on publishes are counted."""
    return nc.state is ConnectionState.RECONNECTING and engine_of(nc).outbox.sender is None


class Blocked:
    """A call that blocks in a thread; `ended` says how it ended."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.ended.put(call())
        except BaseException as error:
            self.ended.put(error)


def blocking_calls(nc: jsclient.Connection) -> dict[str, Callable[[], Any]]:
    sub = nc.subscribe("block.none")
    js = JetStream(nc)
    js.create_or_update_stream(StreamConfig(name="BLOCK", subjects=["block.js"]))
    consumer = js.create_or_update_consumer("BLOCK", ConsumerConfig(durable_name="c"))
    nc.subscribe("block.silent", lambda message: None)
    nc.flush()
    return {
        "next": lambda: sub.next(timeout=60),
        "iteration": lambda: list(nc.subscribe("block.none")),
        "request": lambda: nc.request("block.silent", timeout=60),
        "request_many": lambda: list(nc.request_many("block.silent", timeout=60)),
        "inbox": lambda: engine_of(nc).open_inbox().next(60),
        "fetch": lambda: list(consumer.fetch(10, timeout=60)),
        "consumer next": lambda: consumer.next(timeout=60),
        "messages": lambda: list(consumer.messages()),
        "drain of a subscription": lambda: _undrained(nc).drain(timeout=60),
    }


def _undrained(nc: jsclient.Connection, flush: bool = True) -> jsclient.Subscription:
    sub = nc.subscribe("block.drain")
    nc.publish("block.drain", b"never taken")
    if flush:
        nc.flush()
    return sub


def test_close_releases_every_blocked_call(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    blocked = {name: Blocked(call) for name, call in blocking_calls(nc).items()}
    wait_until(lambda: len(engine_of(nc).requests.waiting) >= 2)
    start = time.monotonic()
    nc.close()
    for name, call in blocked.items():
        ended = call.ended.get(timeout=5)
        assert ended is None or isinstance(ended, (errors.JsClientError, list)), name
        assert isinstance(ended, (errors.ConnectionClosed, errors.DrainTimeout, list)), (name, ended)
        assert time.monotonic() - start < 1, name


@pytest.mark.slow
def test_close_releases_who_waits_for_a_silent_server(proxy: Proxy) -> None:
    """Both directions stalled: a flush, a request and a publisher that finds no room are let go within a second."""
    nc = jsclient.connect(proxy.url)
    nc.flush()
    proxy.stall()
    blocked = {
        "flush": Blocked(lambda: nc.flush(timeout=60)),
        "rtt": Blocked(lambda: nc.rtt(timeout=60)),
        "request": Blocked(lambda: nc.request("nobody", timeout=60)),
    }
    wait_until(lambda: len(engine_of(nc).session.pings.waiters) == 2)
    start = time.monotonic()
    closer = threading.Thread(target=nc.close, daemon=True)
    closer.start()
    for name, call in blocked.items():
        assert isinstance(call.ended.get(timeout=5), errors.ConnectionClosed), name
        assert time.monotonic() - start < 1, name
    closer.join(5)
    assert time.monotonic() - start < 4


def stuck_in_a_write(nc: jsclient.Connection, js: JetStream, proxy: Proxy) -> dict[str, Callable[[], Any]]:
    """Calls that send, on a link with buffers that are full or nearly so."""
    consumer = js.create_consumer("STUCK", ConsumerConfig(ack_policy="explicit"))
    js.publish("stuck.js", b"x")
    message = consumer.next(timeout=5)
    small = AsyncPublisher(js, max_pending=10)

    def publish(size: int) -> None:
        while True:
            nc.publish("stuck.core", b"x" * size)

    def publish_async() -> None:
        while True:
            small.publish("stuck.js", b"x")

    return {
        "publish": lambda: publish(100),
        "publish of large messages": lambda: publish(900_000),
        "another publish": lambda: publish(60_000),
        "publish with an ack": lambda: js.publish("stuck.js", b"x" * 500_000, timeout=60),
        "publish_async": publish_async,
        "request": lambda: nc.request("stuck.none", b"x" * 500_000, timeout=60),
        "flush": lambda: nc.flush(timeout=60),
        "next": lambda: consumer.next(timeout=60),
        "fetch": lambda: list(consumer.fetch(10, timeout=60)),
        "messages": lambda: list(consumer.messages()),
        "double_ack": lambda: message.double_ack(timeout=60),
        "drain of a subscription": lambda: _undrained(nc, flush=False).drain(timeout=60),
    }


@pytest.mark.parametrize("slow", [None, 200_000], ids=["stalled", "throttled"])
def test_close_releases_who_is_stuck_in_a_write(proxy: Proxy, slow: int | None) -> None:
    """The server takes nothing, or far too little to be waited for: everybody is let go within a second."""
    nc = jsclient.connect(proxy.url)
    js = JetStream(nc)
    js.create_or_update_stream(StreamConfig(name="STUCK", subjects=["stuck.js"]))
    calls = stuck_in_a_write(nc, js, proxy)
    if slow is None:
        proxy.stall()
    else:
        proxy.throttle(slow, "up")
    blocked = {name: Blocked(call) for name, call in calls.items()}
    wait_until(lambda: engine_of(nc).outbox.unsent > 0 and len(engine_of(nc).requests.waiting) >= 3, 10)
    start = time.monotonic()
    closer = Blocked(nc.close)
    late = {}
    for name, call in blocked.items():
        ended = call.ended.get(timeout=10)
        released = (errors.ConnectionClosed, errors.PublishUnknown, list)
        assert isinstance(ended, released) or name.startswith("drain"), (name, ended)
        late[name] = time.monotonic() - start
    assert max(late.values()) < 1, late
    assert closer.ended.get(timeout=5) is None


def test_close_releases_a_drain_that_waits_for_a_callback(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    started, release = threading.Event(), threading.Event()

    def hang(message: Msg) -> None:
        started.set()
        release.wait(20)

    subs = [nc.subscribe(f"hang.{n}", hang) for n in range(2)]
    nc.publish("hang.0")
    nc.publish("hang.1")
    assert started.wait(5)
    drains = [Blocked(lambda: subs[0].drain(timeout=60)), Blocked(lambda: nc.drain(timeout=60))]
    wait_until(lambda: all(sub.closed for sub in subs) and nc.is_draining)
    start = time.monotonic()
    nc.close()
    for drain in drains:
        assert isinstance(drain.ended.get(timeout=5), errors.DrainTimeout)
        assert time.monotonic() - start < 1
    release.set()


@pytest.mark.parametrize("call", ["flush", "request", "publish"])
def test_close_releases_who_waits_for_a_reconnect(proxy: Proxy, call: str) -> None:
    nc = jsclient.connect(proxy.url, pending_buffer=0, pending_block=60)
    proxy.refuse()
    wait_until(lambda: offline(nc))
    calls: dict[str, Callable[[], Any]] = {
        "flush": lambda: nc.flush(timeout=60),
        "request": lambda: nc.request("x", timeout=60),
        "publish": lambda: nc.publish("x", b""),
    }
    blocked = Blocked(calls[call])
    if call == "publish":
        wait_until(lambda: engine_of(nc).outbox.online.awaited)
    start = time.monotonic()
    nc.close()
    assert isinstance(blocked.ended.get(timeout=5), errors.ConnectionClosed)
    assert time.monotonic() - start < 1
    proxy.accept()


def test_requests_that_begin_during_close_do_not_hang(server: NatsServer) -> None:
    for _ in range(5):
        nc = jsclient.connect(server.url)
        nc.subscribe("silent", lambda message: None)
        nc.flush()

        def ask(nc: jsclient.Connection = nc) -> None:
            while True:
                try:
                    nc.request("silent", timeout=30)
                except errors.ConnectionClosed:
                    return

        calls = [Blocked(ask) for _ in range(8)]
        wait_until(lambda nc=nc: len(engine_of(nc).requests.waiting) >= 4)  # type: ignore[misc]
        nc.close()
        assert all(call.ended.get(timeout=2) is None for call in calls)


def test_subscriptions_that_begin_during_close_end(server: NatsServer) -> None:
    for _ in range(10):
        nc = jsclient.connect(server.url)

        def subscribe(nc: jsclient.Connection = nc) -> None:
            try:
                while True:
                    nc.subscribe("begin").next(timeout=0)
            except errors.TimedOut:
                nc.subscribe("begin").next(timeout=30)

        calls = [Blocked(subscribe) for _ in range(4)]
        nc.close()
        for call in calls:
            assert isinstance(call.ended.get(timeout=5), errors.ConnectionClosed)


def test_close_from_many_threads(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    calls = [Blocked(nc.close) for _ in range(16)]
    assert all(call.ended.get(timeout=5) is None for call in calls)
    assert nc.closed


def test_close_without_waiting(server: NatsServer) -> None:
    ended = threading.Event()
    nc = jsclient.connect(server.url, on_closed=lambda nc: ended.set())
    sub = nc.subscribe("soon")
    for _ in range(1000):
        nc.close(wait=False)
    with pytest.raises(errors.ConnectionClosed):
        sub.next(timeout=5)
    assert ended.wait(5)
    nc.close()


@pytest.mark.slow
def test_close_without_waiting_on_a_stalled_link(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url)
    sub = nc.subscribe("soon")
    proxy.stall()
    with pytest.raises(errors.BufferFull):
        engine_of(nc).outbox.write_timeout = 0.2
        while True:
            nc.publish("stalled", b"x" * 100_000)
    engine_of(nc).outbox.write_timeout = 10
    start = time.monotonic()
    nc.close(wait=False)
    with pytest.raises(errors.ConnectionClosed):
        sub.next(timeout=5)
    assert time.monotonic() - start < 1
    nc.close()


# --- drain ----------------------------------------------------------------------------------------------


def test_drain_delivers_everything_and_sends_the_answers(server: NatsServer) -> None:
    with jsclient.connect(server.url) as other:
        answers = other.subscribe("answers", pending_messages=10_000)
        other.flush()
        nc = jsclient.connect(server.url)

        def work(message: jsclient.Msg) -> None:
            time_passes(0.0005, "the callback takes its time")
            nc.publish("answers", message.data)

        for group in range(4):
            nc.subscribe(f"work.{group}", work)
        nc.flush()
        for number in range(800):
            other.publish(f"work.{number % 4}", b"%d" % number)
        other.flush()
        nc.drain(timeout=30)
        assert nc.closed
        other.flush()
        wait_until(lambda: answers.pending >= 800, 5)
        assert sorted(int(answers.next(timeout=0).data) for _ in range(800)) == list(range(800))


def test_draining_takes_nothing_new(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    release = threading.Event()
    sub = nc.subscribe("slow", lambda message: release.wait(20))
    nc.publish("slow", b"")
    nc.flush()
    drain = Blocked(lambda: nc.drain(timeout=20))
    wait_until(lambda: sub.closed)
    assert nc.is_draining
    assert nc.state is ConnectionState.DRAINING_SUBSCRIPTIONS
    with pytest.raises(errors.ConnectionDraining):
        nc.subscribe("new")
    nc.publish("callbacks.still.publish", b"")
    second = Blocked(lambda: nc.drain(timeout=20))
    third = Blocked(lambda: nc.drain(timeout=0.05))
    assert isinstance(third.ended.get(timeout=5), errors.DrainTimeout)
    assert not nc.closed, "a second drain must not cut the first one short"
    release.set()
    assert drain.ended.get(timeout=5) is None
    assert second.ended.get(timeout=5) is None
    assert nc.closed


def test_nothing_is_published_once_the_subscriptions_are_drained(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url)
    js = JetStream(nc)
    js.create_or_update_stream(StreamConfig(name="DRAIN", subjects=["drain.js"]))
    js.publish_async("drain.js", b"x").result(timeout=5)
    proxy.stall()
    drain = Blocked(lambda: nc.drain(timeout=20))
    wait_until(lambda: nc.state is ConnectionState.DRAINING_PUBLISHES)
    calls: dict[str, Callable[[], Any]] = {
        "publish": lambda: nc.publish("drain.core", b"x"),
        "publish with headers": lambda: nc.publish("drain.core", b"x", headers={"A": "b"}),
        "request": lambda: nc.request("drain.core", b"x", timeout=5),
        "request_many": lambda: list(nc.request_many("drain.core", b"x", timeout=5)),
        "subscribe": lambda: nc.subscribe("drain.new"),
        "publish with an ack": lambda: js.publish("drain.js", b"x", timeout=5),
        "publish_async": lambda: js.publish_async("drain.js", b"x"),
        "publish_async elsewhere": lambda: js.publish_async("drain.js.new", b"x", msg_id="1"),
    }
    ended = {name: Blocked(call).ended.get(timeout=8) for name, call in calls.items()}
    assert {name: type(end) for name, end in ended.items()} == dict.fromkeys(calls, errors.ConnectionDraining), ended
    proxy.resume()
    assert drain.ended.get(timeout=5) is None
    with pytest.raises(errors.ConnectionClosed):
        js.publish_async("drain.js", b"x")


def test_ctrl_c_in_a_drain_closes(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    started, release = threading.Event(), threading.Event()

    def hang(message: Msg) -> None:
        started.set()
        release.wait(20)

    nc.subscribe("slow", hang)
    nc.publish("slow")
    assert started.wait(5)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        nc.drain(timeout=20)
    timer.join()
    assert nc.closed
    assert nc.state is ConnectionState.CLOSED
    release.set()


def test_many_subscriptions_drain_in_one_round_trip(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url)
    taken: list[jsclient.Msg] = []
    for number in range(500):
        nc.subscribe(f"many.{number}", taken.append)
    for number in range(500):
        nc.publish(f"many.{number}")
    nc.flush()
    proxy.delay(0.05)
    start = time.monotonic()
    nc.drain(timeout=20)
    assert time.monotonic() - start < 2
    assert len(taken) == 500


def test_a_drain_that_takes_too_long_closes_all_the_same(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    release = threading.Event()
    nc.subscribe("slow", lambda message: release.wait(20))
    for _ in range(5):
        nc.publish("slow", b"")
    nc.flush()
    with pytest.raises(errors.DrainTimeout):
        nc.drain(timeout=0.2)
    assert nc.closed
    release.set()


def test_iterators_end_quietly_when_the_connection_drains(server: NatsServer) -> None:
    for _ in range(10):
        nc = jsclient.connect(server.url)
        sub = nc.subscribe("end")
        for _ in range(50):
            nc.publish("end", b"")
        nc.flush()
        takers = [Blocked(lambda sub=sub: len(list(sub))) for _ in range(3)]  # type: ignore[misc]
        nc.drain(timeout=10)
        counts = [taker.ended.get(timeout=5) for taker in takers]
        assert all(isinstance(number, int) for number in counts), counts
        assert sum(counts) == 50


def test_drain_while_reconnecting_closes(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url)
    proxy.refuse()
    wait_until(lambda: offline(nc))
    start = time.monotonic()
    nc.drain(timeout=20)
    assert nc.closed
    assert time.monotonic() - start < 2
    proxy.accept()


def test_drain_without_waiting_reports_to_on_error(server: NatsServer) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    release, ended = threading.Event(), threading.Event()
    nc = jsclient.connect(server.url, on_error=lambda _, error, sub: told.put(error), on_closed=lambda _: ended.set())
    nc.subscribe("slow", lambda message: release.wait(20))
    for _ in range(2):
        nc.publish("slow", b"")
    nc.flush()
    for _ in range(1000):
        nc.drain(timeout=0.1, wait=False)
    assert isinstance(told.get(timeout=5), errors.DrainTimeout)
    assert ended.wait(5)
    assert told.empty()
    release.set()


def test_a_link_lost_while_draining_ends_the_drain(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url)
    release = threading.Event()
    sub = nc.subscribe("slow", lambda message: release.wait(20))
    nc.publish("slow", b"")
    nc.flush()
    drains = [Blocked(lambda: nc.drain(timeout=20)) for _ in range(2)]
    wait_until(lambda: sub.closed)
    proxy.cut()
    wait_until(lambda: nc.closed)
    release.set()
    for drain in drains:  # also the one that only waits for the other
        assert isinstance(drain.ended.get(timeout=5), errors.DrainTimeout)
    assert nc.state is ConnectionState.CLOSED
