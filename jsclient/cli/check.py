"""`check`: what is wrong with a connection, its rights, versions, limits and clock, and what to do about it.

It ends within ten seconds, or `--timeout` if that is more. It names the checks that it could not finish by then.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import attrs

import jsclient
from jsclient import errors, nuid
from jsclient.cli.arguments import Options
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect, jetstream
from jsclient.cli.infos import limits_of
from jsclient.cli.output import counted, result, size
from jsclient.cli.server_check import add_kinds
from jsclient.durations import Deadline
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig

NEARLY_FULL: Final = 0.9
SLOW: Final = 0.1
"""Seconds of round trip at which calls that wait for answers become slow."""
WHOLE: Final = 10.0
"""Seconds for all of it."""
UNHEARD: Final = "is the server overloaded, or the line cut?"


CLOCK_OFF: Final = 2.0
"""Seconds between our clock and the server's clock at which times in headers and TTLs become misleading."""
WINDOW: Final = 60.0
"""Seconds of the duplicate window of the temporary stream."""

cli: Commands = Commands()


class Finding(NamedTuple):
    """`level`: "ok", "warn" or "fail"."""

    level: str
    what: str
    text: str
    advice: str = ""


@cli.alone("check", more=add_kinds)
def run(options: Options) -> int:
    """Look at connection, rights, versions, limits and clock, as `check` does.

    With a KIND: one check for monitoring, exit status 0, 1, 2 or 3.
    """
    logging.getLogger("jsclient").addHandler(logging.NullHandler())  # the findings contain what it would print
    worst = 0
    for finding in _findings(options):
        worst = max(worst, ("ok", "warn", "fail").index(finding.level))
        advice = f"\n      -> {finding.advice}" if finding.advice else ""
        result(options, finding._asdict(), f"{finding.level:4}  {finding.what}: {finding.text}{advice}")
    return 1 if worst == 2 else 0


@attrs.define
class _Look:
    """The common objects of all checks. Every request takes `left()`, so together they keep within the total time."""

    nc: jsclient.Connection
    options: Options
    deadline: Deadline

    @property
    def js(self) -> JetStream:
        return jetstream(self.nc, self.options)

    def left(self) -> float:
        """Seconds that the next request may take. Raises TimedOut if no time is left."""
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
    with nc:
        at = _Look(nc, options, deadline)
        for what, look in looks:
            try:
                for finding in look(at):
                    yield finding
                    if finding.level == "fail" and finding.what in ("inbox", "JetStream"):
                        return  # all further checks would fail for the same reason
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
    """Check that answers can reach us. Without the inbox no call that waits works."""
    nc = at.nc
    subject, prefix = nc.new_inbox(), nc.options.inbox_prefix
    with nc.subscribe(subject) as subscription:
        nc.publish(subject, b"check")
        nc.flush(at.left())  # deliveries and refusals of the server come before its answer to this
        try:
            subscription.next(0)
        except (errors.PermissionViolation, errors.SubscriptionClosed) as error:
            advice = f"permit subscribe on {prefix}.>, or set inbox_prefix to what is permitted"
            yield Finding("fail", "inbox", errors.brief(error), advice)
        except errors.TimedOut:
            # Only this check needs that permission, because the responders publish the answers.
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
    yield Finding("ok", "JetStream", f"{counted(info.streams, 'stream')}, {counted(info.consumers, 'consumer')}{level}")
    for what, used, limit in limits_of(info):
        if limit > 0 and used >= limit * NEARLY_FULL:
            advice = "raise the limit of the account, or remove something"
            yield Finding("warn", what, f"{used:,} of {limit:,} used", advice)
    if info.api.total and info.api.errors > info.api.total * 0.1:
        share = f"{info.api.errors:,} of {info.api.total:,} requests failed since the server started"
        yield Finding("warn", "API errors", share, "`jsclient events` shows some of the reasons")


def _delivery(at: _Look) -> Iterator[Finding]:
    """Try what fails in practice: a temporary stream, two publishes, a pull of two messages, and their acks."""
    unique = nuid.next_nuid()
    config = StreamConfig(
        name=f"JSCLIENT_CHECK_{unique}",
        subjects=[f"jsclient.check.{unique}"],
        storage="memory",
        duplicate_window=WINDOW,
        max_age=WINDOW,
    )
    try:
        stream = at.js.create_stream(config, timeout=at.left())
    except errors.ConnectionClosed:
        raise
    except errors.JsClientError as error:
        yield Finding("ok", "acks", f"not tried, because it needs a temporary stream: {errors.brief(error)}")
        for info in itertools.islice(at.js.streams(timeout=at.left()), 1):
            yield from _clock(at, at.js.stream(info.config.name, fetch_info=False))
        yield from _present(at)
        return
    try:
        yield from _clock(at, stream)
        yield from _window(at, f"jsclient.check.{unique}")
        yield from _pull(at, stream, acks=True)
    except errors.NotStored:
        yield Finding("ok", "acks", "not tried: the subjects of its streams are in another account")
        yield from _present(at)
    finally:
        stream.delete(timeout=at.left())


def _present(at: _Look) -> Iterator[Finding]:
    """A pull without acks, from a stream that holds messages."""
    for info in at.js.streams(timeout=at.left()):
        stream = at.js.stream(info.config.name, fetch_info=False)
        if info.state.messages >= 2 and not info.config.name.startswith("JSCLIENT_CHECK_"):
            yield from _pull(at, stream, acks=False)
            return


def _clock(at: _Look, stream: Stream) -> Iterator[Finding]:
    before = dt.datetime.now(dt.timezone.utc)
    info = stream.info(timeout=at.left())
    after = dt.datetime.now(dt.timezone.utc)
    theirs = info.ts or info.created
    if theirs is None:
        return
    off = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if info.ts is None and off <= at.left():
        off = 0.0  # server 2.9 gives the time of creation, which is a little earlier
    advice = "synchronize the clocks: TTLs, schedules and start times use the server's clock" if off > CLOCK_OFF else ""
    yield Finding("warn" if advice else "ok", "clock", f"{off:.3f} s apart", advice)


def _window(at: _Look, subject: str) -> Iterator[Finding]:
    for payload in (b"1", b"2"):
        at.js.publish(subject, payload, msg_id=payload.decode(), timeout=at.left())
    if at.js.publish(subject, b"2", msg_id="2", timeout=at.left()).duplicate:
        yield Finding("ok", "duplicate window", "the stream recognizes a repeated message id")
    else:
        yield Finding("fail", "duplicate window", "the stream stored one id twice", "do not retry publishes")


def _pull(at: _Look, stream: Stream, acks: bool) -> Iterator[Finding]:
    config = ConsumerConfig(ack_policy="explicit" if acks else "none", inactive_threshold=WINDOW)
    consumer = stream.create_consumer(config, timeout=at.left())
    try:
        batch = consumer.fetch(2, timeout=min(at.left(), 2.0))
    except errors.JsClientError as error:
        yield Finding("fail", "pull", errors.brief(error), "permit publish on $JS.API.CONSUMER.MSG.NEXT.>")
        return
    if len(batch) < 2:
        advice = "if $JS.API is imported from another account, its export needs response_type: stream"
        yield Finding("fail", "pull", f"{len(batch)} of 2 messages arrived", advice)
        return
    yield Finding("ok", "pull", "two messages arrived")
    if not acks:
        return
    try:
        for message in batch:
            message.double_ack(min(at.left(), 2.0))
    except errors.JsClientError as error:
        yield Finding("fail", "acks", errors.brief(error), "permit publish on $JS.ACK.>, and import it with $JS.API")
    else:
        yield Finding("ok", "acks", "the server confirmed both")
