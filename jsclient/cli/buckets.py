"""`kv get|put|watch`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from jsclient import keyvalue
from jsclient.cli.arguments import command, connect, group, jetstream, positive
from jsclient.cli.output import line, payload_text, record


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    kv = group(commands, "kv", "Key-value buckets.")
    get = command(kv, common, "get", get_value, "Print the value of a key.")
    get.add_argument("bucket")
    get.add_argument("key")
    get.add_argument("--revision", type=int)
    put = command(kv, common, "put", put_value, "Set a key; prints the revision.")
    put.add_argument("bucket")
    put.add_argument("key")
    put.add_argument("value", nargs="?", help="- or nothing: standard input")
    put.add_argument("--revision", type=int, help="only if this is the present revision (0: only if there is none)")
    watch = command(kv, common, "watch", watch_keys, "Print the values of keys, then every change.")
    watch.add_argument("bucket")
    watch.add_argument("key", nargs="?", default=keyvalue.ALL_KEYS, help="wildcards allowed (default: all)")
    watch.add_argument("--updates", action="store_true", help="changes only")
    watch.add_argument("--once", action="store_true", help="end after the present values")
    watch.add_argument("--count", type=positive, help="end after so many entries")


def get_value(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        bucket = keyvalue.key_value(jetstream(nc, options), options.bucket)
        if options.revision is None:
            entry = bucket.get(options.key)
        else:
            entry = bucket.get_revision(options.key, options.revision)
    if options.json:
        record(_plain(entry))
    else:
        sys.stdout.buffer.write(entry.value + b"\n")
        sys.stdout.buffer.flush()


def put_value(options: argparse.Namespace) -> None:
    value = options.value.encode() if options.value not in (None, "-") else sys.stdin.buffer.read()
    with connect(options) as nc:
        bucket = keyvalue.key_value(jetstream(nc, options), options.bucket)
        if options.revision is None:
            revision = bucket.put(options.key, value)
        elif options.revision == 0:
            revision = bucket.create(options.key, value)
        else:
            revision = bucket.update(options.key, value, options.revision)
    if options.json:
        record({"bucket": options.bucket, "key": options.key, "revision": revision})
    else:
        line(str(revision))


def watch_keys(options: argparse.Namespace) -> None:
    left = options.count
    with connect(options) as nc:
        bucket = keyvalue.key_value(jetstream(nc, options), options.bucket)
        with bucket.watch(options.key, updates_only=options.updates) as watcher:
            for entry in watcher:
                if entry is None:
                    if options.once:
                        return
                    continue
                if options.json:
                    record(_plain(entry))
                else:
                    line(f"{entry.key} @ {entry.revision} {entry.operation.name} {payload_text(entry.value)}")
                left = None if left is None else left - 1
                if left == 0:
                    return


def _plain(entry: keyvalue.KeyValueEntry) -> dict[str, Any]:
    return {
        "bucket": entry.bucket,
        "key": entry.key,
        "value": payload_text(entry.value),
        "revision": entry.revision,
        "operation": entry.operation.name,
        "created": entry.created.isoformat(),
    }
