"""Taking backups: the server sends a snapshot in chunks, and the client acknowledges each chunk immediately."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs
import msgspec

from jsclient import checks, errors, handlers
from jsclient.backup import files
from jsclient.backup.errors import BackupError
from jsclient.backup.files import Backup, Manifest
from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Deadline, Timeout, plain, whole
from jsclient.first_use import prepared
from jsclient.jetstream import JetStream
from jsclient.jetstream.api import names

STALL: Final = 30.0
"""Seconds without a chunk after which a backup gives up. With `check` the server is silent while it checks."""

CHUNK: Final = 128 * 1024
WINDOW: Final = 8 * 1024 * 1024
_GOOD: Final = 204

Progress = Callable[[int, int], None]


class _Origin(msgspec.Struct):
    name: str = ""
    external: Any = None


class _Config(msgspec.Struct):
    name: str
    sources: list[_Origin] | None = None


class _State(msgspec.Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    consumer_count: int = 0


class _Copying(msgspec.Struct):
    name: str = ""
    lag: int = 0
    error: Any = None


class _About(msgspec.Struct):
    """The fields that a backup needs from the information about a stream. The complete answer goes into the folder."""

    config: _Config
    state: _State
    sources: list[_Copying] | None = None


def about(answer: dict[str, Any]) -> _About:
    """Raises BadResponse for malformed information about a stream."""
    try:
        return msgspec.convert(answer, prepared(_About))
    except msgspec.ValidationError as error:
        raise errors.BadResponse(f"the answer is none about a stream: {error}", str(answer)[:512].encode()) from None


@arguments
def backup_stream(
    js: JetStream,
    stream: str,
    folder: str | os.PathLike[str],
    *,
    consumers: bool = True,
    check: bool = False,
    progress: Progress | None = None,
    stall: float | dt.timedelta = STALL,
    timeout: Timeout = DEFAULT,
) -> Backup:
    """Back a stream up into a new folder. Returns it with its manifest. The NATS CLI can restore it.

    A backup under load is an exact prefix of the stream. `consumers` includes them with their positions. With `check`
    the server verifies its blocks first (before 2.15). `progress(bytes received, bytes of the stream)` is called per
    chunk. A failure raises BackupError (StreamNotFound, TimedOut after `stall` seconds without a chunk) and leaves
    nothing that looks like a backup. `timeout` bounds the whole call. By default it continues as long as chunks come.
    Memory streams need server 2.15.
    """
    handlers.check(progress, "progress")
    path = files.prepare(folder)
    stall = plain(stall)
    timeout = whole(timeout)
    deadline = timeout if isinstance(timeout, Deadline) else Deadline(None)
    taken_of_sources = _positions_of_sources(js, stream, timeout)
    part = path / f"{files.DATA}.part"
    inbox = js.nc.new_inbox()
    request = {
        "deliver_subject": inbox,
        "no_consumers": not consumers,
        "chunk_size": CHUNK,
        "window_size": WINDOW,
        "jsck": check,
    }
    # The window bounds the messages that wait here. A dropped message would be a hole in the backup.
    with js.nc.subscribe(inbox, pending_messages=1 << 20, pending_bytes=1 << 31) as chunks:
        answer = js.api.request(
            f"STREAM.SNAPSHOT.{names.check_stream(stream)}", request, timeout=deadline.at_most(stall)
        )
        state = about(answer).state
        try:
            with part.open("wb") as file:
                digest, size = _receive(js, chunks, file, stream, state.bytes, progress, stall, deadline)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    part.replace(path / files.DATA)
    backup = Backup(path, answer["config"], answer["state"], None)
    manifest = Manifest(
        stream=stream,
        format=backup.format(),
        server_version=js.nc.server_info.version,
        sha256=digest,
        bytes=size,
        messages=state.messages,
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        consumers=state.consumer_count if consumers else None,
        taken=files.now(),
        sources=taken_of_sources,
    )
    files.save_json(path / files.MANIFEST, manifest)
    # The last one: from here on it is a backup.
    files.save_json(path / files.CONFIG, {"config": backup.config, "state": backup.state})
    return attrs.evolve(backup, manifest=manifest)


def _receive(
    js: JetStream,
    chunks: Any,
    file: BinaryIO,
    stream: str,
    expected: int,
    progress: Progress | None,
    stall: float,
    deadline: Deadline,
) -> tuple[str, int]:
    digest, size, begun = hashlib.sha256(), 0, 0
    while True:
        try:
            chunk = None if deadline.expired() else chunks.next(deadline.at_most(stall))
        except errors.TimedOut:
            chunk = None
        if chunk is None:
            why = "its time was over" if deadline.expired() else f"no chunk for {stall:g} s"
            raise errors.TimedOut(
                f"the backup of {stream!r} stopped: {why}, after {size} bytes. Nothing was kept. Try again, "
                "with more time."
            )
        status = chunk.status
        if not chunk.data or status is not None:
            # Servers before 2.10 end without a status, and so does 2.15 if the data fits into one chunk.
            if status is None or status.code == _GOOD:
                return digest.hexdigest(), size
            raise BackupError(
                f"the server ended the backup of {stream!r}: {status.code} {status.description}. Nothing was "
                "kept. Try again."
            )
        if chunk.reply:
            js.nc.publish(chunk.reply)  # before writing: the server waits for it
        file.write(chunk.data)
        digest.update(chunk.data)
        size += len(chunk.data)
        if size - begun >= files.WRITE_EVERY:
            files.begin_writing(file, begun, size)
            begun = size
        if progress is not None:
            handlers.ran(progress(size, expected))


def _positions_of_sources(js: JetStream, stream: str, timeout: Timeout) -> dict[str, int]:
    """The sequence up to which each source had certainly been copied. A restore continues there.

    The origin is queried first. If the copy has no lag afterwards, it has everything that the origin had at that
    moment.
    """

    def info(name: str) -> _About:
        return about(js.api.request(f"STREAM.INFO.{names.check_stream(name)}", None, read=True, timeout=timeout))

    ends: dict[str, int] = {}
    for source in info(stream).config.sources or ():
        if source.external:
            continue
        try:
            ends[source.name] = info(source.name).state.last_seq
        except errors.ApiError:
            continue  # it is gone, or we have no permission: the archive's own headers must suffice
    if not ends:
        return {}
    told = info(stream).sources or ()
    behind = {one.name for one in told if one.lag or one.error}
    behind |= set(ends) - {one.name for one in told}
    return {name: end for name, end in ends.items() if name not in behind}


@attrs.frozen
class Outcome:
    """The outcome for one stream: `error` is None if it is `done`.

    Attributes:
        stream: Name of the stream.
        folder: Folder of its backup.
        error: The error that stopped it; None if it is done.
    """

    stream: str
    folder: Path
    error: Exception | None = None

    @property
    def done(self) -> bool:
        """True when it worked."""
        return self.error is None


@arguments
def backup_account(
    js: JetStream,
    folder: str | os.PathLike[str],
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    consumers: bool = True,
    check: bool = False,
    on_stream: Callable[[Outcome], None] | None = None,
    timeout: Timeout = DEFAULT,
) -> list[Outcome]:
    """Back up all streams of the account (or `include`), one folder each. A stream that fails does not stop the others.

    Key-value buckets and object stores are streams (`KV_*`, `OBJ_*`) and are among them. The backups are not of one
    instant: pause the publishers if several streams must agree. Accounts, users and permissions are not part of a
    backup. `timeout` bounds the whole call. Streams for which no time is left fail.

    `exclude` names streams to leave out. `consumers` and `check` are the same as for `backup_stream`. `on_stream` is
    called with the Outcome of each.
    """
    handlers.check(on_stream, "on_stream")
    timeout = whole(timeout)
    wanted, unwanted = set(include), set(exclude)
    found = [
        name for name in js.stream_names(timeout=timeout) if (not wanted or name in wanted) and name not in unwanted
    ]
    if absent := wanted - set(found) - unwanted:
        raise errors.ConfigError(f"there are no streams {', '.join(sorted(absent))}: correct the names in include=")
    outcomes = []
    for name in sorted(found):
        path = checks.path(folder, "folder") / name
        try:
            backup_stream(js, name, path, consumers=consumers, check=check, timeout=timeout)
            outcome = Outcome(name, path)
        except (errors.JsClientError, OSError) as error:
            outcome = Outcome(name, path, error)
        outcomes.append(outcome)
        if on_stream is not None:
            handlers.ran(on_stream(outcome))
    return outcomes
