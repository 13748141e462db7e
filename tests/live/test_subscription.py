"""Subscriptions: iterator, next, callbacks, queue groups, limits, drains, slow consumers."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.testing import NatsServer, wait_until


def test_next_and_its_timeouts(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("next")
        with pytest.raises(errors.TimedOut, match="next"):
            sub.next(timeout=0.01)
        with pytest.raises(errors.TimedOut):
            sub.next(timeout=0)
        with pytest.raises(ValueError, match="timeout"):
            sub.next(timeout=-1)
        nc.publish("next", b"1")
        assert sub.next(timeout=None).data == b"1"


def test_wildcards(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        star, tail, exact = nc.subscribe("w.*.c"), nc.subscribe("w.>"), nc.subscribe("w.b.c")
        for subject in ("w.b.c", "w.x.c", "w.b", "w.b.c.d"):
            nc.publish(subject, subject)
        nc.flush()
        assert [sub.pending for sub in (star, tail, exact)] == [2, 4, 1]


def test_queue_groups_share(server: NatsServer) -> None:
    with jsclient.connect(server.url) as one, jsclient.connect(server.url) as two:
        subs = [nc.subscribe("q.>", queue="workers") for nc in (one, two) for _ in range(2)]
        everybody = one.subscribe("q.>")
        one.flush()
        two.flush()
        for number in range(400):
            one.publish("q.x", b"%d" % number)
        one.flush()
        wait_until(lambda: sum(sub.pending for sub in subs) == 400)
        assert everybody.pending == 400
        assert all(sub.pending > 20 for sub in subs)
        seen = sorted(int(sub.next(timeout=0).data) for sub in subs for _ in range(sub.pending))
        assert seen == list(range(400))


def test_iteration_ends_when_another_thread_closes_it(server: NatsServer) -> None:
    for end in ("close", "unsubscribe", "drain"):
        with jsclient.connect(server.url) as nc:
            sub = nc.subscribe("iterate")
            nc.publish("iterate", b"1")
            nc.publish("iterate", b"2")
            got: list[bytes] = []
            thread = threading.Thread(target=lambda s=sub, g=got: g.extend(m.data for m in s), daemon=True)
            thread.start()
            wait_until(lambda g=got: len(g) == 2)  # type: ignore[misc]
            getattr(sub, end)()
            thread.join(2)
            assert not thread.is_alive()
            assert got == [b"1", b"2"]
            with pytest.raises(errors.SubscriptionClosed):
                sub.next(timeout=1)


def test_unsubscribe_keeps_what_was_received_and_close_does_not(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        kept, lost = nc.subscribe("rest"), nc.subscribe("rest")
        nc.publish("rest", b"1")
        nc.flush()
        kept.unsubscribe()
        lost.close()
        assert kept.closed
        assert kept.next(timeout=0).data == b"1"
        for sub in (kept, lost):
            with pytest.raises(errors.SubscriptionClosed):
                sub.next(timeout=0)
        nc.flush()
        assert nc.stats().subscriptions == 0


def test_max_messages(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("max", max_messages=3)
        later = nc.subscribe("max")
        later.unsubscribe(max_messages=5)
        for number in range(10):
            nc.publish("max", b"%d" % number)
        assert [message.data for message in sub] == [b"0", b"1", b"2"]
        assert len(list(later)) == 5
        nc.flush()
        assert nc.stats().subscriptions == 0
        for wrong in (0, -1):
            with pytest.raises(errors.ConfigError):
                nc.subscribe("max", max_messages=wrong)
            with pytest.raises(errors.ConfigError):
                nc.subscribe("max").unsubscribe(max_messages=wrong)


def test_unsubscribe_counts_what_was_received_before(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("later")
        nc.publish("later", b"0")
        sub.next(timeout=5)
        sub.unsubscribe(max_messages=3)
        for number in range(1, 6):
            nc.publish("later", b"%d" % number)
        nc.flush()
        assert [message.data for message in sub] == [b"1", b"2"]


def test_unsubscribe_after_more_than_the_maximum_came(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("over")
        for _ in range(10):
            nc.publish("over", b"")
        nc.flush()
        sub.unsubscribe(max_messages=5)
        assert len(list(sub)) == 10, "what was received can still be taken"


def test_several_threads_share_one_subscription(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("share")
        got: list[list[int]] = [[] for _ in range(8)]

        def take(mine: list[int]) -> None:
            mine.extend(int(message.data) for message in sub)

        threads = [threading.Thread(target=take, args=(mine,), daemon=True) for mine in got]
        for thread in threads:
            thread.start()
        for number in range(5000):
            nc.publish("share", b"%d" % number)
        nc.flush()
        sub.drain(timeout=20)
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive()
        assert sorted(number for mine in got for number in mine) == list(range(5000))


# --- callbacks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thread", ["shared", "own"])
def test_a_callback_gets_messages_in_order(server: NatsServer, thread: Any) -> None:
    with jsclient.connect(server.url) as nc:
        got: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        sub = nc.subscribe("call", lambda m: got.put((int(m.data), threading.current_thread().name)), thread=thread)
        for number in range(1000):
            nc.publish("call", b"%d" % number)
        seen = [got.get(timeout=5) for _ in range(1000)]
        assert [number for number, _ in seen] == list(range(1000))
        assert thread == "shared" or len({name for _, name in seen}) == 1
        assert seen[0][1].startswith("jsclient-worker-")
        with pytest.raises(errors.ConfigError, match="callback"):
            sub.next(timeout=0)


def test_what_a_callback_raises_goes_to_on_error_and_it_goes_on(server: NatsServer) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def callback(message: jsclient.Msg) -> None:
        if message.data == b"bad":
            raise RuntimeError("of the user")
        if message.data == b"exit":
            raise SystemExit
        done.put(message.data)

    with jsclient.connect(server.url, on_error=lambda nc, error, sub: told.put((error, sub))) as nc:
        sub = nc.subscribe("raise", callback)
        for payload in (b"bad", b"exit", b"good"):
            nc.publish("raise", payload)
        assert done.get(timeout=5) == b"good"
        first, second = told.get(timeout=5), told.get(timeout=5)
        assert isinstance(first[0], RuntimeError)
        assert first[1] is sub
        assert isinstance(second[0], SystemExit)


def test_a_callback_may_use_everything(server: NatsServer) -> None:
    """Request, subscribe, publish, unsubscribe and flush from a callback, and close its own subscription."""
    with jsclient.connect(server.url) as nc:
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        nc.subscribe("echo", lambda message: message.respond(message.data))

        def callback(message: jsclient.Msg) -> None:
            inner = nc.subscribe("inner")
            nc.publish("inner", b"i")
            nc.flush()
            results.put((nc.request("echo", message.data).data, inner.next(timeout=5).data))
            inner.close()
            sub.close()
            sub.drain()

        sub = nc.subscribe("all", callback)
        nc.publish("all", b"x")
        assert results.get(timeout=5) == (b"x", b"i")
        wait_until(lambda: sub.closed)


def test_a_callback_may_close_the_connection(server: NatsServer) -> None:
    nc = jsclient.connect(server.url)
    nc.subscribe("end", lambda message: nc.close())
    nc.publish("end", b"")
    wait_until(lambda: nc.closed)
    nc.close()


def test_a_callback_may_drain_the_connection(server: NatsServer) -> None:
    """It is not waited for there: it waits for that callback, and the answer still goes out."""
    with jsclient.connect(server.url) as other:
        answers = other.subscribe("end.answers")
        other.flush()
        nc = jsclient.connect(server.url)
        both_are_here = threading.Event()

        def callback(message: jsclient.Msg) -> None:
            assert both_are_here.wait(5)  # a message that the server gets after the UNSUB would not come back
            nc.drain(timeout=5)
            wait_until(lambda: nc.is_draining)
            nc.publish("end.answers", message.data)

        nc.subscribe("end", callback)
        nc.publish("end", b"1")
        nc.publish("end", b"2")
        nc.flush()
        both_are_here.set()
        assert [answers.next(timeout=5).data for _ in range(2)] == [b"1", b"2"]
        wait_until(lambda: nc.closed)


def test_the_worker_ends_when_idle_and_comes_back(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient._connection.callback_pool.WORKER_IDLE", 0.001)
    with jsclient.connect(server.url) as nc:
        got: queue.SimpleQueue[int] = queue.SimpleQueue()
        nc.subscribe("idle", lambda message: got.put(int(message.data)))
        for number in range(300):
            nc.publish("idle", b"%d" % number)
            if number % 3 == 0:
                nc.flush()
            if number % 50 == 0:
                wait_until(lambda: not engine_of(nc).callback_pool.workers)
        assert [got.get(timeout=5) for _ in range(300)] == list(range(300))


# --- slow consumers -------------------------------------------------------------------------------------


def test_a_blocked_callback_stops_nobody_else(server: NatsServer) -> None:
    """14 MB reach another subscription in 2 s, one report for the overflow, the server sees no slow consumer."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    release = threading.Event()
    with (
        jsclient.connect(server.url, on_error=lambda _, error, sub: told.put((error, sub))) as nc,
        jsclient.connect(server.url) as other,
    ):
        blocked = nc.subscribe("flood", lambda message: release.wait(30), pending_messages=100)
        good = nc.subscribe("flood")
        nc.flush()
        start = time.monotonic()
        for _ in range(14_000):
            other.publish("flood", b"x" * 1000)
        other.flush()
        for _ in range(14_000):
            good.next(timeout=5)
        took = time.monotonic() - start
        error, sub = told.get(timeout=2)
        assert isinstance(error, errors.SlowConsumer)
        assert sub is blocked
        assert told.empty()
        assert blocked.dropped == 14_000 - 100 - 1
        assert nc.health().slow_consumers == 1
        assert nc.stats().reconnects == 0
        assert server.monitor("varz")["slow_consumers"] == 0
        release.set()
        assert took < 2, f"{took:.2f} s"


def test_pending_bytes_bound_large_messages(server: NatsServer) -> None:
    """A message that comes in many chunks counts in full."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with jsclient.connect(server.url, on_error=lambda _, error, sub: told.put(error)) as nc:
        sub = nc.subscribe("large", pending_bytes=10_000_000)
        for _ in range(30):
            nc.publish("large", b"x" * 1_000_000)
        nc.flush()
        assert sub.pending <= 10
        assert 8_000_000 < sub.pending_bytes <= 10_000_000
        assert sub.dropped == 30 - sub.pending
        assert isinstance(told.get(timeout=2), errors.SlowConsumer)


def test_limits_must_be_positive(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        for wrong in ({"pending_messages": 0}, {"pending_bytes": -1}, {"callback": "print"}):
            with pytest.raises(errors.ConfigError):
                nc.subscribe("x", **wrong)


# --- draining -------------------------------------------------------------------------------------------


def test_drain_of_a_subscription_lets_the_callback_finish(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        done: list[bytes] = []

        def callback(message: jsclient.Msg) -> None:
            time_passes(0.001, "the callback takes its time")
            done.append(message.data)

        sub = nc.subscribe("drain", callback)
        nc.flush()
        for number in range(200):
            other.publish("drain", b"%d" % number)
        other.flush()
        sub.drain(timeout=20)
        assert len(done) == 200
        other.publish("drain", b"late")
        other.flush()
        nc.flush()
        assert len(done) == 200


def test_drain_times_out_with_a_count(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        release = threading.Event()
        sub = nc.subscribe("stuck", lambda message: release.wait(20))
        for _ in range(3):
            nc.publish("stuck", b"")
        nc.flush()
        with pytest.raises(errors.DrainTimeout, match="2 messages"):
            sub.drain(timeout=0.1)
        release.set()


def test_drain_without_a_callback_waits_for_the_takers(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("taken")
        for number in range(10):
            nc.publish("taken", b"%d" % number)
        nc.flush()
        ended = threading.Event()

        def drain() -> None:
            sub.drain(timeout=10)
            ended.set()

        threading.Thread(target=drain, daemon=True).start()
        wait_until(lambda: sub.closed)
        assert not ended.is_set()
        assert len(list(sub)) == 10
        assert ended.wait(5)
