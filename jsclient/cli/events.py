"""`events`, `trace` and `latency`: what servers tell about streams, and where a message goes."""

from __future__ import annotations

import time
from typing import Any

import jsclient
from jsclient import errors, nuid
from jsclient.cli.arguments import HEADERS, Options, arg, headers_of, positive, seconds
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect, jetstream
from jsclient.cli.output import line, record, result
from jsclient.jetstream import trace
from jsclient.jetstream.advisories import Advisory

cli: Commands = Commands(connect)

_SIZE = arg("--size", type=int, default=128, help="bytes of a payload (default 128)")


@cli(
    "events",
    arg("--stream", help="only of this stream"),
    arg("--consumer", help="only of this consumer"),
    arg("--count", type=positive, help="end after so many"),
    arg("--wait", type=seconds, help="end after so many seconds without one"),
)
def show_events(nc: jsclient.Connection, options: Options) -> None:
    shown = 0
    with jetstream(nc, options).advisories(Advisory) as advisories:
        while options.count is None or shown < options.count:
            try:
                advisory = advisories.next(options.wait)
            except errors.TimedOut:
                break
            if all(_is(advisory, key, getattr(options, key)) for key in ("stream", "consumer")):
                shown += 1
                result(options, advisory.raw, _text(advisory))
    if not shown:
        raise errors.NoMessages(f"no advisory within {options.wait:g} s")


def _text(advisory: Advisory) -> str:
    what = advisory.type.rpartition(".")[2] or advisory.type
    hidden = ("type", "id", "timestamp", "client")
    when = advisory.timestamp.isoformat(timespec="milliseconds") if advisory.timestamp else "-"
    return f"{when} {what} " + " ".join(f"{key}={value}" for key, value in advisory.raw.items() if key not in hidden)


def _is(advisory: Advisory, key: str, wanted: str | None) -> bool:
    return wanted is None or advisory.raw.get(key) == wanted


@cli(
    "trace",
    arg("subject"),
    arg("payload", nargs="?", default=""),
    HEADERS,
    arg("--deliver", action="store_true", help="deliver and store it, too"),
)
def show_trace(nc: jsclient.Connection, options: Options) -> None:
    headers, more = headers_of(options.header), {"deliver": options.deliver, "timeout": options.timeout}
    reports = trace(nc, options.subject, options.payload, headers=headers, **more)
    kinds = {"in": "arrived", "eg": "left to", "js": "stored in", "sm": "mapped to", "se": "exported", "si": "imported"}
    for report in reports:
        if options.json:
            record(report)
            continue
        line(f"{report.server.name} {report.server.ver}")
        for event in report.events or ():
            where = event.stream or event.name or event.to or event.sub
            error = f"  ERROR {event.error}" if event.error else ""
            line(f"  {kinds.get(event.type, event.type)} {where} {event.subj or event.subject}".rstrip() + error)


_PARTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@cli(
    "latency",
    arg("--server-b", help="URL where the subscriber connects (default: the same server)"),
    arg("--msgs", type=positive, default=1000),
    _SIZE,
)
def show_latency(sender: jsclient.Connection, options: Options) -> Any:
    subject, payload, times = f"jsclient.latency.{nuid.next_nuid()}", bytes(options.size), []
    options.server = options.server_b or options.server
    with connect(options) as receiver, receiver.subscribe(subject) as subscription:
        receiver.flush(options.timeout)
        sender.publish(subject, payload)
        subscription.next(options.timeout)  # interest has reached the sender's server
        for _ in range(options.msgs):
            start = time.perf_counter()
            sender.publish(subject, payload)
            subscription.next(options.timeout)
            times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    found = {name: times[min(len(times) - 1, int(len(times) * part))] for name, part in _PARTS.items()}
    told = {"messages": options.msgs, "size": options.size, **{f"{key}_us": value for key, value in found.items()}}
    return told, "  ".join(f"{name} {value:,.0f} us" for name, value in found.items())
