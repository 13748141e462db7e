"""Order by key: selects the message that may be handled next. Pure: no thread, no clock, no socket; the caller locks.

A key is *busy* while a worker handles one of its messages, and *parked* while a failed one waits for its next try.
Messages of a busy or parked key queue up behind it in stream order. A worker that is done with a message continues with
the next one of the same key. So no message that may run is left without a worker.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from typing import Any


class KeyedQueue:
    """The messages taken from the server and not finished, by key."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Any]] = {}  # a key is in here while it is busy or parked
        self._parked: list[tuple[float, int, Hashable, Any]] = []
        self._order = itertools.count()

    def admit(self, key: Hashable, message: Any) -> bool:
        """A message has arrived. True: its key is free, so handle it now (the key is busy from here on). False if it
        was queued.
        """
        queue = self._waiting.get(key)
        if queue is None:
            self._waiting[key] = deque()
            return True
        queue.append(message)
        return False

    def done(self, key: Hashable) -> Any | None:
        """A message of the key is finished: the next one of this key, or None and the key is free."""
        queue = self._waiting[key]
        if queue:
            return queue.popleft()
        del self._waiting[key]
        return None

    def park(self, key: Hashable, message: Any, until: float) -> None:
        """The message of a busy key failed: it stays first in line, and its key waits until then."""
        heapq.heappush(self._parked, (until, next(self._order), key, message))

    def due(self, now: float) -> tuple[Hashable, Any] | None:
        """A parked message that is due (its key is still busy), or None."""
        if self._parked and self._parked[0][0] <= now:
            _, _, key, message = heapq.heappop(self._parked)
            return key, message
        return None

    def next_due(self) -> float | None:
        """When the first parked message may run."""
        return self._parked[0][0] if self._parked else None

    def recall(self) -> list[Any]:
        """Take back everything that waits, and free the keys of parked messages. Busy keys stay busy."""
        rest = [message for _, _, _, message in self._parked]
        for queue in self._waiting.values():
            rest += queue
            queue.clear()
        for _, _, key, _ in self._parked:
            del self._waiting[key]
        self._parked.clear()
        return rest
