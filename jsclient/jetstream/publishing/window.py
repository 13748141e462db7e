"""The window of a publisher: its unacknowledged messages, and the publishers that wait for it to shrink."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jsclient import waiting
from jsclient.durations import Deadline

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.entries import Entry


LEAST_STEP: Final = 1.1
"""The least factor by which it grows, because growing takes a look at all pending messages."""

LONGEST_LOOK: Final = 3
"""The largest number of round trips over which answers count."""


class Window:
    """Bounds messages and bytes under way without a lock per message.

    Every message is charged an equal share of the bytes, so the number alone decides (`len(pending) < limit`). Only a
    message larger than its share takes the lock, to charge the rest by lowering the limit for all.

    Waiting publishers wake when a quarter of the window is free (one of `parts`), not at every ack. Their next messages
    then leave together, and the threads change places a thousand times less.

    A window that may grow to `most` messages holds `messages` plus the messages in flight on the line: rate of acks
    times round trip. The number of messages that wait in the server stays the same, because the server refuses messages
    if it becomes too large.
    """

    def __init__(self, messages: int, nbytes: int, most: int = 0, parts: int = 4) -> None:
        self.pending: dict[bytes, Entry] = {}
        self.limit: int = messages
        self.share: int = max(1, nbytes // messages)
        self.large: dict[bytes, int] = {}
        self.parked: list[tuple[int, waiting.Ticket[None]]] = []
        self.answers = 0  # the reader counts them
        self._messages = self._least = messages
        self._most = most
        self._parts = parts
        self._measured = (0.0, 0)  # the time of the last look at the answers, and their number
        self._bytes = nbytes
        self._extra = 0
        self._lock = waiting.new_lock()

    def forked(self) -> None:
        """In a forked child, where no other thread waits."""
        self._lock = waiting.new_lock()
        self.parked = []

    # --- bytes --------------------------------------------------------------------------------------------------

    def charge(self, token: bytes, size: int) -> None:
        """Charge a message for the bytes beyond its share."""
        with self._lock:
            self.large[token] = size - self.share
            self._change(size - self.share)

    def release(self, token: bytes) -> None:
        """The message is resolved."""
        with self._lock:
            self._change(-self.large.pop(token, 0))

    def _change(self, by: int) -> None:
        self._extra += by
        self.limit = max(1, min(self._messages, (self._bytes - self._extra) // self.share))

    def has_room(self, size: int = 0) -> bool:
        """True if a message of this size may go out now; a single one always may."""
        count = len(self.pending)
        if size <= self.share:
            return count < self.limit
        return not count or (count < self.limit and (count * self.share + self._extra + size) <= self._bytes)

    # --- growing ------------------------------------------------------------------------------------------------

    def fit(self, now: float, round_trip: float) -> bool:
        """The window is full: make it larger if the round trip is the cause. True if it has become larger."""
        if self._most <= self._messages:
            return False
        with self._lock:
            (since, before), answers = self._measured, self.answers
            seconds = now - since
            if seconds < round_trip:
                return False
            self._measured = now, answers
            if seconds > LONGEST_LOOK * round_trip:
                return False  # it was not full all the time, so the rate means nothing
            messages = min(self._least + int((answers - before) / seconds * round_trip), self._most)
            if messages < self._messages * LEAST_STEP:
                return False
            self._resize(messages)
            return True

    def _resize(self, messages: int) -> None:
        """The caller holds the lock."""
        self._messages, before = messages, self.share
        self.share = share = max(1, self._bytes // messages)
        large = self.large
        for token in large:
            large[token] += before - share
        # More messages are larger than a share now. The reader first takes a message out of `pending` and then looks
        # into `large`, so it will find the charge of a message that is still pending.
        sizes = [
            (token, len(entry.payload) + len(entry._block or b"")) for token, entry in waiting.items_of(self.pending)
        ]
        added = {token: size - share for token, size in sizes if size > share and token not in large}
        large.update(added)
        for token in added:
            if token not in self.pending:
                del large[token]
        self._extra = sum(large.values())
        self._change(0)

    # --- waiting ------------------------------------------------------------------------------------------------

    def wait_for_room(self, size: int, timeout: float | None) -> bool:
        """Wait until a message of this size may go out; False after `timeout` seconds (None: no limit)."""
        deadline = Deadline(timeout)
        while not self.has_room(size):
            if deadline.expired():
                return False
            count = min(len(self.pending), self.limit)
            below = count - max(1, count // self._parts)
            self._park(below, lambda below=below: len(self.pending) <= below, deadline)  # type: ignore[misc]
        return True

    def wait_empty(self, timeout: float | None, done: Callable[[], bool] | None = None) -> bool:
        """Wait until no message is pending and `done()` is true; False after `timeout` seconds."""
        deadline = Deadline(timeout)
        done = done or (lambda: not self.pending)
        while not done():
            if deadline.expired():
                return False
            self._park(0, done, deadline)
        return True

    def _park(self, below: int, done: Callable[[], bool], deadline: Deadline) -> None:
        ticket: waiting.Ticket[None] = waiting.Ticket()
        entry = (below, ticket)
        with self._lock:
            self.parked = [*self.parked, entry]
        try:
            if not done():
                waiting.get(ticket, deadline.remaining())
        except queue.Empty:
            pass
        finally:
            with self._lock:
                self.parked = [other for other in self.parked if other is not entry]

    def unpark(self) -> None:
        """Wake threads that need not wait any more; wake publishers only for the room there is. The reader calls it."""
        with self._lock:
            count = len(self.pending)
            room = self.limit - count
            for below, ticket in self.parked:
                if count > below or (below and room <= 0):
                    continue
                if below:
                    room -= 1
                ticket.put(None)
