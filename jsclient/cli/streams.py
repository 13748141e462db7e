"""`stream ls|info|add|purge`, `consumer ls|info` and `next`."""

from __future__ import annotations

import argparse
from typing import Any

from jsclient import errors
from jsclient.cli.arguments import command, connect, group, jetstream, positive, seconds
from jsclient.cli.output import line, print_message, record, struct_record, table
from jsclient.jetstream import ConsumerInfo, StreamConfig, StreamInfo


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    stream = group(commands, "stream", "Streams.")
    listing = command(stream, common, "ls", list_streams, "List streams.")
    listing.add_argument("--subject", help="only streams that store this subject")
    info = command(stream, common, "info", stream_info, "Configuration and state of a stream.")
    info.add_argument("stream")
    add = command(stream, common, "add", add_stream, "Create a stream.")
    add.add_argument("stream")
    add.add_argument("--subjects", required=True, help="with commas")
    add.add_argument("--storage", choices=("file", "memory"), default="file")
    add.add_argument("--retention", choices=("limits", "interest", "workqueue"), default="limits")
    add.add_argument("--replicas", type=positive, default=1)
    add.add_argument("--max-age", type=seconds, help="seconds")
    add.add_argument("--max-msgs", type=int)
    add.add_argument("--max-bytes", type=int)
    add.add_argument("--dupe-window", type=seconds, help="seconds")
    purge = command(stream, common, "purge", purge_stream, "Remove messages from a stream.")
    purge.add_argument("stream")
    purge.add_argument("--subject", help="only this subject")
    which = purge.add_mutually_exclusive_group()
    which.add_argument("--seq", type=int, help="up to, but not including, this sequence")
    which.add_argument("--keep", type=int, help="all but so many")
    consumer = group(commands, "consumer", "Consumers.")
    listing = command(consumer, common, "ls", list_consumers, "List the consumers of a stream.")
    listing.add_argument("stream")
    info = command(consumer, common, "info", consumer_info, "Configuration and state of a consumer.")
    info.add_argument("stream")
    info.add_argument("consumer")
    following = command(commands, common, "next", next_messages, "Take messages from a pull consumer.")
    following.add_argument("stream")
    following.add_argument("consumer")
    following.add_argument("--count", type=positive, default=1)
    following.add_argument("--wait", type=seconds, default=5.0, help="seconds to wait for them (default 5)")
    following.add_argument("--no-ack", action="store_true", help="leave them unacknowledged")
    following.add_argument("--raw", action="store_true", help="payloads alone")


def list_streams(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        infos = list(jetstream(nc, options).streams(subject=options.subject))
    if options.json:
        for info in infos:
            struct_record(info)
    elif infos:
        table(
            ("NAME", "SUBJECTS", "STORAGE", "MESSAGES", "BYTES", "CONSUMERS"),
            [
                (
                    info.config.name,
                    ",".join(info.config.subjects or ()),
                    info.config.storage,
                    f"{info.state.messages:,}",
                    f"{info.state.bytes:,}",
                    info.state.consumer_count,
                )
                for info in infos
            ],
        )
    else:
        line("no streams")


def stream_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).stream(options.stream).info()
    _show_stream(info, options.json)


def add_stream(options: argparse.Namespace) -> None:
    config = StreamConfig(
        name=options.stream,
        subjects=[subject.strip() for subject in options.subjects.split(",")],
        storage=options.storage,
        retention=options.retention,
        num_replicas=options.replicas,
        max_age=options.max_age,
        max_msgs=options.max_msgs,
        max_bytes=options.max_bytes,
        duplicate_window=options.dupe_window,
    )
    with connect(options) as nc:
        info = jetstream(nc, options).create_stream(config).info()
    _show_stream(info, options.json)


def purge_stream(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        purged = (
            jetstream(nc, options)
            .stream(options.stream, fetch_info=False)
            .purge(subject=options.subject, seq=options.seq, keep=options.keep)
        )
    if options.json:
        record({"purged": purged})
    else:
        line(f"purged {purged} messages")


def _show_stream(info: StreamInfo, as_json: bool) -> None:
    if as_json:
        struct_record(info)
        return
    state, config = info.state, info.config
    line(f"Stream {config.name}")
    for title, value in (
        ("subjects", ", ".join(config.subjects or ())),
        ("storage", f"{config.storage}, {config.num_replicas or 1} replicas, retention {config.retention}"),
        ("messages", f"{state.messages:,}"),
        ("bytes", f"{state.bytes:,}"),
        ("first", f"{state.first_seq} at {state.first_ts}" if state.messages else state.first_seq),
        ("last", f"{state.last_seq} at {state.last_ts}" if state.messages else state.last_seq),
        ("consumers", state.consumer_count),
    ):
        line(f"  {title:10} {value}")


def list_consumers(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        infos = list(jetstream(nc, options).consumers(options.stream))
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


def consumer_info(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        info = jetstream(nc, options).consumer_info(options.stream, options.consumer)
    if options.json:
        struct_record(info)
        return
    _show_consumer(info)


def _show_consumer(info: ConsumerInfo) -> None:
    line(f"Consumer {info.name} of stream {info.stream_name}")
    for title, value in (
        ("ack policy", info.config.ack_policy),
        ("ack wait", f"{info.config.ack_wait} s"),
        ("delivered", f"{info.delivered.stream_seq:,} of the stream, {info.delivered.consumer_seq:,} deliveries"),
        ("ack floor", f"{info.ack_floor.stream_seq:,}"),
        ("pending", f"{info.num_pending:,}"),
        ("unacked", f"{info.num_ack_pending:,}"),
        ("redelivered", f"{info.num_redelivered:,}"),
        ("pulls", f"{info.num_waiting:,} waiting"),
        ("paused", "yes" if info.paused else "no"),
    ):
        line(f"  {title:12} {value}")


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
            if not options.no_ack:
                message.double_ack(options.timeout)
    if not batch:
        raise errors.NoMessages(f"no message for {options.consumer!r} within {options.wait:g} s")
    return 0
