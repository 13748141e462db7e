"""`backup ...`: what is in backups, which need no server."""

from __future__ import annotations

from jsclient import backup
from jsclient.cli.arguments import Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.output import details, headers_record, line, picked, record

cli: Commands = Commands()


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
