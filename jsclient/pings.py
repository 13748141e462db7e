"""PINGs under way, and who waits for their PONGs: the server answers in order, and says nothing else about them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import protocol
from jsclient import errors
from jsclient.outbox import Outbox, Unkept
from jsclient.waiting import Ticket


class Pings:
    """One entry per PING that was queued: the ticket of who waits, or None. Thread-safe."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.waiters: deque[Ticket[Any] | None] = deque()
        self._lock = threading.Lock()

    def send(self, waiter: Ticket[Any] | None, closing: bool = False) -> None:
        """Queue a PING; its PONG puts None into `waiter`, or the end of the link an exception.

        `closing`: although nothing is taken any more; the last frames are being sent on a link that lives.
        """
        with self._lock:
            if self.outbox.offline and not closing:
                if waiter is not None:
                    closed = self.outbox.closed
                    waiter.put(closed() if closed else errors.ConnectionLost("not connected at the moment"))
                return
            ping = Unkept(protocol.PING)
            counted = False
            try:
                self.waiters.append(waiter)
                counted = True
                self.outbox.frames.append(ping)
            except BaseException:
                # Ctrl-C in between: one waiter too many would shift the answers of all that follow.
                if not counted and self.waiters and self.waiters[-1] is waiter:
                    self.waiters.pop()
                raise

    def answered(self) -> None:
        """A PONG has come: the reader."""
        with self._lock:
            waiter = self.waiters.popleft() if self.waiters else None
        if waiter is not None:
            waiter.put(None)

    def fail(self, make: Callable[[], BaseException], pongs_come: bool = False) -> None:
        """Whoever waits gets an exception. With `pongs_come` the link lives on: their places in the order stay."""
        with self._lock:
            waiters = [waiter for waiter in self.waiters if waiter is not None]
            self.waiters = deque([None] * len(self.waiters) if pongs_come else ())
        for waiter in waiters:
            waiter.put(make())
