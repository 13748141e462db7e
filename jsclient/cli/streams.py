"""`stream ...`: streams, what they hold, and their backups."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from jsclient import backup, errors
from jsclient.cli.arguments import command, connect, group, jetstream, opened, positive, seconds, split, storage
from jsclient.cli.infos import show_changes, show_stream
from jsclient.cli.output import (
    Columns,
    Progress,
    confirm,
    line,
    listing,
    name_alone,
    print_message,
    record,
    result,
    size,
    struct_record,
    table,
)
from jsclient.cli.stream_settings import (
    all_streams,
    changed,
    config_file,
    new_stream,
    present_stream,
    settings,
    wanted_stream,
)
from jsclient.jetstream import JetStream, RawStreamMsg, StreamInfo, StreamSource


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    stream = group(commands, "stream")
    listing = command(stream, common, "ls", list_streams, "List streams.")
    listing.add_argument("--subject", help="only streams that store this subject")
    listing.add_argument("-n", "--names", action="store_true", help="names alone")
    report = command(stream, common, "report", report_streams, "Streams by what they hold.")
    order = report.add_mutually_exclusive_group()
    order.add_argument(
        "-m", "--messages", action="store_const", const="messages", dest="order", help="most messages first"
    )
    order.add_argument(
        "-o", "--consumers", action="store_const", const="consumers", dest="order", help="most consumers first"
    )
    order.add_argument("-n", "--name", action="store_const", const="name", dest="order", help="by name")
    order.add_argument(
        "-t", "--storage", action="store_const", const=None, dest="order", help="most bytes first (default)"
    )
    report.add_argument("--subject", help="only streams that store this subject")
    for name, run, text in (
        ("info", stream_info, "Configuration and state of a stream."),
        ("state", stream_state, "State of a stream."),
        ("add", add_stream, "Create a stream."),
        ("edit", edit_stream, "Change settings of a stream."),
        ("copy", copy_stream, "Create a stream with the settings of another (not its messages)."),
        ("rm", remove_stream, "Delete a stream with its messages and consumers."),
        ("purge", purge_stream, "Remove messages from a stream."),
        ("seal", seal_stream, "Let nothing be added to a stream, or removed. Cannot be undone."),
        ("gaps", list_gaps, "Sequences that a stream no longer holds, between its first and last."),
        ("subjects", list_subjects, "Subjects of the stored messages, and how many of each."),
        ("view", view_stream, "Print stored messages; no consumer is used."),
        ("get", get_message, "Print one stored message."),
        ("rmm", remove_message, "Delete one stored message."),
        ("backup", backup_stream, "Save a stream to a folder, in the files of the NATS CLI."),
    ):
        made = command(stream, common, name, run, text)
        made.add_argument("stream")
        _ARGUMENTS.get(name, lambda parser: None)(made)
    restore = command(stream, common, "restore", restore_stream, "Restore a stream from a folder.")
    restore.add_argument("folder")
    restore.add_argument("--name", help="another name (backups of server 2.15)")
    restore.add_argument("--subjects", action="append", help="other subjects, with commas")
    restore.add_argument("--storage", type=storage, help="file or memory, instead of what it was")
    restore.add_argument("--replicas", type=positive)
    restore.add_argument("--cluster", help="where its servers have to be, instead of where they were")
    restore.add_argument("--tag", action="append", help="tags that its servers have, instead of those of before")


def _copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("copy", help="name of the new stream")
    all_streams(parser)
    parser.add_argument(
        "--source",
        dest="as_source",
        action="store_true",
        help="let it copy the messages of the first (as a source); without it --subjects are needed",
    )


def _purge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subject", help="only this subject")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seq", type=int, help="up to, but not including, this sequence")
    which.add_argument("--keep", type=int, help="all but so many")
    _force(parser)


def _force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--force", action="store_true", help="do not ask")


def _view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("count", nargs="?", type=positive, default=20, help="how many (default 20)")
    parser.add_argument("--id", type=positive, default=1, help="from this sequence on")
    parser.add_argument("--since", type=seconds, help="from so long ago on, as 1h (server 2.11)")
    parser.add_argument("--subject", help="only these; wildcards allowed")
    parser.add_argument("--raw", action="store_true", help="payloads alone")


def _get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", type=positive, help="its sequence")
    parser.add_argument("-S", "--last-for", metavar="SUBJECT", help="the last one of a subject")
    parser.add_argument("--raw", action="store_true", help="its payload alone")


def _rmm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", type=positive, help="its sequence")
    parser.add_argument("--secure", action="store_true", help="overwrite it on disk, too (slow)")
    _force(parser)


def _backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder")
    parser.add_argument("--no-consumers", action="store_true", help="leave consumers and their positions out")
    parser.add_argument("--check", action="store_true", help="have the server verify its blocks first (before 2.15)")


_ARGUMENTS: dict[str, Any] = {
    "add": new_stream,
    "edit": present_stream,
    "copy": _copy,
    "rm": _force,
    "purge": _purge,
    "subjects": lambda parser: parser.add_argument("filter", nargs="?", default=">", help="wildcards allowed"),
    "view": _view,
    "get": _get,
    "rmm": _rmm,
    "seal": _force,
    "backup": _backup,
}


_STREAMS: Final[Columns] = {
    "NAME": lambda info: info.config.name,
    "MESSAGES": lambda info: f"{info.state.messages:,}",
    "BYTES": lambda info: size(info.state.bytes),
    "CONSUMERS": lambda info: info.state.consumer_count,
}
_LISTED: Final[Columns] = {
    **_STREAMS,
    "STORAGE": lambda info: info.config.storage,
    "SUBJECTS": lambda info: ",".join(info.config.subjects or ()),
}
_REPORTED: Final[Columns] = {
    **_STREAMS,
    "LOST": lambda info: f"{len(info.state.lost.msgs or ()) if info.state.lost else 0:,}",
    "DELETED": lambda info: f"{info.state.num_deleted:,}",
    "STORAGE": lambda info: info.config.storage,
    "REPLICAS": lambda info: _replicas(info),
}


def list_streams(options: argparse.Namespace) -> None:
    with opened(options) as js:
        if options.names:
            for name in js.stream_names(subject=options.subject):
                name_alone(name, options.json)
            return
        listing(options.json, js.streams(subject=options.subject), _LISTED, empty="no streams")


_ORDERS: Final[dict[str | None, Callable[[StreamInfo], Any]]] = {
    "name": lambda info: info.config.name,
    "messages": lambda info: -info.state.messages,
    "consumers": lambda info: -info.state.consumer_count,
    None: lambda info: -info.state.bytes,
}


def report_streams(options: argparse.Namespace) -> None:
    with opened(options) as js:
        infos = sorted(js.streams(subject=options.subject), key=_ORDERS[options.order])
    listing(options.json, infos, _REPORTED)


def _replicas(info: StreamInfo) -> str:
    """Leader and followers; a follower that is behind or away says so."""
    if info.cluster is None or not info.cluster.leader:
        return "no leader" if info.cluster is not None and info.cluster.name else "-"
    states = [
        peer.name + ("!" if peer.offline else "" if peer.current else f" -{peer.lag:,}")
        for peer in info.cluster.replicas or ()
    ]
    return ", ".join([f"{info.cluster.leader}*", *states])


def stream_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).stream(options.stream).info()
    _show(info, options.json)


def stream_state(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).stream(options.stream).info()
    if options.json:
        struct_record(info.state)
    else:
        _show(info, False)


def add_stream(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).create_stream(wanted_stream(options)).info()
    _show(info, options.json)


def edit_stream(options: argparse.Namespace) -> None:
    changes = settings(options)
    if not changes and options.config is None:
        raise errors.ConfigError("nothing to change: name at least one setting, or --config FILE")
    with opened(options) as js:
        before = js.stream(options.stream).info().config
        base = before if options.config is None else config_file(options.config).replace(name=options.stream)
        after = changed(base, changes)
        if options.dry_run:
            show_changes(before, after)
            return
        info = js.update_stream(after).info()
    _show(info, options.json)


def copy_stream(options: argparse.Namespace) -> None:
    with opened(options) as js:
        config = js.stream(options.stream).info().config
        if not options.subjects and not options.as_source:
            raise errors.ConfigError("two streams cannot take the same subjects: give --subjects, or --source")
        source = [StreamSource(name=options.stream)] if options.as_source else config.sources
        made = config.replace(name=options.copy, subjects=None, sources=source, first_seq=None)
        info = js.create_stream(changed(made, settings(options))).info()
    _show(info, options.json)


def remove_stream(options: argparse.Namespace) -> None:
    with opened(options) as js:
        held = js.stream(options.stream).info().state.messages
        confirm(f"Delete stream {options.stream} with its {held:,} messages?", options.force)
        js.delete_stream(options.stream)
    result(
        options.json,
        {"stream": options.stream, "deleted": True, "messages": held},
        f"deleted {options.stream} with {held:,} messages",
    )


def seal_stream(options: argparse.Namespace) -> None:
    confirm(f"Seal stream {options.stream} for good?", options.force)
    with connect(options) as nc:
        jetstream(nc, options).stream(options.stream, fetch_info=False).seal(timeout=options.timeout)
    result(options.json, {"stream": options.stream, "sealed": True}, f"sealed {options.stream}")


def list_gaps(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        state = jetstream(nc, options).stream(options.stream).info(deleted_details=True).state
    gaps = list(_ranges(state.deleted or []))
    if options.json:
        record({"stream": options.stream, "deleted": state.num_deleted, "gaps": gaps})
    elif not gaps:
        line(f"{options.stream} has no gaps")
    else:
        table(("FIRST", "LAST", "MESSAGES"), [(first, last, f"{last - first + 1:,}") for first, last in gaps])


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of consecutive numbers."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def purge_stream(options: argparse.Namespace) -> None:
    which = f" on {options.subject}" if options.subject else ""
    confirm(f"Remove messages{which} from {options.stream}?", options.force)
    with connect(options) as nc:
        purged = (
            jetstream(nc, options)
            .stream(options.stream, fetch_info=False)
            .purge(subject=options.subject, seq=options.seq, keep=options.keep)
        )
    result(options.json, {"purged": purged}, f"purged {purged} messages")


def list_subjects(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        found = sorted(jetstream(nc, options).stream(options.stream, fetch_info=False).subjects(options.filter))
    if options.json:
        record(dict(found))
    else:
        table(("SUBJECT", "MESSAGES"), [(subject, f"{count:,}") for subject, count in found])


def view_stream(options: argparse.Namespace) -> None:
    shown = 0
    with connect(options) as nc:
        for message in _stored(jetstream(nc, options), options):
            _print(message, options, many=True)
            shown += 1
    if not shown:
        raise errors.NoMessages(f"stream {options.stream!r} holds no such messages")


def _stored(js: JetStream, options: argparse.Namespace) -> Iterator[RawStreamMsg]:
    stream = js.stream(options.stream)
    if options.since is None:
        return stream.get_batch(options.count, seq=options.id, subject=options.subject)
    start = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=options.since)
    return stream.get_batch(options.count, start_time=start, subject=options.subject)


def _print(message: RawStreamMsg, options: argparse.Namespace, many: bool = False) -> None:
    time = message.time.isoformat() if message.time else None
    print_message(message, options.json, options.raw, many, seq=message.seq, time=time)


def get_message(options: argparse.Namespace) -> None:
    if (options.id is None) == (options.last_for is None):
        raise errors.ConfigError("give either a sequence or --last-for SUBJECT")
    with connect(options) as nc:
        stream = jetstream(nc, options).stream(options.stream, fetch_info=False)
        message = stream.get_msg(options.id) if options.id else stream.get_last_msg(options.last_for)
    _print(message, options)


def remove_message(options: argparse.Namespace) -> None:
    confirm(f"Delete message {options.id} of {options.stream}?", options.force)
    with connect(options) as nc:
        stream = jetstream(nc, options).stream(options.stream, fetch_info=False)
        if options.secure:
            stream.secure_delete_msg(options.id)
        else:
            stream.delete_msg(options.id)
    result(options.json, {"stream": options.stream, "deleted": options.id}, f"deleted message {options.id}")


def backup_stream(options: argparse.Namespace) -> None:
    with opened(options) as js:
        with Progress(f"backup of {options.stream}") as progress:
            made = backup.backup_stream(
                js,
                options.stream,
                options.folder,
                consumers=not options.no_consumers,
                check=options.check,
                progress=progress,
            )
    manifest = made.manifest
    assert manifest is not None
    result(
        options.json,
        manifest,
        f"{manifest.messages:,} messages, {size(manifest.bytes)}, sha256 {manifest.sha256}: {made.folder}",
    )


def restore_stream(options: argparse.Namespace) -> None:
    placed = {"cluster": options.cluster, "tags": split(options.tag)}
    with opened(options) as js:
        with Progress(f"restore of {options.name or options.folder}") as progress:
            info = backup.restore_stream(
                js,
                options.folder,
                name=options.name,
                subjects=split(options.subjects) or None,
                storage=options.storage,
                replicas=options.replicas,
                placement={key: value for key, value in placed.items() if value} or None,
                progress=progress,
            )
    _show(info, options.json)


def _show(info: StreamInfo, as_json: bool) -> None:
    if as_json:
        struct_record(info)
    else:
        show_stream(info)
