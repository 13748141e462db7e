"""`pub`, `sub`, `request`, `reply` and `rtt`: core NATS."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import random
import re
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import jsclient
from jsclient import errors, nuid
from jsclient.cli.arguments import command, connect, headers_of, jetstream, positive, seconds
from jsclient.cli.output import headers_record, message_record, print_headers, print_message, result
from jsclient.durations import Deadline


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    pub = command(commands, common, "pub", publish)
    pub.add_argument("subject")
    pub.add_argument("payload", nargs="?", help="- or nothing: all of standard input is one message")
    pub.add_argument("--lines", action="store_true", help="every line of standard input is a message")
    pub.add_argument("-H", "--header", action="append", metavar="NAME:VALUE")
    pub.add_argument("--reply", default="", help="reply subject")
    pub.add_argument("--count", type=positive, default=1, help="publish it so often; see below")
    pub.add_argument("--jetstream", "-J", action="store_true", help="wait for the stream to store it")
    pub.add_argument("--msg-id", help="message id for de-duplication (implies --jetstream)")
    pub.epilog = (
        "In the payload {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}}, {{ID}} and {{Random 5 10}} "
        f"are replaced. {pub.epilog}"
    )
    sub = command(commands, common, "sub", subscribe)
    sub.add_argument("subject")
    sub.add_argument("--queue", default="", help="queue group")
    sub.add_argument("--count", type=positive, help="end after so many messages")
    sub.add_argument("--wait", type=seconds, help="end after so many seconds without a message")
    sub.add_argument("--raw", action="store_true", help="payloads alone")
    sub.add_argument("--headers-only", action="store_true", help="without payloads")
    sub.add_argument("--ack", action="store_true", help="acknowledge what a push consumer delivers here")
    stored = sub.add_argument_group("from a stream, with an ordered consumer")
    stored.add_argument("--stream", help="this one (default with the next options: the stream of the subject)")
    stored.add_argument("--all", action="store_true", help="all messages that it holds, then new ones")
    stored.add_argument("--new", action="store_true", help="only new messages")
    stored.add_argument("--last", action="store_true", help="begin with the last message")
    stored.add_argument("--last-per-subject", action="store_true", help="begin with the last of each subject")
    stored.add_argument("--since", type=seconds, help="begin so long ago, as 1h")
    stored.add_argument("--start-sequence", type=positive, help="begin with this sequence")
    for name in ("request", "req"):
        asking = command(commands, common, name, request)
        asking.add_argument("subject")
        asking.add_argument("payload", nargs="?", help="- or nothing: standard input, unless it is a terminal")
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
    if options.msg_id and (options.count > 1 or options.lines):
        raise errors.ConfigError("--msg-id goes without --count and --lines: only the first message would be stored")
    if options.lines and (options.count > 1 or options.payload not in (None, "-")):
        raise errors.ConfigError("--lines reads standard input: leave out PAYLOAD and --count")
    with connect(options) as nc:
        js = jetstream(nc, options) if options.jetstream or options.msg_id else None
        count = 0
        for payload in _payloads(options):
            count += 1
            if js is None:
                nc.publish(options.subject, payload, reply=options.reply, headers=headers)
                continue
            ack = js.publish(options.subject, payload, headers=headers, msg_id=options.msg_id, timeout=options.timeout)
            result(
                options.json,
                {"stream": ack.stream, "seq": ack.seq, "duplicate": ack.duplicate},
                f"stored in {ack.stream} as {ack.seq}{' (duplicate)' if ack.duplicate else ''}",
            )
        nc.flush(options.timeout)
        if not count:
            raise errors.NoMessages("standard input has no lines, so nothing was published")
        if js is None:
            result(options.json, {"published": count}, f"published {count}")
    return 0


def _payloads(options: argparse.Namespace) -> Iterator[bytes]:
    if options.lines:
        yield from (text.rstrip(b"\r\n") for text in sys.stdin.buffer)
    elif options.payload in (None, "-"):
        payload = sys.stdin.buffer.read()
        yield from (payload for _ in range(options.count))
    else:
        for number in range(1, options.count + 1):
            yield _filled(options.payload, number).encode()


def _filled(template: str, number: int) -> str:
    """A payload with the fields that the NATS CLI has, too."""
    if "{{" not in template:
        return template
    now = dt.datetime.now().astimezone()
    values = {
        "Count": str(number),
        "n": str(number),
        "Time": now.strftime("%H:%M:%S"),
        "TimeStamp": now.isoformat(timespec="seconds"),
        "Unix": str(int(now.timestamp())),
        "UnixNano": str(time.time_ns()),
        "ID": nuid.next_nuid(),
    }
    filled = re.sub(r"{{ *(\w+) *}}", lambda found: values.get(found[1], found[0]), template)
    return re.sub(r"{{ *Random +(\d+) +(\d+) *}}", _random, filled)


def _random(found: re.Match[str]) -> str:
    """Letters and digits, of a length between the two limits."""
    least, most = sorted((int(found[1]), int(found[2])))
    return "".join(random.choices(string.ascii_letters + string.digits, k=random.randint(least, most)))


_STARTS: Final = ("stream", "all", "new", "last", "last_per_subject", "since", "start_sequence")


def _start(options: argparse.Namespace) -> dict[str, Any] | None:
    """Options of an ordered consumer; None for a core subscription."""
    chosen = [name for name in _STARTS if getattr(options, name)]
    if not chosen:
        return None
    if len(chosen) > 1 + (chosen[0] == "stream"):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise errors.ConfigError(f"choose one place to begin, not {names}")
    if options.queue or options.ack:
        raise errors.ConfigError("--queue and --ack go without a stream: an ordered consumer has neither")
    if options.since:
        start = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=options.since)
        return {"deliver_policy": "by_start_time", "opt_start_time": start}
    if options.start_sequence:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": options.start_sequence}
    return {"deliver_policy": chosen[-1] if chosen[-1] != "stream" else "all"}


@contextlib.contextmanager
def _subscribed(nc: jsclient.Connection, options: argparse.Namespace) -> Iterator[Any]:
    """Something with `next(timeout)`: a core subscription, or the messages of an ordered consumer."""
    start = _start(options)
    if start is None:
        with nc.subscribe(options.subject, queue=options.queue) as subscription:
            nc.flush(options.timeout)
            yield subscription
        return
    js = jetstream(nc, options)
    name = options.stream or js.stream_name_by_subject(options.subject)
    consumer = js.stream(name).ordered_consumer(
        filter_subjects=options.subject, headers_only=options.headers_only or None, **start
    )
    with consumer.messages() as messages:
        yield messages


def subscribe(options: argparse.Namespace) -> int:
    received = 0
    with connect(options) as nc, _subscribed(nc, options) as subscription:
        while options.count is None or received < options.count:
            deadline = Deadline(options.wait)
            try:
                message = subscription.next(deadline.remaining())
            except errors.TimedOut:
                break
            if options.ack and message.reply.startswith("$JS.ACK."):
                nc.publish(message.reply, b"+ACK")
            more = {"reply": message.reply} if message.reply else {}
            if options.headers_only:
                _print_headers(message, options.json)
            else:
                print_message(message, options.json, options.raw, many=True, **more)
            received += 1
    if not received:
        raise errors.NoMessages(f"no message on {options.subject!r} within {options.wait:g} s")
    return 0


def _print_headers(message: Any, as_json: bool) -> None:
    result(as_json, {"subject": message.subject, **headers_record(message)}, f"[{message.subject}]")
    if not as_json:
        print_headers(message)


def request(options: argparse.Namespace) -> int:
    if options.payload == "-" or (options.payload is None and not sys.stdin.isatty()):
        payload = sys.stdin.buffer.read()
    else:
        payload = (options.payload or "").encode()
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
            print_message(message, options.json, options.raw, many=options.replies != 1)
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
            result(options.json, message_record(message), f"[{message.subject}] {len(message.data)} bytes")
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
    result(
        as_json,
        {"url": nc.connected_url, "server": info.server_name, "version": info.version, "rtt": median},
        f"{nc.connected_url}  {info.server_name} {info.version}  {median * 1000:.3f} ms",
    )
