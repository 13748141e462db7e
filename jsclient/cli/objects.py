"""`obj ...` (also `object`): object stores."""

from __future__ import annotations

import sys
from typing import Any, Final

from jsclient import errors, objectstore
from jsclient.cli.arguments import (
    BUCKET,
    DESCRIPTION,
    FORCE,
    HEADERS,
    NAMES,
    WATCHING,
    Options,
    arg,
    count_of_bytes,
    headers_of,
    ignored,
    positive,
    seconds,
    storage,
)
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened, over_jetstream, watched
from jsclient.cli.infos import show_bucket, told
from jsclient.cli.output import Columns, confirm, details, listing, picked, result, size
from jsclient.cli.settings import given
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectInfo, ObjectStore, ObjectStoreConfig, ObjectStoreStatus


@over_jetstream
def _opened(js: JetStream, options: Options) -> ObjectStore:
    return objectstore.object_store(js, options.bucket)


cli: Commands = Commands(_opened)

_FORCED: Final = ignored("-f", "--force")
_NAME: Final = arg("name", nargs="?")
_STORES: Final[Columns] = {
    "STORE": lambda one: one.bucket,
    "SIZE": lambda one: size(one.size),
    "DESCRIPTION": lambda one: one.description or "",
}
_OBJECTS: Final[Columns] = {
    "NAME": lambda one: one.name,
    "SIZE": lambda one: size(one.size),
    "MODIFIED": lambda one: one.mtime.isoformat(timespec="seconds") if one.mtime else "-",
}


def _plain(info: ObjectInfo) -> dict[str, Any]:
    told = picked(info, "bucket", "name", "size", "chunks", "digest", "deleted", "description", "headers")
    return {**told, "modified": info.mtime}


def _plain_store(one: ObjectStoreStatus) -> dict[str, Any]:
    return picked(one, "bucket", "size", "description")


@cli("obj ls", arg("bucket", nargs="?"), NAMES, opens=opened)
def list_objects(js: JetStream, options: Options) -> None:
    """List the stores, or the objects of one."""
    if options.bucket:
        found = objectstore.object_store(js, options.bucket).list()
        listing(options, found, _OBJECTS, plain=_plain, empty="no objects")
    else:
        stores = objectstore.object_stores(js)
        listing(options, stores, _STORES, plain=_plain_store, empty="no object stores", flowing=True)


@cli(
    "obj add",
    BUCKET,
    arg("--ttl", type=seconds, help="seconds until an object expires"),
    arg("--storage", type=storage, default="file", help="file (default) or memory"),
    arg("--max-bucket-size", dest="max_bytes", type=count_of_bytes, help="bytes, or as 10GB"),
    arg("--compress", dest="compression", action="store_true", help="compress it on disk (server 2.10)"),
    arg("--replicas", type=positive),
    DESCRIPTION,
    opens=opened,
)
def add_store(js: JetStream, options: Options) -> Any:
    """Create an object store."""
    objectstore.create_object_store(js, ObjectStoreConfig(**given(options, ObjectStoreConfig)))
    return {"bucket": options.bucket, "created": True}, f"created {options.bucket}"


@cli(
    "obj put",
    BUCKET,
    arg("file", help="-: standard input"),
    arg("--name", help="name of the object (default: the file as given)"),
    DESCRIPTION,
    HEADERS,
    arg("--chunk-size", type=count_of_bytes, help="bytes of each stored message, or as 128KB"),
    _FORCED,
)
def put_object(store: ObjectStore, options: Options) -> Any:
    """Store a file, or standard input."""
    piped = options.file == "-"
    meta = objectstore.ObjectMeta(
        name=options.name or ("stdin" if piped else options.file),
        description=options.description,
        headers=headers_of(options.header),
        **({} if options.chunk_size is None else {"chunk_size": options.chunk_size}),
    )
    info = store.put(meta, sys.stdin.buffer) if piped else store.put_file(options.file, meta)
    return _plain(info), f"stored {info.name}: {size(info.size)}, {info.digest}"


@cli.alone(
    "obj get",
    BUCKET,
    arg("name"),
    arg("file", nargs="?", help="-: standard output (the default unless it is a terminal)"),
    _FORCED,
    arg("-O", "--output", help="the same as FILE"),
)
def get_object(options: Options) -> Any:
    """Write an object to a file, or to standard output."""
    target = options.file or options.output
    if not target and sys.stdout.isatty():
        raise errors.ConfigError(f"name a file for the object: jsclient obj get {options.bucket} {options.name} FILE")
    with _opened(options) as store:
        if target and target != "-":
            info = store.get_file(options.name, target)
            return _plain(info), f"wrote {target}: {size(info.size)}"
        with store.get(options.name) as reader:
            while piece := reader.read(1 << 20):
                sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return None


@cli("obj info", BUCKET, _NAME, aliases=("show", "nfo", "i"))
def object_info(store: ObjectStore, options: Options) -> None:
    """All about an object, or a store."""
    if options.name is None:
        status = store.status()
        pairs = picked(status, "size", "storage", "sealed", "description")
        show_bucket("Object store", status.bucket, pairs, status.stream_info, options)
        return
    found = _plain(store.info(options.name))
    about = [(name, value) for name, value in found.items() if name != "name"]
    details(options, {**found, "bucket": options.bucket}, f"Object {found['name']}", told(about))


@cli("obj del", BUCKET, _NAME, FORCE, opens=opened)
def delete_object(js: JetStream, options: Options) -> Any:
    """Delete an object. Without a name: the store."""
    what = f"object {options.name}" if options.name else f"object store {options.bucket} with all its objects"
    confirm(f"Delete {what}?", options.force)
    if options.name:
        objectstore.object_store(js, options.bucket).delete(options.name)
    else:
        objectstore.delete_object_store(js, options.bucket)
    deleted = options.name or options.bucket
    return {"bucket": options.bucket, "deleted": deleted}, f"deleted {deleted}"


@cli("obj seal", BUCKET, ask="Seal object store {bucket}? It can never be changed again.")
def seal_store(store: ObjectStore, options: Options) -> Any:
    """Let nothing be added to a store, or removed, ever again."""
    store.seal()
    return {"bucket": options.bucket, "sealed": True}, f"sealed {options.bucket}"


@cli("obj watch", BUCKET, *WATCHING)
def watch_objects(store: ObjectStore, options: Options) -> None:
    """Print what is in a store, then every change."""
    with store.watch() as watcher:
        for info in watched(watcher, options):
            text = f"{info.name} {'deleted' if info.deleted else size(info.size)} {info.digest}"
            result(options, _plain(info), text)
