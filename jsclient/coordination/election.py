"""Elections: one leader among processes, another one when it dies."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from jsclient import errors, handlers
from jsclient.coordination.lease import Lease
from jsclient.coordination.lock import Lock
from jsclient.durations import Timeout, plain, resolve
from jsclient.keyvalue import KeyValue
from jsclient.threads import Thread, start_all
from jsclient.waiting import Gate

log: logging.Logger = logging.getLogger("jsclient.coordination")

PATIENCE = 1.0
"""Seconds that a candidate waits at a time, to notice `close`."""


class Election:
    """Takes part in an election until `close`, or the end of `with`.

        def lead(lease):
            while lease.valid:
                work()

        with Election(lease_bucket(js), "chief", on_gain=lead) as election:
            print("leading" if election.leading else "following")

    `on_gain(lease)` and `on_loss(lease)` run on the election's own thread, one at a time. `on_gain` may run as long as
    it likes. The lease is renewed meanwhile, and `on_gain` must check `lease.valid` itself. The next leader takes over
    immediately when this one closes, and up to `ttl` later when it dies.

    Attributes:
        name: Name of the election.
        error: The error that ended it; None while it runs.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self,
        kv: KeyValue,
        name: str,
        *,
        ttl: float | dt.timedelta = 10.0,
        on_gain: Callable[[Lease], Any] | None = None,
        on_loss: Callable[[Lease], Any] | None = None,
    ) -> None:
        handlers.check(on_gain, "on_gain")
        handlers.check(on_loss, "on_loss")
        self.name = name
        self._lock = Lock(kv, name, ttl=ttl, on_lost=self._lost)
        self._ttl = plain(ttl)
        self._on_gain = on_gain
        self._on_loss = on_loss
        self._lease: Lease | None = None
        self._over = Gate()
        self._change = Gate()
        self.error: BaseException | None = None
        self._thread = Thread(f"jsclient-election-{name}", self._run)
        start_all([self._thread], f"the election {name!r}")

    @property
    def lease(self) -> Lease | None:
        """The lease while we lead, else None."""
        lease = self._lease
        return lease if lease is not None and lease.valid else None

    @property
    def leading(self) -> bool:
        """True if we lead at this moment. Sends no request."""
        return self.lease is not None

    def close(self, timeout: Timeout = 5.0) -> None:
        """Leave the election and release our lease immediately. Waits at most `timeout` seconds for the hooks."""
        self._over.set()
        self._change.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(resolve(timeout, None))

    def _lost(self, lease: Lease) -> None:
        self._change.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                lease = self._lock.acquire(PATIENCE)
            except errors.ConnectionClosed as error:
                self.error = error
                return
            except errors.ConfigError as error:
                self.error = error
                log.error("the election %s cannot be held: %s", self.name, error, exc_info=error)
                return
            except errors.TimedOut:
                continue  # another candidate leads
            except errors.JsClientError as error:
                log.info("the election %s goes on: %s", self.name, error)
                self._over.wait(PATIENCE)
                continue
            try:
                if self._over.is_set():  # `close` was called while the lock was on its way
                    lease.release()
                    return
                self._lead(lease)
            except Exception:  # a candidate that ends unheard would never lead again
                log.exception("the election %s goes on after an error", self.name)

    def _lead(self, lease: Lease) -> None:
        self._change.clear()
        self._lease = lease
        try:
            self._call(self._on_gain, lease)
            while True:
                if not lease.valid or self._over.is_set():
                    return
                self._change.wait(min(PATIENCE, self._ttl / 3))
        finally:
            self._lease = None
            lease.release()
            self._call(self._on_loss, lease)

    def _call(self, hook: Callable[[Lease], Any] | None, lease: Lease) -> None:
        if hook is None:
            return
        try:
            handlers.ran(hook(lease))
        except Exception:
            log.exception("a hook of the application failed")

    def __enter__(self) -> Election:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Election {self.name}, {'leading' if self.leading else 'following'}>"
