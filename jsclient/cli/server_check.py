"""`check KIND`, also `server check KIND`: one check each for monitoring systems.

Exit status: 0 ok, 1 warning, 2 critical, 3 not known; wrong usage is 3, too.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import attrs

from jsclient import errors, keyvalue
from jsclient.auth.credentials import parse_creds
from jsclient.cli.arguments import Parser, command, connect, headers_of, jetstream, seconds
from jsclient.cli.output import line, record
from jsclient.jetstream import ConsumerInfo, StreamInfo

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

_GONE = (errors.StreamNotFound, errors.ConsumerNotFound, errors.BucketNotFound, errors.KeyNotFound)

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


JETSTREAM: Final[Thresholds] = (
    ("mem-warn", float, "more percent of the memory limit is used"),
    ("mem-critical", float, "more percent of the memory limit is used"),
    ("store-warn", float, "more percent of the storage limit is used"),
    ("store-critical", float, "more percent of the storage limit is used"),
    ("streams-warn", int, "more streams"),
    ("streams-critical", int, "more streams"),
    ("consumers-warn", int, "more consumers"),
    ("consumers-critical", int, "more consumers"),
)
KV: Final[Thresholds] = (
    ("values-warn", int, "more values; fewer, if the warning is the larger limit"),
    ("values-critical", int, "more values; fewer, if the warning is the larger limit"),
)
REQUEST: Final[Thresholds] = (
    ("response-warn", seconds, "the answer took longer"),
    ("response-critical", seconds, "the answer took longer"),
)
CREDENTIAL: Final[Thresholds] = (
    ("validity-warn", seconds, "it expires sooner, such as within 5d"),
    ("validity-critical", seconds, "it expires sooner"),
)
DEFAULTS: Final = {
    **dict.fromkeys(("connect-warn", "rtt-warn", "req-warn", "response-warn"), 0.5),
    **dict.fromkeys(("connect-critical", "rtt-critical", "req-critical", "response-critical"), 1.0),
    **dict.fromkeys(("mem-warn", "store-warn"), 75.0),
    **dict.fromkeys(("mem-critical", "store-critical"), 90.0),
}


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
                self.findings.append(Finding(level, f"{what}: {figure(value)}, limit {figure(limit)}"))
                return

    def fewer(self, name: str, value: float, warn: float | None, critical: float | None, what: str) -> None:
        self.figures[name] = value
        for level, limit in ((CRITICAL, critical), (WARNING, warn)):
            if limit is not None and limit >= 0 and value < limit:
                self.findings.append(Finding(level, f"{what}: {figure(value)}, at least {figure(limit)}"))
                return

    def bad(self, text: str) -> None:
        self.findings.append(Finding(CRITICAL, text))


def figure(value: float) -> str:
    """A number that monitors can read: all its digits, and no exponent."""
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"must be a regular expression: {error}") from None


class _CheckParser(Parser):
    """Exit status 2 means critical here, so wrong usage ends with 3."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(UNKNOWN, f"{self.prog}: error: {message}\n")


class _Kind(NamedTuple):
    look: Callable[[argparse.Namespace], Report]
    thresholds: Thresholds
    names: tuple[str, ...]
    """Options that say what to look at; all are required."""
    text: str


def add_commands(check: argparse.ArgumentParser, common: argparse.ArgumentParser, required: bool = True) -> None:
    kinds = check.add_subparsers(
        dest="action",
        required=required,
        metavar="KIND" if required else "[KIND]",
        parser_class=_CheckParser,
        prog=check.prog,
    )
    for name, kind in _KINDS.items():
        made = command(kinds, common, name, _run, kind.text, ())
        made.set_defaults(look=kind.look, what=name, named=kind.names)
        for option in kind.names:
            made.add_argument(f"--{option}", required=True)
        for option, of, meaning in kind.thresholds:
            level, default = "warning" if option.endswith("warn") else "critical", DEFAULTS.get(option)
            shown = f"{level} if {meaning}" + (f" (default {figure(default)})" if default else "")
            made.add_argument(f"--{option}", type=of, default=default, help=shown)
        if name == "consumer":
            made.add_argument("--pinned", action="store_true", help="critical if a priority group has no pinned client")
        elif name == "kv":
            made.add_argument("--key", help="critical if this key has no value")
        elif name == "request":
            made.add_argument("--payload", default="")
            made.add_argument("-H", "--header", action="append", metavar="NAME:VALUE")
            made.add_argument(
                "--match-payload", type=_regex, metavar="REGEX", help="critical if the answer does not match"
            )
        elif name == "credential":
            made.add_argument("--require-expiry", action="store_true", help="critical if it never expires")


def _run(options: argparse.Namespace) -> int:
    try:
        report: Report = options.look(options)
    except _GONE as error:
        report = Report([Finding(CRITICAL, str(error))])
    except (errors.JsClientError, OSError) as error:
        refused = options.what == "connection" and not isinstance(error, errors.ConfigError)
        level = CRITICAL if refused else UNKNOWN
        report = Report([Finding(level, str(error))])
    _tell(report, options)
    return report.level


def _tell(report: Report, options: argparse.Namespace) -> None:
    name = "/".join(getattr(options, name) for name in options.named)
    worst_first = sorted(report.findings, key=lambda finding: -finding.level)
    if options.json:
        found = [{"level": NAMES[finding.level], "text": finding.text} for finding in worst_first]
        status = NAMES[report.level]
        record({"check": options.what, "name": name, "status": status, "found": found, "figures": report.figures})
        return
    told = "; ".join(finding.text for finding in worst_first) or "as it should be"
    figures = " ".join(f"{key}={figure(value)}" for key, value in report.figures.items())
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
    seen = options.seen_critical
    for source in sources:
        report.figures["lag"] = max(source.lag, report.figures.get("lag", 0))
        if options.lag_critical is not None and source.lag > options.lag_critical:
            report.bad(f"{source.lag:,} messages behind {source.name}, limit {options.lag_critical:,}")
        if options.seen_critical is None:
            continue
        if source.active is None:
            report.bad(f"{source.name} was never heard of")
        elif source.active > options.seen_critical:
            report.bad(f"{source.name} was not heard of for {source.active:.1f} s, limit {figure(seen)}")


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
            report.bad(f"replica {peer.name} was not heard of for more than {figure(limit)} s")


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
            yield f"the last {what} was {ago:.1f} s ago, limit {figure(limit)}"


def _jetstream(options: argparse.Namespace) -> Report:
    with connect(options) as nc:
        info = jetstream(nc, options).account_info()
    report, limits = Report(), info.limits
    for name, used, limit, warn, critical in (
        ("memory", info.memory, limits.max_memory, options.mem_warn, options.mem_critical),
        ("storage", info.storage, limits.max_storage, options.store_warn, options.store_critical),
    ):
        report.figures[name] = used
        if limit > 0:
            report.more(f"{name}_pct", round(used * 100 / limit, 2), warn, critical, f"percent of {name}")
    report.more("streams", info.streams, options.streams_warn, options.streams_critical, "streams")
    report.more("consumers", info.consumers, options.consumers_warn, options.consumers_critical, "consumers")
    return report


def _kv(options: argparse.Namespace) -> Report:
    report = Report()
    with connect(options) as nc:
        bucket = keyvalue.key_value(jetstream(nc, options), options.bucket)
        status = bucket.status()
        if options.key is not None:
            bucket.get(options.key)
    warn, critical = options.values_warn, options.values_critical
    fewer = warn is not None and critical is not None and warn > critical
    (report.fewer if fewer else report.more)("values", status.values, warn, critical, "values")
    report.figures["bytes"] = status.bytes
    return report


def _request(options: argparse.Namespace) -> Report:
    report = Report()
    with connect(options) as nc:
        start = time.monotonic()
        try:
            answer = nc.request(
                options.subject, options.payload, headers=headers_of(options.header), timeout=options.timeout
            )
        except (errors.NoResponders, errors.RequestTimeout) as error:
            report.bad(errors.brief(error))
            return report
        taken = time.monotonic() - start
    report.more("response_time", taken, options.response_warn, options.response_critical, "seconds to answer")
    report.figures["bytes"] = len(answer.data)
    wanted: re.Pattern[str] | None = options.match_payload
    if wanted and not wanted.search(answer.data.decode(errors="replace")):
        report.bad(f"the answer does not match {wanted.pattern!r}")
    return report


def _credential(options: argparse.Namespace) -> Report:
    """Reads the file only: the check cannot see a revocation."""
    report = Report()
    try:
        jwt, _ = parse_creds(Path(options.credential).read_bytes())
        body = jwt.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))).get("exp")
    except FileNotFoundError:
        report.bad("there is no such file")
        return report
    except (ValueError, IndexError, AttributeError, errors.ConfigError):
        report.bad("it holds no user JWT with its seed")
        return report
    if not expires:
        if options.require_expiry:
            report.bad("it never expires")
        return report
    left = expires - time.time()
    if left <= 0:
        report.bad("it has expired")
    warn, critical = options.validity_warn, options.validity_critical
    report.fewer("valid_seconds", int(left), warn, critical, "seconds until it expires")
    return report


_KINDS: Final[dict[str, _Kind]] = {
    "connection": _Kind(_connection, CONNECTION, (), "Times of connecting, of a ping, of a message."),
    "jetstream": _Kind(_jetstream, JETSTREAM, (), "JetStream of the account: use of its limits."),
    "stream": _Kind(_stream, STREAM, ("stream",), "A stream: its messages, sources and replicas."),
    "consumer": _Kind(
        _consumer, CONSUMER, ("stream", "consumer"), "A consumer: messages that wait for it or for acks."
    ),
    "kv": _Kind(_kv, KV, ("bucket",), "A bucket: its values, or a key."),
    "request": _Kind(_request, REQUEST, ("subject",), "A service: the time and content of an answer."),
    "credential": _Kind(_credential, CREDENTIAL, ("credential",), "A .creds file: until when it is valid."),
}
