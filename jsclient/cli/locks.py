"""`lock ...`: the holders of the locks, seats and elections of a bucket."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from jsclient import coordination, errors, keyvalue
from jsclient.cli.arguments import FORCE, Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.connection import over_jetstream
from jsclient.cli.output import Columns, NothingThere, columns, confirm, listing, picked
from jsclient.jetstream.api.model_base import format_time

cli: Commands = Commands(over_jetstream(lambda js, options: keyvalue.key_value(js, options.bucket)))

TRIES: Final = 5
"""Maximum number of renewals of a lease between reading it and taking it away."""

_BUCKET: Final = arg("--bucket", default="leases", help="bucket of the leases (default leases)")
_NAME: Final = arg("name", help="as `lock ls` shows it; a seat of a semaphore is name.number")
_LISTED: Final[Columns] = {
    **columns(LOCK="key", HOST="host", PID="pid"),
    "HELD FOR": lambda one: _ago(one.since),
    "RENEWED BEFORE": lambda one: _ago(one.renewed),
    **columns(REVISION="revision"),
}


@cli("lock ls", _BUCKET)
def list_locks(kv: keyvalue.KeyValue, options: Options) -> None:
    """The holder of each."""

    def plain(one: coordination.Holder) -> dict[str, Any]:
        since = None if one.since is None else format_time(one.since)
        return {**picked(one, "key", "revision", "host", "pid"), "since": since, "renewed": format_time(one.renewed)}

    found = coordination.holders(kv, timeout=options.timeout)
    listing(options, found, _LISTED, plain=plain, empty="nothing is held")


def _ago(then: dt.datetime | None) -> str:
    return "-" if then is None else f"{max((dt.datetime.now(dt.timezone.utc) - then).total_seconds(), 0.0):.1f} s"


def _holder(kv: keyvalue.KeyValue, options: Options) -> coordination.Holder:
    for one in coordination.holders(kv, timeout=options.timeout):
        if one.key == options.name:
            return one
    raise NothingThere(f"nobody holds {options.name!r} of bucket {options.bucket!r}")


def _take_from(kv: keyvalue.KeyValue, asked: coordination.Holder, options: Options) -> None:
    """From that holder and no other one; it renews its lease while the question is answered."""
    holder = asked
    for _ in range(TRIES):
        try:
            return coordination.evict(kv, holder, timeout=options.timeout)
        except errors.RevisionMismatch:
            holder = _holder(kv, options)
            if (holder.host, holder.pid, holder.since) != (asked.host, asked.pid, asked.since):
                raise
    coordination.evict(kv, holder, timeout=options.timeout)


@cli("lock release", _NAME, FORCE, _BUCKET)
def release_lock(kv: keyvalue.KeyValue, options: Options) -> Any:
    """Take a lock from its holder, such as one that hangs."""
    holder = _holder(kv, options)
    question = f"Take {options.name} from process {holder.pid} of {holder.host}? It may work on until it notices."
    confirm(question, options.force)
    _take_from(kv, holder, options)
    told = {"key": options.name, "released": True}
    return told, f"released {options.name}; its holder learns that when it renews the lease next"
