"""PINGs in flight, and the waits for their PONGs. The server answers in order, and a PONG names no PING."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import compress, filterfalse
from typing import Any

from jsclient import errors, protocol, waiting
from jsclient._connection.outbox import Outbox
from jsclient._connection.sender import LinkFrame
from jsclient.waiting import Ticket


class WhenAnswered:
    """Replaces a ticket when no thread waits: makes a call, on the thread that brings the answer."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def put(self, item: Any) -> None:
        self._call()


class Ping(LinkFrame):
    """A PING frame, and the ticket of the thread that waits for its PONG, if there is one."""

    ticket: Ticket[Any] | WhenAnswered | None = None
    at: float = 0.0


class _Sent:
    """The PINGs of one link, in the order in which they were queued."""

    __slots__ = ("open", "waiting")

    def __init__(self) -> None:
        self.open = [True]  # empty once the link is gone
        self.waiting: deque[Ping] = deque()


class Pings:
    """One entry per PING that was queued."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._sent = _Sent()
        self._lock = waiting.new_lock()  # of the order of both queues, and of the end of a link

    @property
    def waiters(self) -> deque[Ping]:
        """The PINGs that the server has not answered yet."""
        return self._sent.waiting

    def begin(self) -> None:
        """A new link is about to go online; the PINGs of the one before have failed."""
        self._sent = _Sent()

    def send(self, ticket: Ticket[Any] | WhenAnswered | None, closing: bool = False) -> None:
        """Queue a PING; its PONG puts None into `ticket`, or the end of the link an exception.

        `closing`: send although nothing new is accepted, because the last frames are being sent on a live link.
        """
        sent = self._sent  # before the check of `offline`: an object made for an earlier link is closed by now
        if closing or not self.outbox.offline:
            ping = Ping(protocol.PING)
            ping.ticket = ticket
            ping.at = time.monotonic()
            self.outbox.count_queued(len(protocol.PING))
            with self._lock:
                # Into both queues in one call into C, if the link is still up. Another thread or the end of the link
                # waits for the lock. Ctrl-C or a finalizer that flushes between the two would shift all later answers.
                both: Iterator[Any] = filterfalse(sent.waiting.append, compress((ping,), sent.open))
                self.outbox.frames.extend(both)
            if sent.open:
                return
        if ticket is not None:
            closed = self.outbox.closed
            ticket.put(closed() if closed else errors.ConnectionLost("not connected at the moment", sent=False))

    def answered(self) -> float | None:
        """Reader thread: a PONG has come. Returns the seconds since its PING was queued, or None if there was none."""
        try:
            ping = self._sent.waiting.popleft()
        except IndexError:
            return None
        if ping.ticket is not None:
            ping.ticket.put(None)
        return time.monotonic() - ping.at

    def fail(self, make: Callable[[], BaseException], pongs_come: bool = False) -> None:
        """Waiting threads get an exception. With `pongs_come` the link lives on, and their places in the order stay."""
        sent = self._sent
        with self._lock:
            if not pongs_come:
                sent.open.clear()
            failed = waiting.copy_of(sent.waiting)
        for ping in failed:
            if ping.ticket is not None:
                ping.ticket.put(make())
        if not pongs_come:
            sent.waiting.clear()
