"""The holders of the leases of a bucket, and how to take a lease away: for operators."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from jsclient import kinds
from jsclient.coordination.lease import MARKER_TTL
from jsclient.durations import DEFAULT, Deadline, Timeout, whole
from jsclient.keyvalue import KeyValue
from jsclient.protocol.errors import BAD_JSON

if TYPE_CHECKING:
    from jsclient.keyvalue import KeyValueEntry

LOOK_TIMEOUT: Final = 5.0


@attrs.frozen
class Holder:
    """A lease as the bucket has it. Its holder has written `host`, `pid` and `since`. They are None if another program
    than jsclient wrote the value. `revision` belongs to the last renewal. It differs from the fencing token.

    Attributes:
        key: The key of the lease.
        revision: The revision of the last renewal; not the fencing token.
        renewed: When it was renewed last, by the server's clock (UTC).
        host: Host of its holder; None when it was not written by jsclient.
        pid: Process id of its holder; None when it was not written by jsclient.
        since: Time since which its holder has it, by the holder's clock (UTC).
    """

    key: str
    revision: int
    renewed: dt.datetime
    host: str | None = None
    pid: int | None = None
    since: dt.datetime | None = None


def holders(kv: KeyValue, *, timeout: Timeout = DEFAULT) -> list[Holder]:
    """All leases that are held at this moment, by key. The whole call has 5 s by default.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(KeyValue, kv=kv)
    deadline = Deadline.of(timeout, LOOK_TIMEOUT)
    left = deadline.remaining()
    with kv.watch(ignore_deletes=True, timeout=None if left is None else max(left, 0.001)) as watcher:
        found = watcher.initial(deadline)
    return [_holder(entry) for entry in sorted(found, key=lambda entry: entry.key)]


def _holder(entry: KeyValueEntry) -> Holder:
    told: Any = None
    try:
        told = msgspec.json.decode(entry.value)
        since = dt.datetime.fromtimestamp(float(told["since"]), dt.timezone.utc)
        return Holder(entry.key, entry.revision, entry.created, str(told["host"]), int(told["pid"]), since)
    except (*BAD_JSON, LookupError, TypeError, ValueError, OverflowError, OSError):
        return Holder(entry.key, entry.revision, entry.created)


def evict(kv: KeyValue, holder: Holder, *, timeout: Timeout = DEFAULT) -> None:
    """Take a lease away: another candidate can get it immediately.

    Its holder notices at its next renewal, at most a third of `ttl` later. Until then it assumes that it still holds
    the lease, and only fencing tokens separate the two holders. Raises RevisionMismatch if the lease was renewed or
    changed hands after `holder` was read: read it again, and decide again.

    Options:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """
    kinds.check(KeyValue, kv=kv)
    kinds.check(Holder, holder=holder)
    timeout = whole(timeout)
    per_key = kv.status(timeout=timeout).limit_marker_ttl is not None
    kv.purge(holder.key, revision=holder.revision, ttl=MARKER_TTL if per_key else None, timeout=timeout)
