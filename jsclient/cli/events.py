"""`events`, `trace` and `latency`: what servers tell about streams, and where a message goes."""

from __future__ import annotations

import argparse
import time
from typing import Any

from jsclient import errors, jetstream, nuid
from jsclient.cli import arguments
from jsclient.cli.arguments import command, connect, headers_of, positive, seconds
from jsclient.cli.output import line, record, result
from jsclient.jetstream.advisories import Advisory


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    events = command(commands, common, "events", show_events)
    events.add_argument("--stream", help="only of this stream")
    events.add_argument("--consumer", help="only of this consumer")
    events.add_argument("--count", type=positive, help="end after so many")
    events.add_argument("--wait", type=seconds, help="end after so many seconds without one")
    trace = command(commands, common, "trace", show_trace)
    trace.add_argument("subject")
    trace.add_argument("payload", nargs="?", default="")
    trace.add_argument("-H", "--header", action="append", metavar="NAME:VALUE")
    trace.add_argument("--deliver", action="store_true", help="deliver and store it, too")
    latency = command(commands, common, "latency", show_latency)
    latency.add_argument("--server-b", help="URL where the subscriber connects (default: the same server)")
    latency.add_argument("--msgs", type=positive, default=1000)
    latency.add_argument("--size", type=int, default=128, help="bytes of a payload (default 128)")


def show_events(options: argparse.Namespace) -> None:
    shown = 0
    with connect(options) as nc:
        js = arguments.jetstream(nc, options)
        with js.advisories(Advisory) as advisories:
            while options.count is None or shown < options.count:
                try:
                    advisory = advisories.next(options.wait)
                except errors.TimedOut:
                    break
                if not all(_is(advisory, key, getattr(options, key)) for key in ("stream", "consumer")):
                    continue
                shown += 1
                if options.json:
                    record(advisory.raw)
                    continue
                what = advisory.type.rpartition(".")[2] or advisory.type
                told = {
                    key: value
                    for key, value in advisory.raw.items()
                    if key not in ("type", "id", "timestamp", "client")
                }
                when = advisory.timestamp.isoformat(timespec="milliseconds") if advisory.timestamp else "-"
                line(f"{when} {what} " + " ".join(f"{key}={value}" for key, value in told.items()))
    if not shown:
        raise errors.NoMessages(f"no advisory within {options.wait:g} s")


def _is(advisory: Advisory, key: str, wanted: str | None) -> bool:
    return wanted is None or advisory.raw.get(key) == wanted


def show_trace(options: argparse.Namespace) -> None:
    with connect(options) as nc:
        reports = jetstream.trace(
            nc,
            options.subject,
            options.payload,
            headers=headers_of(options.header),
            deliver=options.deliver,
            timeout=options.timeout,
        )
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


def show_latency(options: argparse.Namespace) -> None:
    subject, payload = f"jsclient.latency.{nuid.next_nuid()}", bytes(options.size)
    with connect(options) as sender:
        if options.server_b:
            options.server = options.server_b
        with connect(options) as receiver, receiver.subscribe(subject) as subscription:
            receiver.flush(options.timeout)
            sender.publish(subject, payload)
            subscription.next(options.timeout)  # interest has reached the sender's server
            times = []
            for _ in range(options.msgs):
                start = time.perf_counter()
                sender.publish(subject, payload)
                subscription.next(options.timeout)
                times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    found = {name: times[min(len(times) - 1, int(len(times) * part))] for name, part in _PARTS.items()}
    result(
        options.json,
        {"messages": options.msgs, "size": options.size, **{f"{key}_us": value for key, value in found.items()}},
        "  ".join(f"{name} {value:,.0f} us" for name, value in found.items()),
    )


_PARTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
