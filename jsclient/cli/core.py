"""`pub`, `sub`, `request`, `reply` and `rtt`: core NATS."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsclient
from jsclient import errors
from jsclient.cli.arguments import command, connect, headers_of, jetstream, positive, seconds
from jsclient.cli.output import line, message_record, print_message, record
from jsclient.durations import Deadline


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    pub = command(commands, common, "pub", publish)
    pub.add_argument("subject")
    pub.add_argument("payload", nargs="?", help="- or nothing: every line of standard input is a message")
    pub.add_argument("-H", "--header", action="append", metavar="NAME:VALUE")
    pub.add_argument("--reply", default="", help="reply subject")
    pub.add_argument("--count", type=positive, default=1, help="publish it so often; {{n}} becomes the number")
    pub.add_argument("--jetstream", "-J", action="store_true", help="wait for the stream to store it")
    pub.add_argument("--msg-id", help="message id for de-duplication (implies --jetstream)")
    sub = command(commands, common, "sub", subscribe)
    sub.add_argument("subject")
    sub.add_argument("--queue", default="", help="queue group")
    sub.add_argument("--count", type=positive, help="end after so many messages")
    sub.add_argument("--wait", type=seconds, help="end after so many seconds without a message")
    sub.add_argument("--raw", action="store_true", help="payloads alone")
    for name in ("request", "req"):
        asking = command(commands, common, name, request)
        asking.add_argument("subject")
        asking.add_argument("payload", nargs="?", default="", help="-: standard input")
        asking.add_argument("-H", "--header", action="append", metavar="NAME:VALUE")
        asking.add_argument("--replies", type=int, default=1, help="how many answers to wait for; 0: until --timeout")
        asking.add_argument("--raw", action="store_true", help="payloads alone")
    answering = command(commands, common, "reply", reply)
    answering.add_argument("subject")
    answering.add_argument("payload", nargs="?", default="", help="the answer; {{request}} becomes the request")
    answering.add_argument("--command", help="run this and answer with what it prints; the request is its input")
    answering.add_argument("--echo", action="store_true", help="answer with the request")
    answering.add_argument("--queue", default="NATS-RPLY-22", help="queue group (default that of the NATS CLI)")
    answering.add_argument("--count", type=positive, help="end after so many requests")
    command(commands, common, "rtt", round_trip)


def publish(options: argparse.Namespace) -> int:
    headers = headers_of(options.header)
    if options.reply and (options.jetstream or options.msg_id):
        raise errors.ConfigError("--reply goes without --jetstream: the stream answers to the reply subject")
    if options.msg_id and options.count > 1:
        raise errors.ConfigError("--msg-id goes without --count: the copies would be duplicates")
    with connect(options) as nc:
        js = jetstream(nc, options) if options.jetstream or options.msg_id else None
        count = 0
        for payload in _payloads(options):
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


def _payloads(options: argparse.Namespace) -> Iterator[bytes]:
    payload = options.payload
    if payload is not None and payload != "-":
        for number in range(1, options.count + 1):
            yield payload.replace("{{n}}", str(number)).encode()
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


def request(options: argparse.Namespace) -> int:
    payload = sys.stdin.buffer.read() if options.payload == "-" else options.payload.encode()
    if options.replies < 0:
        raise errors.ConfigError("--replies must be 0 or more")
    received = 0
    with connect(options) as nc:
        answers = nc.request_many(
            options.subject,
            payload,
            headers=headers_of(options.header),
            max_messages=options.replies or None,
            timeout=options.timeout,
        )
        for message in answers:
            print_message(message, options.json, options.raw)
            received += 1
    if not received:
        raise errors.NoMessages(f"no answer from {options.subject!r} within {options.timeout:g} s")
    if received < options.replies:
        raise errors.TimedOut(
            f"{received} of {options.replies} answers came within {options.timeout:g} s. The others may have "
            "been sent. Give more time."
        )
    return 0


def reply(options: argparse.Namespace) -> int:
    count = 0
    with connect(options) as nc, nc.subscribe(options.subject, queue=options.queue) as subscription:
        nc.flush(options.timeout)
        while options.count is None or count < options.count:
            message = subscription.next(None)
            if options.json:
                record(message_record(message))
            else:
                line(f"[{message.subject}] {len(message.data)} bytes")
            if message.reply:
                message.respond(_answer(options, message.data))
            count += 1
    return 0


def _answer(options: argparse.Namespace, data: bytes) -> bytes:
    if options.echo:
        return data
    if options.command:
        done = subprocess.run(options.command, shell=True, input=data, stdout=subprocess.PIPE, check=False)
        return done.stdout
    answer: bytes = options.payload.encode().replace(b"{{request}}", data)
    return answer


def round_trip(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        times = sorted(nc.rtt(options.timeout) for _ in range(5))
        _tell_round_trip(nc, times[2], options.json)


def _tell_round_trip(nc: jsclient.Connection, median: float, as_json: bool) -> None:
    info = nc.server_info
    if as_json:
        record({"url": nc.connected_url, "server": info.server_name, "version": info.version, "rtt": median})
    else:
        line(f"{nc.connected_url}  {info.server_name} {info.version}  {median * 1000:.3f} ms")
