"""`account ...` and `backup ...`: limits and use of the account, backups of all its streams."""

from __future__ import annotations

import argparse
from typing import Any

from jsclient import backup
from jsclient.cli.arguments import command, connect, group, jetstream
from jsclient.cli.output import complain, headers_record, line, page, record, size, struct_record


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    account = group(commands, "account")
    command(account, common, "info", account_info, "Limits and use of JetStream in the account.")
    saving = command(account, common, "backup", backup_account, "Save every stream below a folder.")
    saving.add_argument("folder")
    saving.add_argument("--no-consumers", action="store_true", help="leave consumers and their positions out")
    restoring = command(account, common, "restore", restore_account, "Restore every backup below a folder.")
    restoring.add_argument("folder")
    for parser in (saving, restoring):
        parser.add_argument("--include", default="", help="only these streams, with commas")
        parser.add_argument("--exclude", default="", help="not these streams, with commas")
    looking = group(commands, "backup")
    for name, run, text in (
        ("inspect", inspect, "What is in a backup."),
        ("verify", verify, "Read a backup whole and compare digest, checksums and counts."),
        ("extract", extract, "Print the messages of a backup as JSON lines (made by server 2.15)."),
    ):
        made = looking.add_parser(name, help=text, description=text)
        made.add_argument("folder")
        made.add_argument("--json", action="store_true", help="JSON lines instead of text")
        if name == "extract":
            made.add_argument("--subject", default=">", help="wildcards allowed")
        made.set_defaults(run=run)


def account_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).account_info()
    if options.json:
        struct_record(info)
        return

    def of(used: int, limit: int, shown: Any = str) -> str:
        return f"{shown(used)} of {shown(limit)}" if limit >= 0 else f"{shown(used)}, no limit"

    limits = info.limits
    page(
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


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _tell(outcome: backup.Outcome, options: argparse.Namespace, verb: str) -> None:
    if options.json:
        error = None if outcome.error is None else str(outcome.error)
        record({"stream": outcome.stream, "folder": str(outcome.folder), "done": outcome.done, "error": error})
    elif outcome.done:
        line(f"{verb} {outcome.stream}")
    else:
        complain(f"{outcome.stream}: {outcome.error}")


def backup_account(options: argparse.Namespace) -> int:
    with connect(options) as nc:
        outcomes = backup.backup_account(
            jetstream(nc, options),
            options.folder,
            include=_names(options.include),
            exclude=_names(options.exclude),
            consumers=not options.no_consumers,
            on_stream=lambda outcome: _tell(outcome, options, "saved"),
        )
    return 0 if all(outcome.done for outcome in outcomes) else 1


def restore_account(options: argparse.Namespace) -> int:
    with connect(options) as nc:
        outcomes = backup.restore_account(
            jetstream(nc, options),
            options.folder,
            include=_names(options.include),
            exclude=_names(options.exclude),
            on_stream=lambda outcome: _tell(outcome, options, "restored"),
        )
    return 0 if all(outcome.done for outcome in outcomes) else 1


def inspect(options: argparse.Namespace) -> None:
    _show(backup.inspect(options.folder), options)


def verify(options: argparse.Namespace) -> None:
    contents = backup.verify(options.folder)
    _show(contents, options)
    if not options.json:
        line("whole")


def _show(contents: backup.Contents, options: argparse.Namespace) -> None:
    manifest = backup.load(options.folder).manifest
    if options.json:
        record(
            {
                "stream": contents.stream,
                "format": contents.format,
                "messages": contents.messages,
                "first_seq": contents.first_seq,
                "last_seq": contents.last_seq,
                "subjects": contents.subjects,
                "consumers": contents.consumers,
            }
        )
        return
    subjects = contents.subjects or {}
    shown = sorted(subjects.items(), key=lambda pair: -pair[1])[:20]
    page(
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


def extract(options: argparse.Namespace) -> None:
    for entry in backup.extract(options.folder, subject=options.subject):
        record(
            {
                "seq": entry.seq,
                "subject": entry.name,
                "time_ns": entry.time,
                **headers_record(entry),
                "data": entry.data,
            }
        )
