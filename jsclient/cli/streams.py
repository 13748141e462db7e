"""`stream ...`: streams, what they hold, and their backups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jsclient import backup, errors
from jsclient.cli import output as out
from jsclient.cli import settings
from jsclient.cli.arguments import FORCE, NAMES, RAW, OneOf, Options, arg, past, positive, split, storage
from jsclient.cli.commands import Commands
from jsclient.cli.connection import opened
from jsclient.cli.infos import show
from jsclient.jetstream import JetStream, RawStreamMsg, StreamConfig

cli: Commands = Commands(opened)

_SUBJECT: Final = arg("--subject", help="only streams that store this subject")

_LISTED: Final = {
    **out.columns(NAME="config.name", MESSAGES="state.messages", BYTES="state.bytes"),
    **out.columns(CONSUMERS="state.consumer_count", STORAGE="config.storage"),
    "SUBJECTS": lambda info: ",".join(info.config.subjects or ()),
}


@cli("stream ls", _SUBJECT, NAMES)
def list_streams(js: JetStream, options: Options) -> None:
    """List streams."""
    found: Iterable[Any] = (js.stream_names if options.names else js.streams)(subject=options.subject)
    out.listing(options, found, _LISTED, empty="no streams")


@cli("stream info STREAM")
def stream_info(js: JetStream, options: Options) -> None:
    """Configuration and state of a stream."""
    show(js.stream(options.stream).info(), options)


@cli("stream add STREAM", *settings.OF_NEW_STREAM)
def add_stream(js: JetStream, options: Options) -> None:
    """Create a stream."""
    show(js.create_stream(settings.wanted_stream(options)).info(), options)


@cli("stream edit STREAM", *settings.OF_STREAM)
def edit_stream(js: JetStream, options: Options) -> None:
    """Change settings of a stream."""
    before = js.stream(options.stream).info().config
    after = settings.edited(options, before, settings.given(options, StreamConfig), ("name",))
    if after is not None:
        show(js.update_stream(after).info(), options)


@cli("stream rm STREAM", FORCE)
def remove_stream(js: JetStream, options: Options) -> Any:
    """Delete a stream with its messages and consumers."""
    held = js.stream(options.stream).info().state.messages
    out.confirm(f"Delete stream {options.stream} with its {out.counted(held, 'message')}?", options.force)
    js.delete_stream(options.stream)
    told = {"stream": options.stream, "deleted": True, "messages": held}
    return told, f"deleted {options.stream} with {out.counted(held, 'message')}"


@cli(
    "stream purge STREAM",
    arg("--subject", help="only this subject"),
    OneOf(
        arg("--seq", type=int, help="up to, but not including, this sequence"),
        arg("--keep", type=int, help="all but so many"),
    ),
    FORCE,
)
def purge_stream(js: JetStream, options: Options) -> Any:
    """Remove messages from a stream."""
    which = f" on {options.subject}" if options.subject else ""
    out.confirm(f"Remove messages{which} from {options.stream}?", options.force)
    stream = js.stream(options.stream, fetch_info=False)
    purged = stream.purge(subject=options.subject, seq=options.seq, keep=options.keep)
    return {"purged": purged}, f"purged {out.counted(purged, 'message')}"


@cli("stream seal STREAM", ask="Seal stream {stream} for good?")
def seal_stream(js: JetStream, options: Options) -> Any:
    """Let nothing be added to a stream, or removed. Cannot be undone."""
    js.stream(options.stream, fetch_info=False).seal(timeout=options.timeout)
    return {"stream": options.stream, "sealed": True}, f"sealed {options.stream}"


@cli("stream gaps STREAM")
def list_gaps(js: JetStream, options: Options) -> None:
    """Sequences that a stream no longer holds, between its first and last."""
    state = js.stream(options.stream).info(deleted_details=True).state
    gaps = _ranges(state.deleted or [])
    if options.json:
        out.record({"stream": options.stream, "deleted": state.num_deleted, "gaps": gaps})
    elif gaps:
        out.table(("FIRST", "LAST", "MESSAGES"), [(first, last, f"{last - first + 1:,}") for first, last in gaps])
    else:
        out.line(f"{options.stream} has no gaps")


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """[first, last] of each run of consecutive numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


@cli("stream subjects STREAM", arg("filter", nargs="?", default=">", help="wildcards allowed"))
def list_subjects(js: JetStream, options: Options) -> None:
    """Subjects of the stored messages, and how many of each."""
    found = sorted(js.stream(options.stream, fetch_info=False).subjects(options.filter))
    if options.json:
        out.record(dict(found))
    else:
        out.table(("SUBJECT", "MESSAGES"), [(subject, f"{count:,}") for subject, count in found])


@cli(
    "stream view STREAM",
    arg("count", nargs="?", type=positive, default=20, help="how many (default 20)"),
    arg("--id", type=positive, default=1, help="from this sequence on"),
    arg("--since", type=past, help="from so long ago on, as 1h (server 2.11)"),
    arg("--subject", help="only these; wildcards allowed"),
    RAW,
)
def view_stream(js: JetStream, options: Options) -> None:
    """Print stored messages; no consumer is used."""
    shown = 0
    start: dict[str, Any] = {"start_time": options.since} if options.since else {"seq": options.id}
    for message in js.stream(options.stream).get_batch(options.count, subject=options.subject, **start):
        _print(message, options, many=True)
        shown += 1
    if not shown:
        raise out.NothingThere(f"stream {options.stream!r} holds no such messages")


def _print(message: RawStreamMsg, options: Options, many: bool = False) -> None:
    time = message.time.isoformat() if message.time else None
    out.print_message(message, options, many, seq=message.seq, time=time)


@cli(
    "stream get STREAM",
    arg("id", nargs="?", type=positive, help="its sequence"),
    arg("-S", "--last-for", metavar="SUBJECT", help="the last one of a subject"),
    RAW,
)
def get_message(js: JetStream, options: Options) -> None:
    """Print one stored message."""
    if (options.id is None) == (options.last_for is None):
        raise errors.ConfigError("give either a sequence or --last-for SUBJECT")
    stream = js.stream(options.stream, fetch_info=False)
    _print(stream.get_msg(options.id) if options.id else stream.get_last_msg(options.last_for), options)


@cli(
    "stream backup STREAM FOLDER",
    arg("--no-consumers", action="store_true", help="leave consumers and their positions out"),
    arg("--check", action="store_true", help="have the server verify its blocks first (before 2.15)"),
)
def backup_stream(js: JetStream, options: Options) -> Any:
    """Save a stream to a folder, in the files of the NATS CLI."""
    with out.Progress(f"backup of {options.stream}") as progress:
        parts: dict[str, Any] = {"consumers": not options.no_consumers, "check": options.check}
        made = backup.backup_stream(js, options.stream, options.folder, progress=progress, **parts)
    told = made.manifest
    assert told is not None
    return told, f"{told.messages:,} messages, {out.size(told.bytes)}, sha256 {told.sha256}: {made.folder}"


@cli(
    "stream restore FOLDER",
    arg("--name", help="another name (backups of server 2.15)"),
    arg("--subjects", type=split, action="extend", help="other subjects, with commas"),
    arg("--storage", type=storage, help="file or memory, instead of what it was"),
    arg("--replicas", type=positive),
    arg("--cluster", help="where its servers have to be, instead of where they were"),
    arg("--tag", dest="tags", type=split, action="extend", help="of its servers, instead of those of before"),
)
def restore_stream(js: JetStream, options: Options) -> None:
    """Restore a stream from a folder."""
    with out.Progress(f"restore of {options.name or options.folder}") as progress:
        info = backup.restore_stream(
            js,
            options.folder,
            name=options.name,
            subjects=options.subjects or None,
            storage=options.storage,
            replicas=options.replicas,
            placement={name: value for name in ("cluster", "tags") if (value := getattr(options, name))} or None,
            progress=progress,
        )
    show(info, options)
