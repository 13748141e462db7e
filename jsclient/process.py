"""Opens connections, and keeps the one that all code of a process shares, by its options.

For the effect of a fork and of the interpreter's end on connections, see `_connection.fork`.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from jsclient import errors, waiting
from jsclient._connection.fork import watch_process
from jsclient.connection import Connection
from jsclient.options import ConnectOptions


class _Entry:
    """The connection of one set of options, and the turn of the thread that makes it."""

    def __init__(self, options: ConnectOptions) -> None:
        self.options = options
        self.turn = waiting.new_turn()
        self.connection: Connection | None = None
        self.failed: list[errors.NatsConnectionError] = []  # of the current attempt; the next one has its own list

    @property
    def ended(self) -> bool:
        return self.connection is not None and self.connection.closed

    def get(self) -> Connection:
        found = self.connection
        if found is not None and not found.closed:
            return found
        failed = self.failed
        with self.turn:
            found = self.connection
            if found is not None and not found.closed:
                return found
            if failed:
                raise failed[0]
            try:
                made = open_connection(self.options)
            except errors.NatsConnectionError as error:
                failed.append(error)
                self.failed = []
                raise
            found = self.connection
            if found is not None and not found.closed:
                made.close(wait=False)  # a signal handler on top of the previous line has made one
                return found
            made._shared = True
            self.connection = made
            return made


class _Shared:
    """The connections made by `shared`, by their options; every process starts with none.

    Each entry has its own turn, so a server that does not answer delays only the callers that want that connection.
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

watch_process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


def open_connection(options: ConnectOptions) -> Connection:
    """A new Connection for these options, connected."""
    warn_about_monkey_patching()
    connection = Connection(options)
    connection._engine.open()
    return connection


def shared(options: ConnectOptions) -> Connection:
    """The one connection of this process for these options: made at first use, and re-created after a close.

    It is safe in forked workers (Celery, gunicorn --preload, multiprocessing, Spark executors), because a child never
    sees its parent's connection. It is thread-safe: while one thread connects, only callers with the same options wait,
    and if that fails they raise the same error. The end of a `with` block sends buffered data (at most 2 s) and leaves
    the connection open for the other users. It ends with the process, or by `close`.
    """
    if not isinstance(options, ConnectOptions):
        raise errors.ConfigError(
            "shared takes ConnectOptions, as in shared(ConnectOptions(servers=...)); got another type"
        )
    return _shared.get(options)


def warn_about_no_gil() -> None:
    """Called once, by the import of the package."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        warnings.warn(
            "jsclient without the global interpreter lock (GIL) is experimental. Set PYTHON_GIL=1 to have the lock",
            RuntimeWarning,
            stacklevel=3,
        )


_warned_about_patching = False


def warn_about_monkey_patching() -> None:
    """Warn once if gevent or eventlet has replaced sockets and threads, because that was not tested."""
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
