"""What a network does to a connection: cuts at any byte, stalls, damaged bytes. It comes back by itself."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]

BACK_WITHIN = 2.0
"""Seconds after a cut; a loaded machine gets twice as much (reliability.md, section 2)."""


@pytest.fixture
def proxy(server: NatsServer) -> Iterator[Proxy]:
    with Proxy(server.port) as running:
        yield running


def url(proxy: Proxy) -> str:
    return f"nats://127.0.0.1:{proxy.port}"


def answers(nc: jsclient.Connection) -> bool:
    """The connection is up and goes all the way to the server and back."""
    if not nc.is_connected:
        return False
    try:
        nc.rtt(timeout=1)
    except (errors.ConnectionError_, errors.TimedOut):
        return False
    return True


@pytest.mark.timeout(300)
def test_cuts_at_random_bytes(proxy: Proxy, count: Count) -> None:
    """Also inside INFO, and between CONNECT and PONG: every other cut hits the handshake of the next link."""
    rng = random.Random(count(200, 20))
    slowest = 0.0
    with jsclient.connect(url(proxy), name="cuts") as nc:
        subscription = nc.subscribe("alive", max_messages=1_000_000)
        for number in range(count(200, 20)):
            before = proxy.cuts
            in_handshake = number % 2 == 1
            direction = "down" if rng.random() < 0.5 else "up"
            proxy.cut_after(rng.randrange(1, 700 if direction == "down" else 250), direction, reset=rng.random() < 0.5)
            if in_handshake:
                proxy.cut()
            expected = before + 1 + in_handshake

            def traffic(expected: int = expected) -> bool:
                if proxy.cuts >= expected:
                    return True
                try:
                    nc.publish("alive", b"x" * 50)
                    nc.flush_outbox()
                except errors.JsClientError:
                    pass
                return False

            wait_until(traffic, 20, f"cut {number} did not happen")
            started = time.monotonic()
            wait_until(lambda: answers(nc), 20, f"cut {number}: not connected again")
            slowest = max(slowest, time.monotonic() - started)
        while subscription.pending:
            subscription.next(timeout=5)
        nc.publish("alive", b"the end")
        while subscription.next(timeout=5).payload != b"the end":
            pass
        assert nc.stats().reconnects >= count(200, 20) // 2
    assert slowest < 2 * BACK_WITHIN


@pytest.mark.timeout(180)
def test_many_subscriptions_survive_cuts(proxy: Proxy, count: Count) -> None:
    total = count(10_000, 2_000)
    arrived: queue.SimpleQueue[str] = queue.SimpleQueue()
    with jsclient.connect(url(proxy)) as nc, jsclient.connect(url(proxy)) as other:
        subscriptions = [nc.subscribe(f"many.{number}") for number in range(total)]
        nc.flush()
        for cut in range(1, 6):
            proxy.cut()
            wait_until(lambda cut=cut: nc.stats().reconnects == cut and answers(nc) and answers(other), 20)
            for number in range(total):
                other.publish(f"many.{number}", b"%d" % cut)
            other.flush(timeout=20)
            for subscription in subscriptions:
                assert subscription.next(timeout=10).payload == b"%d" % cut
        assert arrived.empty()
        assert all(subscription.pending == 0 for subscription in subscriptions)


@pytest.mark.parametrize(
    "direction", ["both", pytest.param("down", marks=pytest.mark.slow), pytest.param("up", marks=pytest.mark.slow)]
)
def test_a_silent_link_is_noticed_by_pings(proxy: Proxy, direction: str) -> None:
    """Ping 1 s x 2: after 3 s, although the application only waits."""
    lost: queue.SimpleQueue[tuple[float, BaseException | None]] = queue.SimpleQueue()
    with jsclient.connect(
        url(proxy),
        ping_interval=1,
        max_pings_out=2,
        on_disconnected=lambda nc, error: lost.put((time.monotonic(), error)),
    ) as nc:
        subscription = nc.subscribe("nothing")
        nc.flush()
        started = time.monotonic()
        proxy.stall(direction)  # type: ignore[arg-type]
        with pytest.raises(errors.TimedOut):
            subscription.next(timeout=4)
        when, error = lost.get(timeout=4)
        assert isinstance(error, errors.StaleConnection)
        assert 1.9 <= when - started <= 2 * 3.5
        proxy.heal()
        proxy.cut()
        wait_until(lambda: answers(nc), 20)


def test_a_blocked_send_ends_at_its_deadline(proxy: Proxy) -> None:
    with jsclient.connect(url(proxy), write_timeout=0.5, pending_buffer=1 << 20) as nc:
        nc.flush()
        proxy.stall("up")
        started = time.monotonic()
        with pytest.raises(errors.TimedOut):
            while time.monotonic() - started < 20:
                nc.publish("big", b"x" * 500_000)
        assert time.monotonic() - started < 6
        with pytest.raises(errors.TimedOut):
            nc.flush(timeout=0.5)
        proxy.resume()
        nc.flush(timeout=20)


def test_a_request_across_a_cut_fails_at_once(proxy: Proxy) -> None:
    with jsclient.connect(url(proxy)) as nc:
        nc.subscribe("slow", lambda message: None)
        failed: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

        def ask() -> None:
            try:
                nc.request("slow", timeout=30)
            except errors.JsClientError as error:
                failed.put(error)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: nc.stats().messages_in >= 1)
        proxy.cut()
        assert isinstance(failed.get(timeout=5), errors.ConnectionLost)
        thread.join(5)


def test_the_remaining_count_of_auto_unsubscribe_survives(proxy: Proxy) -> None:
    with jsclient.connect(url(proxy)) as nc, jsclient.connect(url(proxy)) as other:
        subscription = nc.subscribe("five", max_messages=5)
        nc.flush()
        for _ in range(3):
            other.publish("five", b"before")
        other.flush()
        assert [subscription.next(timeout=5).payload for _ in range(3)] == [b"before"] * 3
        proxy.cut()
        wait_until(lambda: answers(nc) and answers(other), 20)
        for _ in range(5):
            other.publish("five", b"after")
        other.flush()
        got = []
        with pytest.raises(errors.SubscriptionClosed):
            while True:
                got.append(subscription.next(timeout=5).payload)
        assert got == [b"after"] * 2


def test_damaged_bytes_never_end_in_silence(proxy: Proxy, count: Count) -> None:
    """A byte in 997 is flipped: a protocol error and a new link, or an altered payload; messages go on coming."""
    rng = random.Random(1)
    with jsclient.connect(url(proxy), on_error=lambda *args: None) as nc, jsclient.connect(url(proxy)) as other:
        subscription = nc.subscribe("data", pending_messages=1_000_000)
        nc.flush()
        for number in range(count(60, 12)):
            proxy.corrupt(rng.randrange(997), "down", mask=rng.choice([0x01, 0x20, 0x80, 0xFF]))
            for _ in range(20):
                other.publish("data", b"x" * 100)
            wait_until(lambda: answers(nc) and answers(other), 20, f"damage {number}")
        proxy.heal()
        wait_until(lambda: answers(nc) and answers(other), 20)
        other.publish("data", b"the end")
        while subscription.next(timeout=10).payload != b"the end":
            pass


def test_a_slow_network_in_small_pieces(proxy: Proxy) -> None:
    """One byte per segment during the handshake, then small pieces: nothing depends on chunk borders."""
    proxy.limit(1)
    with jsclient.connect(url(proxy), connect_timeout=20) as nc:
        subscription = nc.subscribe("pieces")
        nc.publish("pieces", b"hello", headers={"A": "b"})
        assert subscription.next(timeout=10).payload == b"hello"
        proxy.limit(7)
        for size in (0, 1, 100, 5_000):
            nc.publish("pieces", b"x" * size)
            assert len(subscription.next(timeout=20).payload) == size
