"""`account ...` and `backup ...`: limits and use of the account, and what is in backups."""

from __future__ import annotations

from jsclient import backup
from jsclient.cli.arguments import Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened
from jsclient.cli.infos import limits_of
from jsclient.cli.output import details, headers_record, line, picked, record, size
from jsclient.jetstream import JetStream

cli: Commands = Commands(opened)


@cli("account info")
def account_info(js: JetStream, options: Options) -> None:
    """Limits and use of JetStream in the account."""
    info = js.account_info()

    def of(what: str, used: int, limit: int) -> str:
        shown = size if what in ("memory", "storage") else str
        return f"{shown(used)} of {shown(limit)}" if limit >= 0 else f"{shown(used)}, no limit"

    used = [(what, of(what, *figures)) for what, *figures in limits_of(info)]
    api = f"{info.api.total:,} requests, {info.api.errors:,} errors, level {info.api.level}"
    details(options, info, "JetStream of the account", [("domain", info.domain or None), *used, ("API", api)])


@cli.local("backup inspect FOLDER")
def inspect(options: Options) -> None:
    """Contents of a backup."""
    _show(backup.inspect(options.folder), options)


@cli.local("backup verify FOLDER")
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
    about = [
        ("format", contents.format),
        ("taken", f"{manifest.taken} by {manifest.server_version}" if manifest else None),
        ("messages", None if contents.messages is None else f"{contents.messages:,}"),
        ("sequences", None if contents.first_seq is None else f"{contents.first_seq} to {contents.last_seq}"),
        ("consumers", ", ".join(contents.consumers) or "none"),
        ("subjects", None if contents.subjects is None else len(subjects)),
        *((f"  {subject}", f"{count:,}") for subject, count in shown),
    ]
    details(options, value, f"Backup of stream {contents.stream}", about)


@cli.local("backup extract FOLDER", arg("--subject", default=">", help="wildcards allowed"))
def extract(options: Options) -> None:
    """Print the messages of a backup as JSON lines (made by server 2.15)."""
    for entry in backup.extract(options.folder, subject=options.subject):
        told = {"seq": entry.seq, "subject": entry.name, "time_ns": entry.time}
        record({**told, **headers_record(entry), "data": entry.data})
