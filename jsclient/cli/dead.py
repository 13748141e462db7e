"""`dead ...`: letters that worker pools have given up."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from typing import Any, Final

from jsclient import errors
from jsclient.cli.arguments import command, connect, group, jetstream, positive, seconds
from jsclient.cli.output import (
    Columns,
    complain,
    confirm,
    line,
    listing,
    page,
    payload_text,
    print_headers,
    record,
    result,
    shown,
    table,
)
from jsclient.workers.letters import ALL, DeadLetters, Letter


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    dead = group(commands, "dead")
    for name, run, text in (
        ("ls", list_letters, "List letters, oldest first."),
        ("report", report_letters, "Count letters by stream, consumer and kind of reason."),
        ("show", show_letter, "One letter with its payload."),
        ("replay", replay_letters, "Publish letters again where they came from, and remove them."),
        ("purge", purge_letters, "Remove letters for good."),
        ("export", export_letters, "Letters as JSON lines."),
        ("adopt", adopt_letters, "Make letters of what other services gave up, from the server's advisories."),
    ):
        made = command(dead, common, name, run, text)
        made.add_argument("--letters", default="DEAD", metavar="STREAM", help="stream of the letters (default DEAD)")
        made.add_argument("--on", default=ALL, metavar="SUBJECT", help="subject of the letters (default: all)")
        if name == "show":
            made.add_argument("seq", type=positive)
        if name in ("ls", "replay", "purge", "export"):
            made.add_argument("--stream", help="only from this stream")
            made.add_argument("--consumer", help="only from this consumer")
            made.add_argument("--reason", help="only those with this in their reason (a regular expression)")
            made.add_argument("--since", type=seconds, help="only those that died in the last so many seconds")
            made.add_argument("--limit", type=positive, help="at most so many")
        if name == "replay":
            made.add_argument("--seq", type=positive, help="only this letter")
            made.add_argument("--to", metavar="SUBJECT", help="another subject than the original one")
            made.add_argument("--rate", type=float, help="so many per second")
            made.add_argument("--dry-run", action="store_true", help="print what would be replayed")
        if name in ("replay", "purge"):
            made.add_argument("-f", "--force", action="store_true", help="do not ask")


def _open(nc: Any, options: argparse.Namespace) -> DeadLetters:
    return DeadLetters(jetstream(nc, options), options.letters, options.on)


def _filters(options: argparse.Namespace) -> dict[str, Any]:
    since = None
    if options.since is not None:
        since = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=options.since)
    return {"stream": options.stream, "consumer": options.consumer, "reason": options.reason, "since": since}


def _plain(letter: Letter) -> dict[str, Any]:
    return {**letter.to_dict(), "data": payload_text(letter.data)}


_LISTED: Final[Columns] = {
    "SEQ": lambda letter: letter.seq,
    "DIED": lambda letter: letter.died.isoformat(timespec="seconds") if letter.died else "-",
    "STREAM": lambda letter: letter.stream,
    "CONSUMER": lambda letter: letter.consumer,
    "SUBJECT": lambda letter: letter.original_subject,
    "DELIVERIES": lambda letter: letter.deliveries,
    "REASON": lambda letter: letter.reason,
}


def list_letters(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = list(_open(nc, options).list(limit=options.limit, **_filters(options)))
    _print(found, options.json)


def _print(found: list[Letter], as_json: bool) -> None:
    if not found:
        raise errors.NoMessages("there are no such letters")
    listing(as_json, found, _LISTED, plain=_plain, flowing=True)


def report_letters(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = _open(nc, options).summary()
    if options.json:
        for (stream, consumer, kind), count in found.items():
            record({"stream": stream, "consumer": consumer, "kind": kind, "letters": count})
    else:
        table(("STREAM", "CONSUMER", "KIND", "LETTERS"), [(*key, f"{count:,}") for key, count in found.items()])


def show_letter(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        letter = _open(nc, options).get(options.seq)
    if options.json:
        record(_plain(letter))
        return
    plain = letter.to_dict()
    del plain["data"], plain["headers"]
    page(f"Letter {letter.seq}", plain.items())
    print_headers(letter)
    line(shown(letter.data))


def replay_letters(options: argparse.Namespace) -> int:
    with connect(options) as nc:
        letters = _open(nc, options)
        if options.seq is not None:
            found = [letters.get(options.seq)]
        else:
            found = list(letters.list(limit=options.limit, **_filters(options)))
        if options.dry_run or not found:
            _print(found, options.json)
            return 0
        confirm(f"Publish {len(found):,} messages again?", options.force)
        if options.seq is not None:
            letters.replay(found[0], to=options.to)
            replayed, failed = 1, 0
        else:
            done = letters.replay_all(to=options.to, limit=len(found), rate=options.rate, **_filters(options))
            for letter, error in done.failed:
                complain(f"letter {letter.seq}: {error}")
            replayed, failed = done.replayed, len(done.failed)
    result(
        options.json,
        {"replayed": replayed, "failed": failed},
        f"replayed {replayed:,}" + (f", {failed:,} failed and are still there" if failed else ""),
    )
    return 1 if failed else 0


def purge_letters(options: argparse.Namespace) -> None:
    confirm("Remove these letters for good?", options.force)
    with connect(options) as nc:
        removed = _open(nc, options).purge(limit=options.limit, **_filters(options))
    result(options.json, {"removed": removed}, f"removed {removed:,}")


def export_letters(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        for text in _open(nc, options).export(limit=options.limit, **_filters(options)):
            sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def adopt_letters(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        letters = _open(nc, options)
        made = letters.adopt(letters.advisory_consumer())
    result(options.json, {"adopted": made}, f"adopted {made:,}")
