"""`check`: what is wrong with a connection, its rights, versions, limits and clock, and what to do about it.

It ends within ten seconds, or `--timeout` if that is more: what could not be looked at by then is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final

import attrs

import jsclient
from jsclient import errors
from jsclient.cli import server_check
from jsclient.cli.arguments import Options, arg, common_arguments
from jsclient.cli.check_delivery import Finding, try_delivery
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect, jetstream
from jsclient.cli.output import result, size
from jsclient.durations import Deadline
from jsclient.jetstream import JetStream

NEARLY_FULL: Final = 0.9
SLOW: Final = 0.1
"""Seconds of round trip from which on calls that wait for answers are slow."""
WHOLE: Final = 10.0
"""Seconds for all of it."""
UNHEARD: Final = "is the server overloaded, or the line cut?"


cli: Commands = Commands()


def _add_kinds(check: argparse.ArgumentParser) -> None:
    server_check.add_kinds(check, common_arguments(), required=False)


@cli.alone("check", arg("--stream", help="look at this stream and its consumers, too"), more=_add_kinds)
def run(options: Options) -> int:
    """Look at a connection.

    With a KIND: one check for monitoring, exit status 0, 1, 2 or 3.
    """
    worst = 0
    for finding in _findings(options):
        worst = max(worst, ("ok", "warn", "fail").index(finding.level))
        advice = f"\n      -> {finding.advice}" if finding.advice else ""
        result(options, finding._asdict(), f"{finding.level:4}  {finding.what}: {finding.text}{advice}")
    return 1 if worst == 2 else 0


@attrs.define
class _Look:
    """What a look needs. Every request takes `left()`: together they never take longer than the whole may."""

    nc: jsclient.Connection
    options: Options
    deadline: Deadline

    @property
    def js(self) -> JetStream:
        return jetstream(self.nc, self.options)

    def left(self) -> float:
        """Seconds that the next request may take. Raises TimedOut when there are none."""
        if self.deadline.expired():
            raise errors.TimedOut("the time of this check is over. Nothing more was asked. Give more with --timeout.")
        return self.deadline.at_most(self.options.timeout)


def _findings(options: Options) -> Iterator[Finding]:
    deadline = Deadline(max(WHOLE, options.timeout))
    try:
        nc = connect(options)
    except errors.AuthError as error:
        yield Finding("fail", "connection", errors.brief(error), "give --user, --creds or --nkey, or select a context")
        return
    except errors.JsClientError as error:
        advice = "is the server up, is the URL right, does a firewall stand between?"
        yield Finding("fail", "connection", errors.brief(error), advice)
        return
    looks: list[tuple[str, Callable[[_Look], Iterator[Finding]]]] = [
        ("round trip", _connection),
        ("inbox", _rights),
        ("JetStream", _account),
        ("delivery", _delivery),
    ]
    if options.stream:
        looks.append((f"stream {options.stream}", _stream))
    with nc:
        at = _Look(nc, options, deadline)
        for what, look in looks:
            try:
                for finding in look(at):
                    yield finding
                    if finding.level == "fail" and finding.what in ("inbox", "JetStream"):
                        return  # what follows would fail for the same reason
            except errors.JsClientError as error:
                if deadline.expired() and isinstance(error, errors.TimedOut):
                    yield Finding("warn", what, "not looked at whole: the time was over", "give more with --timeout")
                else:
                    yield Finding("fail", what, errors.brief(error), UNHEARD)


def _connection(at: _Look) -> Iterator[Finding]:
    nc, info = at.nc, at.nc.server_info
    yield Finding("ok", "connection", f"{nc.connected_url}, {info.server_name} {info.version}")
    yield Finding("ok", "max payload", size(nc.max_payload))
    if not info.at_least(2, 9):
        yield Finding("fail", "version", info.version, "nats-server 2.9 or later is needed")
    elif not info.at_least(2, 10):
        advice = "2.10 brings several filters per consumer, compression, repairs of consumers"
        yield Finding("warn", "version", f"{info.version} is old", advice)
    if not info.headers:
        yield Finding("fail", "headers", "the server allows none", "remove no_header_support: JetStream needs headers")
    if info.ldm:
        yield Finding("warn", "server", "it is in lame duck mode and will stop soon")
    first = nc.rtt(at.left())
    median = first if first > 0.5 else sorted([first, *(nc.rtt(at.left()) for _ in range(4))])[2]
    advice = "use publish_async and fetch in batches: every call that waits takes a round trip" if median > SLOW else ""
    yield Finding("warn" if advice else "ok", "round trip", f"{median * 1000:.2f} ms", advice)


def _rights(at: _Look) -> Iterator[Finding]:
    """Whether an answer can reach us: without the inbox nothing that waits works."""
    nc = at.nc
    subject, prefix = nc.new_inbox(), nc.options.inbox_prefix
    with nc.subscribe(subject) as subscription:
        nc.publish(subject, b"check")
        nc.flush(at.left())  # what the server delivers to us, or refuses us, comes before its answer to this
        try:
            subscription.next(0)
        except (errors.PermissionViolation, errors.SubscriptionClosed) as error:
            advice = f"permit subscribe on {prefix}.>, or set inbox_prefix to what is permitted"
            yield Finding("fail", "inbox", errors.brief(error), advice)
        except errors.TimedOut:
            # Nobody else needs that right: answers are published by those who give them.
            yield Finding("ok", "inbox", "we may listen there; this user may not publish there, which is no harm")
        else:
            yield Finding("ok", "inbox", "answers reach us")


def _account(at: _Look) -> Iterator[Finding]:
    timeout = at.left()
    try:
        info = at.js.account_info(timeout=timeout)
    except errors.TimedOut:
        raise
    except errors.JsClientError as error:
        advice = "enable jetstream in the server and the account, or name --domain"
        if isinstance(error, errors.NatsConnectionError):
            advice = UNHEARD
        elif isinstance(error, errors.PermissionViolation):
            advice = "permit publish on $JS.API.>, or what this user needs of it"
        yield Finding("fail", "JetStream", errors.brief(error), advice)
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
            advice = "raise the limit of the account, or remove something"
            yield Finding("warn", what, f"{used:,} of {limit:,} used", advice)
    if info.api.total and info.api.errors > info.api.total * 0.1:
        share = f"{info.api.errors:,} of {info.api.total:,} requests failed since the server started"
        yield Finding("warn", "API errors", share, "`jsclient events` shows some of the reasons")


def _delivery(at: _Look) -> Iterator[Finding]:
    return try_delivery(at.js, at.left)


def _stream(at: _Look) -> Iterator[Finding]:
    js, options, timeout = at.js, at.options, at.left()
    try:
        info = js.stream(options.stream, fetch_info=False).info(timeout=timeout)
    except (errors.ApiError, errors.ConfigError) as error:
        advice = "`jsclient stream ls` lists what there is"
        yield Finding("fail", f"stream {options.stream}", errors.brief(error), advice)
        return
    yield Finding("ok", f"stream {options.stream}", f"{info.state.messages:,} messages, {size(info.state.bytes)}")
    if info.cluster is not None and info.cluster.name and not info.cluster.leader:
        advice = "bring its servers back: it needs more than half of them"
        yield Finding("fail", "leader", "the stream has none", advice)
    for peer in (info.cluster.replicas or ()) if info.cluster else ():
        if peer.offline or not peer.current:
            how = "offline" if peer.offline else f"{peer.lag:,} operations behind"
            yield Finding("warn", f"replica {peer.name}", how)
    if info.state.lost:
        yield Finding("fail", "lost data", f"{len(info.state.lost.msgs or ()):,} messages", "restore from a backup")
    for consumer in js.consumers(options.stream, timeout=at.left()):
        what, limit = f"consumer {consumer.name}", consumer.config.max_ack_pending or 0
        if limit > 0 and consumer.num_ack_pending >= limit:
            advice = "its handlers do not acknowledge, or too slowly: nothing more is delivered before they do"
            yield Finding("fail", what, f"stuck: {consumer.num_ack_pending:,} unacknowledged, the limit", advice)
        elif consumer.num_pending and not consumer.num_waiting and not consumer.config.is_push:
            waiting = f"{consumer.num_pending:,} messages wait and nobody pulls"
            yield Finding("warn", what, waiting, "is its service up?")
        elif consumer.paused:
            yield Finding("warn", what, "paused", f"`jsclient consumer resume {options.stream} {consumer.name}`")
        else:
            yield Finding("ok", what, f"{consumer.num_pending:,} pending, {consumer.num_ack_pending:,} unacknowledged")
