"""The flusher thread sends coalesced frames within two milliseconds, and is the clock of a connection.

It is never on the path of a call that waits for a reply. It parks while the queue is empty and no timer runs.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import time
from collections.abc import Callable
from typing import Any, Final

from jsclient import waiting
from jsclient.durations import Deadline
from jsclient.threads import Thread, start_all

log = logging.getLogger("jsclient.flusher")

TICK: Final = 0.002
"""Seconds between two looks at the outbox while it is in use."""

SLICE: Final = 0.1
"""Seconds that a write may wait for a slow server before timers get their turn, and between looks at a late one."""

IDLE_TICKS: Final = 4
"""Number of looks that find few frames, after which the flusher parks; until then a publisher need not wake it."""

LITTLE: Final = 8
"""Frames that the flusher may find at such a look: the next core publish after a pause shall leave immediately."""


class Timer:
    """A call to be made later; `cancel` is safe at any time and from any thread."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self._call = None

    def fire(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class Flusher:
    """One thread per Connection. `kick` and `call_later` may be used from any thread and in signal handlers."""

    def __init__(self, name: str) -> None:
        self.outbox: Any = None  # set by the Connection once the outbox exists
        self.wake_chain: Any = None  # likewise
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()  # of timers that are due at the same time
        self._stopping = False
        self.thread: Thread = Thread(name, self._run)

    def start(self) -> None:
        start_all([self.thread], "a connection")

    def kick(self) -> None:
        """Something is queued: drain it within a tick. Takes no lock."""
        # An unread item wakes the thread, which looks at the queue after that. The thread gets the interpreter late: a
        # hundred acks in a row left a hundred kicks.
        if self._inbox.empty():
            self._inbox.put(None)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Run `call` on the flusher thread; it must be quick and must not block."""
        timer = Timer(call)
        self._inbox.put((time.monotonic() + max(seconds, 0.0), timer))
        return timer

    def call_soon(self, call: Callable[[], None]) -> Timer:
        return self.call_later(0.0, call)

    def stop(self) -> None:
        self._stopping = True
        self._inbox.put(None)

    # --- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._look_after()
            except MemoryError:  # if the clock ended, waiting timers such as the next try to connect would be lost
                time.sleep(TICK)
            except Exception:  # of a socket in Python code, say
                log.exception("the clock of the connection failed, and goes on")
                time.sleep(TICK)

    def _look_after(self) -> None:
        outbox, chain = self.outbox, self.wake_chain
        empty = IDLE_TICKS
        while not self._stopping:
            busy = empty < IDLE_TICKS
            outbox.ticking = busy
            if not busy and (outbox.frames or chain.running) and not outbox.offline:
                empty = 0  # enqueued, or a chain begun, between the last look and the flag
                continue
            sent = outbox.bytes_out
            # A signal handler may hold back frames that have left the queue, also of other threads: look regularly.
            kicked = self._wait(TICK if busy else SLICE if outbox.holds_back() else None)
            if self._stopping:
                return
            self._fire_due()
            if kicked and not busy and not outbox.offline:
                outbox.ticking = True
                empty = 0
                self._wait(TICK)  # the first frame after a quiet time: let others join it
            elif len(outbox.frames) > LITTLE:
                empty = 0
            else:
                empty = min(empty + 1, IDLE_TICKS)
            if chain.running or chain.answered:
                empty = 0  # continue ticking as long as a chain runs
                if chain.look() and outbox.bytes_out != sent:
                    continue  # it moves and sends for itself
            if not outbox.offline and (outbox.frames or outbox.holds_back()):
                outbox.look()
                if time.monotonic() >= outbox.awaited_until:
                    self._drain()

    def _drain(self) -> None:
        try:
            self.outbox.drain(Deadline(SLICE))
        except Exception:
            log.exception("draining the outbox failed")

    def _wait(self, limit: float | None) -> bool:
        """Wait until a kick, a new timer, a due timer or the limit; True after a kick."""
        timeout = limit
        if self._timers:
            due = max(0.0, self._timers[0][0] - time.monotonic())
            timeout = due if limit is None else min(limit, due)
        try:
            item = waiting.get(self._inbox, timeout)
        except queue.Empty:
            return False
        kicked = False
        while True:
            if item is None:
                kicked = True
            else:
                due_at, timer = item
                heapq.heappush(self._timers, (due_at, next(self._order), timer))
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return kicked

    def _fire_due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            try:
                timer.fire()
            except Exception:
                log.exception("a timer of the connection failed")
