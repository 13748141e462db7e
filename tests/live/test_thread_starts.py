"""Threads that die before they begin, for want of memory: whoever starts one is told, and what needs it comes later.

CPython's `Thread.start` waits for ever for such a thread. What begins with NoThread, and leaves nothing behind, stands
in tests/faults/test_exhaustion_process.py for both ways in which a thread does not begin.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.threads_rig import no_threads

import jsclient
from jsclient import errors, threads
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture(autouse=True)
def nobody_waits_for_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a thread is dead is known at once."""
    monkeypatch.setattr(threads, "LOOKS", 10_000)


@pytest.mark.parametrize("role", ["connect", "reader"])
def test_a_connection_comes_back_when_there_are_threads(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    lost: list[str] = []
    with jsclient.connect(proxy.url, on_disconnected=lambda nc, error: lost.append(str(error))) as nc:
        sub = nc.subscribe("threads")
        nc.flush()
        with no_threads(monkeypatch, "dead", f"jsclient-{role}-") as dead:
            proxy.cut()
            wait_until(lambda: dead, 20)
            wait_until(lambda: lost, 20)
        if role == "reader":  # a link without a reader counts as connected until it is given up, and told of
            wait_until(lambda: sum("no thread to read" in text for text in lost) == len(dead), 20)
        wait_until(lambda: nc.is_connected, 20)
        nc.flush(20)
        nc.publish("threads", b"x")
        assert sub.next(timeout=20).data == b"x"


def test_a_first_link_that_has_no_reader_is_replaced(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with no_threads(monkeypatch, "dead", "jsclient-reader-") as dead:
        nc = jsclient.connect(server.url)
        assert dead
    with nc:
        wait_until(lambda: nc.is_connected, 20)
        nc.flush(20)


@pytest.mark.parametrize("role", ["flush", "connect"])
def test_a_connection_that_cannot_begin_says_so(server: NatsServer, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    before = set(threading.enumerate())
    with (
        no_threads(monkeypatch, "dead", f"jsclient-{role}-") as dead,
        pytest.raises(errors.NoThread, match="a connection needs 1 thread and got 0: "),
    ):
        jsclient.connect(server.url)
    assert len(dead) == 1
    wait_until(lambda: set(threading.enumerate()) <= before, 20)


def test_callbacks_come_when_there_are_threads(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    told: list[str] = []
    with jsclient.connect(server.url, on_reconnected=lambda nc: told.append("again")) as nc:
        nc.subscribe("shared", lambda message: taken.append(message.subject))
        nc.subscribe("own", lambda message: taken.append(message.subject), thread="own")
        nc.flush()
        with no_threads(monkeypatch, "dead", "jsclient-worker-") as dead:
            nc.publish("shared")
            nc.publish("own")
            nc.flush(20)
            wait_until(lambda: len(dead) >= 4, 20)
        wait_until(lambda: sorted(taken) == ["own", "shared"], 20)
        with no_threads(monkeypatch, "dead", "jsclient-events-") as dead:
            nc.force_reconnect()
            wait_until(lambda: dead, 20)
            wait_until(lambda: nc.stats().reconnects >= 1 and nc.is_connected, 20)
        wait_until(lambda: told == ["again"], 20)


def test_no_memory_to_tell_an_error_with_ends_no_callbacks(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker died with the turn of its subscription, which was deaf from then on."""
    taken: list[bytes] = []

    def take(message: Any) -> None:
        taken.append(message.data)
        if message.data == b"1":
            raise MemoryError

    def tell(*args: Any) -> None:
        raise MemoryError

    with jsclient.connect(server.url) as nc:
        nc.subscribe("deaf", take)
        monkeypatch.setattr(engine_of(nc), "report_error", tell)
        for data in (b"1", b"2"):
            nc.publish("deaf", data)
        wait_until(lambda: taken == [b"1", b"2"], 20)
        monkeypatch.undo()


def test_a_drain_in_the_background_comes_when_there_are_threads(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc = jsclient.connect(server.url)
    with no_threads(monkeypatch, "dead", "jsclient-worker-drain-") as dead:
        nc.drain(wait=False)
        wait_until(lambda: dead, 20)
    wait_until(lambda: nc.closed, 20)


def test_a_name_is_resolved_when_there_are_threads(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"nats://localhost:{server.port}"
    with (
        no_threads(monkeypatch, "dead", "jsclient-resolve-") as dead,
        pytest.raises(errors.ConnectFailed, match="no thread to resolve 'localhost'"),
    ):
        jsclient.connect(url)
    assert dead
    jsclient.connect(url).close()


def test_no_message_is_lost_by_a_consume_that_cannot_begin(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its threads have begun, and end; the messages go to the next one."""
    begun: list[threading.Thread] = []
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        consumer = js.create_consumer("S", ConsumerConfig(durable_name="C", ack_wait=60))
        for _ in range(10):
            js.publish("s.a")

        def take(message: Any) -> None:
            begun.append(threading.current_thread())
            message.ack()

        with (
            no_threads(monkeypatch, "dead", r"jsclient-worker-.*-1$") as dead,
            pytest.raises(errors.NoThread, match="2 threads and got 1: no thread .*: it died before it began"),
        ):
            consumer.consume(take, workers=2)
        assert dead
        with consumer.consume(take, workers=2):
            wait_until(lambda: len(begun) >= 10, 20)
        wait_until(lambda: not any(thread.is_alive() for thread in begun), 20)
        assert len(begun) == 10
        js.delete_stream("S")
