"""Links that are half dead: stalled, throttled, slow. Noticed in time, senders let go at their deadline."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

SCHEDULING = 0.1
"""Seconds that a loaded machine may take to run a thread that is due."""


@pytest.mark.parametrize("blocked", [False, True])
def test_a_link_stalled_in_both_directions_is_noticed(proxy: Proxy, blocked: bool) -> None:
    """Ping 1 s x 2: within 3 s, also while every thread of the application blocks."""
    lost: queue.SimpleQueue[Any] = queue.SimpleQueue()
    release = threading.Event()
    with jsclient.connect(
        proxy.url, ping_interval=1, max_pings_out=2, on_disconnected=lambda _, error: lost.put(error)
    ) as nc:
        sub = nc.subscribe("stall", (lambda message: release.wait(20)) if blocked else None)
        nc.publish("stall", b"")
        nc.flush()
        start = time.monotonic()
        proxy.stall()
        error = lost.get(timeout=10)
        took = time.monotonic() - start
        proxy.resume()
        assert isinstance(error, errors.StaleConnection)
        assert 1.8 < took < 3 + SCHEDULING, f"{took:.2f} s"
        wait_until(lambda: nc.stats().reconnects == 1 and nc.is_connected, 10)
        nc.flush()
        release.set()
        assert sub.dropped == 0


def test_stalled_towards_us_only(proxy: Proxy) -> None:
    lost: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with jsclient.connect(proxy.url, ping_interval=0.1, on_disconnected=lambda _, error: lost.put(error)) as nc:
        proxy.stall("down")
        assert isinstance(lost.get(timeout=5), errors.StaleConnection)
        proxy.resume()
        wait_until(lambda: nc.is_connected)


def test_a_blocked_send_ends_at_its_deadline(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url, write_timeout=0.5, ping_interval=60) as nc:
        proxy.stall()
        slowest = 0.0
        with pytest.raises(errors.BufferFull, match="takes no data"):
            for _ in range(1000):
                start = time.monotonic()
                try:
                    nc.publish("blocked", b"x" * 100_000)
                finally:
                    slowest = max(slowest, time.monotonic() - start)
        assert slowest < 1.5, f"{slowest:.2f} s"
        proxy.resume()
        nc.flush(timeout=20)
        assert nc.stats().reconnects == 0


def test_many_blocked_senders_end_at_their_deadline(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url, write_timeout=0.5, ping_interval=60) as nc:
        proxy.stall()
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def publish() -> None:
            slowest = 0.0
            try:
                while True:
                    start = time.monotonic()
                    nc.publish("blocked", b"x" * 50_000)
                    slowest = max(slowest, time.monotonic() - start)
            except errors.BufferFull:
                ended.put(max(slowest, time.monotonic() - start))

        for _ in range(8):
            threading.Thread(target=publish, daemon=True).start()
        assert max(ended.get(timeout=30) for _ in range(8)) < 2.5
        assert nc.health().buffered_bytes < 4 * 1024 * 1024 + 8 * 50_000, "memory is bounded while it stalls"
        proxy.resume()
        nc.flush(timeout=20)


def test_a_stall_in_mid_frame_goes_on_at_the_right_byte(proxy: Proxy, server: NatsServer) -> None:
    """A deadline that expires in the middle of a frame leaves its tail for the next sender."""
    with jsclient.connect(proxy.url, write_timeout=0.2, ping_interval=60) as nc, jsclient.connect(server.url) as other:
        sub = other.subscribe("tail", pending_bytes=1 << 30)
        other.flush()
        proxy.stall("up")
        sent = 0
        timeouts = 0
        while timeouts < 3:
            try:
                nc.publish("tail", b"%07d" % sent + b"x" * 70_000)
                sent += 1
            except errors.BufferFull:
                timeouts += 1  # nothing of it is queued
        proxy.resume()
        nc.flush(timeout=20)
        wait_until(lambda: sub.pending == sent, 20, f"{sub.pending} of {sent}")
        assert [int(sub.next(timeout=1).data[:7]) for _ in range(sent)] == list(range(sent))


def test_timers_go_on_while_the_link_stalls(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url, ping_interval=60) as nc:
        proxy.stall()
        engine_of(nc).outbox.write_timeout = 0.1
        with pytest.raises(errors.BufferFull):
            while True:
                nc.publish("blocked", b"x" * 100_000)
        engine_of(nc).outbox.write_timeout = 10
        fired = threading.Event()
        start = time.monotonic()
        engine_of(nc).clock.call_later(0.05, fired.set)
        assert fired.wait(5)
        assert time.monotonic() - start < 1
        proxy.resume()


def test_a_throttled_link_is_slow_and_not_broken(proxy: Proxy, server: NatsServer) -> None:
    with jsclient.connect(proxy.url, ping_interval=0.5) as nc, jsclient.connect(server.url) as other:
        sub = other.subscribe("slow")
        other.flush()
        proxy.throttle(2_000_000, "up")
        for number in range(40):
            nc.publish("slow", b"%d" % number + b"x" * 50_000)
        nc.flush(timeout=20)
        wait_until(lambda: sub.pending == 40, 10)
        assert nc.stats().reconnects == 0


@pytest.mark.parametrize("chunk", [1, 7])
def test_tiny_segments(proxy: Proxy, chunk: int) -> None:
    with jsclient.connect(proxy.url) as nc:
        sub = nc.subscribe("tiny")
        nc.flush()
        proxy.limit(chunk)
        for number in range(30):
            nc.publish("tiny", b"%d" % number, headers={"a": "b"})
        assert [int(sub.next(timeout=10).data) for _ in range(30)] == list(range(30))


def test_pings_go_out_while_a_large_message_is_on_its_way(proxy: Proxy) -> None:
    """A payload that takes longer to arrive than the pings allow is no reason to give the link up: data is a sign of
    life, too."""
    with jsclient.connect(proxy.url, ping_interval=0.3, max_pings_out=2) as nc:
        sub = nc.subscribe("big")
        nc.publish("big", b"x" * 1_000_000)
        nc.flush()
        assert len(sub.next(timeout=5).data) == 1_000_000
        proxy.throttle(700_000, "down")
        nc.publish("big", b"y" * 1_000_000)
        assert len(sub.next(timeout=10).data) == 1_000_000
        assert nc.stats().reconnects == 0


def test_data_alone_does_not_hide_that_nothing_of_ours_arrives(proxy: Proxy, server: NatsServer) -> None:
    """Messages come in, pings are not answered: noticed, although later than on a silent link."""
    lost: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done = threading.Event()
    with (
        jsclient.connect(proxy.url, ping_interval=0.1, on_disconnected=lambda _, error: lost.put(error)) as nc,
        jsclient.connect(server.url) as other,
    ):
        nc.subscribe("flow", lambda message: None)
        nc.flush()

        def feed() -> None:
            while not done.wait(0.02):
                other.publish("flow", b"x")

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            proxy.stall("up")
            start = time.monotonic()
            assert isinstance(lost.get(timeout=5), errors.StaleConnection)
            assert 0.4 < time.monotonic() - start < 5
        finally:
            done.set()
            feeder.join(5)
        proxy.resume()
        wait_until(lambda: nc.is_connected)


def test_close_of_a_throttled_link_sends_what_it_can(
    proxy: Proxy, server: NatsServer, count: Callable[[int, int], int]
) -> None:
    with jsclient.connect(server.url) as other:
        sub = other.subscribe("closing")
        other.flush()
        nc = jsclient.connect(proxy.url)
        proxy.throttle(4_000_000, "up")
        for _ in range(40):
            nc.publish("closing", b"x" * 50_000)
        nc.close()
        wait_until(lambda: sub.pending == 40, 10, f"{sub.pending} of 40")
