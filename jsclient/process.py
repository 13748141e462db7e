"""What a process does to its connections: fork, interpreter exit, and one shared connection per process."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import warnings
from typing import Any, Final

from jsclient import connection as _connection
from jsclient import errors, waiting
from jsclient._engine.session import CLOSE_FLUSH
from jsclient.connection import Connection
from jsclient.durations import Deadline
from jsclient.options import ConnectOptions

FORKED_TEXT: Final = (
    "this connection was made in the parent process before fork; a child has no part in it. Open one here: "
    "jsclient.shared(options) gives every process its own"
)

_ALLOWED: Final = frozenset(
    ("close", "closed", "options", "number", "__class__", "__dict__", "__enter__", "__exit__", "__reduce__",
     "__repr__", "__del__", "__init_subclass__", "refuse_pickle", "_engine",
     "connection", "__reduce_ex__", "_forked_stream")
)  # fmt: skip


class ForkedChild(Connection):
    """What a Connection becomes in a forked child: it closes silently and refuses everything else."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _ALLOWED:
            raise errors.ForkedConnection(FORKED_TEXT)
        return object.__getattribute__(self, name)

    def __init__(self) -> None:
        raise TypeError("made by fork only")

    def close(self, wait: bool = True) -> None:
        """Frees the inherited descriptor and sends nothing: the session belongs to the parent."""
        stream = self.__dict__.pop("_forked_stream", None)
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    @property
    def closed(self) -> bool:
        return True

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<jsclient.Connection of the parent process>"


def _forked_error() -> errors.ForkedConnection:
    return errors.ForkedConnection(FORKED_TEXT)


def _after_fork_in_child() -> None:
    # No lock that exists may be taken here: the thread that held it is not in this process.
    for live in list(_connection._live.values()):
        link = live._session.link
        for sink in list(live._dispatcher.sinks.values()):
            mailbox = getattr(sink, "mailbox", None)
            if mailbox is not None:
                mailbox.items.clear()
                mailbox.closed = _forked_error()
                mailbox._waiters.clear()
            forked = getattr(getattr(sink, "sink", None), "forked", None)
            if forked is not None:
                forked()
        live._outbox.forked(_forked_error)
        kept = {"options": live.options, "number": live.number}
        live.__dict__.clear()
        live.__dict__.update(kept, _forked_stream=None if link is None else link.stream)
        live.__class__ = ForkedChild
        live.close()
    _connection._live.clear()
    _shared.forget()


def _at_exit() -> None:
    """Normal interpreter exit: flush what is buffered, at most 2 s in all, and close. Starts no thread."""
    deadline = Deadline(CLOSE_FLUSH)
    for live in _connection.live_connections():
        with contextlib.suppress(Exception):
            live._close(flush=deadline.at_most(CLOSE_FLUSH))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)


# --- one connection per process -------------------------------------------------------------------------


class _Entry:
    """The connection of one set of options, and the turn of the thread that makes it."""

    def __init__(self, options: ConnectOptions) -> None:
        self.options = options
        self.turn = waiting.new_turn()
        self.connection: Connection | None = None

    @property
    def ended(self) -> bool:
        return self.connection is not None and self.connection.closed

    def get(self) -> Connection:
        found = self.connection
        if found is not None and not found.closed:
            return found
        with self.turn:
            found = self.connection
            if found is not None and not found.closed:
                return found
            made = open_connection(self.options)
            found = self.connection
            if found is not None and not found.closed:
                made.close(wait=False)  # a signal handler on top of the line before has made one
                return found
            self.connection = made
            return made


class _Shared:
    """The connections made by `shared`, by their options; every process starts with none.

    Each entry has its own turn: a server that does not answer keeps only those waiting who want that one.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.hashable: dict[ConnectOptions, _Entry] = {}
        self.unhashable: list[_Entry] = []

    def get(self, options: ConnectOptions) -> Connection:
        return self._entry(options).get()

    def _entry(self, options: ConnectOptions) -> _Entry:
        try:
            found = self.hashable.get(options)
            return found or self.hashable.setdefault(options, _Entry(options))
        except TypeError:  # a mapping or another unhashable value among the options
            pass
        found = self._unhashable(options)
        if found is None:
            self.unhashable[:] = [entry for entry in self.unhashable if not entry.ended]
            self.unhashable.append(_Entry(options))
            found = self._unhashable(options)  # the first one, if two threads have just added theirs
            assert found is not None
        return found

    def _unhashable(self, options: ConnectOptions) -> _Entry | None:
        return next((entry for entry in self.unhashable if entry.options == options), None)


_shared = _Shared()


def open_connection(options: ConnectOptions) -> Connection:
    """A Connection of its own for these options, connected."""
    warn_about_monkey_patching()
    connection = Connection(options)
    connection.open()
    return connection


def shared(options: ConnectOptions) -> Connection:
    """The one connection of this process for these options: made at first use, remade when it was closed.

    Safe in forked workers (Celery, gunicorn --preload, multiprocessing, Spark executors): a child never sees its
    parent's. Thread-safe; while one is being made, only those wait that want the same one. Do not close it after each
    use: it ends with the process.
    """
    return _shared.get(options)


_warned_about_patching = False


def warn_about_monkey_patching() -> None:
    """gevent and eventlet replace sockets and threads by their own: say once that this was not tried."""
    global _warned_about_patching
    if _warned_about_patching:
        return
    gevent: Any = sys.modules.get("gevent.monkey")
    eventlet: Any = sys.modules.get("eventlet.patcher")
    patched = (gevent is not None and gevent.is_module_patched("socket")) or (
        eventlet is not None and eventlet.is_monkey_patched("socket")
    )
    if patched:
        _warned_about_patching = True
        warnings.warn(
            "gevent or eventlet has patched the socket module: jsclient uses real threads and blocking sockets and is "
            "not tested with it; exclude it from patching or use real threads",
            RuntimeWarning,
            stacklevel=4,
        )
