"""The flusher thread: sends what is coalesced within a few milliseconds, and is the clock of a connection.

It is never on the path of a call that waits for a reply. It parks while nothing is queued and no timer runs.
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
from jsclient._engine.outbox import COALESCE, FEW
from jsclient.durations import Deadline
from jsclient.threads import Thread, start_all

log = logging.getLogger("jsclient.flusher")

TICK: Final = 0.001
"""Seconds between two looks at the outbox while it is in use."""

CALM_TICK: Final = 0.003
"""The same behind a look that found nothing: a thread that posts also waits for something, and sends before that. In a
loop of fetches, each message acked, looks were a seventh of the CPU (70 us for each time that a thread wakes up)."""

SLICE: Final = 0.1
"""Seconds that a write may wait for a slow server before timers get their turn."""

IDLE_TICKS: Final = 8
"""Empty looks after which the flusher parks; until then a publisher need not wake it."""

SLOW_TICK: Final = 0.02
"""Seconds between two looks while another thread sends large messages, and nothing else is queued: that thread sends
all of it, unless a signal handler keeps it. A look each millisecond was a fifth of what a large put cost."""


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
        self.relay: Any = None  # likewise
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._stopping = False
        self.thread: Thread = Thread(name, self._run)

    def start(self) -> None:
        start_all([self.thread], "a connection")

    def kick(self) -> None:
        """Something is queued: drain it within a tick. Takes no lock."""
        # What is unread there wakes the thread, and it looks at the queue after that. It gets the interpreter late: a
        # hundred acks in a row left a hundred kicks.
        if self._inbox.empty():
            self._inbox.put(None)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Run `call` on the flusher thread; it must be quick and must not block."""
        timer = Timer(call)
        self._inbox.put((time.monotonic() + max(seconds, 0.0), next(self._order), timer))
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
            except MemoryError:  # a clock that ended would leave what waits for it, such as the next try to connect
                time.sleep(TICK)
            except Exception:  # of a socket in Python code, say
                log.exception("the clock of the connection failed, and goes on")
                time.sleep(TICK)

    def _look_after(self) -> None:
        outbox, relay = self.outbox, self.relay
        empty = IDLE_TICKS
        while not self._stopping:
            busy = empty < IDLE_TICKS
            outbox.ticking = busy
            if not busy:
                outbox.crowded = False
            if not busy and (outbox.frames or relay.running) and not outbox.offline:
                # Posted, or a chain begun, between the last look and the flag.
                empty = 0
                continue
            sent = outbox.bytes_out
            tick = CALM_TICK if outbox.calm else TICK
            kicked = self._wait(tick if busy else SLOW_TICK if outbox.holds_back() else None)
            if self._stopping:
                return
            self._fire_due()
            # What has left counts, too: the interpreter often comes here while a publisher sends, just when it has
            # emptied the queue. Half of the writes of a loop of publishes then were of a single message.
            outbox.crowded = len(outbox.frames) > FEW or (busy and outbox.bytes_out - sent >= COALESCE)
            if relay.running or relay.answered:
                empty = 0  # go on ticking as long as a chain runs
                if relay.look() and outbox.bytes_out != sent:
                    continue  # it moves and sends for itself
            if outbox.offline or not (outbox.frames or (outbox.holds_back() and outbox.bytes_out == sent)):
                empty = 0 if kicked and not busy and not outbox.offline else min(empty + 1, IDLE_TICKS)
                outbox.calm = not (relay.running or outbox.holds_back())
                continue
            outbox.calm = False
            if not busy:
                # The first frame after a quiet time: let others join it.
                outbox.ticking = outbox.crowded = True
                self._wait(TICK)
            empty = 0
            outbox.look()
            self._drain()

    def _drain(self) -> None:
        try:
            self.outbox.drain(Deadline(SLICE))
        except Exception:
            log.exception("draining the outbox failed")

    def _wait(self, limit: float | None) -> bool:
        """Until a kick, a new timer, a due timer or the limit; True after a kick."""
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
                heapq.heappush(self._timers, item)
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
