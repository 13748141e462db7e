"""`consumer ...` and `next`: pull and push consumers of a stream."""

from __future__ import annotations

import argparse
from typing import Any, Final

from jsclient import errors
from jsclient.cli.arguments import command, connect, group, jetstream, opened, positive, seconds, taken_as_it_is
from jsclient.cli.consumer_settings import (
    config_file,
    copied_consumer,
    duration,
    named_consumer,
    new_consumer,
    point_in_time,
    present_consumer,
    settings,
    wanted_consumer,
)
from jsclient.cli.infos import duration as human_duration
from jsclient.cli.infos import show_changes, show_consumer
from jsclient.cli.output import Columns, confirm, listing, name_alone, print_message, result, struct_record
from jsclient.durations import plain
from jsclient.jetstream import ConsumerConfig, ConsumerInfo, JetStream


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    consumer = group(commands, "consumer")
    listing = command(consumer, common, "ls", list_consumers, "List the consumers of a stream.")
    listing.add_argument("stream")
    listing.add_argument("-n", "--names", action="store_true", help="names alone")
    report = command(consumer, common, "report", report_consumers, "Lag, acks and pulls of the consumers of a stream.")
    report.add_argument("stream")
    for name, run, text in (
        ("info", consumer_info, "Configuration and state of a consumer."),
        ("add", add_consumer, "Create a consumer."),
        ("edit", edit_consumer, "Change settings of a consumer."),
        ("copy", copy_consumer, "Create a consumer with the settings of another."),
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
            new_consumer(made)
        elif name == "edit":
            present_consumer(made)
        elif name == "copy":
            made.add_argument("copy", help="name of the new consumer")
            copied_consumer(made)
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
    following = command(commands, common, "next", next_messages)
    _next_arguments(following)
    _next_arguments(command(consumer, common, "next", next_messages, "Take messages from a pull consumer."))


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


_LISTED: Final[Columns] = {
    "NAME": lambda info: info.name,
    "PENDING": lambda info: f"{info.num_pending:,}",
    "UNACKED": lambda info: f"{info.num_ack_pending:,}",
    "REDELIVERED": lambda info: f"{info.num_redelivered:,}",
    "ACK FLOOR": lambda info: f"{info.ack_floor.stream_seq:,}",
    "ACK POLICY": lambda info: info.config.ack_policy,
}
_REPORTED: Final[Columns] = {
    "CONSUMER": lambda info: info.name,
    "UNPROCESSED": lambda info: f"{info.num_pending:,}",
    "ACK PENDING": lambda info: f"{info.num_ack_pending:,}",
    "REDELIVERED": lambda info: f"{info.num_redelivered:,}",
    "PULLS": lambda info: f"{info.num_waiting:,}",
    "STATE": lambda info: "paused" if info.paused else "",
    "ACK FLOOR": lambda info: f"{info.ack_floor.stream_seq:,}",
    "MODE": lambda info: "push" if info.config.is_push else "pull",
    "ACK POLICY": lambda info: info.config.ack_policy,
    "ACK WAIT": lambda info: human_duration(plain(info.config.ack_wait or 0)),
}


def list_consumers(options: argparse.Namespace) -> None:
    with opened(options) as js:
        if options.names:
            for name in js.consumer_names(options.stream):
                name_alone(name, options.json)
            return
        listing(options.json, js.consumers(options.stream), _LISTED, empty="no consumers")


def report_consumers(options: argparse.Namespace) -> None:
    with opened(options) as js:
        infos = sorted(js.consumers(options.stream), key=lambda info: -info.num_pending)
    listing(options.json, infos, _REPORTED)


def consumer_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).consumer_info(options.stream, options.consumer)
    _show(info, options.json)


def add_consumer(options: argparse.Namespace) -> None:
    config = wanted_consumer(options)
    with connect(options) as nc:
        info = _created(jetstream(nc, options), options.stream, config)
    _show(info, options.json)


def _created(js: JetStream, stream: str, config: ConsumerConfig) -> ConsumerInfo:
    if config.is_push:
        return js.create_push_consumer(stream, config).info()
    return js.create_consumer(stream, config).info()


def copy_consumer(options: argparse.Namespace) -> None:
    with opened(options) as js:
        config = js.consumer_info(options.stream, options.consumer).config
        info = _created(js, options.stream, named_consumer(config, options, options.copy))
    _show(info, options.json)


def edit_consumer(options: argparse.Namespace) -> None:
    changes = settings(options)
    if not changes and options.config is None:
        raise errors.ConfigError("nothing to change: name at least one setting, or --config FILE")
    with opened(options) as js:
        before = js.consumer_info(options.stream, options.consumer).config
        base = before
        if options.config is not None:
            base = config_file(options.config).replace(name=before.name, durable_name=before.durable_name)
        config = base.replace(**changes)
        if options.dry_run:
            show_changes(before, config)
            return
        if config.is_push:
            info = js.update_push_consumer(options.stream, config).info()
        else:
            info = js.update_consumer(options.stream, config).info()
    _show(info, options.json)


def remove_consumer(options: argparse.Namespace) -> None:
    confirm(f"Delete consumer {options.consumer} of {options.stream}?", options.force)
    with connect(options) as nc:
        jetstream(nc, options).delete_consumer(options.stream, options.consumer)
    _done(options, "deleted")


def _done(options: argparse.Namespace, what: str, **more: Any) -> None:
    result(
        options.json,
        {"stream": options.stream, "consumer": options.consumer, "done": what, **more},
        f"{what} {options.consumer}" + "".join(f" {key} {value}" for key, value in more.items()),
    )


def pause_consumer(options: argparse.Namespace) -> None:
    ahead = duration(options.until)
    end = point_in_time(options.until) if ahead is None else ahead
    with connect(options) as nc:
        state = jetstream(nc, options).pause_consumer(options.stream, options.consumer, end)
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
    else:
        show_consumer(info)


def next_messages(options: argparse.Namespace) -> int:
    with opened(options) as js:
        try:
            batch = js.consumer(options.stream, options.consumer, fetch_info=False).fetch(options.count, options.wait)
        except errors.PullNoResponders:
            js.consumer_info(options.stream, options.consumer)  # says it if there is no such stream or consumer
            raise
        for message in batch:
            print_message(message, options.json, options.raw, options.count > 1, seq=message.metadata.stream_seq)
            if options.nak:
                message.nak()
            elif options.term:
                message.term()
            elif not options.no_ack:
                message.double_ack(options.timeout)
        js.nc.flush(options.timeout)
    if not batch:
        raise errors.NoMessages(f"no message for {options.consumer!r} within {options.wait:g} s")
    return 0
