"""Whatever takes messages, and how it ends together with its connection.

The rule for all of them: what takes messages and ends, for whatever reason, withdraws its pull (or subscription),
starts no further handler, hands back what it holds, and says why. A Connection knows every one of them, so that
`drain` can let them finish and `close` can stop them.
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


class Taker:
    """The steps of an end. A drain takes the first three, with a round trip to the server between the first two; a
    close takes the last two, with a round trip between them. Every step may come more than once, or after the end.

    Attributes:
        application_driven: Whether threads of the application take from it, and not our own: drained after all
            handlers have ended.
        publishes: Whether it is not about taking, but waits for acks of what was published: drained last, as handlers
            publish.
    """

    application_driven = False

    publishes = False

    def begin_drain(self) -> None:
        """Ask for nothing more; what the server has sent already still comes."""

    def all_received(self) -> None:
        """Nothing more comes: end after what is there."""

    def finish_drain(self, deadline: Deadline) -> None:
        """Wait until what it holds was handled, or hand it back. Raises DrainTimeout."""

    def end(self, reason: errors.ConnectionClosed) -> None:
        """The connection closes: withdraw the pull and start no handler from now on. It must not wait."""

    def hand_back(self) -> list[bytes]:
        """After `end`, once everything that the server had sent is here: the frames that give it back."""
        return []

    def runs_here(self) -> bool:
        """Whether the current thread is one of its own: it cannot wait for the handler that it runs."""
        return False


HAND_BACK: Final = 0.5
"""Seconds that the end of a connection waits for calls that it has cut short, which takes them microseconds."""


class Takers:
    """The takers of one connection. They are held weakly: an iterator that nobody has any more withdraws itself."""

    def __init__(self) -> None:
        self._known: set[weakref.ref[Taker]] = set()
        self.left: deque[bytes] = deque()
        """Frames that hand back what a call held that the end of the connection has cut short."""
        self.calls: deque[int] = deque()
        """The threads within such calls: one step of the interpreter to enter and to leave."""

    def wait_for_calls(self) -> None:
        """Let the calls that the end of the connection has cut short hand back what they held. Not for long: a thread
        that does not come to it, or this one's own call beneath, must not hold the end up."""
        deadline, me, nobody = Deadline(HAND_BACK), threading.get_ident(), waiting.Gate()
        while any(thread != me for thread in tuple(self.calls)) and not deadline.expired():
            nobody.wait(HAND_BACK / 100)

    def enter(self, taker: Taker, instead_of: Taker | None = None) -> None:
        """From now on `taker` ends with the connection, and sees to the end of `instead_of`, from which it takes."""
        # No lock: a finalizer may remove a member anywhere, and each of these calls is one step of the interpreter.
        self._known.add(weakref.ref(taker, self._known.discard))
        if instead_of is not None:
            self._known.discard(weakref.ref(instead_of))

    def all(self) -> list[Taker]:
        """Those with handlers of their own first."""
        found = [taker for known in list(self._known) if (taker := known()) is not None]
        return sorted(found, key=lambda taker: taker.application_driven)

    def run_here(self) -> bool:
        """Whether the current thread is a handler's."""
        return any(taker.runs_here() for taker in self.all())


def wait_for(done: waiting.Gate, deadline: Deadline, closed: Callable[[], bool]) -> bool:
    """Wait for the last handler, until the deadline or until the connection is closed."""
    while not done.wait(deadline.at_most(SLICE)):
        if deadline.expired() or closed():
            return done.is_set()
    return True
