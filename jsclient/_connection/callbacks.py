"""The events thread runs the user callbacks of a connection serially, never on the reader thread."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from jsclient import errors, handlers
from jsclient.threads import Thread

log = logging.getLogger("jsclient.events")

LIMIT: Final = 65_536
"""Callbacks that may wait; more are dropped and counted, because memory must not grow behind a blocked one."""

RESERVE: Final = 4_096
"""Places beyond that for the events of the link: a flood of errors, or of futures, must not push them out."""

NO_THREAD_PAUSE: Final = 0.1
"""Seconds until the thread is started again when the system had none."""


class EventsThread:
    """Runs callbacks in order. Started at the first one; ends with the connection."""

    def __init__(self, name: str, later: Callable[[float, Callable[[], None]], Any] | None = None) -> None:
        self._name = name
        self._later = later  # call_later of the clock: tries again if the thread could not be started
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._to_start = [None]  # the one that pops it starts the thread: one call into C, no lock across Thread.start
        self._thread: Thread | None = None
        self._stopped = False
        self.dropped: int = 0

    def run(self, call: Callable[..., Any], *args: Any, rare: bool = False, always: bool = False) -> None:
        """Queue a call; takes no lock once the thread runs, so it is safe in signal handlers from then on.

        `rare`: the call may take a reserved place.

        `always`: the call runs even if too many wait already. If the events thread has ended with the connection, the
        call runs on this thread. Use it for a single report, such as the end: a caller that registers for the end too
        late would wait forever.
        """
        if always and self._stopped:
            self._call(call, args)
            return
        if self._stopped or sys.is_finalizing():
            # A finalizer that runs while the interpreter goes down: a thread started now would never run, and
            # Thread.start would wait for it forever.
            return
        if self._queue.qsize() >= LIMIT + RESERVE * rare and not always:
            self.dropped += 1
            if self.dropped == 1:
                log.error("a callback blocks the events thread: further callbacks are dropped")
            return
        self._queue.put((call, args))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        try:
            self._to_start.pop()
        except IndexError:
            return  # another thread is at it
        thread: Thread | None = None
        try:
            thread = Thread(self._name, self._run)
            thread.start()
        except (errors.NoThread, MemoryError) as error:  # no more threads, or the interpreter is going down
            self._to_start.append(None)
            if self._later is not None:
                self._later(NO_THREAD_PAUSE, self._start)
            log.error("no thread for the callbacks of the connection: %s", errors.brief(error), exc_info=error)
        finally:
            if thread is not None and thread.began:
                self._thread = thread
            elif not self._to_start:  # Ctrl-C has come before it ran: the next call starts one
                self._to_start.append(None)

    def stop(self) -> None:
        """Ends the thread after the queued calls; threads of this library never join it."""
        self._stopped = True
        self._queue.put(None)

    def join(self, timeout: float) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            with contextlib.suppress(MemoryError):  # none to log it with either
                self._call(*item)
            item = None  # otherwise its contents would live until the next item comes

    @staticmethod
    def _call(call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            handlers.ran(call(*args))
        except BaseException:  # also SystemExit: no one else would run the callbacks that follow
            log.exception("a callback of the connection raised")
