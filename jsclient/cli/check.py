"""`check`: what is wrong with a connection, its rights, versions, limits and clock, and what to do about it.

It ends within ten seconds, or `--timeout` if that is more: what could not be looked at by then is said.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

import jsclient
from jsclient import errors
from jsclient.cli.arguments import command, connect, jetstream
from jsclient.cli.output import line, record, size
from jsclient.durations import Deadline

NEARLY_FULL: Final = 0.9
SLOW: Final = 0.1
"""Seconds of round trip from which on calls that wait for answers are slow."""
WHOLE: Final = 10.0
"""Seconds for all of it."""
CLOCK_OFF: Final = 2.0
"""Seconds between our clock and the server's from which on times in headers and TTLs mislead."""


@attrs.frozen
class Finding:
    """`level`: "ok", "warn" or "fail"."""

    level: str
    what: str
    text: str
    advice: str = ""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    check = command(
        commands, common, "check", run, "Look at connection, rights, versions, limits and clock; say what to do."
    )
    check.add_argument("--stream", help="look at this stream and its consumers, too")


def run(options: argparse.Namespace) -> int:
    worst = 0
    for finding in _findings(options):
        worst = max(worst, ("ok", "warn", "fail").index(finding.level))
        if options.json:
            record(attrs.asdict(finding))
        else:
            line(f"{finding.level:4}  {finding.what}: {finding.text}")
            if finding.advice:
                line(f"      -> {finding.advice}")
    return 1 if worst == 2 else 0


def _findings(options: argparse.Namespace) -> Iterator[Finding]:
    deadline, each = Deadline(max(WHOLE, options.timeout)), options.timeout
    try:
        nc = connect(options)
    except errors.AuthError as error:
        yield Finding("fail", "connection", errors.brief(error), "give --user, --creds or --nkey, or select a context")
        return
    except errors.JsClientError as error:
        yield Finding(
            "fail",
            "connection",
            errors.brief(error),
            "is the server up, is the URL right, does a firewall stand between?",
        )
        return
    looks: list[tuple[str, Callable[[jsclient.Connection, argparse.Namespace], Iterator[Finding]]]] = [
        ("round trip", _connection),
        ("inbox", _rights),
        ("JetStream", _account),
        ("clock", _clock),
    ]
    if options.stream:
        looks.append((f"stream {options.stream}", _stream))
    with nc:
        for what, look in looks:
            if deadline.expired():
                yield Finding("warn", what, "not looked at: the time was over", "give more time with --timeout")
                continue
            options.timeout = deadline.at_most(each)
            try:
                for finding in look(nc, options):
                    yield finding
                    if finding.level == "fail" and finding.what in ("inbox", "JetStream"):
                        return  # what follows would fail for the same reason
            except errors.JsClientError as error:
                yield Finding("fail", what, errors.brief(error), "is the server overloaded, or the line cut?")


def _connection(nc: jsclient.Connection, options: argparse.Namespace) -> Iterator[Finding]:
    info = nc.server_info
    yield Finding("ok", "connection", f"{nc.connected_url}, {info.server_name} {info.version}")
    first = nc.rtt(options.timeout)
    median = first if first > 0.5 else sorted([first, *(nc.rtt(options.timeout) for _ in range(4))])[2]
    advice = "use publish_async and fetch in batches: every call that waits takes a round trip" if median > SLOW else ""
    yield Finding("warn" if advice else "ok", "round trip", f"{median * 1000:.2f} ms", advice)
    if not info.at_least(2, 9):
        yield Finding("fail", "version", info.version, "nats-server 2.9 or later is needed")
    elif not info.at_least(2, 10):
        advice = "2.10 brings several filters per consumer, compression, repairs of consumers"
        yield Finding("warn", "version", f"{info.version} is old", advice)
    yield Finding("ok", "max payload", size(nc.max_payload))
    if not info.headers:
        yield Finding("fail", "headers", "the server allows none", "remove no_header_support: JetStream needs headers")
    if info.ldm:
        yield Finding("warn", "server", "it is in lame duck mode and will stop soon")


def _rights(nc: jsclient.Connection, options: argparse.Namespace) -> Iterator[Finding]:
    """Whether an answer can reach us: without the inbox nothing that waits works."""
    subject, told = nc.new_inbox(), ""
    try:
        with nc.subscribe(subject) as subscription:
            nc.publish(subject, b"check")
            subscription.next(min(options.timeout, 2.0))
    except (errors.PermissionViolation, errors.TimedOut, errors.SubscriptionClosed) as error:
        told = errors.brief(error)
    if told:
        prefix = nc.options.inbox_prefix
        yield Finding(
            "fail", "inbox", told, f"permit subscribe on {prefix}.>, or set inbox_prefix to what is permitted"
        )
    else:
        yield Finding("ok", "inbox", "answers reach us")


def _account(nc: jsclient.Connection, options: argparse.Namespace) -> Iterator[Finding]:
    try:
        info = jetstream(nc, options).account_info()
    except errors.JsClientError as error:
        yield Finding(
            "fail", "JetStream", errors.brief(error), "enable jetstream in the server and the account, or name --domain"
        )
        return
    level = f", API level {info.api.level}" if info.api.level else ""
    yield Finding("ok", "JetStream", f"{info.streams} streams, {info.consumers} consumers{level}")
    limits = info.limits
    for what, used, limit in (
        ("memory", info.memory, limits.max_memory),
        ("storage", info.storage, limits.max_storage),
        ("streams", info.streams, limits.max_streams),
        ("consumers", info.consumers, limits.max_consumers),
    ):
        if limit > 0 and used >= limit * NEARLY_FULL:
            yield Finding(
                "warn", what, f"{used:,} of {limit:,} used", "raise the limit of the account, or remove something"
            )
    if info.api.total and info.api.errors > info.api.total * 0.1:
        share = f"{info.api.errors:,} of {info.api.total:,} requests failed since the server started"
        yield Finding("warn", "API errors", share, "`jsclient events` shows some of the reasons")


def _clock(nc: jsclient.Connection, options: argparse.Namespace) -> Iterator[Finding]:
    """The server's clock, from the answer about a stream that exists (server 2.10)."""
    js = jetstream(nc, options)
    name = next(iter(js.stream_names(timeout=options.timeout)), None)
    if name is None:
        return
    before = dt.datetime.now(dt.timezone.utc)
    theirs = js.stream(name).info().ts
    after = dt.datetime.now(dt.timezone.utc)
    if theirs is None:
        return
    off = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    advice = "set the clocks by NTP: TTLs, schedules and start times are the server's" if off > CLOCK_OFF else ""
    yield Finding("warn" if advice else "ok", "clock", f"{off:.3f} s apart", advice)


def _stream(nc: jsclient.Connection, options: argparse.Namespace) -> Iterator[Finding]:
    js = jetstream(nc, options)
    try:
        info = js.stream(options.stream).info()
    except errors.JsClientError as error:
        yield Finding(
            "fail", f"stream {options.stream}", errors.brief(error), "`jsclient stream ls` lists what there is"
        )
        return
    yield Finding("ok", f"stream {options.stream}", f"{info.state.messages:,} messages, {size(info.state.bytes)}")
    if info.cluster is not None and info.cluster.name and not info.cluster.leader:
        yield Finding(
            "fail", "leader", "the stream has none", "bring its servers back: it needs more than half of them"
        )
    for peer in (info.cluster.replicas or ()) if info.cluster else ():
        if peer.offline or not peer.current:
            yield Finding(
                "warn", f"replica {peer.name}", "offline" if peer.offline else f"{peer.lag:,} operations behind"
            )
    if info.state.lost:
        yield Finding("fail", "lost data", f"{len(info.state.lost.msgs or ()):,} messages", "restore from a backup")
    for consumer in js.consumers(options.stream, timeout=options.timeout):
        what, limit = f"consumer {consumer.name}", consumer.config.max_ack_pending or 0
        if limit > 0 and consumer.num_ack_pending >= limit:
            advice = "its handlers do not acknowledge, or too slowly: nothing more is delivered before they do"
            yield Finding("fail", what, f"stuck: {consumer.num_ack_pending:,} unacknowledged, the limit", advice)
        elif consumer.num_pending and not consumer.num_waiting and not consumer.config.is_push:
            yield Finding(
                "warn", what, f"{consumer.num_pending:,} messages wait and nobody pulls", "is its service up?"
            )
        elif consumer.paused:
            yield Finding("warn", what, "paused", f"`jsclient consumer resume {options.stream} {consumer.name}`")
        else:
            yield Finding("ok", what, f"{consumer.num_pending:,} pending, {consumer.num_ack_pending:,} unacknowledged")
