"""Restoring backups: here or on another server, under the same name or another one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from jsclient import errors, handlers, kinds
from jsclient.backup import files, sources
from jsclient.backup.errors import BackupError
from jsclient.backup.files import Backup
from jsclient.backup.sending import STEP_TIMEOUT, upload
from jsclient.backup.taking import Progress
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream import JetStream
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.models import StreamInfo
from jsclient.jetstream.api.requests import check_error

log: logging.Logger = logging.getLogger("jsclient.backup")

CHUNK: Final = 256 * 1024
FINISH_TIMEOUT: Final = 600.0
"""Seconds for the server to build the stream after the last chunk."""


def restore_stream(
    js: JetStream,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    subjects: list[str] | None = None,
    replicas: int | None = None,
    storage: str | None = None,
    placement: dict[str, Any] | None = None,
    progress: Progress | None = None,
    timeout: Timeout = DEFAULT,
) -> StreamInfo:
    """Restore a backup as a new stream. Returns its info. Sequences, times, headers and consumers stay the same.

    `name`, `subjects`, `replicas`, `storage` and `placement` change its configuration. A name other than the backup's
    needs a backup of server 2.15 and such a server.

    Restored sources have an `opt_start_seq` after the last message of theirs in the backup. Change them to the plain
    source only when each has brought something new. Otherwise the server copies the complete origin again.

    A wrong digest raises BackupCorrupt before anything is sent. A name in use raises StreamNameInUse. If the server
    refuses in the middle, the incomplete stream is deleted: BackupError. `timeout` bounds the whole call. By default
    the server has 30 s for each chunk and 10 minutes for its last answer. UnknownOutcome means that an answer did not
    come in time: the stream may be incomplete. `progress(bytes sent, bytes of the backup)` is called per chunk.
    """
    kinds.check(JetStream, js=js)
    kinds.check(str, None, name=name, storage=storage)
    kinds.check(kinds.TEXTS, None, subjects=subjects)
    kinds.check(int, None, replicas=replicas)
    kinds.check(kinds.FIELDS, None, placement=placement)
    handlers.check(progress, "progress")
    deadline = Deadline(None) if timeout is DEFAULT else Deadline.of(timeout, None)
    backup = files.load(folder)
    files.check_digest(backup)
    config = _config(backup, name, subjects, replicas, storage, placement)
    check_format(js, backup, config["name"])
    if config.get("sources"):
        config["sources"] = sources.continued(backup, config["sources"])
    info = _send(js, config, backup, progress, deadline)
    if (missing := backup.messages - info.state.messages) > 0:
        log.warning("%s: %d of %d messages are missing", config["name"], missing, backup.messages)
    return info


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


def check_format(js: JetStream, backup: Backup, name: str) -> None:
    """Raise NotSupported if this server cannot restore the backup under this name."""
    info = js.nc.server_info
    if backup.format() == "tar":
        if name != backup.stream:
            raise errors.NotSupported(
                "another name needs a backup made by nats-server 2.15 or later. Nothing was restored. "
                "Restore this one as it is, on any server, and back it up again there."
            )
    elif not info.at_least(2, 15):
        raise errors.NotSupported(
            f"this backup was made by nats-server 2.15 or later; {info.version} cannot read it. Nothing was restored. "
            "Restore it on a newer server; this one reads backups of servers before 2.15."
        )


def _file(path: Path, limit: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while True:
            piece = file.read(limit)
            if not piece:
                return
            yield piece


def _send(
    js: JetStream, config: dict[str, Any], backup: Backup, progress: Progress | None, deadline: Deadline
) -> StreamInfo:
    name, size = config["name"], backup.data.stat().st_size
    pieces = _file(backup.data, min(CHUNK, js.nc.max_payload))
    request = {"config": config, "state": backup.state}
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
        return model_base.from_wire(check_error(final.data), StreamInfo)
    except errors.NoResponders as error:
        _remove(js, name, deadline)
        raise BackupError(
            f"the server gave the restore of {name!r} up after {sent} bytes. Nothing of it is left. Try again."
        ) from error
    except errors.ApiError as error:
        _remove(js, name, deadline)  # server 2.15 keeps a part of the stream
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


def _remove(js: JetStream, name: str, deadline: Deadline) -> None:
    """Delete the stream that the restore has made. It is ours: a name in use has failed before anything was sent."""
    with contextlib.suppress(errors.StreamNotFound):
        js.delete_stream(name, timeout=deadline.at_most(STEP_TIMEOUT))
