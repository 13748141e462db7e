"""A lease is a key that its holder renews. The server removes it when the holder stops renewing.

A lease is valid for `ttl` less a tenth. The holder counts this time from *before* it sent the request that took or
renewed the lease. It uses a clock that nobody sets and that continues while the machine is suspended. The server counts
from when it stored the value, which is later. So two holders are never valid at the same time if their clocks run
equally fast within a tenth, even if the network fails.

A holder that was stopped (SIGSTOP, a suspended machine) notices only when it checks `valid`. The fencing token protects
against what it does before that.

The token is the revision (the sequence in the bucket's stream) of the request that took the lease, so later leases have
higher tokens. A stream of one replica that loses its disk's last second may hand a token out twice: use three replicas.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from jsclient import errors, handlers, keyvalue, kinds, nuid
from jsclient.durations import DEFAULT, Deadline, Timeout, elapsed, plain_or_none
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue
from jsclient.threads import Thread
from jsclient.waiting import Gate

if TYPE_CHECKING:
    from jsclient.keyvalue import KeyValueEntry

log: logging.Logger = logging.getLogger("jsclient.coordination")

SHORTEST: Final = 2.0
"""Seconds a lease lasts at least. The server removes expired messages up to 0.2 s late, and counts from 1 s on."""
SHORTEST_OLD: Final = 5.0
"""The same before server 2.11, for which the bucket's `max_age` is the time of all its leases."""
SKEW: Final = 0.1
RENEWALS: Final = 3
MARKER_TTL: Final = 60.0


class LeaseLost(errors.JetStreamError):
    """The lease is over: its time ran out, or someone else has taken it. Stop working on the protected resource."""

    meaning = "Others may hold it now."
    advice = "Stop working on what it protects, and acquire it again."


def lease_bucket(
    js: JetStream,
    bucket: str = "leases",
    *,
    replicas: int = 1,
    ttl: float | dt.timedelta | None = None,
    timeout: Timeout = DEFAULT,
) -> KeyValue:
    """Make, or open, a bucket for leases.

    From server 2.11 on every lease has its own time. On older servers all leases have the bucket's time: give `ttl`
    (5 s or more), and use it for every lease in the bucket.

    `replicas` is the number of copies of the bucket (1). Use 3 if locks must survive the loss of a server.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(JetStream, js=js)
    kinds.check(float, dt.timedelta, None, ttl=ttl)
    modern = js.nc.server_info.at_least(2, 11)
    ttl = plain_or_none(ttl)
    if not modern and (ttl is None or ttl < SHORTEST_OLD):
        version = js.nc.server_info.version
        raise errors.ConfigError(f"server {version} knows no time per key: give ttl, {SHORTEST_OLD:g} s or more")
    config = keyvalue.KeyValueConfig(
        bucket=bucket,
        replicas=replicas,
        ttl=None if modern else ttl,
        limit_marker_ttl=MARKER_TTL if modern else None,
    )
    return keyvalue.create_key_value(js, config, timeout=timeout)


class Lease:
    """A lease that the holder of a lock, a seat or an election has. It is renewed in the background until `release`.

    `on_lost` is called once, on the lease's own thread, when the time has run out or someone else has taken it; not
    after `release`. Thread-safe. A forked child does not have the lease.

    Attributes:
        key: The key in the bucket.
        ttl: Seconds after which it ends when its holder has died.
        token: The fencing token. It is larger than the token of every earlier holder.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, kv: KeyValue, key: str, terms: Terms, on_lost: Callable[[Lease], Any] | None) -> None:
        self.key = key
        self.ttl: float = terms.ttl
        self._step = min(terms.ttl, 5.0)  # seconds for looking, and for giving back
        self._own_ttl = terms.ttl if terms.per_key else None
        self._marker_ttl = MARKER_TTL if terms.per_key else None
        self.token: int = 0
        self._kv = kv
        self._on_lost = on_lost
        self._revision = 0
        self._value = b""
        self._valid_until = 0.0
        self._pid = os.getpid()
        self._over = Gate()
        self._released = False

    @property
    def valid(self) -> bool:
        """True if the lease is ours at this moment. Sends no request."""
        return not self._over.is_set() and elapsed() < self._valid_until and os.getpid() == self._pid

    @property
    def remaining(self) -> float:
        """Seconds that it stays valid without another renewal. It is 0 if it is over."""
        return max(0.0, self._valid_until - elapsed()) if self.valid else 0.0

    def check(self) -> None:
        """Raise LeaseLost unless `valid`."""
        if not self.valid:
            raise LeaseLost(f"the lease {self.key!r} (token {self.token}) is over")

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Lease {self.key} token {self.token}, {'valid' if self.valid else 'over'}>"

    # --- taking -------------------------------------------------------------------------------------------

    def take(self, deadline: Deadline) -> bool:
        """For Lock and Election: try once; False if someone else has it."""
        own = {"id": nuid.next_nuid(), "host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        self._value = msgspec.json.encode(own)
        sent = elapsed()
        try:
            self._revision = self._kv.create(self.key, self._value, ttl=self._own_ttl, timeout=deadline)
        except errors.KeyExists:
            return False
        except errors.NotStored as error:
            if isinstance(error.__cause__, errors.WrongLastSequence):
                return False  # taken, and given back again, each time that it was tried
            raise
        except (errors.TimedOut, errors.ConnectionLost):
            entry = self._look(deadline)
            if entry is None or entry.value != self._value:
                raise
            self._revision = entry.revision
        self.token = self._revision
        self._valid_until = sent + self.ttl * (1 - SKEW)
        if not self.valid:
            # The answer took too long. The key is ours all the same and would keep others out until it expires.
            self.release(deadline)
            return False
        try:
            Thread(f"jsclient-lease-{self.key}", self._renew).start()
        except errors.NoThread as error:
            self.release(deadline)
            raise errors.NoThread(
                f"the lease {self.key!r} cannot be renewed: {errors.brief(error)}. It was given back. Use fewer "
                "threads, or raise the system's limit."
            ) from error
        except BaseException:  # no caller has it, so it must not be renewed forever
            self.release(deadline)
            raise
        return True

    def _look(self, deadline: Deadline, gone_is_news: bool = False) -> KeyValueEntry | None:
        """The key as the leader has it (a replica may be behind), None when that is not known; `gone_is_news`: raise
        KeyNotFound when there is none."""
        try:
            return self._kv.get(self.key, direct=False, timeout=deadline)
        except errors.KeyNotFound:
            if gone_is_news:
                raise
            return None
        except errors.JsClientError as error:  # no answer, or one of servers in election
            log.info("the lease %s cannot be looked at: %s", self.key, error)
            return None

    # --- keeping ------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        pause = self.ttl / RENEWALS
        while not self._over.wait(min(pause, max(0.0, self._valid_until - elapsed()))):
            if elapsed() >= self._valid_until:
                self._end("its time ran out before a renewal was confirmed")
                return
            if not self._renew_once():
                return

    def _renew_once(self) -> bool:
        """Renew, or find out that it is lost. Returns False if it is over."""
        sent = elapsed()
        left = Deadline(max(0.01, min(self.ttl / RENEWALS, self._valid_until - sent)))
        try:
            revision = self._kv.update(self.key, self._value, self._revision, ttl=self._own_ttl, timeout=left)
        except errors.RevisionMismatch:
            return self._renew_after_lost_answer()
        except errors.ConnectionClosed as error:
            self._end(errors.brief(error))
            return False
        except errors.JsClientError as error:
            log.info("renewing the lease %s failed, it is tried again: %s", self.key, error)
            return True
        self._revision = revision
        self._valid_until = sent + self.ttl * (1 - SKEW)
        return True

    def _renew_after_lost_answer(self) -> bool:
        """A renewal may work although its answer is lost. It gives no new time, as the time of storing is unknown."""
        if self._over.is_set():
            return False
        try:
            entry = self._look(Deadline(self._step), gone_is_news=True)
        except errors.KeyNotFound:
            self._end("it has expired, or was taken away")
            return False
        if entry is None:
            return True  # not known: tried again while there is time
        if entry.value != self._value or entry.revision == self._revision:
            self._end("somebody else has it")
            return False
        self._revision = entry.revision
        return self._renew_once()

    def _end(self, reason: str) -> None:
        if self._over.is_set():
            return
        self._over.set()
        log.warning("the lease %s (token %d) is lost: %s", self.key, self.token, reason)
        if self._on_lost is not None:
            try:
                handlers.ran(self._on_lost(self))
            except Exception:
                log.exception("a hook of the application failed")

    # --- ending -------------------------------------------------------------------------------------------

    def release(self, timeout: Timeout = DEFAULT) -> None:
        """Give it back, and others can have it immediately. Idempotent.

        If that fails within `timeout` seconds (5 by default, or `ttl` if that is less), nothing is raised and the lease
        expires.
        """
        deadline = Deadline.of(timeout, self._step)
        if os.getpid() != self._pid or self._released:
            return
        self._released = True
        was_over = self._over.is_set()
        self._over.set()
        if was_over or not self._revision:
            return
        try:
            self._kv.purge(self.key, revision=self._revision, ttl=self._marker_ttl, timeout=deadline)
        except errors.JsClientError as error:
            self._release_own(error, deadline)

    def _release_own(self, error: errors.JsClientError, deadline: Deadline) -> None:
        """A renewal on its way may have made a newer revision. Look once, and remove the key if it is ours."""
        entry = self._look(deadline)
        if entry is None or entry.value != self._value:
            log.info("the lease %s was not given back, it expires: %s", self.key, error)
            return
        try:
            self._kv.purge(self.key, revision=entry.revision, ttl=self._marker_ttl, timeout=deadline)
        except errors.JsClientError as again:
            log.info("the lease %s was not given back, it expires: %s", self.key, again)


@attrs.frozen
class Terms:
    """The time that leases of a bucket last. `per_key` means that each key has its own time (server 2.11)."""

    ttl: float
    per_key: bool


def terms_of(kv: KeyValue, ttl: float, timeout: Timeout = DEFAULT) -> Terms:
    """Checks `ttl` against the bucket's status: it must be the bucket's own age before server 2.11, and 2 s or more
    since.
    """
    status = kv.status(timeout=timeout)
    if status.ttl is not None:
        if abs(status.ttl - ttl) > 1e-6:
            raise errors.ConfigError(
                f"all leases in bucket {kv.bucket!r} last {status.ttl:g} s, its age: give ttl={status.ttl:g}"
            )
        return Terms(ttl, False)
    if not ttl >= SHORTEST:
        raise errors.ConfigError(f"a lease lasts at least {SHORTEST:g} s, not {ttl!r}")
    if status.limit_marker_ttl is None:
        raise errors.ConfigError(f"bucket {kv.bucket!r} has no times per key: make it with lease_bucket()")
    return Terms(ttl, True)
