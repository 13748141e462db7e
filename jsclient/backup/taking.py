"""Taking backups: the server sends a snapshot in chunks, and the client acknowledges each chunk immediately."""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import os
from collections.abc import Callable
from typing import Any, BinaryIO, Final

import attrs

from jsclient import errors, handlers, kinds
from jsclient.backup import files, sources
from jsclient.backup.errors import BackupError
from jsclient.backup.files import Backup, Manifest
from jsclient.durations import DEFAULT, Deadline, Timeout, plain, whole
from jsclient.jetstream import JetStream
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.models import StreamState

STALL: Final = 30.0
"""Seconds without a chunk after which a backup gives up. With `check` the server is silent while it checks."""

CHUNK: Final = 128 * 1024
WINDOW: Final = 8 * 1024 * 1024
_GOOD: Final = 204

Progress = Callable[[int, int], None]


def state_of(answer: dict[str, Any]) -> StreamState:
    """The state of the stream in the answer. Raises BadResponse if it is none about a stream."""
    config = answer.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("name"), str):
        raise errors.BadResponse("the answer has no configuration of a stream", str(answer)[:512].encode())
    return model_base.from_wire(copy.deepcopy(answer.get("state")), StreamState)  # which takes it apart


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
    kinds.check(JetStream, js=js)
    kinds.check(bool, consumers=consumers, check=check)
    kinds.check(float, dt.timedelta, stall=stall)
    handlers.check(progress, "progress")
    names.check_stream(stream)
    stall = plain(stall)
    timeout = whole(timeout)
    path = files.prepare(folder)
    deadline = timeout if isinstance(timeout, Deadline) else Deadline(None)
    before = js.stream(stream, fetch_info=False).info(timeout=timeout)
    positions = sources.positions(js, before, timeout)
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
        state = state_of(answer)
        try:
            with part.open("wb") as file:
                digest, size = _receive(js, chunks, file, stream, state.bytes, progress, stall, deadline)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    sources.follow(js, stream, positions, before.state.last_seq + 1, state.last_seq, deadline)
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
        sources=positions,
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
