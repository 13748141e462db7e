"""`pub`, `sub`, `request` and `rtt`: core NATS."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import jsclient
from jsclient import errors, nuid
from jsclient.cli.arguments import HEADERS, RAW, Options, arg, headers_of, past, positive, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import arriving, connect, jetstream
from jsclient.cli.output import NothingThere, picked, print_message, result

cli: Commands = Commands(connect)


@cli.alone(
    "pub SUBJECT",
    arg("payload", nargs="?", help="- or nothing: all of standard input is one message"),
    arg("--lines", action="store_true", help="every line of standard input is a message"),
    HEADERS,
    arg("--reply", default="", help="reply subject"),
    arg("--count", type=positive, default=1, help="publish it so often; see below"),
    arg("--jetstream", "-J", action="store_true", help="wait for the stream to store it"),
    arg("--msg-id", help="message id for de-duplication (implies --jetstream)"),
)
def publish(options: Options) -> Any:
    """Publish.

    In the payload {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}} and {{ID}} are replaced.
    """
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
            text = f"stored in {ack.stream} as {ack.seq}{' (duplicate)' if ack.duplicate else ''}"
            result(options, picked(ack, "stream", "seq", "duplicate"), text)
        nc.flush(options.timeout)
        if not count:
            raise NothingThere("standard input has no lines, so nothing was published")
    return ({"published": count}, f"published {count}") if js is None else None


def _payloads(options: Options) -> Iterator[bytes]:
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
    return re.sub(r"{{ *(\w+) *}}", lambda found: values.get(found[1], found[0]), template)


_STARTS: Final = ("stream", "all", "new", "last", "last_per_subject", "since", "start_sequence")


def _start(options: Options) -> dict[str, Any] | None:
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
        return {"deliver_policy": "by_start_time", "opt_start_time": options.since}
    if options.start_sequence:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": options.start_sequence}
    return {"deliver_policy": chosen[-1] if chosen[-1] != "stream" else "all"}


@contextlib.contextmanager
def _subscribed(nc: jsclient.Connection, options: Options) -> Iterator[Any]:
    """An object with `next(timeout)`: a core subscription, or the messages of an ordered consumer."""
    start = _start(options)
    if not options.subject and not options.stream:
        raise errors.ConfigError("name a subject, or a stream with --stream")
    if start is None:
        with nc.subscribe(options.subject, queue=options.queue) as subscription:
            nc.flush(options.timeout)
            yield subscription
        return
    js = jetstream(nc, options)
    name = options.stream or js.stream_name_by_subject(options.subject)
    consumer = js.stream(name).ordered_consumer(
        filter_subjects=options.subject or (), headers_only=options.headers_only or None, **start
    )
    with consumer.messages() as messages:
        yield messages


@cli.alone(
    "sub [SUBJECT]",
    arg("--queue", default="", help="queue group"),
    arg("--count", type=positive, help="end after so many messages"),
    arg("--wait", type=seconds, help="end after so many seconds without a message"),
    RAW,
    arg("--headers-only", action="store_true", help="without payloads"),
    arg("--ack", action="store_true", help="acknowledge what a push consumer delivers here"),
    arg("--stream", help="from a stream: this one (default with the next options: the stream of the subject)"),
    arg("--all", action="store_true", help="all messages that it holds, then new ones"),
    arg("--new", action="store_true", help="only new messages"),
    arg("--last", action="store_true", help="begin with the last message"),
    arg("--last-per-subject", action="store_true", help="begin with the last of each subject"),
    arg("--since", type=past, help="begin so long ago, as 1h"),
    arg("--start-sequence", type=positive, help="begin with this sequence"),
)
def subscribe(options: Options) -> None:
    with connect(options) as nc, _subscribed(nc, options) as subscription:
        for message in arriving(subscription, options):
            if options.ack and message.reply.startswith("$JS.ACK."):
                nc.publish(message.reply, b"+ACK")
            more = {"reply": message.reply} if message.reply else {}
            print_message(message, options, many=True, **more)


@cli.alone(
    "request SUBJECT",
    arg("payload", nargs="?", help="- or nothing: standard input, unless it is a terminal"),
    HEADERS,
    arg("--replies", type=int, default=1, help="how many answers to wait for; 0: until --timeout"),
    RAW,
)
def request(options: Options) -> None:
    if options.payload == "-" or (options.payload is None and not sys.stdin.isatty()):
        payload = sys.stdin.buffer.read()
    else:
        payload = (options.payload or "").encode()
    if options.replies < 0:
        raise errors.ConfigError("--replies must be 0 or more")
    received = 0
    with connect(options) as nc:
        more = {"headers": headers_of(options.header), "timeout": options.timeout}
        for message in nc.request_many(options.subject, payload, max_messages=options.replies or None, **more):
            print_message(message, options, many=options.replies != 1)
            received += 1
    if not received:
        raise errors.NoMessages(f"no answer from {options.subject!r} within {options.timeout:g} s")
    if received < options.replies:
        text = f"{received} of {options.replies} answers came within {options.timeout:g} s"
        raise errors.TimedOut(f"{text}. The others may have been sent. Give more time.")


@cli("rtt")
def round_trip(nc: jsclient.Connection, options: Options) -> Any:
    median = sorted(nc.rtt(options.timeout) for _ in range(5))[2]
    info = nc.server_info
    told = {"url": nc.connected_url, "server": info.server_name, "version": info.version, "rtt": median}
    return told, f"{nc.connected_url}  {info.server_name} {info.version}  {median * 1000:.3f} ms"
