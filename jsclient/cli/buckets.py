"""`kv ...`: key-value buckets."""

from __future__ import annotations

import sys
from typing import Any, Final

import attrs

from jsclient import errors, keyvalue
from jsclient.cli import output as out
from jsclient.cli.arguments import FORCE, NAMES, RAW, WATCHING, Options, arg, count_of_bytes, positive, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened, over_jetstream, watched
from jsclient.cli.infos import show_bucket
from jsclient.cli.settings import OF_BUCKET, STORAGE, given
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig, KeyValueEntry, KeyValueStatus

cli: Commands = Commands(over_jetstream(lambda js, options: keyvalue.key_value(js, options.bucket)))

_VALUE: Final = arg("value", nargs="?", help="- or nothing: standard input")
_SETTINGS: Final = (
    arg("--history", type=positive, help="revisions kept per key (default 1)"),
    arg("--max-value-size", type=count_of_bytes, help="bytes, or as 64KB; -1: no limit"),
    arg("--marker-ttl", dest="limit_marker_ttl", type=seconds, help="lets values have a TTL (server 2.11)"),
    *OF_BUCKET,
)
_PATTERN: Final = arg("pattern", nargs="?", default=keyvalue.ALL_KEYS, help="wildcards allowed (default: all)")

_ENTRY: Final = {
    **out.columns(REVISION="revision", OPERATION="operation.name"),
    "CREATED": lambda entry: entry.created.isoformat(timespec="milliseconds"),
    "VALUE": lambda entry: out.payload_text(entry.value),
}
_PLAIN_BUCKET: Final = ("bucket", "values", "bytes", "history")
_BUCKETS: Final = out.columns(BUCKET="bucket", VALUES="values", SIZE="bytes", HISTORY="history", TTL="ttl")


def _plain(entry: KeyValueEntry) -> dict[str, Any]:
    operation = {"operation": entry.operation.name}
    return {**out.picked(entry, "bucket", "key", "value", "revision"), **operation, "created": entry.created}


@cli(
    "kv ls [BUCKET]",
    _PATTERN,
    NAMES,
    opens=opened,
)
def list_keys(js: JetStream, options: Options) -> None:
    """List the buckets, or the keys of one."""
    if options.bucket is None:
        out.listing(options, keyvalue.key_value_stores(js), _BUCKETS, plain=_PLAIN_BUCKET, empty="no buckets")
        return
    for key in sorted(keyvalue.key_value(js, options.bucket).keys(options.pattern)):
        out.result(options, {"bucket": options.bucket, "key": key}, key)


@cli("kv add BUCKET", *_SETTINGS, STORAGE, opens=opened, aliases=("new",))
def add_bucket(js: JetStream, options: Options) -> None:
    """Create a bucket."""
    _show(keyvalue.create_key_value(js, KeyValueConfig(**given(options, KeyValueConfig))).status(), options)


@cli("kv edit BUCKET", *_SETTINGS, opens=opened, aliases=())
def edit_bucket(js: JetStream, options: Options) -> None:
    """Change settings of a bucket; the others stay as they are."""
    changes = given(options, KeyValueConfig)
    if changes.keys() == {"bucket"}:
        raise errors.ConfigError("nothing to change: name at least one setting, such as --history 5")
    config = attrs.evolve(keyvalue.key_value(js, options.bucket).status().config, **changes)
    _show(keyvalue.update_key_value(js, config).status(), options)


@cli("kv info BUCKET", aliases=("nfo", "i", "view", "status"))
def bucket_info(bucket: KeyValue, options: Options) -> None:
    """Settings and size of a bucket."""
    _show(bucket.status(), options)


def _show(status: KeyValueStatus, options: Options) -> None:
    config = status.stream_info.config
    pairs = {
        **out.picked(status, "values", "bytes", "history", "ttl"),
        "marker ttl": status.limit_marker_ttl,
        "storage": config.storage,
        "replicas": config.num_replicas,
        "description": config.description,
    }
    show_bucket("Bucket", status.bucket, pairs, status.stream_info, options)


@cli("kv get BUCKET KEY", arg("--revision", type=int), RAW)
def get_value(bucket: KeyValue, options: Options) -> None:
    """Print the value of a key."""
    entry = bucket.get(options.key) if options.revision is None else bucket.get_revision(options.key, options.revision)
    if options.json:
        out.record(_plain(entry))
    elif options.raw or not sys.stdout.isatty():
        out.write_bytes(entry.value if options.raw else entry.value + b"\n")
    else:
        out.line(out.shown(entry.value))


def _value(options: Options) -> bytes:
    return options.value.encode() if options.value not in (None, "-") else sys.stdin.buffer.read()


def _stored(options: Options, revision: int) -> Any:
    return {"bucket": options.bucket, "key": options.key, "revision": revision}, str(revision)


@cli("kv put BUCKET KEY", _VALUE)
def put_value(bucket: KeyValue, options: Options) -> Any:
    """Set a key; prints the revision."""
    return _stored(options, bucket.put(options.key, _value(options)))


_EXPIRES: Final = arg("--ttl", type=seconds, help="seconds until it expires (a bucket with --marker-ttl)")


@cli("kv create BUCKET KEY", _VALUE, _EXPIRES)
def create_value(bucket: KeyValue, options: Options) -> Any:
    """Set a key that has no value yet; prints the revision."""
    return _stored(options, bucket.create(options.key, _value(options), ttl=options.ttl))


@cli("kv update BUCKET KEY", arg("value", help="-: standard input"), arg("revision", type=int))
def update_value(bucket: KeyValue, options: Options) -> Any:
    """Set a key if it has this revision; prints the new one."""
    return _stored(options, bucket.update(options.key, _value(options), options.revision))


def _done(options: Options, what: str, name: str) -> Any:
    return {"bucket": options.bucket, what: name}, f"{what} {name}"


@cli("kv del BUCKET [KEY]", FORCE, opens=opened)
def delete_key(js: JetStream, options: Options) -> Any:
    """Delete a key: a marker stays, and the history before it. Without a key: the bucket."""
    what = f"key {options.key} of bucket {options.bucket}"
    out.confirm(f"Delete {what if options.key else f'bucket {options.bucket} with all its keys'}?", options.force)
    if options.key:
        keyvalue.key_value(js, options.bucket).delete(options.key)
    else:
        keyvalue.delete_key_value(js, options.bucket)
    return _done(options, "deleted", options.key or options.bucket)


@cli(
    "kv purge BUCKET KEY",
    arg("--ttl", type=seconds, help="seconds until the marker goes, too (server 2.11)"),
    ask="Delete key {key} of bucket {bucket} with its history?",
)
def purge_key(bucket: KeyValue, options: Options) -> Any:
    """Delete a key with its history; a marker stays."""
    bucket.purge(options.key, ttl=options.ttl)
    return _done(options, "purged", options.key)


@cli("kv history BUCKET KEY")
def history(bucket: KeyValue, options: Options) -> None:
    """All revisions of a key that are kept."""
    out.listing(options, bucket.history(options.key), _ENTRY, plain=_plain, flowing=True)


@cli(
    "kv compact BUCKET",
    arg("--older-than", type=seconds, default=1800.0, help="seconds (default 1800; 0: all)"),
    ask="Remove the markers of deleted keys from bucket {bucket}?",
)
def compact_bucket(bucket: KeyValue, options: Options) -> Any:
    """Remove markers of deleted keys."""
    removed = bucket.purge_deletes(options.older_than)
    return {"bucket": options.bucket, "removed": removed}, f"removed {removed} markers"


_UPDATES: Final = arg("--updates", action="store_true", help="changes only")


@cli("kv watch BUCKET", _PATTERN, _UPDATES, *WATCHING)
def watch_keys(bucket: KeyValue, options: Options) -> None:
    """Print the values of keys, then every change."""
    with bucket.watch(options.pattern, updates_only=options.updates) as watcher:
        for entry in watched(watcher, options):
            text = f"{entry.key} @ {entry.revision} {entry.operation.name} {out.payload_text(entry.value)}"
            out.result(options, _plain(entry), text)
