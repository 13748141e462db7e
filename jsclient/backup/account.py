"""All streams of an account: one folder each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from jsclient import checks, errors, handlers, kinds
from jsclient.backup import files, restoring, taking
from jsclient.backup.errors import BackupError
from jsclient.backup.files import Backup
from jsclient.durations import DEFAULT, Timeout, whole
from jsclient.jetstream import JetStream


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
    kinds.check(JetStream, js=js)
    checks.path(folder, "folder")
    kinds.check(Iterable, include=include, exclude=exclude)
    kinds.check(bool, consumers=consumers, check=check)
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
            taking.backup_stream(js, name, path, consumers=consumers, check=check, timeout=timeout)
            outcome = Outcome(name, path)
        except (errors.JsClientError, OSError) as error:
            outcome = Outcome(name, path, error)
        outcomes.append(outcome)
        if on_stream is not None:
            handlers.ran(on_stream(outcome))
    return outcomes


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
    kinds.check(JetStream, js=js)
    kinds.check(Iterable, include=include, exclude=exclude)
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
            f"there is no backup in {folder}. Nothing was restored. Name the folder that backup_account wrote."
        )
    _check_all(js, list(found.values()), timeout)
    outcomes = []
    for backup in _origins_first(found):
        try:
            restoring.restore_stream(js, backup.folder, timeout=timeout)
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
            restoring.check_format(js, backup, backup.stream)
            files.check_digest(backup)
        except errors.JsClientError as error:
            findings.append(f"{backup.stream}: {errors.brief(error)}")
    if findings:
        raise BackupError(
            f"these cannot be restored: {'; '.join(findings)}. Nothing was restored. Leave them out, or fix them."
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
