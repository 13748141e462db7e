"""`server check ...`: one check each, for monitoring systems: exit status 0 ok, 1 warning, 2 critical, 3 not known."""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from jsclient import errors
from jsclient.cli.arguments import command, connect, group, jetstream, seconds
from jsclient.cli.output import line, record
from jsclient.jetstream import ConsumerInfo, StreamInfo

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

_GONE = (errors.StreamNotFound, errors.ConsumerNotFound)

Thresholds = tuple[tuple[str, Callable[[str], Any], str], ...]

CONNECTION: Final[Thresholds] = (
    ("connect-warn", seconds, "connecting took longer"),
    ("connect-critical", seconds, "connecting took longer"),
    ("rtt-warn", seconds, "a ping took longer"),
    ("rtt-critical", seconds, "a ping took longer"),
    ("req-warn", seconds, "a message to ourselves took longer"),
    ("req-critical", seconds, "a message to ourselves took longer"),
)
STREAM: Final[Thresholds] = (
    ("msgs-warn", int, "fewer messages"),
    ("msgs-critical", int, "fewer messages"),
    ("subjects-warn", int, "more subjects"),
    ("subjects-critical", int, "more subjects"),
    ("min-sources", int, "fewer sources (a mirror is one)"),
    ("max-sources", int, "more sources"),
    ("lag-critical", int, "a source or the mirror is more messages behind"),
    ("seen-critical", seconds, "a source or the mirror was not heard of for longer"),
    ("peer-expect", int, "another number of servers has it"),
    ("peer-lag-critical", int, "a replica is more operations behind"),
    ("peer-seen-critical", seconds, "a replica was not heard of for longer"),
)
CONSUMER: Final[Thresholds] = (
    ("outstanding-ack-critical", int, "more unacknowledged messages"),
    ("waiting-critical", int, "more waiting pulls"),
    ("unprocessed-critical", int, "more messages not delivered yet"),
    ("redelivery-critical", int, "more messages that were delivered again"),
    ("last-delivery-critical", seconds, "the last delivery was longer ago"),
    ("last-ack-critical", seconds, "the last ack was longer ago"),
)


@attrs.frozen
class Finding:
    level: int
    text: str


@attrs.define
class Report:
    """What was looked at: findings, and figures for those who draw them."""

    findings: list[Finding] = attrs.Factory(list)
    figures: dict[str, float] = attrs.Factory(dict)

    @property
    def level(self) -> int:
        return max((finding.level for finding in self.findings), default=OK)

    def more(self, name: str, value: float, warn: float | None, critical: float | None, what: str) -> None:
        """Note a figure; it is bad when it is more than its limits."""
        self.figures[name] = value
        for level, limit in ((CRITICAL, critical), (WARNING, warn)):
            if limit is not None and limit >= 0 and value > limit:
                self.findings.append(Finding(level, f"{what}: {value:,.6g}, limit {limit:g}"))
                return

    def fewer(self, name: str, value: float, warn: float | None, critical: float | None, what: str) -> None:
        self.figures[name] = value
        for level, limit in ((CRITICAL, critical), (WARNING, warn)):
            if limit is not None and limit >= 0 and value < limit:
                self.findings.append(Finding(level, f"{what}: {value:,.6g}, at least {limit:g}"))
                return

    def bad(self, text: str) -> None:
        self.findings.append(Finding(CRITICAL, text))


def add_commands(server: Any, common: argparse.ArgumentParser) -> None:
    check = group(server, "check", "Checks for monitoring: exit status 0 ok, 1 warning, 2 critical, 3 not known.")
    look: Callable[[argparse.Namespace], Report]
    for name, look, thresholds, text in (
        ("connection", _connection, CONNECTION, "Times of connecting, of a ping, of a message."),
        ("stream", _stream, STREAM, "A stream: its messages, sources and replicas."),
        ("consumer", _consumer, CONSUMER, "A consumer: what waits, what is not acknowledged."),
    ):
        made = command(check, common, name, _run, text)
        made.set_defaults(look=look, what=name)
        if name != "connection":
            made.add_argument("--stream", required=True)
        if name == "consumer":
            made.add_argument("--consumer", required=True)
            made.add_argument("--pinned", action="store_true", help="critical if a priority group has no pinned client")
        for option, kind, meaning in thresholds:
            level = "warning" if option.endswith("warn") else "critical"
            default = {"warning": 0.5, "critical": 1.0}[level] if name == "connection" else None
            told = f"{level} if {meaning}" + (f" (default {default:g} s)" if default else "")
            made.add_argument(f"--{option}", type=kind, default=default, help=told)


def _run(options: argparse.Namespace) -> int:
    try:
        report: Report = options.look(options)
    except _GONE as error:
        report = Report([Finding(CRITICAL, str(error))])
    except errors.ConfigError:
        raise
    except (errors.JsClientError, OSError) as error:
        level = CRITICAL if options.what == "connection" else UNKNOWN
        report = Report([Finding(level, str(error))])
    _tell(report, options)
    return report.level


def _tell(report: Report, options: argparse.Namespace) -> None:
    name = "/".join(part for part in (getattr(options, "stream", ""), getattr(options, "consumer", "")) if part)
    worst_first = sorted(report.findings, key=lambda finding: -finding.level)
    if options.json:
        found = [{"level": NAMES[finding.level], "text": finding.text} for finding in worst_first]
        status = NAMES[report.level]
        record({"check": options.what, "name": name, "status": status, "found": found, "figures": report.figures})
        return
    told = "; ".join(finding.text for finding in worst_first) or "as it should be"
    figures = " ".join(f"{key}={value:g}" for key, value in report.figures.items())
    subject = f"{options.what} {name}".rstrip()
    line(f"{NAMES[report.level]} {subject}: {told}" + (f" | {figures}" if figures else ""))


def _connection(options: argparse.Namespace) -> Report:
    report = Report()
    start = time.monotonic()
    with connect(options) as nc:
        taken = time.monotonic() - start
        report.more("connect_time", taken, options.connect_warn, options.connect_critical, "seconds to connect")
        report.more("rtt", nc.rtt(options.timeout), options.rtt_warn, options.rtt_critical, "seconds of a ping")
        inbox = nc.new_inbox()
        with nc.subscribe(inbox) as subscription:
            start = time.monotonic()
            nc.publish(inbox, b"check")
            subscription.next(options.timeout)
            taken = time.monotonic() - start
        report.more("request_time", taken, options.req_warn, options.req_critical, "seconds of a message to ourselves")
    return report


def _stream(options: argparse.Namespace) -> Report:
    with connect(options) as nc:
        info = jetstream(nc, options).stream(options.stream).info()
    report, state = Report(), info.state
    report.fewer("messages", state.messages, options.msgs_warn, options.msgs_critical, "messages")
    report.more("subjects", state.num_subjects or 0, options.subjects_warn, options.subjects_critical, "subjects")
    report.figures.update(bytes=state.bytes, consumers=state.consumer_count)
    if state.lost:
        report.bad(f"{len(state.lost.msgs or ()):,} messages are lost")
    _sources(report, info, options)
    _replicas(report, info, options)
    return report


def _sources(report: Report, info: StreamInfo, options: argparse.Namespace) -> None:
    sources = [*(info.sources or ()), *([info.mirror] if info.mirror else [])]
    report.fewer("sources", len(sources), None, options.min_sources, "sources")
    report.more("sources", len(sources), None, options.max_sources, "sources")
    for source in sources:
        report.figures["lag"] = max(source.lag, report.figures.get("lag", 0))
        if options.lag_critical is not None and source.lag > options.lag_critical:
            report.bad(f"{source.lag:,} messages behind {source.name}, limit {options.lag_critical:,}")
        if options.seen_critical is None:
            continue
        if source.active is None:
            report.bad(f"{source.name} was never heard of")
        elif source.active > options.seen_critical:
            report.bad(f"{source.name} was not heard of for {source.active:.1f} s, limit {options.seen_critical:g}")


def _replicas(report: Report, info: StreamInfo, options: argparse.Namespace) -> None:
    cluster = info.cluster
    clustered = cluster is not None and bool(cluster.name)
    peers = list(cluster.replicas or ()) if cluster is not None else []
    count = len(peers) + 1
    report.figures["replicas"] = count
    if clustered and cluster is not None and not cluster.leader:
        report.bad("it has no leader")
    if options.peer_expect is not None and count != options.peer_expect:
        report.bad(f"{count} servers have it, {options.peer_expect} should")
    for peer in peers:
        if peer.offline or not peer.current:
            report.bad(f"replica {peer.name} is {'offline' if peer.offline else 'not current'}")
        if options.peer_lag_critical is not None and peer.lag > options.peer_lag_critical:
            report.bad(f"replica {peer.name} is {peer.lag:,} operations behind, limit {options.peer_lag_critical:,}")
        limit = options.peer_seen_critical
        if limit is not None and (peer.active is None or peer.active > limit):
            report.bad(f"replica {peer.name} was not heard of for more than {limit:g} s")


def _consumer(options: argparse.Namespace) -> Report:
    with connect(options) as nc:
        info = jetstream(nc, options).consumer_info(options.stream, options.consumer)
    report = Report()
    for name, value, limit, what in (
        ("ack_pending", info.num_ack_pending, options.outstanding_ack_critical, "unacknowledged"),
        ("pulls", info.num_waiting, options.waiting_critical, "waiting pulls"),
        ("pending", info.num_pending, options.unprocessed_critical, "not delivered yet"),
        ("redelivered", info.num_redelivered, options.redelivery_critical, "delivered again"),
    ):
        report.more(name, value, None, limit, what)
    for text in _late(info, options):
        report.bad(text)
    groups = info.priority_groups or []
    if options.pinned and not (groups and all(one.pinned_client_id for one in groups)):
        report.bad("no client is pinned")
    if info.cluster is not None and info.cluster.name and not info.cluster.leader:
        report.bad("it has no leader")
    return report


def _late(info: ConsumerInfo, options: argparse.Namespace) -> Iterator[str]:
    now = info.ts or dt.datetime.now(dt.timezone.utc)
    for what, position, limit in (
        ("delivery", info.delivered, options.last_delivery_critical),
        ("ack", info.ack_floor, options.last_ack_critical),
    ):
        if not limit:
            continue
        if position.last_active is None:
            yield f"there was no {what} yet"
        elif (ago := (now - position.last_active).total_seconds()) > limit:
            yield f"the last {what} was {ago:.1f} s ago, limit {limit:g}"
