"""Locks and semaphores: leases that one, or a number of, holders can have at a time; and jobs once per interval."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jsclient import checks, errors, handlers, kinds
from jsclient.coordination.lease import Lease, Terms, terms_of
from jsclient.durations import DEFAULT, Deadline, Timeout, plain, resolve, whole
from jsclient.keyvalue import KeyValue
from jsclient.keyvalue.keys import check_key

if TYPE_CHECKING:
    from jsclient.keyvalue import KeyWatcher

OnLost = Callable[[Lease], Any]

ONE_TRY = 1.0
"""Seconds for the answers if `timeout=0`, which tries a seat once."""
SHORTEST_TRY = 0.1
"""The least time in seconds that must be left to begin another try."""

HERD = 0.05
"""Seconds within which candidates that one marker has woken spread their attempts."""


class Semaphore:
    """At most `seats` holders at a time. `with semaphore as lease:` takes a seat and gives it back.

    Unfair (the first to try gets a free seat) and not reentrant. Each `acquire` takes a separate lease.
    `on_lost(lease)` is called on the lease's own thread when it is lost. Thread-safe: the end of a `with` block
    releases the newest lease that its own thread took by `with`. It raises ConfigError if the block began on another
    thread.

    `ttl`: seconds after which the lease of a holder that has died ends (10).

    Attributes:
        name: Its name.
        keys: The keys of its seats in the bucket.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self, kv: KeyValue, name: str, seats: int, *, ttl: float | dt.timedelta = 10.0, on_lost: OnLost | None = None
    ) -> None:
        kinds.check(KeyValue, kv=kv)
        kinds.check(float, dt.timedelta, ttl=ttl)
        checks.threads(seats, "seats")
        check_key(name, 200)
        self.name = name
        self.keys: list[str] = [f"{name}.{seat}" for seat in range(seats)]
        self._kv = kv
        self._ttl = plain(ttl)
        handlers.check(on_lost, "on_lost")
        self._on_lost = on_lost
        self._terms: Terms | None = None
        self._held = threading.local()  # the leases of `with`, for each thread

    def acquire(self, timeout: Timeout = None) -> Lease:
        """Take a seat as soon as one is free. Waits forever by default. Raises TimedOut after `timeout` seconds (0: one
        try).

        If an answer of the server does not come in time, a seat can be blocked until its lease expires.
        """
        once = resolve(timeout, None) == 0
        deadline = Deadline(ONE_TRY) if once else Deadline.of(timeout, None)
        if self._terms is None:
            self._terms = terms_of(self._kv, self._ttl, self._step(deadline, self._ttl))
        lease = self._try(self._terms, deadline)
        if lease is not None:
            return lease
        if once:
            raise errors.TimedOut(f"{self.name!r} is taken")
        # Markers of released and expired leases (server 2.11) wake us; on older servers only our own clock does.
        with self._kv.watch(*self.keys, updates_only=True, meta_only=True) as changes:
            if deadline.at_most(SHORTEST_TRY) >= SHORTEST_TRY:
                lease = self._try(self._terms, deadline)  # its release may have come before the watch
            while True:
                if lease is not None:
                    return lease
                if deadline.expired():
                    raise errors.TimedOut(f"{self.name!r} was not free within {deadline.seconds:g} s")
                self._wait(changes, deadline)
                if deadline.at_most(SHORTEST_TRY) < SHORTEST_TRY:
                    continue  # an answer that came too late would keep the seat from others until it expires
                lease = self._try(self._terms, deadline)

    def _try(self, terms: Terms, deadline: Deadline) -> Lease | None:
        first = random.randrange(len(self.keys))
        for key in self.keys[first:] + self.keys[:first]:
            lease = Lease(self._kv, key, terms, self._on_lost)
            if lease.take(self._step(deadline, terms.ttl)):
                return lease
        return None

    @staticmethod
    def _step(deadline: Deadline, ttl: float) -> Deadline:
        return Deadline(deadline.at_most(min(5.0, ttl)))

    def _wait(self, changes: KeyWatcher, deadline: Deadline) -> None:
        """Wait until a seat may be free, at most half a lease."""
        end = Deadline(deadline.at_most(self._ttl / 2))
        while not end.expired():
            try:
                entry = changes.next(end.remaining())
            except errors.TimedOut:
                return
            if entry is not None and not entry.is_put:
                time.sleep(random.uniform(0, min(HERD, deadline.at_most(HERD))))
                return

    def __enter__(self) -> Lease:
        lease = self.acquire()
        self._held.__dict__.setdefault("leases", []).append(lease)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leases: list[Lease] = self._held.__dict__.get("leases", [])
        if not leases:
            raise errors.ConfigError(
                f"the `with` block of {self.name!r} began on another thread. Nothing was released. Use `acquire` and "
                "`lease.release()` across threads."
            )
        leases.pop().release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} in bucket {self._kv.bucket}>"


class Lock(Semaphore):
    """One holder at a time: a semaphore with one seat; its key is the name itself.

        with Lock(lease_bucket(js), "nightly-report") as lease:
            write_report(lease.token)  # the resource refuses lower tokens
            lease.check()  # LeaseLost if the lease is over

    `ttl`: seconds after which the lease of a holder that has died ends (10). `on_lost`: as for Semaphore.

    Attributes:
        keys: The key in the bucket, as a list of one.

    It also has the fields of `Semaphore`.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self, kv: KeyValue, name: str, *, ttl: float | dt.timedelta = 10.0, on_lost: OnLost | None = None
    ) -> None:
        super().__init__(kv, name, 1, ttl=ttl, on_lost=on_lost)
        self.keys: list[str] = [name]


def once_per(kv: KeyValue, name: str, interval: float | dt.timedelta, *, timeout: Timeout = DEFAULT) -> int | None:
    """The fencing token if this caller is the first in the current interval of `interval` seconds, else None.

    For jobs that start in many processes (cron on several machines): `if once_per(kv, "nightly", 86400): run()`.
    Intervals follow the wall clock, counted from 1970. If clocks differ by more than the job's own slack, it runs
    twice. The decision is final: a process that dies in the middle is not replaced (use an Election for that).

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(KeyValue, kv=kv)
    kinds.check(str, name=name)
    kinds.check(float, dt.timedelta, interval=interval)
    interval = plain(interval)
    if not interval >= 1:
        raise errors.ConfigError(f"the interval must be 1 s or more, not {interval!r}")
    slot = int(time.time() // interval)
    timeout = whole(timeout)
    age = kv.status(timeout=timeout).ttl
    if age is not None and age < 2 * interval:
        raise errors.ConfigError(
            f"bucket {kv.bucket!r} forgets after {age:g} s: it must keep two intervals, {2 * interval:g} s"
        )
    try:
        ttl = None if age is not None else max(2.0, 2 * interval)
        return kv.create(f"{name}.{slot}", b"", ttl=ttl, timeout=timeout)
    except errors.KeyExists:
        return None
