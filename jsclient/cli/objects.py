"""`obj ...` (also `object`): object stores."""

from __future__ import annotations

import sys
from typing import Any, Final

from jsclient import errors, objectstore
from jsclient.cli import output as out
from jsclient.cli.arguments import (
    DESCRIPTION,
    FORCE,
    FORCED,
    HEADERS,
    NAMES,
    WATCHING,
    Options,
    arg,
    count_of_bytes,
    headers_of,
)
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened, over_jetstream, watched
from jsclient.cli.infos import show_bucket
from jsclient.cli.settings import OF_BUCKET, STORAGE, given
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectInfo, ObjectStore, ObjectStoreConfig


@over_jetstream
def _opened(js: JetStream, options: Options) -> ObjectStore:
    return objectstore.object_store(js, options.bucket)


cli: Commands = Commands(_opened)

_STORES: Final = out.columns(STORE="bucket", SIZE="size", DESCRIPTION="description")
_OBJECTS: Final = out.columns(NAME="name", SIZE="size", MODIFIED="mtime")


def _plain(info: ObjectInfo) -> dict[str, Any]:
    plain = out.picked(info, "bucket", "name", "size", "chunks", "digest", "deleted", "description", "headers")
    return {**plain, "modified": info.mtime}


@cli("obj ls [BUCKET]", NAMES, opens=opened)
def list_objects(js: JetStream, options: Options) -> None:
    """List the stores, or the objects of one."""
    if options.bucket:
        found = objectstore.object_store(js, options.bucket).list()
        out.listing(options, found, _OBJECTS, plain=_plain, empty="no objects")
    else:
        stores = objectstore.object_stores(js)
        out.listing(
            options, stores, _STORES, plain=("bucket", "size", "description"), empty="no object stores", flowing=True
        )


@cli("obj add BUCKET", STORAGE, *OF_BUCKET, opens=opened)
def add_store(js: JetStream, options: Options) -> Any:
    """Create an object store."""
    objectstore.create_object_store(js, ObjectStoreConfig(**given(options, ObjectStoreConfig)))
    return {"bucket": options.bucket, "created": True}, f"created {options.bucket}"


@cli(
    "obj put BUCKET",
    arg("file", help="-: standard input"),
    arg("--name", help="name of the object (default: the file as given)"),
    DESCRIPTION,
    HEADERS,
    arg("--chunk-size", type=count_of_bytes, help="bytes of each stored message, or as 128KB"),
    FORCED,
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
    return _plain(info), f"stored {info.name}: {out.size(info.size)}, {info.digest}"


@cli.alone(
    "obj get BUCKET NAME",
    arg("file", nargs="?", help="-: standard output (the default unless it is a terminal)"),
    FORCED,
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
            return _plain(info), f"wrote {target}: {out.size(info.size)}"
        with store.get(options.name) as reader:
            while piece := reader.read(1 << 20):
                sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return None


@cli("obj info BUCKET [NAME]", aliases=("show", "nfo", "i"))
def object_info(store: ObjectStore, options: Options) -> None:
    """All about an object, or a store."""
    if options.name is None:
        status = store.status()
        pairs = out.picked(status, "size", "storage", "sealed", "description")
        show_bucket("Object store", status.bucket, pairs, status.stream_info, options)
        return
    found = _plain(store.info(options.name))
    about = [(name, value) for name, value in found.items() if name != "name"]
    out.details(options, {**found, "bucket": options.bucket}, f"Object {found['name']}", out.told(about))


@cli("obj del BUCKET [NAME]", FORCE, opens=opened)
def delete_object(js: JetStream, options: Options) -> Any:
    """Delete an object. Without a name: the store."""
    what = f"object {options.name}" if options.name else f"object store {options.bucket} with all its objects"
    out.confirm(f"Delete {what}?", options.force)
    if options.name:
        objectstore.object_store(js, options.bucket).delete(options.name)
    else:
        objectstore.delete_object_store(js, options.bucket)
    deleted = options.name or options.bucket
    return {"bucket": options.bucket, "deleted": deleted}, f"deleted {deleted}"


@cli("obj seal BUCKET", ask="Seal object store {bucket}? It can never be changed again.")
def seal_store(store: ObjectStore, options: Options) -> Any:
    """Let nothing be added to a store, or removed, ever again."""
    store.seal()
    return {"bucket": options.bucket, "sealed": True}, f"sealed {options.bucket}"


@cli("obj watch BUCKET", *WATCHING)
def watch_objects(store: ObjectStore, options: Options) -> None:
    """Print what is in a store, then every change."""
    with store.watch() as watcher:
        for info in watched(watcher, options):
            text = f"{info.name} {'deleted' if info.deleted else out.size(info.size)} {info.digest}"
            out.result(options, _plain(info), text)
