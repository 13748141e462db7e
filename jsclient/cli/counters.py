"""`counter ...`: distributed counters (server 2.12)."""

from __future__ import annotations

import argparse
from typing import Any

from jsclient import errors, nuid
from jsclient.cli.arguments import command, connect, group, jetstream, opened
from jsclient.cli.output import line, page, record, table
from jsclient.jetstream import JetStream, RawStreamMsg, Stream
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.counters import counter_sources, counter_value


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    counter = group(commands, "counter")
    for name, run, text in (
        ("get", show_value, "Print the value of a counter."),
        ("view", show_counter, "A counter with what it was made of."),
        ("increment", increment, "Add to a counter; prints the new value."),
        ("decrement", decrement, "Subtract from a counter; prints the new value."),
        ("ls", list_counters, "Counters of a stream, and their values."),
    ):
        made = command(counter, common, name, run, text)
        made.add_argument("subject", nargs="?" if name == "ls" else None, help="wildcards allowed" * (name == "ls"))
        if name in ("increment", "decrement"):
            made.add_argument("value", nargs="?", type=int, default=1, help="how many (default 1); of any size")
        made.add_argument("--stream", help="the stream of the counter (default: the one that takes the subject)")


def _stream(js: JetStream, options: argparse.Namespace) -> Stream:
    if not (options.stream or options.subject):
        raise errors.ConfigError("name a subject or --stream")
    name = options.stream or js.stream_name_by_subject(options.subject)
    stream = js.stream(name)
    info = stream.cached_info
    if info is None or not info.config.allow_msg_counter:
        raise errors.ConfigError(f"stream {name!r} has no counters: it was made without allow_msg_counter")
    return stream


def _read(options: argparse.Namespace) -> RawStreamMsg:
    with connect(options) as nc:
        return _stream(jetstream(nc, options), options).get_last_msg(options.subject)


def show_value(options: argparse.Namespace) -> None:
    value = counter_value(_read(options))
    _print(options, value)


def _print(options: argparse.Namespace, value: int) -> None:
    if options.json:
        record({"subject": options.subject, "value": str(value)})  # text: a value may have more than 53 bits
    else:
        line(str(value))


def show_counter(options: argparse.Namespace) -> None:
    message = _read(options)
    value, sources = counter_value(message), counter_sources(message)
    last = message.headers.get(header_names.INCREMENT)
    if options.json:
        told = {stream: {subject: str(part) for subject, part in of.items()} for stream, of in sources.items()}
        record({"subject": message.subject, "value": str(value), "increment": last, "sources": told})
        return
    parts = [(f"  {stream} {subject}", part) for stream, of in sources.items() for subject, part in of.items()]
    known = [("value", value), ("last increment", last), ("sources", None if parts else "none")]
    page(f"Counter {message.subject}", [*known, *parts])


def increment(options: argparse.Namespace) -> None:
    _add(options, options.value)


def decrement(options: argparse.Namespace) -> None:
    _add(options, -options.value)


def _add(options: argparse.Namespace, count: int) -> None:
    with opened(options) as js:
        stream = _stream(js, options)
        taken_by = js.stream_name_by_subject(options.subject)
        if taken_by != stream.name:
            raise errors.ConfigError(f"{options.subject!r} goes to stream {taken_by!r}, not to {stream.name!r}")
        # The id: a publish is repeated if its answer was lost, and counts once. The repeat's answer has no value.
        ack = js.publish(options.subject, incr=count, msg_id=nuid.next_nuid())
        value = int(ack.val) if ack.val else counter_value(stream.get_last_msg(options.subject, direct=False))
    _print(options, value)


def list_counters(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        stream = _stream(jetstream(nc, options), options)
        found = sorted(stream.get_last_msgs(options.subject or ">"), key=lambda message: message.subject)
    if not found:
        raise errors.NoMessages(f"stream {stream.name!r} has no such counter yet")
    if options.json:
        for message in found:
            record({"subject": message.subject, "value": str(counter_value(message))})
    else:
        table(("COUNTER", "VALUE"), [(message.subject, counter_value(message)) for message in found])
