"""The flusher: what is queued leaves soon, timers fire in order, an idle one sleeps."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from tests.pauses import time_passes

from jsclient._connection.flusher import IDLE_TICKS, LITTLE, TICK, Flusher
from jsclient._connection.outbox import COALESCE
from jsclient._connection.wake_chain import WakeChain
from jsclient.testing import wait_until


class Box:
    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.unsent = 0
        self.offline = False
        self.ticking = False
        self.awaited_until = 0.0
        self.drains = 0
        self.bytes_out = 0

    def look(self) -> None:
        pass

    def holds_back(self) -> bool:
        return bool(self.unsent)

    def drain(self, timeout: float | None = None) -> bool:
        self.drains += 1
        self.frames.clear()
        return True


@pytest.fixture
def made() -> Iterator[tuple[Flusher, Box]]:
    flusher, box = Flusher("test-flusher"), Box()
    flusher.outbox = box
    flusher.wake_chain = WakeChain(box, flusher.kick)  # type: ignore[arg-type]
    flusher.start()
    yield flusher, box
    flusher.stop()
    flusher.thread.join(5)
    assert not flusher.thread.is_alive()


def test_kicks_that_nobody_has_seen_yet_are_one() -> None:
    flusher = Flusher("test-flusher")
    for _ in range(100):
        flusher.kick()
    assert flusher._inbox.qsize() == 1


def test_a_kick_behind_a_timer_that_nobody_has_seen_yet_drains() -> None:
    flusher, box = Flusher("test-flusher"), Box()
    flusher.outbox = box
    flusher.wake_chain = WakeChain(box, flusher.kick)  # type: ignore[arg-type]
    flusher.call_later(3600, lambda: None)
    box.frames.append(b"x")
    flusher.kick()
    flusher.start()
    wait_until(lambda: not box.frames, 5)
    flusher.stop()
    flusher.thread.join(5)


def test_a_kick_drains(made: Any) -> None:
    flusher, box = made
    box.frames.append(b"x")
    flusher.kick()
    wait_until(lambda: not box.frames, 2)


def test_it_goes_on_ticking_for_a_while_and_then_parks(made: Any) -> None:
    flusher, box = made
    box.frames.append(b"x")
    flusher.kick()
    wait_until(lambda: box.drains)
    assert box.ticking
    box.frames.append(b"y")  # no kick needed
    wait_until(lambda: not box.frames, 2)
    wait_until(lambda: not box.ticking, 2)


def test_a_kick_for_a_frame_that_has_left_makes_it_tick_for_a_while(made: Any) -> None:
    flusher, box = made
    waits: list[float | None] = []
    wait = flusher._wait

    def noted(limit: float | None) -> bool:
        waits.append(limit)
        return bool(wait(limit))

    flusher._wait = noted
    flusher.kick()
    wait_until(lambda: waits and waits[-1] is None)
    assert waits.count(TICK) <= IDLE_TICKS + 1
    assert box.drains == 0


def test_a_publisher_that_sends_little_lets_it_park(made: Any) -> None:
    """A flusher that is awake makes the next core publish wait for others."""
    flusher, box = made
    looks = 0

    class Few(deque[bytes]):
        def __len__(self) -> int:
            nonlocal looks
            looks += 1
            return LITTLE

        def __bool__(self) -> bool:
            return False

    box.frames = Few()
    flusher.kick()
    wait_until(lambda: looks >= IDLE_TICKS)
    wait_until(lambda: not box.ticking, 2)


def test_it_looks_now_and_then_at_what_has_left_the_queue_and_is_not_out(made: Any) -> None:
    """A thread that has taken frames of others may be held up by a signal handler."""
    flusher, box = made
    box.unsent = 1
    flusher.kick()
    wait_until(lambda: box.drains and not box.ticking, 2)
    before = box.drains
    wait_until(lambda: box.drains > before + 1, 5)


def test_no_frame_is_stranded_at_the_moment_of_parking(made: Any) -> None:
    """A enqueuer that sees `ticking` need not kick: whatever the interleaving, the frame leaves."""
    flusher, box = made
    for number in range(300):
        box.frames.append(b"x")
        if not box.ticking:
            flusher.kick()
        if number % 3 == 0:
            wait_until(lambda: not box.ticking, 2)
    wait_until(lambda: not box.frames, 2)


def test_nothing_is_drained_while_offline(made: Any) -> None:
    flusher, box = made
    box.offline = True
    box.frames.append(b"x")
    flusher.kick()
    fired = threading.Event()
    flusher.call_soon(fired.set)
    assert fired.wait(2)
    assert box.drains == 0


def test_timers_fire_in_order_and_can_be_cancelled(made: Any) -> None:
    flusher, _ = made
    fired: queue.SimpleQueue[str] = queue.SimpleQueue()
    flusher.call_later(0.03, lambda: fired.put("late"))
    cancelled = flusher.call_later(0.02, lambda: fired.put("never"))
    flusher.call_later(0.01, lambda: fired.put("early"))
    flusher.call_soon(lambda: fired.put("now"))
    cancelled.cancel()
    assert [fired.get(timeout=2) for _ in range(3)] == ["now", "early", "late"]


def test_a_timer_that_raises_ends_nothing(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    flusher, _ = made

    def fail() -> None:
        raise RuntimeError("of a layer")

    flusher.call_soon(fail)
    fired = threading.Event()
    flusher.call_soon(fired.set)
    assert fired.wait(2)
    assert "of a layer" in caplog.text


def test_an_idle_flusher_uses_no_time(made: Any) -> None:
    flusher, _ = made
    flusher.call_later(60, lambda: None)
    used = time.process_time()
    time_passes(0.5, "what idling costs is measured")
    assert time.process_time() - used < 0.1


class Moving(WakeChain):
    """A chain whose token moves all the time. With each look of the flusher as many bytes leave as it is told."""

    leaves = COALESCE

    @property
    def running(self) -> bool:
        self.steps += 1
        self._outbox.bytes_out += self.leaves  # type: ignore[misc]
        return True

    @running.setter
    def running(self, value: bool) -> None:
        pass


def test_it_leaves_a_chain_alone_that_moves_and_sends_and_comes_when_it_does_not_send() -> None:
    """Its writes took an eighth of what 16 threads publish."""
    flusher, box = Flusher("test-flusher"), Box()
    flusher.outbox = box
    chain = Moving(box, flusher.kick)  # type: ignore[arg-type]
    flusher.wake_chain = chain
    box.frames.append(b"x")
    flusher.start()
    try:
        flusher.kick()
        looks = chain.steps
        wait_until(lambda: chain.steps > looks + 50, 5)
        assert box.drains == 0
        chain.leaves = 0
        wait_until(lambda: not box.frames, 2)
    finally:
        flusher.stop()
        flusher.thread.join(5)
