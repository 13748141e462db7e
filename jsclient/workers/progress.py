"""Automatic in-progress: tells the server that handlers still work, to prevent redeliveries meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from jsclient.connection import engine_of

if TYPE_CHECKING:
    from jsclient.connection import Connection

log: logging.Logger = logging.getLogger("jsclient.workers")

PART: Final = 3.0
"""In-progress goes out after a third of the time that the server waits: two may be lost."""

SHORTEST: Final = 0.02


class Held:
    """One message that the pool holds: when it arrived, and when it was last reported as in progress."""

    __slots__ = ("hung", "interval", "key", "message", "retries", "started", "taken", "told", "waiting")

    def __init__(self, message: Any, interval: float, waiting: bool = False) -> None:
        self.message: Any = message
        self.interval: float = interval
        self.told: float
        self.started: float
        self.started = self.told = time.monotonic()
        self.taken: float | None = None if message is None else self.started
        self.hung: Any = None  # the message of a hung handler. A worker uses one Held for many messages.
        self.waiting: bool = waiting  # It waits behind its key, or for its next try: no handler runs with it.
        self.key: Any = None  # with order by key
        self.retries: int = 0  # failed tries in this process, in addition to those that the server counts


class Progress:
    """One timer per pool, on the connection's clock. It checks the messages of the pool and sends due reports."""

    def __init__(
        self,
        connection: Connection,
        held: Callable[[], Iterable[Held]],
        intervals: list[float],
        limit: float,
        on_hung: Callable[[Held], None],
        on_look: Callable[[float], None],
    ) -> None:
        self._connection = connection
        self._held = held
        self.intervals = intervals
        self._limit = limit
        self._on_hung = on_hung
        self._on_look = on_look
        self._tick = max(min(*intervals, limit) / 4, SHORTEST)
        self._timer: Any = None
        self._stopped = False
        self.hung: int = 0

    def interval(self, delivered: int) -> float:
        """Seconds between two in-progress for a message at its n-th delivery (the last entry holds for all later)."""
        return self.intervals[min(delivered, len(self.intervals)) - 1]

    def start(self) -> None:
        self._timer = engine_of(self._connection).clock.call_later(self._tick, self._look)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = time.monotonic()
        try:
            for held in self._held():
                self._tell(held, now)
            self._on_look(now)
        finally:
            if not self._stopped and not self._connection.closed:
                self.start()

    def _tell(self, held: Held, now: float) -> None:
        message = held.message  # first: the worker sets the times before it
        if message is None or held.hung is message:
            return
        if not held.waiting and now - held.started >= self._limit:
            held.hung = message
            self.hung += 1
            self._on_hung(held)
            return
        if now - held.told < held.interval:
            return
        held.told = now
        try:
            message.in_progress()
        except Exception as error:  # acked meanwhile, or the connection is gone: nothing to tell
            log.debug("in-progress was not sent: %s", error)
