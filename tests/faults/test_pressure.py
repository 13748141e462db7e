"""Slow handlers, many threads, full buffers: nobody else suffers, memory is bounded, every drop is told once."""

from __future__ import annotations

import gc
import queue
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import jsclient
from jsclient import ReconnectPolicy, errors
from jsclient.testing import NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]


def test_a_blocked_callback_holds_up_nobody(server: NatsServer) -> None:
    """Another subscription receives 14 MB meanwhile; the server does not drop us; the overflow is told once."""
    go_on = threading.Event()
    reports: queue.SimpleQueue[tuple[BaseException, Any]] = queue.SimpleQueue()
    slow_before = server.monitor("varz")["slow_consumers"]
    with (
        jsclient.connect(server.url, on_error=lambda nc, error, sub: reports.put((error, sub))) as nc,
        jsclient.connect(server.url) as other,
    ):
        blocked = nc.subscribe("blocked", lambda message: go_on.wait(30) and None, pending_messages=100)
        free = nc.subscribe("free", pending_bytes=1 << 30)
        nc.flush()
        started = time.monotonic()
        for _ in range(500):
            other.publish("blocked", b"x" * 100)
        for _ in range(14_000):
            other.publish("free", b"y" * 1000)
        for _ in range(14_000):
            assert free.next(timeout=5).payload == b"y" * 1000
        assert time.monotonic() - started < 2 * 2
        error, subscription = reports.get(timeout=5)
        assert isinstance(error, errors.SlowConsumer)
        assert subscription is blocked
        assert blocked.dropped >= 390
        assert nc.health().slow_consumers == 1
        with pytest.raises(queue.Empty):
            reports.get(timeout=0.1)
        go_on.set()
        assert nc.stats().reconnects == 0
    assert server.monitor("varz")["slow_consumers"] == slow_before


def test_publishing_while_disconnected_is_bounded(server: NatsServer) -> None:
    """The limit counts frame + 64 B; a full buffer raises at once; what was accepted arrives, in order."""
    limit = 4 << 20
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as other:
        subscription = other.subscribe("kept", pending_messages=1_000_000)
        other.flush()
        with jsclient.connect(
            f"nats://127.0.0.1:{proxy.port}", pending_buffer=limit, reconnect=ReconnectPolicy(delay=lambda n: 0.05)
        ) as nc:
            nc.flush()
            proxy.refuse()
            wait_until(lambda: not nc.is_connected)
            gc.collect()
            tracemalloc.start()
            base = tracemalloc.get_traced_memory()[0]
            accepted = 0
            with pytest.raises(errors.BufferFull):
                for number in range(100_000):
                    nc.publish("kept", b"%06d" % number + b"x" * 94)
                    accepted += 1
            grown = tracemalloc.get_traced_memory()[1] - base
            tracemalloc.stop()
            frame = len(b"PUB kept 100\r\n\r\n") + 100
            assert accepted == limit // (frame + 64)
            assert grown < limit + (2 << 20)
            assert nc.health().buffered_bytes == accepted * frame
            started = time.monotonic()
            with pytest.raises(errors.BufferFull):
                nc.publish("kept", b"x" * 100)
            assert time.monotonic() - started < 0.5
            proxy.accept()
            for number in range(accepted):
                assert subscription.next(timeout=20).payload.startswith(b"%06d" % number)


def test_blocking_while_disconnected_by_choice(server: NatsServer) -> None:
    with Proxy(server.port) as proxy:
        with jsclient.connect(
            f"nats://127.0.0.1:{proxy.port}",
            pending_buffer=1000,
            pending_block=0.3,
            reconnect=ReconnectPolicy(delay=lambda n: 0.05),
        ) as nc:
            proxy.refuse()
            wait_until(lambda: not nc.is_connected)
            nc.publish("a", b"x" * 800)
            started = time.monotonic()
            with pytest.raises(errors.BufferFull):
                nc.publish("a", b"x" * 800)
            assert 0.25 < time.monotonic() - started < 3
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(nc.publish, "a", b"x" * 10)
                assert waiting.exception(10) is None, "this one fits"
            proxy.accept()
            wait_until(lambda: nc.is_connected)
            nc.flush(timeout=10)


def test_no_buffer_means_failing_at_once(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}", pending_buffer=0) as nc:
        proxy.refuse()
        wait_until(lambda: not nc.is_connected)
        with pytest.raises(errors.BufferFull):
            nc.publish("a", b"")
        with pytest.raises((errors.TimedOut, errors.ConnectionLost)):
            nc.request("a", timeout=0.2)


@pytest.mark.timeout(180)
def test_many_threads_on_one_connection(server: NatsServer, count: Count) -> None:
    """64 threads publish, request and subscribe: no protocol error, no lost reply, the order of each thread kept."""
    publishes, requests = count(500, 100), count(100, 20)
    errors_seen: list[BaseException] = []
    with (
        jsclient.connect(server.url, on_error=lambda nc, error, sub: errors_seen.append(error)) as nc,
        jsclient.connect(server.url) as service,
    ):
        service.subscribe("echo.*", lambda message: message.respond(message.payload), queue="echo")
        collected = service.subscribe("load.*", pending_messages=10_000_000)
        service.flush()
        stop = threading.Event()

        def publish(number: int) -> None:
            for index in range(publishes):
                nc.publish(f"load.{number}", b"%d" % index)

        def ask(number: int) -> None:
            for index in range(requests):
                text = b"%d-%d" % (number, index)
                assert nc.request(f"echo.{number}", text, timeout=30).payload == text

        def churn(number: int) -> None:
            while not stop.is_set():
                with nc.subscribe(f"churn.{number}") as subscription:
                    nc.publish(f"churn.{number}", b"x")
                    assert subscription.next(timeout=30).payload == b"x"

        with ThreadPoolExecutor(64 + 64 + 8) as pool:
            churning = [pool.submit(churn, number) for number in range(8)]
            working = [pool.submit(publish, number) for number in range(64)]
            working += [pool.submit(ask, number) for number in range(64)]
            for future in working:
                future.result(120)
            stop.set()
            for future in churning:
                future.result(60)
        nc.flush(timeout=30)
        seen = [0] * 64
        for _ in range(64 * publishes):
            message = collected.next(timeout=30)
            number = int(message.subject.split(".")[1])
            assert int(message.payload) == seen[number], "order of a thread"
            seen[number] += 1
        assert seen == [publishes] * 64
        assert nc.stats().reconnects == 0
    assert errors_seen == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer signal")
@pytest.mark.parametrize("call", ["publish", "next", "request"])
def test_calls_in_a_signal_handler(server: NatsServer, count: Count, call: str) -> None:
    """A timer signal every millisecond publishes and asks others to close, while the main thread works."""
    fired = 0
    wanted = count(1000, 100)
    spare = [jsclient.connect(server.url) for _ in range(3)]
    with jsclient.connect(server.url) as nc:
        subscription = nc.subscribe("mine", pending_messages=10_000_000)
        nc.subscribe("echo", lambda message: message.respond(message.payload))
        nc.flush()

        def handler(number: int, frame: Any) -> None:
            nonlocal fired
            fired += 1
            nc.publish("mine", b"from the handler")
            if fired % 20 == 0 and spare:
                spare.pop().close(wait=False)

        previous = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            while fired < wanted:
                if call == "publish":
                    nc.publish("mine", b"main")
                elif call == "next":
                    subscription.next(timeout=10)
                else:
                    assert nc.request("echo", b"x", timeout=10).payload == b"x"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert nc.stats().reconnects == 0
        nc.flush()
    for left in spare:
        left.close()
