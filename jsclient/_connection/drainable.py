"""Drainables consume messages, and end together with their connection.

One rule holds for all of them, whatever the reason of the end. A drainable that ends withdraws its pull (or
subscription) and starts no further handler. It returns the messages it holds to the server, and reports the reason. A
Connection knows all its drainables: `drain` lets them finish, and `close` stops them.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

from jsclient import errors, waiting
from jsclient.durations import Deadline

SLICE: Final = 0.05
"""Seconds between two looks at the connection while a drain waits: a handler that hangs must not hold up close()."""


class Drainable:
    """The steps of an end. A drain takes the first three, with a round trip to the server between the first two. A
    close takes the last two, with a round trip between them. Every step may come more than once, or after the end.

    Attributes:
        application_driven: True if threads of the application take from it, instead of our own. It is drained after
            all handlers have ended.
        publishes: True if it takes no messages but waits for acks of published ones. It is drained last, because
            handlers publish.
    """

    application_driven = False

    publishes = False

    def begin_drain(self) -> None:
        """Request no more messages. Messages that the server has already sent still arrive."""

    def all_received(self) -> None:
        """No more messages come: end after the available ones."""

    def finish_drain(self, deadline: Deadline) -> None:
        """Wait until its messages are handled, or return them to the server. Raises DrainTimeout."""

    def end(self, reason: errors.ConnectionClosed) -> None:
        """The connection closes: withdraw the pull and start no handler from now on. It must not wait."""

    def hand_back(self) -> list[bytes]:
        """Called after `end`, once everything that the server had sent has arrived. Returns the frames that return the
        messages to the server."""
        return []

    def runs_here(self) -> bool:
        """True if the current thread is a thread of this drainable, which cannot wait for the handler that it runs."""
        return False


HAND_BACK: Final = 0.5
"""Seconds that the end of a connection waits for calls that it has interrupted. They need only microseconds."""


class Drainables:
    """The drainables of one connection, held weakly: an iterator that the program no longer holds withdraws itself."""

    def __init__(self) -> None:
        self._known: set[weakref.ref[Drainable]] = set()
        self.left: deque[bytes] = deque()
        """Frames that return the messages of interrupted calls to the server when the connection ends."""
        self.calls: deque[int] = deque()
        """The threads within such calls. To enter and to leave takes one step of the interpreter."""

    def wait_for_calls(self) -> None:
        """Let the calls that the end of the connection has interrupted return their messages. Wait only briefly: a
        thread may never get to it, or the call may be beneath this one, on the same thread."""
        deadline, me, nobody = Deadline(HAND_BACK), threading.get_ident(), waiting.Gate()
        while any(thread != me for thread in waiting.copy_of(self.calls)) and not deadline.expired():
            nobody.wait(HAND_BACK / 100)

    def enter(self, drainable: Drainable, instead_of: Drainable | None = None) -> None:
        """From now on `drainable` ends with the connection. It also ends `instead_of`, from which it takes."""
        # No lock: a finalizer may remove a member anywhere, and each of these calls is one step of the interpreter.
        self._known.add(weakref.ref(drainable, self._known.discard))
        if instead_of is not None:
            self._known.discard(weakref.ref(instead_of))

    def all(self) -> list[Drainable]:
        """All drainables; the ones with their own handlers come first."""
        found = [drainable for known in list(self._known) if (drainable := known()) is not None]
        return sorted(found, key=lambda drainable: drainable.application_driven)

    def run_here(self) -> bool:
        """True if the current thread runs a handler."""
        return any(drainable.runs_here() for drainable in self.all())


def wait_for(done: waiting.Gate, deadline: Deadline, closed: Callable[[], bool]) -> bool:
    """Wait for the last handler, until the deadline or until the connection is closed."""
    while not done.wait(deadline.at_most(SLICE)):
        if deadline.expired() or closed():
            return done.is_set()
    return True
