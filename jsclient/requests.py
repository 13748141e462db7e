"""Requests: one wildcard inbox per connection, a token per request, a ticket per waiting thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jsclient import errors
from jsclient.states import LinkEvent
from jsclient.waiting import Ticket

if TYPE_CHECKING:
    from jsclient.message import Msg


class Requests:
    """The reply side of requests; a sink on the reader thread.

    Tokens are a counter: the secret part of an inbox is its prefix. A waiter is a ticket that gets the reply,
    or the exception that ends the wait.
    """

    def __init__(self, subscribe: Callable[[Requests], bytes]) -> None:
        self._subscribe = subscribe
        self._lock = threading.Lock()
        self._counter = itertools.count(1)
        self.waiting: dict[bytes, Ticket[Any]] = {}
        self.subjects: dict[bytes, str] = {}
        self._prefix: bytes | None = None
        self._cut = 0

    @property
    def is_open(self) -> bool:
        """True once the wildcard inbox is subscribed."""
        return self._prefix is not None

    def open(self, subject: str) -> tuple[bytes, bytes, Ticket[Any]]:
        """(token, reply subject, ticket) of a new request; the wildcard inbox is subscribed at first use."""
        prefix = self._prefix
        if prefix is None:
            prefix = self._open_inbox()
        token = b"%d" % next(self._counter)
        ticket: Ticket[Any] = Ticket()
        self.subjects[token] = subject
        self.waiting[token] = ticket
        return token, prefix + token, ticket

    def _open_inbox(self) -> bytes:
        with self._lock:
            if self._prefix is None:
                prefix = self._subscribe(self)
                self._cut = len(prefix)
                self._prefix = prefix
            return self._prefix

    def forget(self, token: bytes) -> None:
        """Late replies to this request are dropped from now on."""
        self.waiting.pop(token, None)
        self.subjects.pop(token, None)

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        waiting = self.waiting
        for message in messages:
            ticket = waiting.get(message.raw_subject[self._cut :])
            if ticket is None and len(waiting) == 1 and not message.raw_subject.startswith(self._prefix or b""):
                # An import rewrote the reply subject: with one request under way it can only be meant for that one.
                ticket = next(iter(list(waiting.values())), None)
            if ticket is not None:
                ticket.put(message)

    def withdrawn(self, frames: list[bytes]) -> None:
        """The link went down before a byte of these was sent; told before `fail`, so that the waiter hears it first."""
        start = b" " + (self._prefix or b"?")
        for frame in frames:
            _, found, rest = frame.partition(b"\r\n")[0].partition(start)
            ticket = self.waiting.get(rest.partition(b" ")[0]) if found else None
            if ticket is not None:
                ticket.put(errors.ConnectionLost("the link went down: nothing of the request was sent", sent=False))

    def link_event(self, event: LinkEvent) -> None:
        """Requests end by `fail`; link events alone say nothing to them."""

    def fail(self, make: Callable[[], BaseException], subject: str | None = None) -> None:
        """End the waits (of all requests, or of those to one subject) with an exception each."""
        for token, ticket in self.waiting.copy().items():
            if subject is None or self.subjects.get(token) == subject:
                ticket.put(make())

    def reset(self) -> None:
        """Forget the inbox: the next request makes a new one (permission to it was refused)."""
        with self._lock:
            self._prefix = None
