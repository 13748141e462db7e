"""The one place where a thread of ours waits for another one.

A wait on a `SimpleQueue` is the cheapest wake-up that CPython has (32 us of CPU per request against 57 for an
Event). On POSIX a signal handler interrupts it. On Windows it does not, so the wait is sliced there.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from jsclient.durations import FOREVER, Deadline

SLICE = 0.1  # seconds between two looks for Ctrl-C on Windows

if TYPE_CHECKING or sys.version_info >= (3, 13):
    Ticket = queue.SimpleQueue
    """What one thread waits on and others put into."""

else:

    class Ticket:
        """What one thread waits on and others put into; a queue for one taker.

        Before 3.13 a `SimpleQueue.get` whose time runs out while a signal handler runs waits for ever; a lock does
        not. Costs 0.3 us more per wait.
        """

        __slots__ = ("_items", "_lock")

        def __init__(self) -> None:
            self._items: deque[Any] = deque()
            self._lock = threading.Lock()
            self._lock.acquire()

        def put(self, item: Any) -> None:
            self._items.append(item)
            try:  # no contextlib.suppress: the reader is here for every reply, and that costs more than all the rest
                self._lock.release()
            except RuntimeError:
                pass  # open already

        def empty(self) -> bool:
            return not self._items

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
                # The lock may be open from an item that was taken without it: then this looks once more.
                while acquire(True, timeout) and not items:
                    timeout = max(0.0, end - time.monotonic())
            return self.get_nowait()


if sys.version_info >= (3, 13):

    def _get(ticket: queue.SimpleQueue[Any], timeout: float | None) -> Any:
        return ticket.get(timeout=timeout)

else:

    def _get(ticket: queue.SimpleQueue[Any], timeout: float | None) -> Any:
        # Before 3.13 a get that finds the queue's inner lock free takes it, looks at the clock, and waits for ever if
        # its time is up by then: certain with a timeout near 0. A get_nowait that found nothing has taken the lock.
        if timeout is not None and ticket.__class__ is queue.SimpleQueue:
            try:
                return ticket.get_nowait()
            except queue.Empty:
                pass
        return ticket.get(timeout=timeout)


if sys.platform == "win32":  # pragma: no cover - tried on Windows only

    def get(ticket: queue.SimpleQueue[Any], timeout: float | None) -> Any:
        deadline = Deadline(timeout)
        while True:
            try:
                return _get(ticket, deadline.at_most(SLICE))
            except queue.Empty:
                if deadline.expired():
                    raise

else:
    #: get(ticket, timeout): the next item; raises `queue.Empty` after `timeout` seconds (None: waits for ever).
    get = _get


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is free again in a forked child: the thread that held it is not there to release it."""
    made = threading.Lock()
    _locks.add(made)
    return made


def new_rlock() -> Any:
    """The same, reentrant."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _free_locks() -> None:
    for made in list(_locks):
        made._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


class Gate(threading.Event):
    """An Event that Ctrl-C cannot break.

    `threading.Event` enters a Condition in Python code; a KeyboardInterrupt in there leaves its lock taken for ever,
    and the next `set` of another thread hangs. This one takes no lock at all.
    """

    def __init__(self) -> None:  # nothing of the base class is used but its type
        self._open = False
        self._tickets: deque[Ticket[None]] = deque()

    def is_set(self) -> bool:
        return self._open

    def set(self) -> None:
        self._open = True
        tickets = self._tickets
        while tickets:
            with contextlib.suppress(IndexError, ValueError):  # another `set` was faster
                ticket = tickets[0]
                ticket.put(None)
                tickets.remove(ticket)  # afterwards, or a Ctrl-C before `put` would forget who waits

    def clear(self) -> None:
        self._open = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._open:
            return True
        ticket: Ticket[None] = Ticket()
        try:
            self._tickets.append(ticket)
            if not self._open:  # look again: what was set before is seen here, what is set later wakes us
                get(ticket, None if timeout is None else min(max(timeout, 0.0), FOREVER))
        except queue.Empty:
            return self._open
        finally:
            with contextlib.suppress(ValueError):
                self._tickets.remove(ticket)
        return True

    def __repr__(self) -> str:
        return f"<Gate, {'open' if self._open else 'closed'}>"
