"""`kv ...`: key-value buckets."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import attrs

import jsclient
from jsclient import errors, keyvalue
from jsclient.cli.arguments import (
    Run,
    command,
    connect,
    count_of_bytes,
    group,
    jetstream,
    positive,
    seconds,
    storage,
)
from jsclient.cli.infos import duration, stream_parts, told
from jsclient.cli.output import (
    Columns,
    confirm,
    line,
    listing,
    name_alone,
    page,
    payload_text,
    record,
    result,
    shown,
    size,
    write_bytes,
)
from jsclient.jetstream.api import model_base


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    kv = group(commands, "kv")
    listing = command(kv, common, "ls", list_keys, "List the buckets, or the keys of one.")
    listing.add_argument("bucket", nargs="?")
    listing.add_argument("pattern", nargs="?", default=keyvalue.ALL_KEYS, help="wildcards allowed (default: all)")
    listing.add_argument("-n", "--names", action="store_true", help="names alone")
    listing.add_argument("-v", "--verbose", action="store_true", help="keys with their revision, operation and time")
    listing.add_argument("--display-value", action="store_true", help="with --verbose: the values, too")
    run: Run
    for name, run, text in (
        ("add", add_bucket, "Create a bucket."),
        ("edit", edit_bucket, "Change settings of a bucket; the others stay as they are."),
    ):
        made = command(kv, common, name, run, text, ("new",) if name == "add" else ())
        made.add_argument("bucket")
        made.add_argument("--history", type=positive, help="revisions kept per key (default 1)")
        made.add_argument("--ttl", type=seconds, help="seconds until a value expires; 0: never")
        if name == "add":
            made.add_argument("--storage", type=storage, help="file (default) or memory")
        made.add_argument("--replicas", type=positive)
        made.add_argument("--max-value-size", type=count_of_bytes, help="bytes, or as 64KB; -1: no limit")
        made.add_argument("--max-bucket-size", dest="max_bytes", type=count_of_bytes, help="bytes, or as 10GB")
        made.add_argument(
            "--marker-ttl", dest="limit_marker_ttl", type=seconds, help="lets values have a TTL (server 2.11)"
        )
        made.add_argument(
            "--compress", dest="compression", action=argparse.BooleanOptionalAction, help="on disk (server 2.10)"
        )
        made.add_argument("--description")
    known = ("nfo", "i", "view", "status")
    command(kv, common, "info", bucket_info, "Settings and size of a bucket.", known).add_argument("bucket")
    get = command(kv, common, "get", get_value, "Print the value of a key.")
    _bucket_and_key(get)
    get.add_argument("--revision", type=int)
    get.add_argument("--raw", action="store_true", help="the bytes of the value and nothing else")
    put = command(kv, common, "put", put_value, "Set a key; prints the revision.")
    _bucket_and_key(put)
    put.add_argument("value", nargs="?", help="- or nothing: standard input")
    put.add_argument("--revision", type=int, help="only if this is the present revision (0: only if there is none)")
    create = command(kv, common, "create", create_value, "Set a key that has no value yet; prints the revision.")
    _bucket_and_key(create)
    create.add_argument("value", nargs="?", help="- or nothing: standard input")
    create.add_argument("--ttl", type=seconds, help="seconds until it expires (a bucket with --marker-ttl)")
    update = command(kv, common, "update", update_value, "Set a key if it has this revision; prints the new one.")
    _bucket_and_key(update)
    update.add_argument("value", help="-: standard input")
    update.add_argument("revision", type=int)
    for name, run, text in (
        ("del", delete_key, "Delete a key: a marker stays, and the history before it. Without a key: the bucket."),
        ("purge", purge_key, "Delete a key with its history; a marker stays."),
    ):
        removal = command(kv, common, name, run, text)
        removal.add_argument("bucket")
        removal.add_argument("key", nargs="?" if name == "del" else None)
        removal.add_argument("-f", "--force", action="store_true", help="do not ask")
        if name == "purge":
            removal.add_argument("--ttl", type=seconds, help="seconds until the marker goes, too (server 2.11)")
    revert = command(kv, common, "revert", revert_key, "Set a key to what it was at a revision; prints the new one.")
    _bucket_and_key(revert)
    revert.add_argument("revision", type=positive)
    revert.add_argument("-f", "--force", action="store_true", help="do not ask")
    _bucket_and_key(command(kv, common, "history", history, "All revisions of a key that are kept."))
    compact = command(kv, common, "compact", compact_bucket, "Remove markers of deleted keys.")
    compact.add_argument("bucket")
    compact.add_argument("--older-than", type=seconds, default=1800.0, help="seconds (default 1800; 0: all)")
    compact.add_argument("-f", "--force", action="store_true", help="do not ask")
    watch = command(kv, common, "watch", watch_keys, "Print the values of keys, then every change.")
    watch.add_argument("bucket")
    watch.add_argument("key", nargs="?", default=keyvalue.ALL_KEYS, help="wildcards allowed (default: all)")
    watch.add_argument("--updates", action="store_true", help="changes only")
    watch.add_argument("--once", action="store_true", help="end after the present values")
    watch.add_argument("--count", type=positive, help="end after so many entries")


def _bucket_and_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bucket")
    parser.add_argument("key")


def _open(nc: jsclient.Connection, options: argparse.Namespace) -> keyvalue.KeyValue:
    return keyvalue.key_value(jetstream(nc, options), options.bucket)


def list_keys(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        if options.bucket is None:
            found = list(keyvalue.key_value_stores(jetstream(nc, options)))
            if options.names:
                for one in found:
                    name_alone(one.bucket, options.json)
            else:
                _list_buckets(found, options.json)
            return
        if options.verbose:
            _list_entries(_open(nc, options), options)
            return
        for key in sorted(_open(nc, options).keys(options.pattern)):
            result(options.json, {"bucket": options.bucket, "key": key}, key)


def _list_entries(bucket: keyvalue.KeyValue, options: argparse.Namespace) -> None:
    """All of them from one watch, so a key that changes meanwhile appears once."""
    values = options.display_value
    with bucket.watch(options.pattern, ignore_deletes=True, meta_only=not values, timeout=options.timeout) as watcher:
        entries = sorted(watcher.initial(), key=lambda entry: entry.key)

    def plain(entry: keyvalue.KeyValueEntry) -> dict[str, Any]:
        return {name: value for name, value in _plain(entry).items() if values or name != "value"}

    columns = {"KEY": lambda entry: entry.key, **_ENTRY, **(_VALUE if values else {})}
    listing(options.json, entries, columns, plain=plain, flowing=values)


_ENTRY: Final[Columns] = {
    "REVISION": lambda entry: entry.revision,
    "OPERATION": lambda entry: entry.operation.name,
    "CREATED": lambda entry: entry.created.isoformat(timespec="milliseconds"),
}
_VALUE: Final[Columns] = {"VALUE": lambda entry: payload_text(entry.value)}
_BUCKETS: Final[Columns] = {
    "BUCKET": lambda one: one.bucket,
    "VALUES": lambda one: f"{one.values:,}",
    "SIZE": lambda one: size(one.bytes),
    "HISTORY": lambda one: one.history,
    "TTL": lambda one: duration(one.ttl) if one.ttl else "-",
}


def _list_buckets(found: list[keyvalue.KeyValueStatus], as_json: bool) -> None:
    def plain(one: keyvalue.KeyValueStatus) -> dict[str, Any]:
        return {"bucket": one.bucket, "values": one.values, "bytes": one.bytes, "history": one.history}

    listing(as_json, found, _BUCKETS, plain=plain, empty="no buckets")


_SETTINGS = (
    "history", "ttl", "storage", "replicas", "max_value_size", "max_bytes", "limit_marker_ttl", "compression",
    "description",
)  # fmt: skip


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The given options as fields of KeyValueConfig."""
    return {name: value for name in _SETTINGS if (value := getattr(options, name, None)) is not None}


def add_bucket(options: argparse.Namespace) -> None:
    config = keyvalue.KeyValueConfig(**{"bucket": options.bucket, "storage": "file", **_settings(options)})
    with connect(options) as nc:
        status = keyvalue.create_key_value(jetstream(nc, options), config).status()
    _show(status, options.json)


def edit_bucket(options: argparse.Namespace) -> None:
    changes = _settings(options)
    if not changes:
        raise errors.ConfigError("nothing to change: name at least one setting, such as --history 5")
    with connect(options) as nc:
        config = attrs.evolve(_open(nc, options).status().config, **changes)
        status = keyvalue.update_key_value(jetstream(nc, options), config).status()
    _show(status, options.json)


def bucket_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        status = _open(nc, options).status()
    _show(status, options.json)


def _show(status: keyvalue.KeyValueStatus, as_json: bool) -> None:
    info = status.stream_info
    pairs: dict[str, Any] = {
        "values": status.values,
        "bytes": status.bytes,
        "history": status.history,
        "ttl": status.ttl,
        "marker ttl": status.limit_marker_ttl,
        "storage": info.config.storage,
        "replicas": info.config.num_replicas,
        "description": info.config.description,
    }
    if as_json:
        record({"bucket": status.bucket, **pairs, "stream": model_base.to_wire(info)})
        return
    ages = {name: None if pairs[name] is None else duration(pairs[name]) for name in ("ttl", "marker ttl")}
    page(f"Bucket {status.bucket}", told([("created", info.created), *{**pairs, **ages}.items()]), stream_parts(info))


def get_value(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        bucket = _open(nc, options)
        if options.revision is None:
            entry = bucket.get(options.key)
        else:
            entry = bucket.get_revision(options.key, options.revision)
    if options.json:
        record(_plain(entry))
    elif options.raw or not sys.stdout.isatty():
        write_bytes(entry.value if options.raw else entry.value + b"\n")
    else:
        line(shown(entry.value))


def _value(options: argparse.Namespace) -> bytes:
    return options.value.encode() if options.value not in (None, "-") else sys.stdin.buffer.read()


def _store(options: argparse.Namespace, revision: int | None) -> None:
    value = _value(options)
    with connect(options) as nc:
        bucket = _open(nc, options)
        if revision is None:
            stored = bucket.put(options.key, value)
        elif revision == 0:
            stored = bucket.create(options.key, value, ttl=getattr(options, "ttl", None))
        else:
            stored = bucket.update(options.key, value, revision)
    result(options.json, {"bucket": options.bucket, "key": options.key, "revision": stored}, str(stored))


def put_value(options: argparse.Namespace) -> None:
    _store(options, options.revision)


def create_value(options: argparse.Namespace) -> None:
    _store(options, 0)


def update_value(options: argparse.Namespace) -> None:
    _store(options, options.revision)


def revert_key(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        bucket = _open(nc, options)
        wanted = bucket.get_revision(options.key, options.revision)
        present = bucket.get(options.key)
        confirm(f"Set {options.key} to what it was at revision {options.revision}?", options.force)
        stored = bucket.update(options.key, wanted.value, present.revision)
    result(options.json, {"bucket": options.bucket, "key": options.key, "revision": stored}, str(stored))


def delete_key(options: argparse.Namespace) -> int:
    what = (
        f"key {options.key} of bucket {options.bucket}" if options.key else f"bucket {options.bucket} with all its keys"
    )
    confirm(f"Delete {what}?", options.force)
    with connect(options) as nc:
        if options.key:
            _open(nc, options).delete(options.key)
        else:
            keyvalue.delete_key_value(jetstream(nc, options), options.bucket)
    return _done(options, "deleted", options.key or options.bucket)


def purge_key(options: argparse.Namespace) -> int:
    confirm(f"Delete key {options.key} of bucket {options.bucket} with its history?", options.force)
    with connect(options) as nc:
        _open(nc, options).purge(options.key, ttl=options.ttl)
    return _done(options, "purged", options.key)


def _done(options: argparse.Namespace, what: str, name: str) -> int:
    result(options.json, {"bucket": options.bucket, what: name}, f"{what} {name}")
    return 0


def history(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        entries = _open(nc, options).history(options.key)
    listing(options.json, entries, {**_ENTRY, **_VALUE}, plain=_plain, flowing=True)


def compact_bucket(options: argparse.Namespace) -> None:
    confirm(f"Remove the markers of deleted keys from bucket {options.bucket}?", options.force)
    with connect(options) as nc:
        removed = _open(nc, options).purge_deletes(options.older_than)
    result(options.json, {"bucket": options.bucket, "removed": removed}, f"removed {removed} markers")


def watch_keys(options: argparse.Namespace) -> None:
    left = options.count
    with connect(options) as nc, _open(nc, options).watch(options.key, updates_only=options.updates) as watcher:
        while not watcher.stopped:
            entry = watcher.next()
            if entry is None:
                if options.once:
                    return
                continue
            result(
                options.json,
                _plain(entry),
                f"{entry.key} @ {entry.revision} {entry.operation.name} {payload_text(entry.value)}",
            )
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
