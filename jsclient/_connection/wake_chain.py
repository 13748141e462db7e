"""Hands wake-ups on from thread to thread: of the threads that one chunk has answered, one runs at a time.

Under the interpreter lock only one of them can run. If the reader wakes sixteen together, fifteen go to sleep again on
that lock, and each write of one of them lets another in. This costs 3.6 context switches and 44 µs of CPU per publish.
So the reader gives each thread its reply but wakes only the first. Every thread that comes out of its wait first wakes
the next one.

The requests that these threads then make stay in the outbox until the chain has ended, and leave in one write: 1.6
switches, 22 µs. With 64 threads a chain hardly ever ends, because new replies come before that. So a thread that finds
`ENOUGH` frames left sends them before it wakes the next one. Otherwise its write would release the interpreter lock to
a thread that waits for it.

The right to wake the next one is called the token. The reader makes it in `start`, `step` hands it on or ends it.

Invariants:

1. The reply is in its ticket before the ticket is in `answered`, and both before `start`.

2. Every thread that has waited steps, because its ticket may have been opened: after a reply, a timeout, an exception,
   Ctrl-C.

3. A thread opens a ticket, and only then removes it from `answered`: an exception between the two must not forget a
   thread. Two threads that step simultaneously may open the same ticket: the second opening and the second removal
   change nothing. A thread that steps never opens its own ticket, which may still be in line. Otherwise the token would
   stop there.

4. A thread leaves a frame first, and then checks `running` once more. `step` clears `running`, and then checks the
   frames. So one of the two sends. In the same way the reader appends to `answered` and then checks `running`, and
   `step` checks `answered` after it has cleared `running`.

5. There is one token. A second one, or a rescue that wakes all threads, would bring the herd back.

6. A thread may lose the token: a signal handler runs on top of it and raises, or takes long. The flusher ticks while a
   chain runs, and steps in place of a token that has not moved since its last tick. It sends the frames left, unless
   the token has moved and something was sent since its last tick: the chain sends for itself then. So no reply and no
   frame waits for more than two ticks. When the flusher wrote at each tick, 16 threads published an eighth less.

7. The frames left are few, see `Outbox.leave`.

8. The reader wakes a waiter for many replies directly. So does every other end of a wait (a lost link, `close`).

Without the interpreter lock it is right to wake all threads together, and no chain is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import waiting

if TYPE_CHECKING:
    from jsclient._connection.outbox import Outbox
    from jsclient.durations import Deadline
    from jsclient.protocol.frames import Frame

CHAINS: Final = waiting.GIL

ENOUGH: Final = 24
"""Number of frames left that the next thread to step sends. With 12 the writes cost as much as they gain. With no limit
64 threads wait for the flusher and make 17.0 k requests per second; with 24 they make 18.4 k."""


class WakeChain:
    """The chain of wake-ups of one connection."""

    __slots__ = ("_kick", "_outbox", "_seen", "answered", "running", "steps")

    def __init__(self, outbox: Outbox, kick: Callable[[], None]) -> None:
        self.answered: deque[Any] = deque()  # tickets that hold their reply and were not opened yet
        self.running: bool = False  # A woken thread will step. Frames left until then leave at the end.
        self.steps: int = 0
        self._seen = -1
        self._outbox = outbox
        self._kick = kick

    def start(self) -> None:
        """Called by the reader when it has put tickets into `answered`."""
        if self.running:
            return  # the token is on its way and will reach them
        if len(self.answered) > 1:
            self.running = True
            if not self._outbox.ticking:
                self._kick()
        if not self._open_next():
            self._end()  # threads that stepped just then have opened them all

    def step(self, own: Any = None) -> None:
        """Called with its ticket by a thread that comes out of a wait that the chain may have ended."""
        self.steps += 1
        if len(self._outbox.frames) >= ENOUGH:
            self._outbox.nudge()
        if not self._open_next(own):
            self._end()

    def _end(self) -> None:
        """No ticket is left in line."""
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
        """Post a frame while a chain runs: the thread that ends the chain sends the frames left."""
        if not self._outbox.leave(frame):
            self._outbox.enqueue_now(frame, deadline)
            return
        if not self.running:
            self._outbox.nudge()
        elif not self._outbox.ticking:
            self._kick()

    def look(self) -> bool:
        """The flusher's tick: a token that has not moved since the last tick is lost. True when it has moved."""
        seen, self._seen = self._seen, self.steps
        if seen != self.steps:
            return True
        self.step()
        return False
