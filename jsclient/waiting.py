"""The only module in which our threads wait for each other, and which makes locks.

A wait on a `SimpleQueue` is the cheapest wake-up in CPython (32 µs of CPU per request against 57 µs for an Event). On
POSIX a signal handler interrupts it. On Windows it does not, so the wait is sliced there.

There is one rule for locks. A signal handler runs on top of any code of the main thread, and a finalizer (`__del__`) on
top of any thread. Both can start between any two bytecodes. No call in them may hang: it works, or it raises an error.
Therefore:

* `new_lock` and `new_turn` make every lock. A lock is reentrant, so a call on top of its own holder can enter. In a
  forked child it is free again. ruff finds locks that other code makes.
* Code under a `new_lock` only takes steps in memory, and sends at most without waiting. It must not do other I/O, wait
  (`Thread.start` waits, too) or run code of the user. `tools/rules.py` finds calls that wait.
* Steps that a nested call could spoil need no lock. Each of them is one call into C (see `pings` and `subscriptions`).
* A thread holds a `new_turn` across waits. A call on top of that thread gets `Reentered` (`check_turn`).
* The send lock of a link is such a turn, but no thread waits while it has it. A handler on top of a write may enqueue
  frames. If it makes a call that waits, this raises `Reentered` (see `outbox`).
* A call that would wait for the thread beneath it raises an error. `get` raises `Reentered` if its thread is the reader
  of a connection. It also does so for a wait without a limit under a `new_lock` that others may need to answer.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from jsclient import errors
from jsclient.durations import FOREVER, Deadline

SLICE = 0.1  # seconds between two checks for Ctrl-C on Windows

LONG = 1.0  # seconds after which a wait checks if it can ever end

GIL: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
"""True if threads share an interpreter lock. Then an addition to an attribute is one step, unless it contains a call.
Without it, additions of several threads need a lock."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Ticket(Generic[T]):
    """A queue for one consumer: one thread waits on it, and others put items into it.

    Unlike a `SimpleQueue`, it can be filled without waking the thread (see `wake_chain`). Also, before Python 3.13 a
    `SimpleQueue.get` waits forever if its time runs out while a signal handler runs; a lock does not.
    """

    __slots__ = ("_items", "_lock")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._lock.acquire()

    def put(self, item: Any) -> None:
        self._items.append(item)
        try:  # no contextlib.suppress: the reader runs this for every reply, and it would cost more than all the rest
            self._lock.release()
        except RuntimeError:
            pass  # open already

    def put_closed(self, item: Any) -> None:
        """The first half of `put`; `open` wakes the waiting thread."""
        self._items.append(item)

    def open(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # open already

    def empty(self) -> bool:
        return not self._items

    def size(self) -> int:
        return len(self._items)

    def get_nowait(self) -> Any:
        try:
            return self._items.popleft()
        except IndexError:
            raise queue.Empty from None

    def get(self, timeout: float | None = None) -> Any:
        items, acquire = self._items, self._lock.acquire
        if timeout is None:
            while not items:
                acquire()
        elif not items:
            end = time.monotonic() + timeout
            # The lock may still be open from an earlier item that did not need it. Then this checks once more.
            while acquire(True, timeout) and not items:
                timeout = max(0.0, end - time.monotonic())
        try:
            return items.popleft()
        except IndexError:
            raise queue.Empty from None


if sys.version_info >= (3, 13):

    def _get(ticket: queue.SimpleQueue[Any] | Ticket[Any], timeout: float | None) -> Any:
        return ticket.get(timeout=timeout)

else:

    def _get(ticket: queue.SimpleQueue[Any] | Ticket[Any], timeout: float | None) -> Any:
        # Before 3.13 a get that finds the queue's inner lock free takes it and checks the clock. It waits forever if
        # its time is up by then, which is certain with a timeout near 0. A get_nowait that found nothing has taken the
        # lock.
        if timeout is not None and ticket.__class__ is queue.SimpleQueue:
            try:
                return ticket.get_nowait()
            except queue.Empty:
                pass
        return ticket.get(timeout=timeout)


INTERRUPTIBLE: Final = sys.platform != "win32"
"""True if a signal handler interrupts a wait."""

if sys.platform == "win32":  # pragma: no cover - tried on Windows only

    def _get_interruptibly(ticket: queue.SimpleQueue[Any] | Ticket[Any], timeout: float | None) -> Any:
        deadline = Deadline(timeout)
        while True:
            try:
                return _get(ticket, deadline.at_most(SLICE))
            except queue.Empty:
                if deadline.expired():
                    raise

else:
    _get_interruptibly = _get


def get(ticket: queue.SimpleQueue[Any] | Ticket[Any], timeout: float | None) -> Any:
    """The next item. Raises `queue.Empty` after `timeout` seconds; None waits indefinitely.

    Raises Reentered, after a second, if the wait could not end before its own thread continues (see the rule above).
    """
    first = LONG if timeout is None or timeout > LONG else timeout
    try:
        if INTERRUPTIBLE and ticket.__class__ is Ticket:
            return ticket.get(first)  # every request comes here, so save two calls
        return _get_interruptibly(ticket, first)
    except queue.Empty:
        if timeout is not None and timeout <= LONG:
            raise
        _refuse_to_hang(timeout)
    return _get_interruptibly(ticket, None if timeout is None else timeout - LONG)


# --- locks ----------------------------------------------------------------------------------------------

# References with a callback in C. The callback of a WeakSet is in Python, where a Ctrl-C was printed and lost. That
# happened to 96 of 400 that hit a thread which made and freed locks.
_locks: set[weakref.ref[Any]] = set()
_turns: set[weakref.ref[Any]] = set()
readers: set[int] = set()
"""The threads that read a socket; see `as_reader`. `on_reader` looks up the current one."""


def new_lock() -> Any:
    """A lock for a few steps in memory. It is reentrant, and free again in a forked child, where its holder does not
    exist."""
    made = threading.RLock()
    _locks.add(weakref.ref(made, _locks.discard))
    return made


def new_condition() -> threading.Condition:
    """A Condition around such a lock, for our own threads. No signal handler runs on top of them."""
    return threading.Condition(new_lock())


def new_turn() -> Any:
    """A lock that one thread holds across waits, for its turn. Call `check_turn` before taking it."""
    made = threading.RLock()
    _turns.add(weakref.ref(made, _turns.discard))
    return made


def numbers(first: int = 1, step: int = 1) -> Callable[[], int]:
    """A function that returns the next number. Threads that share it never get the same one."""
    following = itertools.count(first, step).__next__
    if GIL:
        return following
    lock = new_lock()

    def number() -> int:
        with lock:
            return following()

    return number


_OWNER = re.compile(r" owner=(\d+) ")


def copy_of(shared: deque[T]) -> deque[T]:
    """A copy of a deque that other threads change. With the interpreter lock this is one step."""
    while not GIL:
        try:
            return deque(list(shared))  # `copy` of CPython 3.13 takes 40 µs for each item without the lock
        except RuntimeError:  # another thread has changed the deque meanwhile
            pass
    return shared.copy()


def items_of(shared: dict[K, V]) -> list[tuple[K, V]]:
    """The items of a dict that other threads change without a lock.

    `list(shared.items())` makes a tuple for each item, which may start the garbage collector. A finalizer that it runs
    lets other threads in, and Python raises "dictionary changed size during iteration". A list of the keys makes no
    objects.
    """
    found = ((key, shared.get(key, _GONE)) for key in list(shared))
    return [(key, value) for key, value in found if value is not _GONE]  # type: ignore[misc]


_GONE: Final = object()


def holder(turn: Any) -> int | None:
    """The thread that holds a turn, 0 if none does, None if that is unknown. CPython shows it only in the `repr`."""
    found = _OWNER.search(repr(turn))
    return int(found[1]) if found else None


def is_beneath(thread: int | None, code: Callable[..., object]) -> bool:
    """True if a thread that runs `code` runs foreign code on top of it: a signal handler."""
    frame = sys._current_frames().get(thread or 0)
    while frame is not None and frame.f_code is not code.__code__:
        if not frame.f_globals.get("__name__", "").startswith("jsclient."):
            return True
        frame = frame.f_back
    return False


def free(turn: Any) -> None:
    """Release a turn if this thread holds it. Call it twice: a signal handler may raise within the first call."""
    try:
        while turn._is_owned():
            turn.release()
    except RuntimeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # else a handler has released it between the check and the release


def check_turn(turn: Any, what: str) -> None:
    """Raises Reentered if the current thread has the turn: then this is a signal handler or finalizer on top of it."""
    if turn._is_owned():
        raise errors.Reentered(f"{what} in a signal handler or finalizer, on top of the same on its own thread")


@contextlib.contextmanager
def as_reader() -> Iterator[None]:
    """The current thread answers the waits of others while the block runs, so it must not wait for an answer itself."""
    own = threading.get_ident()
    readers.add(own)
    try:
        yield
    finally:
        readers.discard(own)


def on_reader() -> bool:
    """True on the reader thread of a connection: in a finalizer, or in a layer's code that handles received data."""
    return threading.get_ident() in readers


def _refuse_to_hang(timeout: float | None) -> None:
    if on_reader():
        raise errors.Reentered("a wait on the reader thread of a connection: what it waits for could not be read")
    for made in _alive(_locks) if timeout is None or timeout >= FOREVER else ():
        if made._is_owned():
            raise errors.Reentered(
                "a signal handler or finalizer waits without a limit on top of a call of its own thread that others "
                "wait for. Let it set a flag, or give it a timeout."
            )


def _alive(made: set[weakref.ref[Any]]) -> list[Any]:
    """The locks that exist now. One call into C copies them, because other threads make locks at any time."""
    return [lock for lock in (ref() for ref in made.copy()) if lock is not None]


def free_locks() -> None:
    for made in (*_alive(_locks), *_alive(_turns)):
        if not made._is_owned():  # else the forking thread holds it in a signal handler, and will release it
            made._at_fork_reinit()
    readers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=free_locks)


class Gate(threading.Event):
    """An Event that Ctrl-C cannot break.

    `threading.Event` enters a Condition in Python code. A KeyboardInterrupt in there leaves its lock taken forever, and
    the next `set` of another thread hangs. This class takes no lock at all.
    """

    def __init__(self) -> None:  # uses only the type of the base class
        self._open = False
        self._tickets: deque[Ticket[None]] = deque()

    def is_set(self) -> bool:
        return self._open

    @property
    def awaited(self) -> bool:
        """True if a thread waits for it now."""
        return bool(self._tickets)

    def set(self) -> None:
        self._open = True
        tickets = self._tickets
        while tickets:
            with contextlib.suppress(IndexError, ValueError):  # another `set` was faster
                ticket = tickets[0]
                ticket.put(None)
                tickets.remove(ticket)  # afterwards, or a Ctrl-C before `put` would forget a waiter

    def clear(self) -> None:
        self._open = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._open:
            return True
        ticket: Ticket[None] = Ticket()
        try:
            self._tickets.append(ticket)
            if not self._open:  # check again: an earlier `set` shows here, a later one wakes this thread
                get(ticket, None if timeout is None else min(max(timeout, 0.0), FOREVER))
        except queue.Empty:
            return self._open
        finally:
            with contextlib.suppress(ValueError):
                self._tickets.remove(ticket)
        return True

    def __repr__(self) -> str:
        return f"<Gate, {'open' if self._open else 'closed'}>"
