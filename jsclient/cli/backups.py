"""`backup ...`: facts about backups, which need no server."""

from __future__ import annotations

from jsclient import backup
from jsclient.cli.arguments import Options
from jsclient.cli.commands import Commands
from jsclient.cli.output import details, line

cli: Commands = Commands()


@cli.local("backup inspect FOLDER")
def inspect(options: Options) -> None:
    """Stream, counts and age of a backup, as its files state them."""
    _show(backup.load(options.folder), options)


@cli.local("backup verify FOLDER")
def verify(options: Options) -> None:
    """Read the data of a backup and compare it with its digest."""
    found = backup.verify(options.folder)
    _show(found, options)
    if not options.json:
        line("whole" if found.manifest else "no digest to compare: the NATS CLI has made it")


def _show(found: backup.Backup, options: Options) -> None:
    manifest, state = found.manifest, found.state
    value = {"stream": found.stream, "format": found.format(), "consumers": manifest and manifest.consumers}
    value |= {name: state.get(name) for name in ("messages", "first_seq", "last_seq")}
    about = [
        ("format", value["format"]),
        ("taken", f"{manifest.taken} by {manifest.server_version}" if manifest else None),
        ("messages", f"{found.messages:,}"),
        ("sequences", f"{state.get('first_seq')} to {state.get('last_seq')}"),
        ("consumers", value["consumers"]),
        ("sha256", manifest.sha256 if manifest else None),
    ]
    details(options, value, f"Backup of stream {found.stream}", about)
