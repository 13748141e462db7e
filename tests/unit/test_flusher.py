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

from jsclient._engine.flusher import CALM_TICK, IDLE_TICKS, SLOW_TICK, TICK, Flusher
from jsclient._engine.outbox import COALESCE
from jsclient._engine.relay import Relay
from jsclient.testing import wait_until


class Box:
    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.unsent = 0
        self.offline = False
        self.ticking = False
        self.calm = False
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
    flusher.relay = Relay(box, flusher.kick)  # type: ignore[arg-type]
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
    flusher.relay = Relay(box, flusher.kick)  # type: ignore[arg-type]
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


def test_where_callers_send_themselves_it_looks_less_often_and_a_kick_wakes_it(made: Any) -> None:
    flusher, box = made
    waits: list[float | None] = []
    wait = flusher._wait

    def noted(limit: float | None) -> bool:
        waits.append(limit)
        return bool(wait(limit))

    flusher._wait = noted
    flusher.kick()  # for a frame that has left by the time it looks
    wait_until(lambda: waits and waits[-1] is None)
    assert waits.count(CALM_TICK) == IDLE_TICKS
    assert box.calm
    box.frames.append(b"x")
    flusher.kick()
    wait_until(lambda: not box.frames, 2)
    assert TICK in waits, "the first frame after a quiet time waits for others as before"


def test_no_frame_is_stranded_at_the_moment_of_parking(made: Any) -> None:
    """A poster that sees `ticking` need not kick: whatever the interleaving, the frame leaves."""
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


def test_publishes_that_have_just_left_are_a_crowd_too(made: Any) -> None:
    """The flusher mostly comes while a publisher sends, which has emptied the queue: that is no quiet moment."""
    flusher, box = made

    def publish() -> bool:
        """What a busy publisher does: bytes leave at every moment, and the queue is empty again."""
        flusher.kick()
        for _ in range(20):
            box.bytes_out += COALESCE
            time_passes(0.0005, "a busy publisher takes this long for a chunk")
            if box.crowded:
                return True
        return False

    box.crowded = False
    wait_until(publish)


class Moving(Relay):
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
    relay = Moving(box, flusher.kick)  # type: ignore[arg-type]
    flusher.relay = relay
    box.frames.append(b"x")
    flusher.start()
    try:
        flusher.kick()
        looks = relay.steps
        wait_until(lambda: relay.steps > looks + 50, 5)
        assert box.drains == 0
        relay.leaves = 0
        wait_until(lambda: not box.frames, 2)
    finally:
        flusher.stop()
        flusher.thread.join(5)


class Sending(Box):
    """Another thread sends large messages: something has always left the queue and is not out, and more of it each
    time that the flusher looks."""

    def __init__(self) -> None:
        self.looks = self._out = 0
        self.moving = True
        super().__init__()

    @property
    def bytes_out(self) -> int:
        self._out += COALESCE if self.moving else 0
        return self._out

    @bytes_out.setter
    def bytes_out(self, value: int) -> None:
        self._out = value

    def holds_back(self) -> bool:
        self.looks += 1
        return True


def test_it_leaves_a_thread_that_sends_alone_and_comes_when_that_is_stuck() -> None:
    """A look each millisecond beside an upload to an object store was a fifth of what that cost."""
    flusher, box = Flusher("test-flusher"), Sending()
    flusher.outbox = box
    flusher.relay = Relay(box, flusher.kick)  # type: ignore[arg-type]
    flusher.start()
    try:
        flusher.kick()
        wait_until(lambda: box.looks > IDLE_TICKS + 5)
        wait_until(lambda: not box.ticking)
        begun, looks = time.monotonic(), box.looks
        wait_until(lambda: box.looks >= looks + 10, 10)
        assert time.monotonic() - begun >= 2 * SLOW_TICK, "it looks now and then, and not each millisecond"
        assert not box.drains
        box.moving = False  # a signal handler on top of the sender
        wait_until(lambda: box.drains > 3, 5)
    finally:
        flusher.stop()
        flusher.thread.join(5)
