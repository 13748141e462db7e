"""Wake-ups handed on from thread to thread: of many that one chunk has answered, one runs after the other.

Under the interpreter lock only one of them can run. If the reader wakes sixteen at once, fifteen go to sleep again on
that lock, and each write of one of them lets another in: 3.6 context switches per publish, 44 us of CPU. So the reader
gives each its reply but wakes only the first, and every thread that comes out of its wait wakes the next one before it
does anything else. The requests that these threads then make are left in the outbox until the chain has ended, and
leave in one write: 1.6 switches, 22 us. Among 64 threads a chain hardly ever ends: new replies come before it does. So
the thread that finds `ENOUGH` frames left sends them before it wakes the next one: a write lets go of the interpreter
lock, and a thread that waits for that lock would take it.

The right to wake the next one is called the token. The reader makes it in `start`, `step` hands it on or ends it.

Invariants:

1. The reply is in its ticket before the ticket is in `answered`, and both before `start`.
2. Whatever has waited steps, because it may have been opened: after a reply, a timeout, an exception, Ctrl-C.
3. A ticket is opened, and only then removed from `answered`: an exception between the two must not forget a thread.
   Two threads that step at once may open the same ticket: the second opening and the second removal change nothing.
   A thread that steps never opens its own ticket, which may still be in line: then no thread would hand the token on.
4. A frame is left first, and then `running` is looked at once more; `step` clears `running`, and then looks at the
   frames. So one of the two sends. In the same way the reader appends to `answered` and then looks at `running`, and
   `step` looks at `answered` after it has cleared it.
5. There is one token. A second one, or a rescue that wakes everybody, would bring the herd back.
6. A thread may lose the token: a signal handler runs on top of it and raises, or goes on for long. The flusher ticks
   while a chain runs, and steps in place of a token that has not moved since its last tick. It sends what was left,
   unless the token has moved and something was sent since its last tick: then the chain sends for itself (when the
   flusher wrote at each tick, too, 16 threads published an eighth less). So no reply and no frame waits for more than
   two ticks.
7. What is left is little, see `Outbox.leave`.
8. A waiter for many replies is woken directly, and so is everything that ends otherwise (a lost link, `close`).

Without the interpreter lock waking all at once is right, and no chain is made.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jsclient._engine.outbox import Outbox
    from jsclient.durations import Deadline
    from jsclient.protocol.frames import Frame

CHAINS: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether threads share an interpreter lock."""

ENOUGH: Final = 24
"""Frames left that the next thread to step sends. With 12 the writes cost what they gain, with no limit 64 threads wait
for the flusher: requests of theirs 17.0 k/s, with 24 18.4."""


class WakeChain:
    """The chain of wake-ups of one connection."""

    __slots__ = ("_kick", "_outbox", "_seen", "answered", "running", "steps")

    def __init__(self, outbox: Outbox, kick: Callable[[], None]) -> None:
        self.answered: deque[Any] = deque()  # tickets that hold their reply and were not opened yet
        self.running: bool = False  # some thread was woken that will step; what is left until then is sent at the end
        self.steps: int = 0
        self._seen = -1
        self._outbox = outbox
        self._kick = kick

    def start(self) -> None:
        """The reader, when it has put tickets into `answered`."""
        if self.running:
            return  # the token is on its way and will come to them
        if len(self.answered) > 1:
            self.running = True
            if not self._outbox.ticking:
                self._kick()
        if not self._open_next():
            self._end()  # threads that stepped just then have opened them all

    def step(self, own: Any = None) -> None:
        """Called by whatever comes out of a wait that the chain may have ended, with its ticket."""
        self.steps += 1
        if len(self._outbox.frames) >= ENOUGH:
            self._outbox.nudge()
        if not self._open_next(own):
            self._end()

    def _end(self) -> None:
        """Nobody is left in line."""
        self.running = False
        if self.answered:
            self.start()  # the reader came between, and counted on the token
            return
        if self._outbox.frames:
            self._outbox.nudge()

    def forget(self, own: Any) -> None:
        """For a wait that ended otherwise: a thread that opened this ticket now would lose the token to it."""
        try:
            self.answered.remove(own)
        except ValueError:
            pass

    def _open_next(self, own: Any = None) -> bool:
        """Wake the first in line; False when there is none."""
        answered = self.answered
        while True:
            try:
                ticket = answered[0]
            except IndexError:
                return False
            if ticket is not own:
                ticket.open()
            try:
                answered.remove(ticket)
            except ValueError:
                pass  # another thread has opened it, too
            if ticket is not own:
                return True

    def leave(self, frame: Frame, deadline: Deadline) -> None:
        """Post a frame while a chain runs: whatever ends it sends what was left."""
        if not self._outbox.leave(frame):
            self._outbox.post_now(frame, deadline)
            return
        if not self.running:
            self._outbox.nudge()
        elif not self._outbox.ticking:
            self._kick()

    def look(self) -> bool:
        """The flusher's tick: a token that has not moved since the last one is lost. True when it has moved."""
        seen, self._seen = self._seen, self.steps
        if seen != self.steps:
            return True
        self.step()
        return False
