"""`obj ...` (also `object`): object stores."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import jsclient
from jsclient import errors, objectstore
from jsclient.cli.arguments import (
    command,
    connect,
    count_of_bytes,
    group,
    headers_of,
    jetstream,
    opened,
    positive,
    seconds,
    storage,
    taken_as_it_is,
)
from jsclient.cli.infos import stream_parts, told
from jsclient.cli.output import Columns, confirm, listing, name_alone, page, record, result, size
from jsclient.jetstream.api import model_base


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    for name in ("obj", "object"):
        _add_group(group(commands, name), common)


def _add_group(obj: Any, common: argparse.ArgumentParser) -> None:
    listing = command(obj, common, "ls", list_objects, "List the stores, or the objects of one.")
    listing.add_argument("bucket", nargs="?")
    listing.add_argument("-n", "--names", action="store_true", help="names alone")
    add = command(obj, common, "add", add_store, "Create an object store.")
    add.add_argument("bucket")
    add.add_argument("--ttl", type=seconds, help="seconds until an object expires")
    add.add_argument("--storage", type=storage, default="file", help="file (default) or memory")
    add.add_argument("--max-bucket-size", type=count_of_bytes, help="bytes, or as 10GB")
    add.add_argument("--compress", action="store_true", help="compress it on disk (server 2.10)")
    add.add_argument("--replicas", type=positive, default=1)
    add.add_argument("--description")
    put = command(obj, common, "put", put_object, "Store a file, or standard input.")
    put.add_argument("bucket")
    put.add_argument("file", help="-: standard input")
    put.add_argument("--name", help="name of the object (default: the file as given)")
    put.add_argument("--description", help="words about it")
    put.add_argument("-H", "--header", action="append", metavar="NAME:VALUE", help="kept with it; may be repeated")
    put.add_argument("--chunk-size", type=count_of_bytes, help="bytes of each stored message, or as 128KB")
    taken_as_it_is(put, "-f", "--force")
    get = command(obj, common, "get", get_object, "Write an object to a file, or to standard output.")
    get.add_argument("bucket")
    get.add_argument("name")
    get.add_argument("file", nargs="?", help="-: standard output (the default unless it is a terminal)")
    taken_as_it_is(get, "-f", "--force")
    get.add_argument("-O", "--output", help="the same as FILE")
    known = ("show", "nfo", "i")
    info = command(obj, common, "info", object_info, "What is known about an object, or a store.", known)
    info.add_argument("bucket")
    info.add_argument("name", nargs="?")
    removal = command(obj, common, "del", delete_object, "Delete an object. Without a name: the store.")
    removal.add_argument("bucket")
    removal.add_argument("name", nargs="?")
    removal.add_argument("-f", "--force", action="store_true", help="do not ask")
    sealing = command(obj, common, "seal", seal_store, "Let nothing be added to a store, or removed, ever again.")
    sealing.add_argument("bucket")
    sealing.add_argument("-f", "--force", action="store_true", help="do not ask")
    watch = command(obj, common, "watch", watch_objects, "Print what is in a store, then every change.")
    watch.add_argument("bucket")
    watch.add_argument("--once", action="store_true", help="end after what is there now")
    watch.add_argument("--count", type=positive, help="end after so many")


def _open(nc: jsclient.Connection, options: argparse.Namespace) -> objectstore.ObjectStore:
    return objectstore.object_store(jetstream(nc, options), options.bucket)


def _plain(info: objectstore.ObjectInfo) -> dict[str, Any]:
    return {
        "bucket": info.bucket,
        "name": info.name,
        "size": info.size,
        "chunks": info.chunks,
        "digest": info.digest,
        "deleted": info.deleted,
        "description": info.description,
        "headers": info.headers,
        "modified": info.mtime.isoformat() if info.mtime else None,
    }


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


def _plain_store(one: objectstore.ObjectStoreStatus) -> dict[str, Any]:
    return {"bucket": one.bucket, "size": one.size, "description": one.description}


def list_objects(options: argparse.Namespace) -> None:
    with opened(options) as js:
        found: list[Any] = list(
            objectstore.object_stores(js)
            if options.bucket is None
            else objectstore.object_store(js, options.bucket).list()
        )
    if options.names:
        for one in found:
            name_alone(one.name if options.bucket else one.bucket, options.json)
    elif options.bucket:
        listing(options.json, found, _OBJECTS, plain=_plain, empty="no objects")
    else:
        listing(options.json, found, _STORES, plain=_plain_store, empty="no object stores", flowing=True)


def add_store(options: argparse.Namespace) -> None:
    config = objectstore.ObjectStoreConfig(
        bucket=options.bucket,
        ttl=options.ttl,
        storage=options.storage,
        replicas=options.replicas,
        description=options.description,
        max_bytes=options.max_bucket_size,
        compression=options.compress,
    )
    with connect(options) as nc:
        objectstore.create_object_store(jetstream(nc, options), config)
    result(options.json, {"bucket": options.bucket, "created": True}, f"created {options.bucket}")


def put_object(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        store = _open(nc, options)
        piped = options.file == "-"
        meta = objectstore.ObjectMeta(
            name=options.name or ("stdin" if piped else options.file),
            description=options.description,
            headers=headers_of(options.header),
            **({} if options.chunk_size is None else {"chunk_size": options.chunk_size}),
        )
        info = store.put(meta, sys.stdin.buffer) if piped else store.put_file(options.file, meta)
    result(options.json, _plain(info), f"stored {info.name}: {size(info.size)}, {info.digest}")


def get_object(options: argparse.Namespace) -> None:
    target = options.file or options.output or "-"
    if target == "-" and not (options.file or options.output) and sys.stdout.isatty():
        raise errors.ConfigError(f"name a file for the object: jsclient obj get {options.bucket} {options.name} FILE")
    with connect(options) as nc:
        store = _open(nc, options)
        if target == "-":
            with store.get(options.name) as reader:
                while piece := reader.read(1 << 20):
                    sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        info = store.get_file(options.name, target)
    result(options.json, _plain(info), f"wrote {target}: {size(info.size)}")


def object_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        store = _open(nc, options)
        found = store.status() if options.name is None else store.info(options.name)
    if isinstance(found, objectstore.ObjectStoreStatus):
        _show_store(found, options.json)
    elif options.json:
        record({"bucket": options.bucket, **_plain(found)})
    else:
        pairs = {**_plain(found), "modified": found.mtime, "description": found.description}
        title = f"Object {pairs.pop('name')}"
        page(title, told(pairs.items()))


def _show_store(status: objectstore.ObjectStoreStatus, as_json: bool) -> None:
    info = status.stream_info
    pairs = {"size": status.size, "storage": status.storage, "sealed": status.sealed, "description": status.description}
    if as_json:
        record({"bucket": status.bucket, **pairs, "stream": model_base.to_wire(info)})
    else:
        page(f"Object store {status.bucket}", told([("created", info.created), *pairs.items()]), stream_parts(info))


def delete_object(options: argparse.Namespace) -> None:
    what = f"object {options.name}" if options.name else f"object store {options.bucket} with all its objects"
    confirm(f"Delete {what}?", options.force)
    with connect(options) as nc:
        if options.name:
            _open(nc, options).delete(options.name)
        else:
            objectstore.delete_object_store(jetstream(nc, options), options.bucket)
    result(
        options.json,
        {"bucket": options.bucket, "deleted": options.name or options.bucket},
        f"deleted {options.name or options.bucket}",
    )


def seal_store(options: argparse.Namespace) -> None:
    confirm(f"Seal object store {options.bucket}? It can never be changed again.", options.force)
    with connect(options) as nc:
        _open(nc, options).seal()
    result(options.json, {"bucket": options.bucket, "sealed": True}, f"sealed {options.bucket}")


def watch_objects(options: argparse.Namespace) -> None:
    left = options.count
    with connect(options) as nc, _open(nc, options).watch() as watcher:
        while not watcher.stopped:
            info = watcher.next()
            if info is None:
                if options.once:
                    return
                continue
            result(
                options.json,
                _plain(info),
                f"{info.name} {'deleted' if info.deleted else size(info.size)} {info.digest}",
            )
            left = None if left is None else left - 1
            if left == 0:
                return
