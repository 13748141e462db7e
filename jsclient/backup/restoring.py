"""Restoring backups: completely, under another name, with other settings, or only a part of the messages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from jsclient import checks, errors, handlers
from jsclient.backup import archive, files, looking, s2
from jsclient.backup.archive import Entry
from jsclient.backup.errors import BackupError
from jsclient.backup.files import Backup
from jsclient.backup.sending import STEP_TIMEOUT, upload
from jsclient.backup.taking import Outcome, Progress
from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Deadline, Timeout, whole
from jsclient.jetstream import JetStream
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.models import StreamInfo
from jsclient.jetstream.api.requests import check_error

CHUNK: Final = 256 * 1024
FINISH_TIMEOUT: Final = 600.0
"""Seconds for the server to build the stream after the last chunk."""


@arguments
def restore_stream(
    js: JetStream,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    subjects: list[str] | None = None,
    replicas: int | None = None,
    storage: str | None = None,
    placement: dict[str, Any] | None = None,
    messages: Callable[[Entry], Entry | None] | None = None,
    consumers: bool = True,
    progress: Progress | None = None,
    timeout: Timeout = DEFAULT,
) -> StreamInfo:
    """Restore a backup as a new stream. Returns its info. Sequences, times, headers and consumers stay the same.

    `name`, `subjects`, `replicas`, `storage` and `placement` change its configuration. `messages` gets every message
    (`entry.name` is its subject) and returns it, changed or not, or None to leave it out. Sequences and times stay.

    Restored sources have an `opt_start_seq` after the last message of theirs in the backup. Change them to the plain
    source only when each has brought something new. Otherwise the server copies the complete origin again. A name other
    than the backup's, `messages` and `consumers=False` need a backup of server 2.15 and such a server.

    A wrong digest raises BackupCorrupt before anything is sent. A name in use raises StreamNameInUse. If the server
    refuses in the middle, the incomplete stream is deleted: BackupError. `timeout` bounds the whole call. By default
    the server has 30 s for each chunk and 10 minutes for its last answer. UnknownOutcome means that an answer did not
    come in time: the stream may be incomplete. `progress(bytes sent, bytes of the backup)` is called per chunk.
    """
    handlers.check(messages, "messages")
    handlers.check(progress, "progress")
    deadline = Deadline(None) if timeout is DEFAULT else Deadline.of(timeout, None)
    backup = files.load(folder)
    looking.check_digest(backup)
    config = _config(backup, name, subjects, replicas, storage, placement)
    rewritten = messages is not None or not consumers
    _check_format(js, backup, config["name"], rewritten)
    _skip_what_sources_brought(js, backup, config)
    limit = min(CHUNK, js.nc.max_payload)
    pieces = _sized(_rewritten(backup, messages, consumers), limit) if rewritten else _file(backup.data, limit)
    size = backup.data.stat().st_size
    return _send(js, config, backup.state, pieces, size, progress, deadline)


def _config(
    backup: Backup,
    name: str | None,
    subjects: list[str] | None,
    replicas: int | None,
    storage: str | None,
    placement: dict[str, Any] | None,
) -> dict[str, Any]:
    """The backup's own JSON with the requested changes. Settings that this client does not know stay unchanged."""
    config = dict(backup.config)
    config["name"] = names.check_stream(name or config["name"])
    if subjects is not None:
        names.check_filters(subjects, "subjects")
        config["subjects"] = subjects
    changes = {"num_replicas": replicas, "storage": storage, "placement": placement}
    config.update({key: value for key, value in changes.items() if value is not None})
    return config


def _check_format(js: JetStream, backup: Backup, name: str, rewritten: bool) -> None:
    info = js.nc.server_info
    if backup.format() == "tar":
        if name != backup.stream or rewritten:
            raise errors.NotSupported(
                "another name and a part of the messages need a backup made by nats-server 2.15 or later. Nothing "
                "was restored. Restore this one as it is, on any server, and back it up again there."
            )
    elif not info.at_least(2, 15):
        raise errors.NotSupported(
            f"this backup was made by nats-server 2.15 or later; {info.version} cannot read it. Nothing was restored. "
            "Restore it on a newer server; this one reads backups of servers before 2.15."
        )


def _skip_what_sources_brought(js: JetStream, backup: Backup, config: dict[str, Any]) -> None:
    """Make sources start after the messages that the backup already holds (`opt_start_seq`).

    Otherwise server 2.15 copies the complete origin a second time: it stores the position under an identity of the
    origin that a restore changes. Any server does this for a work queue that was empty.
    """
    sources = config.get("sources")
    if not sources:
        return
    found = dict(backup.manifest.sources) if backup.manifest is not None else {}
    if backup.format() == "archive":
        for origin, seq in looking.newest_of_sources(backup).items():
            found[origin] = max(seq, found.get(origin, 0))
    started = []
    for source in sources:
        if source["name"] in found:
            source = {key: value for key, value in source.items() if key != "opt_start_time"}
            source["opt_start_seq"] = found[source["name"]] + 1
        started.append(source)
    config["sources"] = started


def _file(path: Path, limit: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(limit):
            yield piece


def _rewritten(backup: Backup, messages: Callable[[Entry], Entry | None] | None, consumers: bool) -> Iterator[bytes]:
    with backup.entries() as contents:
        yield from s2.packed(archive.encoded(_chosen(contents, messages, consumers)))


def _chosen(
    contents: Iterable[Entry], messages: Callable[[Entry], Entry | None] | None, consumers: bool
) -> Iterator[Entry]:
    for entry in contents:
        if entry.seq:
            chosen = handlers.ran(messages(entry)) if messages is not None else entry
            if chosen is not None:
                yield chosen
        elif consumers or not entry.name.startswith(archive.CONSUMERS):
            yield _without_consumers(entry) if not consumers and entry.name == archive.STATE else entry


def _without_consumers(entry: Entry) -> Entry:
    return attrs.evolve(entry, data=msgspec.json.encode({**entry.json(), "consumer_count": 0}))


def _send(
    js: JetStream,
    config: dict[str, Any],
    state: dict[str, Any],
    pieces: Iterator[bytes],
    size: int,
    progress: Progress | None,
    deadline: Deadline,
) -> StreamInfo:
    name = config["name"]
    request = {"config": config, "state": state}
    answer = js.api.request(f"STREAM.RESTORE.{name}", request, timeout=deadline.at_most(js.api.timeout or STEP_TIMEOUT))
    target = answer.get("deliver_subject")
    if not isinstance(target, str) or not target:
        raise errors.BadResponse(f"the server named no subject for the restore of {name!r}", b"")
    sent = 0
    try:
        for taken in upload(js.nc, target, pieces, deadline):
            sent += taken
            if progress is not None:
                handlers.ran(progress(sent, size))
        final = js.nc.request(target, b"", timeout=deadline.at_most(FINISH_TIMEOUT))
    except errors.NoResponders as error:
        _remove(js, name, deadline)
        raise BackupError(
            f"the server gave the restore of {name!r} up after {sent} bytes. Nothing of it is left. Try again."
        ) from error
    except errors.ApiError as error:
        _remove(js, name, deadline)
        raise BackupError(
            f"the server refused the backup of {name!r}: {errors.brief(error)}. Nothing of it is left."
        ) from error
    except (errors.RequestTimeout, errors.ConnectionLost) as error:
        lost = isinstance(error, errors.ConnectionLost)
        what = "the link went down" if lost else "the server did not answer within the timeout"
        raise errors.UnknownOutcome(
            f"{what} while {name!r} was restored. The stream may be whole, incomplete or missing. Look at it, "
            "delete it if need be, and restore it again."
        ) from error
    try:
        return model_base.from_wire(check_error(final.data), StreamInfo)
    except errors.ApiError as error:
        _remove(js, name, deadline)  # server 2.15 keeps a part of the stream
        raise BackupError(
            f"the server refused the backup of {name!r}: {errors.brief(error)}. Nothing of it is left."
        ) from error


def _sized(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """The same bytes in pieces of `limit`."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= limit:
            yield bytes(waiting[:limit])
            del waiting[:limit]
    if waiting:
        yield bytes(waiting)


def _remove(js: JetStream, name: str, deadline: Deadline) -> None:
    """Delete the stream that the restore has made. It is ours: a name in use has failed before anything was sent."""
    with contextlib.suppress(errors.StreamNotFound):
        js.delete_stream(name, timeout=deadline.at_most(STEP_TIMEOUT))


@arguments
def restore_account(
    js: JetStream,
    folder: str | os.PathLike[str],
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    on_stream: Callable[[Outcome], None] | None = None,
    timeout: Timeout = DEFAULT,
) -> list[Outcome]:
    """Restore every backup below a folder, origins before their mirrors and sources.

    Everything is checked before anything is written. Damaged files, names in use and formats that the server does not
    read raise BackupError with all findings. After that, a stream that fails does not stop the others. `timeout` bounds
    the whole call. Streams for which no time is left fail.

    `include` restores only these streams, `exclude` all but these. `on_stream` is called with the Outcome of each.
    """
    handlers.check(on_stream, "on_stream")
    timeout = whole(timeout)
    wanted, unwanted = set(include), set(exclude)
    found = {}
    for path in sorted(checks.path(folder, "folder").iterdir()):
        if path.is_dir() and (path / files.CONFIG).exists():
            backup = files.load(path)
            if (not wanted or backup.stream in wanted) and backup.stream not in unwanted:
                found[backup.stream] = backup
    if not found:
        raise BackupError(
            f"there is no backup in {folder}. Nothing was restored. Name the folder that backup_all wrote."
        )
    _check_all(js, list(found.values()), timeout)
    outcomes = []
    for backup in _origins_first(found):
        try:
            restore_stream(js, backup.folder, timeout=timeout)
            outcome = Outcome(backup.stream, backup.folder)
        except (errors.JsClientError, OSError) as error:
            outcome = Outcome(backup.stream, backup.folder, error)
        outcomes.append(outcome)
        if on_stream is not None:
            handlers.ran(on_stream(outcome))
    return outcomes


def _check_all(js: JetStream, backups: list[Backup], timeout: Timeout) -> None:
    findings = []
    existing = set(js.stream_names(timeout=timeout))
    for backup in backups:
        if backup.stream in existing:
            findings.append(f"{backup.stream}: a stream of that name exists")
        try:
            _check_format(js, backup, backup.stream, False)
            looking.check_digest(backup)
        except errors.JsClientError as error:
            findings.append(f"{backup.stream}: {errors.brief(error)}")
    if findings:
        raise BackupError(
            f"these cannot be restored: {'; '.join(findings)}. Nothing was restored. Leave them out, or mend them."
        )


def _origins_first(found: dict[str, Backup]) -> list[Backup]:
    ordered: dict[str, Backup] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        if name in ordered or name in path or name not in found:
            return
        config = found[name].config
        for origin in [config.get("mirror"), *(config.get("sources") or ())]:
            if origin:
                add(str(origin.get("name")), (*path, name))
        ordered[name] = found[name]

    for name in found:
        add(name, ())
    return list(ordered.values())
