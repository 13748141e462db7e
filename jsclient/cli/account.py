"""`account ...` and `backup ...`: limits and use of the account, backups of all its streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jsclient import backup
from jsclient.cli.arguments import Options, arg, split
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened
from jsclient.cli.output import complain, details, headers_record, line, picked, record, size
from jsclient.jetstream import JetStream

cli: Commands = Commands(opened)

_FOLDER: Final = arg("folder")
_CHOSEN: Final = (
    arg("--include", type=split, default=(), help="only these streams, with commas"),
    arg("--exclude", type=split, default=(), help="not these streams, with commas"),
)


@cli("account info")
def account_info(js: JetStream, options: Options) -> None:
    """Limits and use of JetStream in the account."""
    info = js.account_info()

    def of(used: int, limit: int, shown: Any = str) -> str:
        return f"{shown(used)} of {shown(limit)}" if limit >= 0 else f"{shown(used)}, no limit"

    limits = info.limits
    details(
        options,
        info,
        "JetStream of the account",
        (
            ("domain", info.domain or None),
            ("memory", of(info.memory, limits.max_memory, size)),
            ("storage", of(info.storage, limits.max_storage, size)),
            ("streams", of(info.streams, limits.max_streams)),
            ("consumers", of(info.consumers, limits.max_consumers)),
            ("API", f"{info.api.total:,} requests, {info.api.errors:,} errors, level {info.api.level}"),
        ),
    )


def _teller(options: Options, verb: str) -> Callable[[backup.Outcome], None]:
    def tell(outcome: backup.Outcome) -> None:
        if options.json:
            error = None if outcome.error is None else str(outcome.error)
            record({**picked(outcome, "stream", "done"), "folder": str(outcome.folder), "error": error})
        elif outcome.done:
            line(f"{verb} {outcome.stream}")
        else:
            complain(f"{outcome.stream}: {outcome.error}")

    return tell


@cli(
    "account backup",
    _FOLDER,
    arg("--no-consumers", action="store_true", help="leave consumers and their positions out"),
    *_CHOSEN,
)
def backup_account(js: JetStream, options: Options) -> int:
    """Save every stream below a folder."""
    outcomes = backup.backup_account(
        js,
        options.folder,
        include=options.include,
        exclude=options.exclude,
        consumers=not options.no_consumers,
        on_stream=_teller(options, "saved"),
    )
    return 0 if all(outcome.done for outcome in outcomes) else 1


@cli("account restore", _FOLDER, *_CHOSEN)
def restore_account(js: JetStream, options: Options) -> int:
    """Restore every backup below a folder."""
    chosen = {"include": options.include, "exclude": options.exclude}
    outcomes = backup.restore_account(js, options.folder, on_stream=_teller(options, "restored"), **chosen)
    return 0 if all(outcome.done for outcome in outcomes) else 1


@cli.local("backup inspect", _FOLDER)
def inspect(options: Options) -> None:
    """Contents of a backup."""
    _show(backup.inspect(options.folder), options)


@cli.local("backup verify", _FOLDER)
def verify(options: Options) -> None:
    """Read a backup whole and compare digest, checksums and counts."""
    _show(backup.verify(options.folder), options)
    if not options.json:
        line("whole")


def _show(contents: backup.Contents, options: Options) -> None:
    manifest = backup.load(options.folder).manifest
    value = picked(contents, "stream", "format", "messages", "first_seq", "last_seq", "subjects", "consumers")
    subjects = contents.subjects or {}
    shown = sorted(subjects.items(), key=lambda pair: -pair[1])[:20]
    details(
        options,
        value,
        f"Backup of stream {contents.stream}",
        [
            ("format", contents.format),
            ("taken", f"{manifest.taken} by {manifest.server_version}" if manifest else None),
            ("messages", None if contents.messages is None else f"{contents.messages:,}"),
            ("sequences", None if contents.first_seq is None else f"{contents.first_seq} to {contents.last_seq}"),
            ("consumers", ", ".join(contents.consumers) or "none"),
            ("subjects", None if contents.subjects is None else len(subjects)),
            *((f"  {subject}", f"{count:,}") for subject, count in shown),
        ],
    )


@cli.local("backup extract", _FOLDER, arg("--subject", default=">", help="wildcards allowed"))
def extract(options: Options) -> None:
    """Print the messages of a backup as JSON lines (made by server 2.15)."""
    for entry in backup.extract(options.folder, subject=options.subject):
        told = {"seq": entry.seq, "subject": entry.name, "time_ns": entry.time}
        record({**told, **headers_record(entry), "data": entry.data})
