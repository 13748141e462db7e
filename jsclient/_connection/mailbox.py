"""The queue between the reader thread and the threads that take messages.

The reader puts a list per chunk. Takers take single messages, so threads that share a mailbox hoard nothing. They share
a `deque`, and the reader notifies a taker only if one is parked. This costs 0.90 µs per message end to end;
`queue.Queue` costs 2.3 and a Condition per message 1.8.

The mailbox limits bytes without touching a message twice. The reader notes (count, bytes) per put. The number of
messages taken since then is the count put minus the length of the deque. The bound is exact to one chunk.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from jsclient import waiting
from jsclient.durations import Deadline
from jsclient.states import WAKE

OVERHEAD = 200  # bytes a message costs in addition to its own, measured: object, list slot, bytes headers


def message_size(message: Any) -> int:
    """The bytes that a message counts against a limit: subject, reply, headers and payload."""
    size = len(message.raw_subject) + len(message.data)
    if message.raw_reply is not None:
        size += len(message.raw_reply)
    if message.raw_headers is not None:
        size += len(message.raw_headers)
    return size


_NOBODY: deque[waiting.Ticket[Any]] = deque(maxlen=0)
_NO_MARKS: deque[tuple[int, int]] = deque(maxlen=0)
_NO_ENDS: list[Callable[[], None]] = []


class Mailbox:
    """A bounded or credit-bounded, closable queue. One thread puts; any number of threads take."""

    __slots__ = (
        "_bytes_freed",
        "_bytes_in",
        "_count_in",
        "_ends",
        "_marks",
        "_waiters",
        "closed",
        "dropped",
        "high_bytes",
        "high_messages",
        "items",
        "last_frame",
        "max_bytes",
        "max_messages",
        "overflowing",
        "popleft",
        "woken",
    )

    def __init__(self, max_messages: int | None = None, max_bytes: int | None = None, *, awaited: bool = True) -> None:
        """`awaited=False`: no thread calls `get`. This saves an empty deque of 0.6 KB for each of perhaps 10,000
        mailboxes."""
        self.max_messages: int | None = max_messages
        self.max_bytes: int | None = max_bytes
        self.items: deque[Any] = deque()
        self.popleft: Callable[[], Any] = self.items.popleft
        self.closed: BaseException | None = None
        self.woken: bool = False
        self.dropped: int = 0
        self.overflowing: bool = False
        self.last_frame: float = time.monotonic()
        self._waiters: deque[waiting.Ticket[Any]] = deque() if awaited else _NOBODY
        self._count_in = 0
        self._bytes_in = 0
        self._bytes_freed = 0
        self._marks: deque[tuple[int, int]] = _NO_MARKS  # the first put that needs a list replaces it
        self._ends: list[Callable[[], None]] = _NO_ENDS  # the first `when_closed` replaces it
        self.high_messages: int
        self.high_bytes: int
        self.high_messages = self.high_bytes = 0  # largest backlog so far, if there is a limit

    def __len__(self) -> int:
        return len(self.items)

    @property
    def awaited(self) -> bool:
        """True when a thread waits for the next item."""
        return bool(self._waiters)

    # --- the reader's side ------------------------------------------------------------------------------

    def put_many(self, messages: list[Any], nbytes: int) -> bool:
        """Add a chunk's messages; False when some were dropped and this is the first time of an episode."""
        first_drop = False
        if self.max_messages is not None:
            # A new episode begins when the taker had caught up in between. Check before adding these messages:
            # otherwise a burst that overflows immediately would count towards the previous episode.
            if self.overflowing and not self.is_behind:
                self.overflowing = False
            kept = self._admit(messages, nbytes)
            if len(kept) != len(messages):
                self.dropped += len(messages) - len(kept)
                first_drop = not self.overflowing
                self.overflowing = True
                messages = kept
        self.items.extend(messages)
        if self._waiters:
            self._notify(len(messages))
        return not first_drop

    def _admit(self, messages: list[Any], nbytes: int) -> list[Any]:
        """The messages for which the limits leave room. New messages beyond them are dropped, as in nats.go."""
        assert self.max_messages is not None
        room = self.max_messages - len(self.items)
        if len(messages) > room:
            messages = messages[: max(room, 0)]
            nbytes = sum(map(message_size, messages)) + OVERHEAD * len(messages)
        pending = 0
        if self.max_bytes is not None:
            pending = self._forget_taken()
            if pending + nbytes > self.max_bytes:
                messages, nbytes = self._fit(messages, self.max_bytes - pending)
        if messages:
            self._count_in += len(messages)
            self._bytes_in += nbytes
            waiting = len(self.items) + len(messages)
            if waiting > self.high_messages:
                self.high_messages = waiting
            if pending + nbytes > self.high_bytes:
                self.high_bytes = pending + nbytes
            if self._marks is _NO_MARKS:
                self._marks = deque()
            self._marks.append((self._count_in, self._bytes_in))
        return messages

    @staticmethod
    def _fit(messages: list[Any], room: int) -> tuple[list[Any], int]:
        total = 0
        for index, message in enumerate(messages):
            size = message_size(message) + OVERHEAD
            if total + size > room:
                return messages[:index], total
            total += size
        return messages, total

    @property
    def is_behind(self) -> bool:
        """True from a drop of messages until the mailbox is at least half empty again."""
        if not self.overflowing or self.max_messages is None:
            return False
        half_empty = self.max_bytes is None or self.pending_bytes() * 2 <= self.max_bytes
        return not (half_empty and len(self.items) * 2 <= self.max_messages)

    def pending_bytes(self) -> int:
        """Bytes not taken yet, exact to one chunk; only meaningful for mailboxes with a byte limit."""
        freed = self._bytes_freed
        taken = self._count_in - len(self.items)
        for count, total in waiting.copy_of(self._marks):  # a copy: the reader may run concurrently
            if count > taken:
                break
            freed = total
        return max(0, self._bytes_in - freed)

    def _forget_taken(self) -> int:
        """The same result as `pending_bytes`, for the reader alone. It drops the marks that are no longer needed."""
        taken = self._count_in - len(self.items)
        marks = self._marks
        while marks and marks[0][0] <= taken:
            self._bytes_freed = marks.popleft()[1]
        return self._bytes_in - self._bytes_freed

    def put(self, item: Any) -> None:
        """Add one item past every limit (link events travel in order with the messages)."""
        self._count_in += 1
        self.items.append(item)
        if self._waiters:
            self._notify(1)

    def _notify(self, count: int) -> None:
        waiters = self._waiters
        while count and waiters:
            try:
                waiters.popleft().put(None)
            except IndexError:
                return
            count -= 1

    # --- the takers' side -------------------------------------------------------------------------------

    def take(self) -> Any | None:
        """An available item, or None; never waits."""
        try:
            return self.popleft()
        except IndexError:
            if self.closed is not None:
                self.raise_closed()
            return None

    def get(self, timeout: float | None) -> Any | None:
        """The next item, None after `timeout` seconds, or WAKE after `wake`. Once the mailbox is empty and closed, it
        raises the reason."""
        try:
            return self.popleft()
        except IndexError:
            return self._wait(timeout)

    def _wait(self, timeout: float | None) -> Any | None:
        deadline = Deadline(timeout)
        while True:
            ticket: waiting.Ticket[Any] = waiting.Ticket()
            try:
                self._waiters.append(ticket)
                # Look again after queueing up: this look finds items put before, and later ones wake this thread.
                try:
                    return self.popleft()
                except IndexError:
                    if self.closed is not None:
                        self.raise_closed()
                if self.woken:
                    return WAKE
                if timeout == 0:
                    return None
                try:
                    if waiting.get(ticket, deadline.remaining()) is WAKE:
                        return WAKE
                except queue.Empty:
                    return self.take()
                try:
                    return self.popleft()  # as usual: without another ticket, which costs 2 µs
                except IndexError:
                    pass  # another thread was faster
            finally:
                try:
                    self._leave(ticket)
                except BaseException:  # Ctrl-C at its first line: a ticket left behind would swallow a wake-up
                    self._leave(ticket)
                    raise

    def _leave(self, ticket: waiting.Ticket[Any]) -> None:
        try:
            self._waiters.remove(ticket)
        except ValueError:
            pass  # notified: if that was for an item we did not take, the next in line gets it below
        if self.items and self._waiters:
            self._notify(1)

    def wake(self) -> None:
        """End all waits: threads that wait now, or would later, get WAKE once the mailbox is empty."""
        self.woken = True  # first, because a taker that has not queued up yet must see it
        waiters = self._waiters
        while waiters:
            try:
                waiters.popleft().put(WAKE)
            except IndexError:
                return

    def close(self, reason: BaseException, discard: bool = False) -> None:
        """No more puts are expected. Threads can still take the stored items, unless `discard`. Then takers get
        `reason`."""
        if self.closed is None:
            self.closed = reason
        if discard:
            self.items.clear()
        waiters = self._waiters
        while waiters:
            try:
                waiters.popleft().put(None)
            except IndexError:
                break
        self._tell_closed()

    def forked(self, reason: BaseException) -> None:
        """This is a forked child: the stored items belong to the parent. Only a call that waits beneath a signal
        handler gets the reason."""
        self.items.clear()
        self.closed = reason
        while self._waiters:
            self._waiters.popleft().put(None)

    def when_closed(self, call: Callable[[], None]) -> None:
        """Make a quick call, once, when the mailbox is closed; immediately if it is closed already."""
        if self._ends is _NO_ENDS:
            self._ends = []
        self._ends.append(call)
        if self.closed is not None:
            self._tell_closed()

    def _tell_closed(self) -> None:
        while self._ends:
            try:
                call = self._ends.pop(0)
            except IndexError:
                return
            call()

    def raise_closed(self) -> None:
        reason = self.closed
        assert reason is not None
        # A fresh copy for each taker: threads must not share (and grow) one traceback.
        error = reason.__class__.__new__(reason.__class__, *reason.args)
        error.args = reason.args
        error.__dict__.update(reason.__dict__)
        raise error from None
