"""`pub` and `sub`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from jsclient import errors
from jsclient.cli.arguments import command, connect, headers_of, jetstream, positive, seconds
from jsclient.cli.output import line, print_message, record
from jsclient.durations import Deadline


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    pub = command(commands, common, "pub", publish, "Publish one message, or a line of standard input each.")
    pub.add_argument("subject")
    pub.add_argument("payload", nargs="?", help="- or nothing: every line of standard input is a message")
    pub.add_argument("-H", "--header", action="append", metavar="NAME:VALUE")
    pub.add_argument("--reply", default="", help="reply subject")
    pub.add_argument("--jetstream", "-J", action="store_true", help="wait for the stream to store it")
    pub.add_argument("--msg-id", help="message id for de-duplication (implies --jetstream)")
    sub = command(commands, common, "sub", subscribe, "Print the messages of a subject.")
    sub.add_argument("subject")
    sub.add_argument("--queue", default="", help="queue group")
    sub.add_argument("--count", type=positive, help="end after so many messages")
    sub.add_argument("--wait", type=seconds, help="end after so many seconds without a message")
    sub.add_argument("--raw", action="store_true", help="payloads alone")


def publish(options: argparse.Namespace) -> int:
    headers = headers_of(options.header)
    if options.reply and (options.jetstream or options.msg_id):
        raise errors.ConfigError("--reply goes without --jetstream: the stream answers to the reply subject")
    with connect(options) as nc:
        js = jetstream(nc, options) if options.jetstream or options.msg_id else None
        count = 0
        for payload in _payloads(options.payload):
            count += 1
            if js is None:
                nc.publish(options.subject, payload, reply=options.reply, headers=headers)
                continue
            ack = js.publish(options.subject, payload, headers=headers, msg_id=options.msg_id, timeout=options.timeout)
            if options.json:
                record({"stream": ack.stream, "seq": ack.seq, "duplicate": ack.duplicate})
            else:
                line(f"stored in {ack.stream} as {ack.seq}{' (duplicate)' if ack.duplicate else ''}")
        nc.flush(options.timeout)
        if js is None:
            if options.json:
                record({"published": count})
            else:
                line(f"published {count}")
    return 0


def _payloads(payload: str | None) -> Any:
    if payload is not None and payload != "-":
        yield payload.encode()
        return
    for text in sys.stdin.buffer:
        yield text.rstrip(b"\r\n")


def subscribe(options: argparse.Namespace) -> int:
    received = 0
    with connect(options) as nc, nc.subscribe(options.subject, queue=options.queue) as subscription:
        nc.flush(options.timeout)
        while options.count is None or received < options.count:
            deadline = Deadline(options.wait)
            try:
                message = subscription.next(deadline.remaining())
            except errors.TimedOut:
                break
            print_message(message, options.json, options.raw, **({"reply": message.reply} if message.reply else {}))
            received += 1
    if not received:
        raise errors.NoMessages(f"no message on {options.subject!r} within {options.wait:g} s")
    return 0
