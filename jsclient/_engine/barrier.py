"""A barrier: the moment when callbacks have handled everything that had come before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, waiting
from jsclient._engine.mailbox import Mark
from jsclient._engine.takers import SLICE
from jsclient.durations import Deadline

if TYPE_CHECKING:
    from jsclient._engine.engine import Engine
    from jsclient._engine.strands import Strand

BARRIER_TIMEOUT: Final = 30.0
"""Seconds that `barrier` waits unless told otherwise, as a drain does."""


def when_handled(strands: list[Strand], call: Callable[[], None]) -> None:
    """Make a call once all of these have handled what they hold now; at once if there are none."""
    left: list[None] = [None] * (len(strands) + 1)  # one is ours, until all marks are set
    once = [call]

    def passed() -> None:
        left.pop()
        if not left:
            try:
                last = once.pop()
            except IndexError:
                return  # two have passed at the same moment
            last()

    for strand in strands:
        strand.put_mark(Mark(passed))
    passed()


def barrier(engine: Engine, call: Callable[[], Any] | None, deadline: Deadline) -> None:
    """See `Connection.barrier`."""
    engine.check_usable()
    strands = engine.strands_at_work()
    if call is not None:
        wanted = call  # for the type checker: it does not follow `call` into a function
        when_handled(strands, lambda: engine.run_callback(wanted))
        return
    if any(strand.runs_here() for strand in strands):
        raise errors.Reentered("a callback cannot wait until it has returned itself: give barrier a function to call")
    done = waiting.Gate()
    when_handled(strands, done.set)
    while not done.wait(deadline.at_most(SLICE)):
        engine.check_usable()
        if deadline.expired():
            raise errors.TimedOut(
                "callbacks have not handled in time what had come before. They go on with it. Wait again."
            )
    engine.check_usable()  # a close throws away what waits
