"""Callbacks of many subscriptions on shared threads: order, exclusion, growth, and a thread of one's own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.testing import NatsServer, wait_until

Count = Callable[[int, int], int]


def workers(nc: jsclient.Connection) -> list[threading.Thread]:
    start = f"jsclient-worker-{engine_of(nc).number}-"
    return [thread for thread in threading.enumerate() if thread.name.startswith(start)]


def threads_of(nc: jsclient.Connection) -> list[str]:
    """All of this connection."""
    number = str(engine_of(nc).number)
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("jsclient-")]
    return [name for name in names if name.split("-")[2] == number]


def test_many_subscriptions_take_few_threads(server: NatsServer, count: Count) -> None:
    """In order for each of them, never two at once, and all of it."""
    number, each = count(10_000, 1000), 5
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        got: list[list[int]] = [[] for _ in range(number)]
        inside = [0] * number
        overlaps = []

        def callback(index: int, message: jsclient.Msg) -> None:
            inside[index] += 1
            if inside[index] > 1:
                overlaps.append(index)
            got[index].append(int(message.data))
            inside[index] -= 1

        for index in range(number):
            nc.subscribe(f"few.{index}", partial(callback, index))
        nc.flush(timeout=20)
        for turn in range(each):
            for index in range(number):
                other.publish(f"few.{index}", b"%d" % turn)
        wait_until(lambda: sum(map(len, got)) == number * each, 40)
        assert all(mine == list(range(each)) for mine in got)
        assert not overlaps
        assert len(threads_of(nc)) + 1 <= 8, threads_of(nc)  # and the application's own


def test_order_holds_beside_callbacks_that_block(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        got: dict[int, list[int]] = {index: [] for index in range(20)}

        def callback(index: int, message: jsclient.Msg) -> None:
            if index % 4 == 0 and int(message.data) % 50 == 0:
                time_passes(0.005, "the callback takes its time")
            got[index].append(int(message.data))

        for index in got:
            nc.subscribe(f"block.{index}", partial(callback, index))
        for number in range(300):
            for index in got:
                nc.publish(f"block.{index}", b"%d" % number)
        wait_until(lambda: all(len(mine) == 300 for mine in got.values()), 20)
        assert all(mine == list(range(300)) for mine in got.values())


def test_callbacks_may_wait_for_each_other(server: NatsServer) -> None:
    """One waits for what another one does, fifty deep; a callback makes a request that another one answers."""
    with jsclient.connect(server.url) as nc:
        gates = [threading.Event() for _ in range(51)]
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def chained(index: int, _: jsclient.Msg) -> None:
            assert gates[index + 1].wait(20)
            gates[index].set()

        for index in range(50):
            nc.subscribe(f"wait.{index}", partial(chained, index))
        nc.subscribe("wait.last", lambda message: gates[50].set())
        nc.subscribe("ask.inner", lambda message: message.respond(b"inner"))
        nc.subscribe("ask.outer", lambda message: told.put(nc.request("ask.inner", timeout=10).data))
        for index in range(50):
            nc.publish(f"wait.{index}")
        nc.publish("wait.last")
        assert gates[0].wait(20)
        nc.publish("ask.outer")
        assert told.get(timeout=10) == b"inner"


def test_callbacks_that_block_run_side_by_side(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        release, inside = threading.Event(), []

        def callback(message: jsclient.Msg) -> None:
            inside.append(message)
            release.wait(20)

        for index in range(100):
            nc.subscribe(f"side.{index}", callback)
        begin = time.monotonic()
        for index in range(100):
            nc.publish(f"side.{index}")
        wait_until(lambda: len(inside) == 100, 20)
        assert time.monotonic() - begin < 5  # alone: 0.1
        release.set()


def test_a_subscription_may_have_a_thread_to_itself(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for all its life, also after a time without messages; it ends with the subscription."""
    monkeypatch.setattr("jsclient._connection.callback_pool.WORKER_IDLE", 0.001)
    with jsclient.connect(server.url) as nc:
        got: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()
        seen = set()
        sub = nc.subscribe("own", lambda message: got.put(threading.current_thread()), thread="own")
        for _ in range(5):
            nc.publish("own")
            seen.add(got.get(timeout=5))
            nc.flush()
        assert len(seen) == 1
        (thread,) = seen
        sub.unsubscribe()
        thread.join(5)
        assert not thread.is_alive()

        last = nc.subscribe("own.three", lambda message: got.put(threading.current_thread()), thread="own")
        last.unsubscribe(max_messages=3)
        for _ in range(3):
            nc.publish("own.three")
        threads = {got.get(timeout=5) for _ in range(3)}
        assert len(threads) == 1
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive()
        nc.subscribe("own.close", lambda message: got.put(threading.current_thread()), thread="own")
        nc.publish("own.close")
        thread = got.get(timeout=5)
    thread.join(5)
    assert not thread.is_alive()


def test_a_thread_is_shared_or_own(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc, pytest.raises(errors.ConfigError, match="own"):
        nc.subscribe("x", lambda message: None, thread="mine")  # type: ignore[arg-type]


def test_what_a_callback_publishes_leaves_before_its_thread_parks(server: NatsServer) -> None:
    """Without it they waited for the flusher's tick."""
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        answers = other.subscribe("flush.answers")
        other.flush()

        def callback(message: jsclient.Msg) -> None:
            engine_of(nc).outbox.ticking = True  # as if the flusher had just looked
            nc.publish("flush.answers", message.data)

        nc.subscribe("flush", callback)
        nc.flush()
        other.publish("flush", b"x")
        assert answers.next(timeout=5).data == b"x"


def test_a_thread_of_its_own_is_for_a_callback(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc, pytest.raises(errors.ConfigError, match="callback"):
        nc.subscribe("own.none", thread="own")
