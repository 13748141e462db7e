"""`dead ...`: letters that worker pools have given up."""

from __future__ import annotations

from typing import Any, Final

from jsclient.cli import output as out
from jsclient.cli.arguments import FORCE, Options, arg, past, positive
from jsclient.cli.commands import Commands
from jsclient.cli.connection import over_jetstream
from jsclient.workers.letters import ALL, DeadLetters, Letter

cli: Commands = Commands(over_jetstream(lambda js, options: DeadLetters(js, options.letters, options.on)))

_WHERE: Final = (
    arg("--letters", default="DEAD", metavar="STREAM", help="stream of the letters (default DEAD)"),
    arg("--on", default=ALL, metavar="SUBJECT", help="subject of the letters (default: all)"),
)
_CHOSEN: Final = (
    *_WHERE,
    arg("--stream", help="only from this stream"),
    arg("--consumer", help="only from this consumer"),
    arg("--reason", help="only those with this in their reason (a regular expression)"),
    arg("--since", type=past, help="only those that died in the last so many seconds"),
    arg("--limit", type=positive, help="at most so many"),
)
_LISTED: Final[out.Columns] = {
    **out.columns(SEQ="seq"),
    "DIED": lambda letter: letter.died.isoformat(timespec="seconds") if letter.died else "-",
    **out.columns(
        STREAM="stream", CONSUMER="consumer", SUBJECT="original_subject", DELIVERIES="deliveries", REASON="reason"
    ),
}


def _filters(options: Options) -> dict[str, Any]:
    return out.picked(options, "stream", "consumer", "reason", "since")


def _plain(letter: Letter) -> dict[str, Any]:
    return {**letter.to_dict(), "data": letter.data}


def _print(found: list[Letter], options: Options) -> None:
    if not found:
        raise out.NothingThere("there are no such letters")
    out.listing(options, found, _LISTED, plain=_plain, flowing=True)


@cli("dead ls", *_CHOSEN)
def list_letters(letters: DeadLetters, options: Options) -> None:
    """List letters, oldest first."""
    _print(list(letters.list(limit=options.limit, **_filters(options))), options)


@cli("dead report", *_WHERE)
def report_letters(letters: DeadLetters, options: Options) -> None:
    """Count letters by stream, consumer and kind of reason."""
    names = ("stream", "consumer", "kind", "letters")
    found = [dict(zip(names, (*key, count), strict=True)) for key, count in letters.summary().items()]
    out.listing(options, found, out.columns(STREAM="stream", CONSUMER="consumer", KIND="kind", LETTERS="letters"))


@cli("dead show", *_WHERE, arg("seq", type=positive))
def show_letter(letters: DeadLetters, options: Options) -> None:
    """One letter with its payload."""
    letter = letters.get(options.seq)
    if options.json:
        out.record(_plain(letter))
        return
    plain = letter.to_dict()
    del plain["data"], plain["headers"]
    out.page(f"Letter {letter.seq}", plain.items())
    out.print_headers(letter)
    out.line(out.shown(letter.data))


@cli(
    "dead replay",
    *_CHOSEN,
    arg("--seq", type=positive, help="only this letter"),
    arg("--to", metavar="SUBJECT", help="another subject than the original one"),
    arg("--rate", type=float, help="so many per second"),
    arg("--dry-run", action="store_true", help="print what would be replayed"),
    FORCE,
)
def replay_letters(letters: DeadLetters, options: Options) -> Any:
    """Publish letters again where they came from, and remove them."""
    if options.seq is not None:
        found = [letters.get(options.seq)]
    else:
        found = list(letters.list(limit=options.limit, **_filters(options)))
    if options.dry_run or not found:
        _print(found, options)
        return None
    out.confirm(f"Publish {out.counted(len(found), 'message')} again?", options.force)
    if options.seq is not None:
        letters.replay(found[0], to=options.to)
        return {"replayed": 1, "failed": 0}, "replayed 1"
    done = letters.replay_all(to=options.to, limit=len(found), rate=options.rate, **_filters(options))
    for letter, error in done.failed:
        out.complain(f"letter {letter.seq}: {error}")
    failed = len(done.failed)
    text = f"replayed {done.replayed:,}" + (f", {failed:,} failed and are still there" if failed else "")
    out.result(options, {"replayed": done.replayed, "failed": failed}, text)
    return 1 if failed else 0


@cli("dead purge", *_CHOSEN, ask="Remove these letters for good?")
def purge_letters(letters: DeadLetters, options: Options) -> Any:
    """Remove letters for good."""
    removed = letters.purge(limit=options.limit, **_filters(options))
    return {"removed": removed}, f"removed {removed:,}"
