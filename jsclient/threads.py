"""The one place where threads of ours begin: a start has an end.

`threading.Thread.start` waits without a limit until the new thread says that it runs. A thread that dies before that,
for want of memory, says nothing ("Exception ignored in thread started by"), and its starter waits for ever
(github.com/python/cpython/issues/140746). A connection with such a starter never comes back.

So a `Thread` of ours does what it is for, or its `start` raises NoThread and it never will. Which of the two is decided
by one step: the thread takes the right to run (`_right`), or its starter takes it, after it has waited long enough or
has seen that the thread is dead. The interpreter holds the bound method that a thread enters with until the thread
ends; a weak reference to it calls C code, and no Python code, which could want memory, too.

ruff finds threads that are made in another way.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from jsclient import errors

SLICE: Final = 0.1
"""Seconds between two looks for Ctrl-C on Windows. Counted instead of the clock: a process that was stopped for a while
goes on with the next look, and then the thread has its chance."""

LOOKS: Final = 100
"""After so many slices a thread that lives and does not begin is given up: it will do nothing when it comes."""


def _listed(name: str) -> dict[Any, Any]:
    """The interpreter's threads that run, or that have been started and do not run yet."""
    found: dict[Any, Any] = vars(threading).get(name, {})
    return found


class _Started:
    """In the place of the Event that `Thread.start` waits for: `Thread.start` of ours waits by itself, and not for the
    interpreter's word but for the function that the thread is for."""

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
        """It has no lock."""


class Thread(threading.Thread):
    """A daemon thread that calls `target` with `args`; its start ends in any case."""

    def __init__(self, name: str, target: Callable[..., Any], *args: Any) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._started = _Started()
        self._right = [None]  # to run: one `pop` takes it, by the thread or by the starter that gives it up
        self._given_up = False
        self._woken = threading.Lock()  # released when the thread has the right, or has died
        self._woken.acquire()
        self._death: weakref.ref[Any] | None = None

    @property
    def began(self) -> bool:
        """Whether it has come as far as its function; False for ever once its start has failed."""
        return not self._right and not self._given_up

    def start(self) -> None:
        """Raises NoThread if the thread does not begin: then it never will."""
        cause: BaseException | None = None
        try:
            self._start_and_wait()
        except (RuntimeError, MemoryError) as error:
            if self.began and isinstance(error, RuntimeError):
                raise  # started twice
            cause = error
        except BaseException:  # Ctrl-C: what has not begun by now shall not begin later
            self._give_up()
            raise
        if not self.began and self._give_up():
            raise errors.NoThread(f"no thread {self.name}: {cause or self._why()}") from cause

    def _start_and_wait(self) -> None:
        entry = self._bootstrap
        self._death = weakref.ref(entry, self._woken.__exit__)  # type: ignore[arg-type]  # takes anything
        vars(self)["_bootstrap"] = entry  # the same one for the interpreter; each look makes another one
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
        self._death = None  # first: its end wakes nobody any more
        self._woken.release()
        super().run()

    def _give_up(self) -> bool:
        """False if it has begun after all."""
        try:
            self._right.pop()
        except IndexError:
            return False
        self._given_up = True
        if self._is_dead():  # else it takes itself off the interpreter's lists when it comes
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
    """Start all the threads, or raise NoThread: then some of them may run, and their owner ends those."""
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except errors.NoThread as error:
            why = errors.brief(error.__cause__ or error)
            raise errors.NoThread(
                f"{what} needs {len(threads)} thread{'s' * (len(threads) > 1)} and got {number}: {why}. It was "
                "ended, and what it had received went back. Use fewer threads, or raise the system's limit."
            ) from error
