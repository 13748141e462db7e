"""The journal of the sinks, for operators: which queries it knows, when each was used last, and how to forget one.

python -m jsclient.spark.journal list --option servers=nats://127.0.0.1:4222
python -m jsclient.spark.journal reset QUERY --option servers=nats://127.0.0.1:4222
python -m jsclient.spark.journal clean --unused 30d --option servers=nats://127.0.0.1:4222
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.exactly.journal import open_journal
from jsclient.spark import options as known
from jsclient.spark import values
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease


@attrs.frozen
class JournalQuery:
    """One query in the journal.

    Attributes:
        query: Its name in the journal; a checkpoint has the same id in its file `metadata`.
        batch: The last batch that began.
        partitions: Partitions with a receipt.
        last_used: When an entry was written last.
    """

    query: str
    batch: int
    partitions: int
    last_used: dt.datetime


def journal_queries(options: Mapping[str, str]) -> list[JournalQuery]:
    """The queries in the journal, the one that was used last first.

    `options` are `servers`, the other options of the connection, and `journal`. Raises JetStreamSparkError.
    """
    checked = known.parse(options, known.WRITE_STREAM)
    found: dict[str, JournalQuery] = {}
    for key, body, written in _entries(checked):
        query, _, part = key.partition(".")
        before = found.get(query) or JournalQuery(query, -1, 0, written)
        found[query] = JournalQuery(
            query, max(before.batch, body.get("b", -1)), before.partitions + bool(part), max(before.last_used, written)
        )
    return sorted(found.values(), key=lambda each: each.last_used, reverse=True)


def reset_query(options: Mapping[str, str], query: str) -> int:
    """Remove all entries of a query, and return their number. Stop the query first.

    Afterwards it can run from an older checkpoint. A batch that it has stored before is stored again, except for rows
    that the duplicate window of the sink recognises. Raises JetStreamSparkError.
    """
    checked = known.parse(options, known.WRITE_STREAM)
    with lease(checked) as nc:
        access = StreamAccess(nc, checked, f"KV_{checked.journal_bucket}")
        return access.retrying("cleaning the journal", lambda: _purge(access, checked.journal_bucket, query))


def _purge(access: StreamAccess, bucket: str, query: str) -> int:
    filters = (f"$KV.{bucket}.{key}" for key in (query, f"{query}.>"))
    answers = [access.api.request(f"STREAM.PURGE.{access.stream}", {"filter": each}) for each in filters]
    return sum(answer.get("purged", 0) for answer in answers)


def _entries(options: SparkOptions) -> Iterator[tuple[str, dict[str, Any], dt.datetime]]:
    with lease(options) as nc:
        kv = open_journal(nc, options)
        if isinstance(kv, str):
            raise JetStreamSparkError("JETSTREAM_JOURNAL_UNAVAILABLE", kv)
        with kv.watch(ignore_deletes=True, timeout=options.reconnect_timeout) as watcher:
            while (entry := watcher.next()) is not None:
                yield entry.key, msgspec.json.decode(entry.value or b"{}", type=dict[str, Any]), entry.created


def _list(options: Mapping[str, str]) -> None:
    print(f"{'query':<50} {'batch':>8} {'partitions':>10}  last used")
    for each in journal_queries(options):
        print(f"{each.query:<50} {each.batch:>8} {each.partitions:>10}  {each.last_used:%Y-%m-%d %H:%M:%S}")


def _clean(options: Mapping[str, str], unused: float) -> None:
    since = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=unused)
    for each in journal_queries(options):
        if each.last_used < since:
            reset_query(options, each.query)
            print(f"removed {each.query}, last used {each.last_used:%Y-%m-%d %H:%M:%S}")


def main(arguments: Sequence[str]) -> int:
    """The command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m jsclient.spark.journal", description="The journal of Spark sinks")
    commands = parser.add_subparsers(dest="command", required=True)
    several = argparse.ArgumentParser(add_help=False)
    several.add_argument("--option", action="append", default=[], help="an option of the sink, as NAME=VALUE")
    commands.add_parser("list", parents=[several], help="queries, their last batch, and when each was used last")
    reset = commands.add_parser("reset", parents=[several], help="forget one query, which must not run")
    reset.add_argument("query")
    clean = commands.add_parser("clean", parents=[several], help="forget the queries that nobody has used for a time")
    clean.add_argument("--unused", type=values.duration, default=values.duration("30d"), help="for example 30d")
    given = parser.parse_args(arguments)
    options = dict(each.partition("=")[::2] for each in given.option)
    try:
        if given.command == "list":
            _list(options)
        elif given.command == "reset":
            removed = reset_query(options, given.query)
            if not removed:
                print(f"the journal knows no query {given.query!r}: see `list`", file=sys.stderr)
                return 1
            print(f"removed the query {given.query}: {errors.counted(removed, 'message')} of the journal")
        else:
            _clean(options, given.unused)
    except (errors.JsClientError, JetStreamSparkError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
