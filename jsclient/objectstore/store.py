"""An object store: one stream with the chunks of objects, and one message of meta information for each object."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from jsclient import checks, handlers, kinds
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Default, Patience, Timeout, check_timeout, plain_or_none, resolve
from jsclient.errors import (
    ApiError,
    ConfigError,
    InvalidName,
    NoStreamForSubject,
    NotStored,
    ObjectChanged,
    ObjectExists,
    ObjectLinkError,
    ObjectNotFound,
    PublishUnknown,
    StreamNotFound,
    UnknownOutcome,
    WrongLastSequence,
    brief,
)
from jsclient.jetstream import JetStream
from jsclient.jetstream.stream import Stream
from jsclient.keyvalue import missing
from jsclient.nuid import next_nuid
from jsclient.objectstore.download import fetch_chunks
from jsclient.objectstore.leftovers import Leftovers
from jsclient.objectstore.metas import READ_TIMEOUT, Metas
from jsclient.objectstore.models import (
    ObjectInfo,
    ObjectLink,
    ObjectMeta,
    ObjectStoreStatus,
    check_link_target,
    chunk_subject,
    meta_subject,
    stream_name,
)
from jsclient.objectstore.parts import ObjectFile, Parts, Positions, check_range
from jsclient.objectstore.reader import ObjectReader
from jsclient.objectstore.renaming import rename
from jsclient.objectstore.repair import repair as repair_store
from jsclient.objectstore.sources import Data, Progress, chunks_of, rewinder
from jsclient.objectstore.upload import Upload
from jsclient.objectstore.watch import OPEN_TIMEOUT, ObjectWatcher, WatchOptions

logger: logging.Logger = logging.getLogger("jsclient.objectstore")

STALL_TIMEOUT: Final = 30.0
"""Seconds without a chunk after which a read gives up."""

CHANGE_TIMEOUT: Final = 15.0
"""Seconds for a change with all its steps; elections of a leader last 4 to 8 s."""

UPLOAD_ATTEMPTS: Final = 5
"""Attempts to store data that can be read again, if the order of its chunks was broken."""

META_ATTEMPTS: Final = 100
"""Attempts to store meta information, if another writer of the same name was faster."""

META_WAIT: Final = 0.01
"""Longest wait in seconds between two of these attempts. It is random, to keep writers out of step."""


class ObjectStore:
    """A handle on an object store, from the functions of `jsclient.objectstore`. Thread-safe.

        store = objectstore.object_store(js, "files")
        store.put("report", b"some bytes")
        with store.get("report") as reader:  # a binary file
            print(reader.read())

    A put becomes visible as a whole, when its last step (the meta information) is stored. Until then, and after any
    failure, readers see the previous object.

    Attributes:
        bucket: Its name.
        stream_name: The stream behind it: `OBJ_` and the name.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        progress: Called at intervals with (done, total). The total is None if it is unknown.
    """

    def __init__(self, js: JetStream, bucket: str) -> None:
        kinds.check(JetStream, js=js)
        self._js = js
        self.bucket = bucket
        self.stream_name: str = stream_name(bucket)
        self._stream = Stream(js, self.stream_name)
        self._metas = Metas(js, self._stream, bucket)
        self._leftovers = Leftovers(self._metas)

    # --- storing ------------------------------------------------------------------------------------------

    def put(
        self, name: str | ObjectMeta, data: Data, *, progress: Progress = None, timeout: Timeout = None
    ) -> ObjectInfo:
        """Store an object under a name (or with an ObjectMeta), replacing one of that name. Returns its info.

        `data` is bytes, str (the text itself, as UTF-8), an `os.PathLike` (the file), a binary file object, or an
        iterable of bytes. For data of any size, about 4 MiB are in memory at a time (up to 32 if the server is far
        away). `progress(stored, total)` is called as chunks are confirmed; total is None if it is unknown.

        After a lost connection or a new leader, the client sends chunks again. If that breaks their order, it stores
        data that it can reread (no iterable or pipe) again. `timeout` bounds the whole call (default: 30 s per chunk).

        An exception means that the old object is untouched. The client then removes the sent chunks, or, if the server
        is away, does so with the next call that changes this store. `status(repair=True)` finds the chunks of other
        processes. UnknownOutcome means that only the last step is in doubt.
        """
        handlers.check(progress, "progress")
        meta = name if isinstance(name, ObjectMeta) else ObjectMeta(name=name)
        meta_subject(self.bucket, meta.name)  # checks it
        deadline = Deadline.of(timeout, None)
        self._leftovers.clean_up(deadline)
        upload = self._upload(meta, data, progress, deadline)
        info = ObjectInfo(
            name=meta.name,
            bucket=self.bucket,
            nuid=upload.nuid,
            size=upload.size,
            chunks=upload.chunks,
            digest=upload.digest,
            description=meta.description,
            headers=meta.headers,
            metadata=meta.metadata,
            chunk_size=meta.chunk_size,
        )
        return self._replace(info, deadline)

    def put_file(
        self,
        path: str | os.PathLike[str],
        name: str | ObjectMeta | None = None,
        *,
        progress: Progress = None,
        timeout: Timeout = None,
    ) -> ObjectInfo:
        """Store a file. Its name is the path as given unless you say otherwise."""
        file = checks.path(path, "path")
        return self.put(os.fspath(path) if name is None else name, file, progress=progress, timeout=timeout)

    def _upload(self, meta: ObjectMeta, data: Data, progress: Progress, deadline: Deadline) -> Upload:
        """Store the chunks; once more when their order was broken on the way and the data can be read again."""
        rewind = rewinder(data)
        for attempt in range(1, UPLOAD_ATTEMPTS + 1):
            upload = Upload(self._js, self._stream, self.bucket, meta.chunk_size, deadline)
            try:
                with chunks_of(data, meta.chunk_size) as (chunks, total), engine_of(self._js.nc).sends_within(deadline):
                    upload.run(chunks, total, progress)
                return upload
            except BaseException as error:
                under_way = upload.discard()
                if under_way is not None:
                    self._leftovers.remember(meta.name, upload.nuid, under_way, seen=False)
                if isinstance(error, (StreamNotFound, NoStreamForSubject)):
                    raise missing.not_written(self.stream_name, error) from error
                again = isinstance(error, (ObjectChanged, PublishUnknown)) and attempt < UPLOAD_ATTEMPTS
                if not again or rewind is None or deadline.expired():
                    raise
            rewind()
        raise AssertionError("the last attempt returns or raises")

    def _replace(self, info: ObjectInfo, deadline: Deadline) -> ObjectInfo:
        """Make uploaded chunks the object of that name, after exactly the one that is there now.

        Two writers lose no chunks: the second one replaces, and frees, the chunks of the first one. When the outcome of
        the last step is unknown the chunks stay until a later call has seen whether they are needed.
        """
        before, refusals = None, 0
        try:
            for _ in range(META_ATTEMPTS):
                there = self._metas.read(info.name, deadline)
                if there is not None and there.nuid == info.nuid:
                    stored = there  # an attempt that was stored; its ack was lost
                    break
                before = there
                try:
                    stored = self._metas.store(info, 0 if before is None else before.revision, deadline)
                    break
                except WrongLastSequence:
                    # Another writer was faster: its object is the one to replace now.
                    refusals += 1
                    _pause(deadline)
            else:
                raise ObjectChanged(f"others keep replacing object {info.name!r} in {self.bucket!r}", self.bucket)
        except BaseException as error:
            refused = isinstance(error, (ApiError, NotStored, ObjectChanged))
            # An earlier refusal may have come from a leader that was replaced.
            self._leftovers.remember(info.name, info.nuid, seen=not refused or refusals > 0)
            if refused:
                self._leftovers.clean_up(deadline)
            raise
        if before is not None:
            self._leftovers.free(before, deadline)
        return stored

    # --- reading ------------------------------------------------------------------------------------------

    def get(
        self,
        name: str,
        *,
        start: int = 0,
        length: int | None = None,
        show_deleted: bool = False,
        progress: Progress = None,
        timeout: Timeout = DEFAULT,
    ) -> ObjectReader:
        """The object as a readable binary file. Its `info` describes it. Links are followed.

        `timeout`: seconds that this call takes at most, and without data after which a read gives up with TimedOut (30
        by default). Raises ObjectNotFound, ObjectLinkError (a link to a whole bucket). Reading raises DigestMismatch,
        ObjectChanged.

        `start` and `length` (bytes) read a part of the object: at most `length` bytes, and none after its end. The
        digest is not checked then. For many parts of one object use `open`.

        `show_deleted`: a deleted object is empty then, instead of not found.
        """
        kinds.check(bool, show_deleted=show_deleted)
        stall = resolve(timeout, STALL_TIMEOUT)
        check_range(start, length)
        if start or length is not None:
            return self._get_part(name, start, length, show_deleted, progress, stall)
        return self._get(name, show_deleted, progress, stall, Deadline(stall), Deadline(None))

    def open(self, name: str, *, timeout: Timeout = DEFAULT) -> ObjectFile:
        """The object as a seekable binary file, for zipfile, pandas, pyarrow and others. Links are followed.

        `timeout`: seconds that this call takes at most, and without data after which a read gives up with TimedOut (30
        by default). Raises ObjectNotFound, ObjectLinkError. Reading raises ObjectChanged. The digest is not checked:
        `get` checks it.
        """
        stall = resolve(timeout, STALL_TIMEOUT)
        parts = self._parts(name, False, stall, Deadline(stall))
        return ObjectFile(Positions(parts, stall), parts.info)

    def _parts(self, name: str, show_deleted: bool, stall: float | None, opening: Deadline) -> Parts:
        store, info = self._found(name, show_deleted, opening)
        return Parts(store._js, store._stream, store.bucket, info, stall, opening)

    def _get_part(
        self,
        name: str,
        start: int,
        length: int | None,
        show_deleted: bool,
        progress: Progress,
        stall: float | None,
    ) -> ObjectReader:
        handlers.check(progress, "progress")
        opening = Deadline(stall)
        parts = self._parts(name, show_deleted, stall, opening)
        left = max(0, parts.info.size - start)
        size = left if length is None else min(length, left)
        return ObjectReader(parts.info, parts.bytes_of(start, size, opening, Deadline(None)), progress, size)

    def _found(self, name: str, show_deleted: bool, opening: Deadline) -> tuple[ObjectStore, ObjectInfo]:
        """The object, and the store that has it: another one for a link."""
        info = self.info(name, show_deleted=show_deleted, timeout=opening)
        return (self, info) if info.link is None else self._follow(info, opening)

    def _get(
        self,
        name: str,
        show_deleted: bool,
        progress: Progress,
        stall: float | None,
        opening: Deadline,
        whole: Deadline,
    ) -> ObjectReader:
        handlers.check(progress, "progress")
        store, info = self._found(name, show_deleted, opening)
        chunks: Iterator[bytes] = iter(())
        if info.size:
            subject = chunk_subject(store.bucket, info.nuid)
            chunks = fetch_chunks(store._js, store._stream, subject, info, stall, opening, whole)
        return ObjectReader(info, chunks, progress)

    def _read_all(self, name: str, progress: Progress, timeout: Timeout) -> ObjectReader:
        """`get` for calls that read to the end: their timeout bounds everything."""
        if isinstance(timeout, Default):
            return self.get(name, progress=progress)
        deadline = Deadline.of(timeout, None)
        return self._get(name, False, progress, None, deadline, deadline)

    def _follow(self, info: ObjectInfo, deadline: Deadline) -> tuple[ObjectStore, ObjectInfo]:
        link = info.link
        assert link is not None
        if not link.name:
            raise ObjectLinkError(f"object {info.name!r} is a link to the whole bucket {link.bucket!r}", self.bucket)
        try:
            store = self if link.bucket == self.bucket else ObjectStore(self._js, link.bucket)
            target = store.info(link.name, timeout=deadline)
        except InvalidName as error:
            raise ObjectLinkError(f"object {info.name!r} is a link to nowhere: {brief(error)}", self.bucket) from error
        if target.link is not None:
            raise ObjectLinkError(f"object {info.name!r} links to {link.name!r}, which is a link itself", self.bucket)
        return store, target

    def get_bytes(self, name: str, *, progress: Progress = None, timeout: Timeout = DEFAULT) -> bytes:
        """The complete object in memory. `timeout` bounds the whole call. By default only 30 s without data end it."""
        with self._read_all(name, progress, timeout) as reader:
            return reader.readall()

    def get_string(self, name: str, *, encoding: str = "utf-8", timeout: Timeout = DEFAULT) -> str:
        """The complete object as a string, decoded with `encoding`."""
        kinds.check(str, encoding=encoding)
        return self.get_bytes(name, timeout=timeout).decode(encoding)

    def get_file(
        self,
        name: str,
        destination: str | os.PathLike[str] | IO[bytes],
        *,
        progress: Progress = None,
        timeout: Timeout = DEFAULT,
    ) -> ObjectInfo:
        """Write the object to a path, or into a binary file object.

        The file of that path appears (and replaces an older one) only after all data has arrived with the right digest.
        Data that a file object received before a DigestMismatch stays in it. `timeout` bounds the whole call. By
        default only 30 s without data end it.
        """
        written: Any = destination
        if not callable(getattr(destination, "write", None)):
            written = checks.path(written, "destination, unless it is a binary file,")
        with self._read_all(name, progress, timeout) as reader:
            if isinstance(written, Path):
                _write_whole(reader, written)
            else:
                for chunk in reader.chunks():
                    written.write(chunk)
            return reader.info

    def info(self, name: str, *, show_deleted: bool = False, timeout: Timeout = DEFAULT) -> ObjectInfo:
        """The information about an object (for a link, about the link itself). Raises ObjectNotFound if it does not
        exist.

        `show_deleted=True` also returns the information of a deleted object.
        """
        kinds.check(bool, show_deleted=show_deleted)
        found = self._metas.read(name, Deadline.of(timeout, READ_TIMEOUT))
        if found is None or (found.deleted and not show_deleted):
            self._not_found(name)
        return found

    def _not_found(self, name: str) -> NoReturn:
        raise ObjectNotFound(f"object not found: {name!r} in object store {self.bucket!r}", self.bucket, name)

    # --- changing -----------------------------------------------------------------------------------------

    def update_meta(self, name: str, meta: ObjectMeta, *, timeout: Timeout = DEFAULT) -> ObjectInfo:
        """Replace name, description, headers and metadata of an object. Its data stays where it is.

        A name other than `name` renames it: ObjectExists if there is an object of that name. ObjectChanged when another
        client changed either name at the same moment. Its change stays. UnknownOutcome after the new name was stored:
        both names may exist with the same chunks, and deleting one keeps the other. Repeat the call to finish.
        """
        if not isinstance(meta, ObjectMeta):
            raise ConfigError(f"meta must be an ObjectMeta, not {type(meta).__name__}")
        deadline = Deadline.of(timeout, CHANGE_TIMEOUT)
        meta_subject(self.bucket, meta.name)  # checks it
        current = self.info(name, timeout=deadline)
        changed = current.changed(
            name=meta.name, description=meta.description, headers=meta.headers, metadata=meta.metadata
        )
        if meta.name != name:
            return rename(self._metas, self._leftovers, current, changed, deadline)
        try:
            return self._metas.store(changed, current.revision, deadline)
        except WrongLastSequence as error:
            text = f"object {name!r} in {self.bucket!r} was changed by another client meanwhile"
            raise ObjectChanged(text, self.bucket) from error

    def delete(self, name: str, *, timeout: Timeout = DEFAULT) -> None:
        """Delete an object: its chunks go, a note that it was deleted stays (`show_deleted`)."""
        meta_subject(self.bucket, name)  # checks it
        deadline = Deadline.of(timeout, CHANGE_TIMEOUT)
        self._leftovers.clean_up(deadline)
        for _ in range(META_ATTEMPTS):
            current = self._metas.read(name, deadline)
            if current is None:
                self._not_found(name)
            try:
                self._metas.mark_deleted(current, deadline)
            except WrongLastSequence:
                _pause(deadline)
                continue
            except UnknownOutcome:
                self._leftovers.remember(name, current.nuid, seen=True)
                raise
            self._leftovers.free(current, deadline)
            return
        raise ObjectChanged(f"others keep replacing object {name!r} in {self.bucket!r}", self.bucket)

    def add_link(self, name: str, target: ObjectInfo, *, timeout: Timeout = DEFAULT) -> ObjectInfo:
        """Make `name` a link to an object of this or another store. It may replace a link, not an object."""
        return self._add_link(name, check_link_target(target), Deadline.of(timeout, CHANGE_TIMEOUT))

    def add_bucket_link(self, name: str, store: ObjectStore | str, *, timeout: Timeout = DEFAULT) -> ObjectInfo:
        """Make `name` a link to a whole object store."""
        bucket = store.bucket if isinstance(store, ObjectStore) else store
        stream_name(bucket)  # checks it
        return self._add_link(name, ObjectLink(bucket), Deadline.of(timeout, CHANGE_TIMEOUT))

    def _add_link(self, name: str, link: ObjectLink, deadline: Deadline) -> ObjectInfo:
        there = self._metas.read(name, deadline)
        if there is not None and not there.deleted and not there.is_link:
            raise ObjectExists(f"object exists: {name!r} in object store {self.bucket!r}", self.bucket, name)
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=next_nuid(), link=link)
        try:
            return self._metas.store(info, 0 if there is None else there.revision, deadline)
        except WrongLastSequence as error:
            raise ObjectChanged(f"object {name!r} in {self.bucket!r} was made meanwhile", self.bucket) from error

    def seal(self, *, timeout: Timeout = DEFAULT) -> None:
        """Close the store for good: nothing can be stored, changed or deleted any more. Cannot be undone."""
        with missing.named(self.stream_name):
            self._stream.seal(timeout=timeout)

    # --- all objects --------------------------------------------------------------------------------------

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        callback: Callable[[ObjectInfo], Any] | None = None,
        timeout: float | dt.timedelta | None = None,
    ) -> ObjectWatcher:
        """The information of all objects, then every change as it happens. The data itself is not sent.

        An iterator: `initial()` returns the current ones, and a loop the rest. It continues over reconnects and server
        restarts until `stop()` or the end of its `with`. With a `callback`, a separate thread calls it for every
        change. Its exceptions, and the error that ends the watcher, go to `on_error`. The options are the same as for
        `KeyValue.watch`.

        `include_history` returns all stored information, not only the last of each name. The store keeps one state per
        object, so history shows renames and deletes only. `updates_only` returns only changes, `ignore_deletes` hides
        deleted objects. `timeout` is in seconds and bounds both this call and the wait of an iteration for the next
        object, which then raises TimedOut (None: forever). `next(timeout=)` overrides it.
        """
        handlers.check(callback, "callback")
        options = WatchOptions(
            include_history=include_history, updates_only=updates_only, ignore_deletes=ignore_deletes
        )
        seconds = plain_or_none(timeout)
        check_timeout(seconds)
        watcher = self._watch(options, seconds, Deadline(seconds or OPEN_TIMEOUT))
        if callback is not None:
            watcher.call(callback, self.bucket)
        return watcher

    def _watch(self, options: WatchOptions, timeout: float | None, deadline: Deadline) -> ObjectWatcher:
        return ObjectWatcher(self._js, self.bucket, self.stream_name, options, timeout, deadline)

    def list(self, *, show_deleted: bool = False, timeout: Timeout = DEFAULT) -> Iterator[ObjectInfo]:
        """All objects, lazily; nothing when there are none. One that is replaced meanwhile may come twice.

        Raises ListingIncomplete when the end cannot be proven. `timeout` bounds the whole listing, without what you do
        between two objects. By default only 5 s without an object end it.

        `show_deleted`: with those that were deleted.
        """
        kinds.check(bool, show_deleted=show_deleted)
        return self._list(show_deleted, Patience(timeout, READ_TIMEOUT))

    def _list(self, show_deleted: bool, patience: Patience) -> Iterator[ObjectInfo]:
        options = WatchOptions(ignore_deletes=not show_deleted)
        with self._watch(options, None, patience.deadline()) as watcher:
            while True:
                info = watcher.next(patience.remaining())
                if info is None:
                    return
                with patience.paused():
                    yield info

    def __iter__(self) -> Iterator[ObjectInfo]:
        return self.list()

    def __contains__(self, name: str) -> bool:
        try:
            self.info(name)
        except (ObjectNotFound, InvalidName):
            return False
        return True

    def status(self, *, repair: bool = False, timeout: Timeout = DEFAULT) -> ObjectStoreStatus:
        """The store's configuration and state. With `repair`, first remove chunks that killed writers left behind.

        These chunks belong to no object: they are left of unfinished uploads, and of incomplete deletes or
        replacements. The repair looks twice, 2 seconds apart, to leave uploads under way alone. An upload that pauses
        longer fails with ObjectChanged and may be repeated.

        Before the repair removes anything, it reads every object from the stream's leader. If it cannot (no permission,
        unreadable meta information), it removes nothing and raises the error. `timeout` bounds the whole call. A repair
        has no limit by default.
        """
        if not isinstance(repair, bool):
            raise ConfigError(f"repair must be True or False, not {type(repair).__name__}")
        repaired = 0
        deadline = Deadline.of(timeout, None if repair else READ_TIMEOUT)
        if repair:
            self._leftovers.clean_up(deadline)
            listed = self.list(timeout=DEFAULT if isinstance(timeout, Default) else deadline)
            with missing.named(self.stream_name):
                repaired = repair_store(self._metas, listed, deadline)
        with missing.named(self.stream_name):
            return ObjectStoreStatus(self._stream.info(timeout=deadline.at_most(READ_TIMEOUT)), repaired)

    def __reduce__(self) -> Any:
        return engine_of(self._js.nc).refuse_pickle(self)

    def __repr__(self) -> str:
        return f"<ObjectStore {self.bucket}>"


def _pause(deadline: Deadline) -> None:
    """Let the other writer be faster."""
    time.sleep(deadline.at_most(random.uniform(0, META_WAIT)))


def _write(file: IO[bytes], chunk: bytes) -> None:
    """An unbuffered file may take a part of the data."""
    view = memoryview(chunk)
    while len(view):
        view = view[file.write(view) :]


def _write_whole(reader: ObjectReader, path: Path) -> None:
    """Write to a temporary file next to the destination and rename it at the end: all of it or nothing."""
    # `tempfile` makes private files. Only `os.umask` returns the mode for them, and it changes the whole process.
    temporary = path.parent / f".{path.name[:50]}.{next_nuid()}.part"
    with open(temporary, "xb", buffering=0) as file:
        try:
            for chunk in reader.chunks():
                _write(file, chunk)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
