"""Connections of one Python worker process: kept between tasks, leased to one task at a time.

Spark forks its workers from a daemon and reuses them for many tasks. One connection per task, batch or partition would
mean thousands of connections per second. A worker gets no notice before it ends: atexit does not run, and Spark sends
SIGKILL when it cancels a task. So nothing may depend on closing, and every task flushes what it has sent before it
returns.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

import jsclient
from jsclient import errors, waiting
from jsclient.connection import Connection
from jsclient.durations import Deadline
from jsclient.options import ConnectOptions
from jsclient.spark import options as spark_options
from jsclient.spark.connecting import connect_options
from jsclient.spark.context import freeze_modules
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions
from jsclient.threads import Thread

log: logging.Logger = logging.getLogger("jsclient.spark")

CHECK_AFTER: Final = 10.0  # seconds of idleness after which a connection is pinged before it is leased again
CLOSE_AFTER: Final = 600.0  # seconds of idleness after which it is closed: longer than most trigger intervals
CLOSE_EVERY: Final = 1.0  # seconds between two looks of the thread that closes
PING_TIMEOUT: Final = 2.0
FIRST_PATIENCE: Final = 5.0  # seconds to try a server that was never reached; later `reconnectTimeout`
RECONNECT_TIMEOUT: Final = 60.0  # the default of that option
PAUSE: Final = 0.1  # seconds between tries

Options = SparkOptions | ConnectOptions | Mapping[str, str] | str

# The fields of SparkOptions with the servers and the user. Leases with equal values in them share connections.
_WHERE: Final = (
    "servers", "credentials_file", "nkey_seed_file", "tls_ca_file", "tls_cert_file", "tls_key_file", "tls_first",
    "credentials_provider", "user", "password", "token", "nkey_secret", "credentials_secret", "inbox_prefix",
)  # fmt: skip


@attrs.define(eq=False)
class _Idle:
    connection: Connection
    since: float


class Pool:
    """All idle connections of this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = waiting.new_lock()
        self._idle: dict[Any, list[_Idle]] = {}
        self._closer: Thread | None = None
        self.reached: set[Any] = set()  # keys with which this process was connected before

    def take(self, key: Any, connect: Callable[[], Connection]) -> Connection:
        """An idle connection that still answers, or a new one."""
        while True:
            with self._lock:
                idle = self._idle.get(key)
                found = idle.pop() if idle else None
            if found is None:
                return connect()
            if self._usable(found):
                return found.connection
            _close(found.connection)

    def give_back(self, key: Any, connection: Connection) -> None:
        with self._lock:
            self._idle.setdefault(key, []).append(_Idle(connection, time.monotonic()))
            closer = self._closer
            missing = closer is None or (closer.ident is not None and not closer.is_alive())
            if missing:
                closer = Thread("jsclient-spark-idle", self._close_idle)
                self._closer = closer
        if missing and closer is not None:
            try:
                closer.start()
            except BaseException as error:
                self._closer = None
                if not isinstance(error, (errors.NoThread, MemoryError)):
                    raise
                # The system has no more threads. The task has done its work, so it must not fail because of that.
                log.info("nothing can close idle connections later, so they are closed now: %s", error)
                self.close()

    def close(self) -> None:
        """Close all idle connections now, for tests and for long-lived drivers."""
        with self._lock:
            idle = [item for items in self._idle.values() for item in items]
            self._idle.clear()
        for item in idle:
            _close(item.connection)

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    @staticmethod
    def _usable(item: _Idle) -> bool:
        connection = item.connection
        if connection.closed or not connection.is_connected:
            return False
        if time.monotonic() - item.since < CHECK_AFTER:
            return True
        try:
            connection.flush(timeout=PING_TIMEOUT)
        except errors.JsClientError:
            return False
        return True

    def _close_idle(self) -> None:
        """Runs on the thread that closes, for as long as there are idle connections."""
        while True:
            with self._lock:
                old = self._old()
                left = bool(self._idle)
                if not left:
                    self._closer = None
            for item in old:
                _close(item.connection)
            if not left:
                return
            time.sleep(CLOSE_EVERY)

    def _old(self) -> list[_Idle]:
        """Connections to close. One without a link is never leased again (`_usable`) but would keep reconnecting."""
        limit = time.monotonic() - CLOSE_AFTER
        old: list[_Idle] = []
        for key, items in list(self._idle.items()):
            kept = [item for item in items if item.since >= limit and item.connection.is_connected]
            old += [item for item in items if item not in kept]
            self._idle[key] = kept
            if not self._idle[key]:
                del self._idle[key]
        return old


_pool = Pool()


def _after_fork() -> None:
    # The connections belong to the parent, and another thread of it may have held the lock.
    global _pool
    _pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except errors.JsClientError as error:
        log.debug("closing an idle connection: %s", error)


def _connect(make: Callable[[], ConnectOptions], patience: float) -> Connection:
    """Connect. If no server can be reached, keep trying for `patience` seconds.

    The driver also needs connections between two batches, and a failure there would end the query just because a server
    restarts. Any other failure, such as wrong credentials, is raised immediately.
    """
    deadline = Deadline(patience)
    while True:
        try:
            return jsclient.connect(make())
        except errors.ConnectFailed:
            if deadline.expired():
                raise
            time.sleep(deadline.at_most(PAUSE))


def _plan(options: Options) -> tuple[Any, Callable[[], ConnectOptions]]:
    """The key in the pool, and a function that makes the ConnectOptions for a new connection."""
    if isinstance(options, ConnectOptions):
        return ("options", options), lambda: options
    if isinstance(options, str):
        options = {"servers": options}
    if not isinstance(options, SparkOptions):
        # Only the options of the connection matter here, so these may be the options of any of the four ways.
        known = {k: v for k, v in options.items() if _connects(k)}
        options = spark_options.parse({**known, "subject": "-"}, spark_options.WRITE)
    checked = options
    return ("spark", *(getattr(checked, name) for name in _WHERE)), lambda: connect_options(checked)


def _connects(name: str) -> bool:
    lowered = name.lower()
    spec = spark_options.SPECS.get(lowered)
    if spec is None:
        return lowered not in spark_options.SPARKS_OWN  # parse() refuses it with the nearest name
    return spec.field in _WHERE


@contextmanager
def connection(options: Options) -> Iterator[Connection]:
    """A connection for the body of the `with`. It is exclusive; later tasks of the same worker process reuse it.

    `options` is the option dict of the data source (`{"servers": ..., "credentialsFile": ...}`), a server list, or a
    ConnectOptions. Call it inside the function that Spark runs on the executor, because a connection cannot be pickled.
    All published messages are flushed at the end. After an exception the connection is not reused. Raises
    JetStreamSparkError [JETSTREAM_CONNECT_FAILED].
    """
    with lease(options) as nc:
        yield nc
        nc.flush()


@contextmanager
def lease(options: Options) -> Iterator[Connection]:
    """`connection` for the data source itself, which waits for an answer to everything it sends.

    So there is nothing to flush. A server that dies after the last answer must not fail completed work.
    """
    key, make = _plan(options)
    try:
        hash(key)
    except TypeError:
        key = ("unshared", object())  # options with unhashable parts (headers of a websocket) are never shared
    hide = options.hide if isinstance(options, SparkOptions) else str
    patience = options.reconnect_timeout if isinstance(options, SparkOptions) else RECONNECT_TIMEOUT
    if key not in _pool.reached:
        patience = min(patience, FIRST_PATIENCE)

    def connect() -> Connection:
        try:
            return _connect(make, patience)
        except errors.JsClientError as error:
            text = hide(f"{type(error).__name__}: {errors.brief(error)}")
            raise JetStreamSparkError(
                "JETSTREAM_CONNECT_FAILED", f"{text}; check 'servers', the network and the credentials"
            ) from None

    freeze_modules()
    nc = _pool.take(key, connect)
    if key[0] != "unshared":
        _pool.reached.add(key)
    try:
        yield nc
    except GeneratorExit:
        # Spark has enough rows (limit); the connection is still good.
        _pool.give_back(key, nc)
        raise
    except BaseException:
        _close(nc)
        raise
    _pool.give_back(key, nc)


def close_idle() -> None:
    """Close the idle connections of this process now. The thread that would have closed them later ends soon."""
    _pool.close()
