"""`consumer ...` and `next`: pull and push consumers of a stream."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any

from jsclient import errors
from jsclient.cli.arguments import command, connect, group, jetstream, positive, seconds, split, taken_as_it_is
from jsclient.cli.output import ask, fields, line, name_alone, print_message, record, struct_record, table
from jsclient.jetstream import ConsumerConfig, ConsumerInfo


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    consumer = group(commands, "consumer", "Consumers.")
    listing = command(consumer, common, "ls", list_consumers, "List the consumers of a stream.")
    listing.add_argument("stream")
    listing.add_argument("-n", "--names", action="store_true", help="names alone")
    report = command(consumer, common, "report", report_consumers, "Lag, acks and pulls of the consumers of a stream.")
    report.add_argument("stream")
    for name, run, text in (
        ("info", consumer_info, "Configuration and state of a consumer."),
        ("add", add_consumer, "Create a consumer."),
        ("edit", edit_consumer, "Change settings of a consumer."),
        ("rm", remove_consumer, "Delete a consumer."),
        ("pause", pause_consumer, "Deliver nothing until a point in time (server 2.11)."),
        ("resume", resume_consumer, "End a pause."),
        ("reset", reset_consumer, "Begin again, from the start or a sequence (server 2.14)."),
        ("unpin", unpin_consumer, "Let another client of a group take over (server 2.11)."),
    ):
        made = command(consumer, common, name, run, text)
        made.add_argument("stream")
        made.add_argument("consumer")
        if name == "add":
            _settings(made)
            made.add_argument(
                "--deliver",
                default="all",
                help="all, last, new, subject (the last of each), a sequence, 1h ago, RFC 3339",
            )
            made.add_argument("--ack", choices=("explicit", "all", "none"), default="explicit")
            made.add_argument("--ephemeral", action="store_true", help="removed when nobody uses it")
            for taken in ("--pull", "--defaults"):
                taken_as_it_is(made, taken)
        elif name == "edit":
            _settings(made)
            taken_as_it_is(made, "-f", "--force")
        elif name == "rm":
            made.add_argument("-f", "--force", action="store_true", help="do not ask")
        elif name == "pause":
            made.add_argument("until", help="RFC 3339, or seconds from now, or as 1h30m")
            taken_as_it_is(made, "-f", "--force")
        elif name == "reset":
            made.add_argument("--sequence", type=positive, help="of the stream; default: the start of its policy")
        elif name == "unpin":
            made.add_argument("group")
        if name in ("resume", "unpin"):
            taken_as_it_is(made, "-f", "--force")
    following = command(commands, common, "next", next_messages, "Take messages from a pull consumer.")
    _next_arguments(following)
    _next_arguments(command(consumer, common, "next", next_messages, "Take messages from a pull consumer."))


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--filter", action="append", help="subjects, with commas")
    parser.add_argument("--ack-wait", "--wait", type=seconds, help="seconds")
    parser.add_argument("--max-deliver", type=int, help="-1: without limit")
    parser.add_argument("--max-pending", type=int, help="messages delivered and not acknowledged, at the most")
    parser.add_argument("--max-waiting", type=positive, help="pulls that wait, at the most")
    parser.add_argument("--inactive-threshold", type=seconds, help="seconds unused until it is removed")
    parser.add_argument("--replicas", type=positive)
    parser.add_argument("--description")


def _next_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream")
    parser.add_argument("consumer")
    parser.add_argument("--count", type=positive, default=1)
    parser.add_argument("--wait", type=seconds, default=5.0, help="seconds to wait for them (default 5)")
    done = parser.add_mutually_exclusive_group()
    done.add_argument("--no-ack", action="store_true", help="leave them unacknowledged")
    done.add_argument("--nak", action="store_true", help="give them back at once")
    done.add_argument("--term", action="store_true", help="have them never delivered again")
    parser.add_argument("--raw", action="store_true", help="payloads alone")


def list_consumers(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        js = jetstream(nc, options)
        if options.names:
            for name in js.consumer_names(options.stream):
                name_alone(name, options.json)
            return
        infos = list(js.consumers(options.stream))
    if options.json:
        for info in infos:
            struct_record(info)
    elif infos:
        table(
            ("NAME", "ACK POLICY", "PENDING", "UNACKED", "REDELIVERED", "ACK FLOOR"),
            [
                (
                    info.name,
                    info.config.ack_policy,
                    f"{info.num_pending:,}",
                    f"{info.num_ack_pending:,}",
                    f"{info.num_redelivered:,}",
                    f"{info.ack_floor.stream_seq:,}",
                )
                for info in infos
            ],
        )
    else:
        line("no consumers")


def report_consumers(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        infos = sorted(jetstream(nc, options).consumers(options.stream), key=lambda info: -info.num_pending)
    if options.json:
        for info in infos:
            struct_record(info)
        return
    rows = [
        (
            info.name,
            "push" if info.config.is_push else "pull",
            info.config.ack_policy,
            f"{info.config.ack_wait or 0:g}",
            f"{info.num_ack_pending:,}",
            f"{info.num_redelivered:,}",
            f"{info.num_pending:,}",
            f"{info.ack_floor.stream_seq:,}",
            f"{info.num_waiting:,}",
            "paused" if info.paused else "",
        )
        for info in infos
    ]
    titles = ("CONSUMER", "MODE", "ACK POLICY", "ACK WAIT", "ACK PENDING", "REDELIVERED", "UNPROCESSED", "ACK FLOOR")
    table((*titles, "PULLS", "STATE"), rows)


def consumer_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).consumer_info(options.stream, options.consumer)
    _show(info, options.json)


def _config(options: argparse.Namespace) -> dict[str, Any]:
    filters = split(options.filter)
    wanted = {
        "ack_wait": options.ack_wait,
        "max_deliver": options.max_deliver,
        "max_ack_pending": options.max_pending,
        "max_waiting": options.max_waiting,
        "inactive_threshold": options.inactive_threshold,
        "num_replicas": options.replicas,
        "description": options.description,
        "filter_subject": filters[0] if len(filters) == 1 else None,
        "filter_subjects": filters if len(filters) > 1 else None,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _start(text: str) -> dict[str, Any]:
    """--deliver as fields of the configuration."""
    if text in ("all", "last", "new", "last_per_subject"):
        return {"deliver_policy": text}
    if text == "subject":
        return {"deliver_policy": "last_per_subject"}
    if text.isdigit():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    if (ago := _duration(text)) is not None:
        start = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=ago)
        return {"deliver_policy": "by_start_time", "opt_start_time": start}
    return {"deliver_policy": "by_start_time", "opt_start_time": point_in_time(text)}


def _duration(text: str) -> float | None:
    """`1h30m` in seconds; None for what is a date."""
    try:
        return seconds(text)
    except argparse.ArgumentTypeError:
        return None


def point_in_time(text: str) -> dt.datetime:
    """RFC 3339 as a datetime; without a zone it is the local one."""
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise errors.ConfigError(f"{text!r} is no point in time such as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.astimezone()


def add_consumer(options: argparse.Namespace) -> None:
    name = {"name" if options.ephemeral else "durable_name": options.consumer}
    config = ConsumerConfig(**name, ack_policy=options.ack, **_start(options.deliver), **_config(options))
    with connect(options) as nc:
        info = jetstream(nc, options).create_consumer(options.stream, config).info()
    _show(info, options.json)


def edit_consumer(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        js = jetstream(nc, options)
        changes = _config(options)
        if not changes:
            raise errors.ConfigError("nothing to change: name at least one setting")
        if "filter_subject" in changes:
            changes["filter_subjects"] = None
        elif "filter_subjects" in changes:
            changes["filter_subject"] = None
        config = js.consumer_info(options.stream, options.consumer).config.replace(**changes)
        info = js.update_consumer(options.stream, config).info()
    _show(info, options.json)


def remove_consumer(options: argparse.Namespace) -> int:
    if not ask(f"Delete consumer {options.consumer} of {options.stream}?", options.force):
        return 1
    with connect(options) as nc:
        jetstream(nc, options).delete_consumer(options.stream, options.consumer)
    _done(options, "deleted")
    return 0


def _done(options: argparse.Namespace, what: str, **more: Any) -> None:
    if options.json:
        record({"stream": options.stream, "consumer": options.consumer, "done": what, **more})
    else:
        line(f"{what} {options.consumer}" + "".join(f" {key} {value}" for key, value in more.items()))


def pause_consumer(options: argparse.Namespace) -> None:
    ahead = _duration(options.until)
    until = point_in_time(options.until) if ahead is None else ahead
    with connect(options) as nc:
        state = jetstream(nc, options).pause_consumer(options.stream, options.consumer, until)
    _done(options, "paused", until=state.pause_until.isoformat() if state.pause_until else None)


def resume_consumer(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        jetstream(nc, options).resume_consumer(options.stream, options.consumer)
    _done(options, "resumed")


def reset_consumer(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).reset_consumer(options.stream, options.consumer, options.sequence)
    _show(info, options.json)


def unpin_consumer(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        jetstream(nc, options).unpin_consumer(options.stream, options.consumer, options.group)
    _done(options, "unpinned")


def _show(info: ConsumerInfo, as_json: bool) -> None:
    if as_json:
        struct_record(info)
        return
    config = info.config
    fields(
        f"Consumer {info.name} of stream {info.stream_name}",
        (
            ("filter", config.filter_subject or ", ".join(config.filter_subjects or ()) or None),
            ("ack policy", config.ack_policy),
            ("ack wait", f"{config.ack_wait} s"),
            ("delivered", f"{info.delivered.stream_seq:,} of the stream, {info.delivered.consumer_seq:,} deliveries"),
            ("ack floor", f"{info.ack_floor.stream_seq:,}"),
            ("pending", f"{info.num_pending:,}"),
            ("unacked", f"{info.num_ack_pending:,}"),
            ("redelivered", f"{info.num_redelivered:,}"),
            ("pulls", f"{info.num_waiting:,} waiting"),
            ("paused", "yes" if info.paused else "no"),
        ),
    )


def next_messages(options: argparse.Namespace) -> int:
    with connect(options) as nc:
        js = jetstream(nc, options)
        try:
            batch = js.consumer(options.stream, options.consumer, fetch_info=False).fetch(options.count, options.wait)
        except errors.PullNoResponders:
            js.consumer_info(options.stream, options.consumer)  # says it if there is no such stream or consumer
            raise
        for message in batch:
            print_message(message, options.json, options.raw, seq=message.metadata.stream_seq)
            if options.nak:
                message.nak()
            elif options.term:
                message.term()
            elif not options.no_ack:
                message.double_ack(options.timeout)
        nc.flush(options.timeout)
    if not batch:
        raise errors.NoMessages(f"no message for {options.consumer!r} within {options.wait:g} s")
    return 0
