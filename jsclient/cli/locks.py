"""`lock ...`: the holders of the locks, seats and elections of a bucket."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any, Final

from jsclient import coordination, errors, keyvalue
from jsclient.cli.arguments import command, connect, group, jetstream
from jsclient.cli.output import confirm, line, record, result, table
from jsclient.jetstream.api.model_base import format_time

TRIES: Final = 5
"""How often a lease may be renewed between reading it and taking it away."""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    locks = group(commands, "lock")
    listing = command(locks, common, "ls", list_locks, "The holder of each.")
    release = command(locks, common, "release", release_lock, "Take a lock from its holder, such as one that hangs.")
    release.add_argument("name", help="as `lock ls` shows it; a seat of a semaphore is name.number")
    release.add_argument("-f", "--force", action="store_true", help="do not ask")
    for made in (listing, release):
        made.add_argument("--bucket", default="leases", help="bucket of the leases (default leases)")


def _read(options: argparse.Namespace, nc: Any) -> tuple[keyvalue.KeyValue, list[coordination.Holder]]:
    kv = keyvalue.key_value(jetstream(nc, options), options.bucket)
    return kv, coordination.holders(kv, timeout=options.timeout)


def list_locks(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        _, found = _read(options, nc)
    if options.json:
        for one in found:
            told = {"key": one.key, "revision": one.revision, "host": one.host, "pid": one.pid}
            since = None if one.since is None else format_time(one.since)
            record({**told, "since": since, "renewed": format_time(one.renewed)})
    elif found:
        now = dt.datetime.now(dt.timezone.utc)
        rows = [
            (
                one.key,
                one.host or "-",
                one.pid or "-",
                _ago(now, one.since),
                _ago(now, one.renewed),
                one.revision,
            )
            for one in found
        ]
        table(("LOCK", "HOST", "PID", "HELD FOR", "RENEWED BEFORE", "REVISION"), rows)
    else:
        line("nothing is held")


def _ago(now: dt.datetime, then: dt.datetime | None) -> str:
    return "-" if then is None else f"{max((now - then).total_seconds(), 0.0):.1f} s"


def _holder(options: argparse.Namespace, nc: Any) -> tuple[keyvalue.KeyValue, coordination.Holder]:
    kv, found = _read(options, nc)
    for one in found:
        if one.key == options.name:
            return kv, one
    raise errors.KeyNotFound(f"nobody holds {options.name!r} of bucket {options.bucket!r}")


def _take_from(kv: keyvalue.KeyValue, asked: coordination.Holder, options: argparse.Namespace, nc: Any) -> None:
    """From that holder and no other one; it renews its lease while the question is answered."""
    holder = asked
    for _ in range(TRIES):
        try:
            return coordination.evict(kv, holder, timeout=options.timeout)
        except errors.RevisionMismatch:
            kv, holder = _holder(options, nc)
            if (holder.host, holder.pid, holder.since) != (asked.host, asked.pid, asked.since):
                raise
    coordination.evict(kv, holder, timeout=options.timeout)


def release_lock(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        kv, holder = _holder(options, nc)
        question = f"Take {options.name} from process {holder.pid} of {holder.host}? It may work on until it notices."
        confirm(question, options.force)
        _take_from(kv, holder, options, nc)
    result(
        options.json,
        {"key": options.name, "released": True},
        f"released {options.name}; its holder learns that when it renews the lease next",
    )
