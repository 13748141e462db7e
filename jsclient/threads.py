"""The only module that starts our threads. Every start ends, with success or an error.

`threading.Thread.start` waits without a limit until the new thread reports that it runs. A thread that dies before that
because memory is exhausted reports nothing ("Exception ignored in thread started by"). Then its starter waits forever
(github.com/python/cpython/issues/140746), and a connection with such a starter hangs.

So our `Thread` either runs its function, or its `start` raises NoThread and the function never runs. One atomic step
decides between the two. The thread takes the right to run (`_right`), or its starter takes it after a long enough wait
or the death of the thread.

To detect a death, there is a weak reference to the bound method that the thread enters with. The interpreter holds this
method until the thread ends. The reference calls C code, because Python code could need memory, too.

ruff finds threads that other code makes in another way.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from jsclient import errors

SLICE: Final = 0.1
"""Seconds between two checks for Ctrl-C on Windows.

The starter counts slices and ignores the clock. So a process that was stopped for a while continues with the next
check, and its thread still has a chance.
"""

LOOKS: Final = 100
"""Number of slices after which a living thread that has not begun is given up. It does nothing if it begins later.
"""


def _listed(name: str) -> dict[Any, Any]:
    """The interpreter's threads that run, or that were started and do not run yet."""
    found: dict[Any, Any] = vars(threading).get(name, {})
    return found


class _Started:
    """Replaces the Event that `threading.Thread.start` waits for.

    Our `Thread.start` has its own wait: for the function of the thread, and not only for the interpreter's report.
    """

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._set

    def _at_fork_reinit(self) -> None:
        """Nothing to do, because it has no lock."""


class Thread(threading.Thread):
    """A daemon thread that calls `target` with `args`. Its start ends in any case."""

    def __init__(self, name: str, target: Callable[..., Any], *args: Any) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._started = _Started()
        self._right = [None]  # the right to run: the thread or the starter that gives up takes it by one `pop`
        self._given_up = False
        self._woken = threading.Lock()  # released when the thread has the right, or has died
        self._woken.acquire()
        self._death: weakref.ref[Any] | None = None

    @property
    def began(self) -> bool:
        """True if it has reached its function; stays False after a failed start."""
        return not self._right and not self._given_up

    def start(self) -> None:
        """Start the thread. Raises NoThread if it does not begin, and then it never will."""
        cause: BaseException | None = None
        try:
            self._start_and_wait()
        except (RuntimeError, MemoryError) as error:
            if self.began and isinstance(error, RuntimeError):
                raise  # started twice
            cause = error
        except BaseException:  # Ctrl-C: a thread that has not begun must stay that way
            self._give_up()
            raise
        if not self.began and self._give_up():
            raise errors.NoThread(f"no thread {self.name}: {cause or self._why()}") from cause

    def _start_and_wait(self) -> None:
        entry = self._bootstrap
        self._death = weakref.ref(entry, self._woken.__exit__)  # type: ignore[arg-type]  # takes anything
        vars(self)["_bootstrap"] = entry  # the same object for the interpreter; each attribute access makes another
        try:
            super().start()
        finally:
            del entry, vars(self)["_bootstrap"]
        for _ in range(LOOKS):
            if self._woken.acquire(True, SLICE):
                return

    def _bootstrap(self) -> None:
        if self._given_up:
            _listed("_limbo").pop(self, None)
        else:
            super()._bootstrap()  # type: ignore[misc]

    def run(self) -> None:
        try:
            self._right.pop()
        except IndexError:
            return  # too late
        self._death = None  # first, so the end of the thread wakes no starter
        self._woken.release()
        super().run()

    def _give_up(self) -> bool:
        """Take the right to run. False if the thread has begun after all."""
        try:
            self._right.pop()
        except IndexError:
            return False
        self._given_up = True
        if self._is_dead():  # else it removes itself from the interpreter's lists if it begins
            _listed("_limbo").pop(self, None)
            if _listed("_active").get(self.ident) is self:
                _listed("_active").pop(self.ident, None)
        return True

    def _is_dead(self) -> bool:
        return self._death is None or self._death() is None

    def _why(self) -> str:
        if self._is_dead():
            return "it died before it began, for want of memory"
        return f"it did not begin within {SLICE * LOOKS:g} s"


def start_all(threads: Sequence[Thread], what: str) -> None:
    """Start all the threads. If it raises NoThread, some of them may run, and their owner ends those."""
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except errors.NoThread as error:
            why = errors.brief(error.__cause__ or error)
            raise errors.NoThread(
                f"{what} needs {len(threads)} thread{'s' * (len(threads) > 1)} and got {number}: {why}. It was "
                "ended, and what it had received went back. Use fewer threads, or raise the system's limit."
            ) from error
