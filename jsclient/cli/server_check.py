"""`check KIND`: one check each for monitoring systems.

Exit status is 0 for ok, 1 for a warning, 2 for critical, 3 for unknown. Wrong usage is 3, too.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import functools
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from jsclient import errors, keyvalue
from jsclient.auth.credentials import parse_creds
from jsclient.cli.arguments import HEADERS, Argument, Options, arg, common_arguments, headers_of, seconds
from jsclient.cli.commands import Commands, Parser
from jsclient.cli.connection import connect, opened
from jsclient.cli.infos import limits_of
from jsclient.cli.output import counted, result
from jsclient.jetstream import ConsumerInfo, StreamInfo

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

_GONE = (errors.StreamNotFound, errors.ConsumerNotFound, errors.BucketNotFound, errors.KeyNotFound)


class Report:
    """Findings, and numbers for graphs."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.found: list[tuple[int, str]] = []
        self.figures: dict[str, float] = {}

    @property
    def level(self) -> int:
        return max((level for level, _ in self.found), default=OK)

    def note(self, name: str, value: float, what: str, limit: str, fewer: bool = False) -> None:
        """A value is bad if it is more than the limits of these options, or less with `fewer`. With a name it is also a
        number."""
        if name:
            self.figures[name] = value
        for level, end in ((CRITICAL, "critical"), (WARNING, "warn")):
            bound = getattr(self.options, f"{limit}_{end}", None)
            if bound is not None and bound >= 0 and (value < bound if fewer else value > bound):
                self.found.append(
                    (level, f"{what}: {figure(value)}, {'at least' if fewer else 'limit'} {figure(bound)}")
                )
                return

    def heard(self, what: str, active: float | None, limit: str) -> None:
        """Note the age of the last activity, if there is a limit."""
        if not getattr(self.options, f"{limit}_critical"):
            return
        if active is None:
            self.bad(f"there was no {what} yet")
        else:
            self.note("", active, f"seconds since the last {what}", limit)

    def bad(self, text: str) -> None:
        self.found.append((CRITICAL, text))

    def servers(self, info: StreamInfo | ConsumerInfo) -> None:
        """Note problems of the servers that host a stream or a consumer."""
        cluster = info.cluster
        if cluster is None:
            return
        if cluster.name and not cluster.leader:
            self.bad("it has no leader")
        for peer in cluster.replicas or ():
            if peer.offline or not peer.current:
                self.bad(f"replica {peer.name} is {'offline' if peer.offline else f'{peer.lag:,} operations behind'}")

    def tell(self, what: str, name: str) -> None:
        worst_first = sorted(self.found, key=lambda found: -found[0])
        status = NAMES[self.level]
        found = [{"level": NAMES[level], "text": text} for level, text in worst_first]
        plain = {"check": what, "name": name, "status": status, "found": found, "figures": self.figures}
        told = "; ".join(text for _, text in worst_first) or "as it should be"
        figures = " ".join(f"{key}={figure(value)}" for key, value in self.figures.items())
        text = f"{status} {what} {name}".rstrip() + f": {told}"
        result(self.options, plain, f"{text} | {figures}" if figures else text)


def figure(value: float) -> str:
    """A number that monitors can read, with all its digits and without an exponent."""
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")


_kinds: Final = Commands()

Look = Callable[[Options, Report], None]


def _kind(name: str, *arguments: Argument) -> Callable[[Look], Look]:
    """Declares a kind. Its required arguments say what to look at."""
    named = [argument.names[0][2:] for argument in arguments if argument.settings.get("required")]

    def declare(look: Look) -> Look:
        @_kinds.alone(name, *arguments)
        @functools.wraps(look)
        def run(options: Options) -> int:
            report = Report(options)
            try:
                look(options, report)
            except _GONE as error:
                report.bad(str(error))
            except (errors.JsClientError, OSError) as error:
                refused = name == "connection" and not isinstance(error, errors.ConfigError)
                report.found.append((CRITICAL if refused else UNKNOWN, str(error)))
            report.tell(name, "/".join(getattr(options, option) for option in named))
            return report.level

        return look

    return declare


def _required(name: str) -> Argument:
    return arg(f"--{name}", required=True)


def _limit(option: str, of: Any, meaning: str, default: float | None = None, **more: Any) -> Argument:
    level = "warning" if option.endswith("warn") else "critical"
    shown = f" (default {figure(default)})" if default else ""
    return arg(f"--{option}", type=of, default=default, help=f"{level} if {meaning}{shown}", **more)


def _limits(name: str, of: Any, meaning: str, *defaults: float) -> tuple[Argument, Argument]:
    """--NAME-warn and --NAME-critical."""
    warn, critical = defaults or (None, None)
    return _limit(f"{name}-warn", of, meaning, warn), _limit(f"{name}-critical", of, meaning, critical)


class _CheckParser(Parser):
    """Exit status 2 means critical here, so wrong usage ends with 3."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(UNKNOWN, f"{self.prog}: error: {message}\n")


def add_kinds(check: argparse.ArgumentParser) -> None:
    """Add the kinds as sub-commands that may be left out."""
    kinds: Any = check.add_subparsers(
        dest="action", required=False, metavar="[KIND]", parser_class=_CheckParser, prog=check.prog
    )
    _kinds.add_to(kinds, common_arguments())


@_kind(
    "connection",
    *_limits("connect", seconds, "connecting took longer", 0.5, 1.0),
    *_limits("rtt", seconds, "a ping took longer", 0.5, 1.0),
    *_limits("req", seconds, "a message to ourselves took longer", 0.5, 1.0),
)
def _connection(options: Options, report: Report) -> None:
    """Times of connecting, of a ping, of a message."""
    start = time.monotonic()
    with connect(options) as nc:
        report.note("connect_time", time.monotonic() - start, "seconds to connect", "connect")
        report.note("rtt", nc.rtt(options.timeout), "seconds of a ping", "rtt")
        inbox = nc.new_inbox()
        with nc.subscribe(inbox) as subscription:
            start = time.monotonic()
            nc.publish(inbox, b"check")
            subscription.next(options.timeout)
            taken = time.monotonic() - start
        report.note("request_time", taken, "seconds of a message to ourselves", "req")


@_kind(
    "jetstream",
    *_limits("mem", float, "more percent of the memory limit is used", 75.0, 90.0),
    *_limits("store", float, "more percent of the storage limit is used", 75.0, 90.0),
    *_limits("streams", int, "more streams"),
    *_limits("consumers", int, "more consumers"),
)
def _jetstream(options: Options, report: Report) -> None:
    """JetStream of the account: use of its limits."""
    with opened(options) as js:
        info = js.account_info()
    for name, used, most in limits_of(info):
        if name in ("streams", "consumers"):
            report.note(name, used, name, name)
            continue
        report.figures[name] = used
        if most > 0:
            limit = "mem" if name == "memory" else "store"
            report.note(f"{name}_pct", round(used * 100 / most, 2), f"percent of {name}", limit)


@_kind(
    "stream",
    _required("stream"),
    *_limits("msgs", int, "fewer messages"),
    *_limits("subjects", int, "more subjects"),
    _limit("lag-critical", int, "a source or the mirror is more messages behind"),
    _limit("seen-critical", seconds, "a source or the mirror was not heard of for longer"),
)
def _stream(options: Options, report: Report) -> None:
    """A stream: its messages, sources and replicas."""
    with opened(options) as js:
        info = js.stream(options.stream).info()
    state = info.state
    report.note("messages", state.messages, "messages", "msgs", fewer=True)
    report.note("subjects", state.num_subjects or 0, "subjects", "subjects")
    if state.lost:
        report.bad(f"{counted(len(state.lost.msgs or ()), 'message')} lost")
    report.figures.update(bytes=state.bytes, consumers=state.consumer_count)
    sources = [*(info.sources or ()), *([info.mirror] if info.mirror else [])]
    if sources:
        report.figures["lag"] = max(source.lag for source in sources)
    for source in sources:
        report.note("", source.lag, f"messages behind {source.name}", "lag")
        report.heard(f"sign of life of {source.name}", source.active, "seen")
    report.servers(info)


@_kind(
    "consumer",
    _required("stream"),
    _required("consumer"),
    _limit("outstanding-ack-critical", int, "more unacknowledged messages"),
    _limit("waiting-critical", int, "more waiting pulls"),
    _limit("unprocessed-critical", int, "more messages not delivered yet"),
    _limit("redelivery-critical", int, "more messages that were delivered again"),
    _limit("last-delivery-critical", seconds, "the last delivery was longer ago"),
    _limit("last-ack-critical", seconds, "the last ack was longer ago"),
    arg("--pinned", action="store_true", help="critical if a priority group has no pinned client"),
)
def _consumer(options: Options, report: Report) -> None:
    """A consumer: messages that wait for it or for acks."""
    with opened(options) as js:
        info = js.consumer_info(options.stream, options.consumer)
    report.note("ack_pending", info.num_ack_pending, "unacknowledged", "outstanding_ack")
    report.note("pulls", info.num_waiting, "waiting pulls", "waiting")
    report.note("pending", info.num_pending, "not delivered yet", "unprocessed")
    report.note("redelivered", info.num_redelivered, "delivered again", "redelivery")
    now = info.ts or dt.datetime.now(dt.timezone.utc)
    for what, last in (("delivery", info.delivered.last_active), ("ack", info.ack_floor.last_active)):
        report.heard(what, None if last is None else (now - last).total_seconds(), f"last_{what}")
    groups = info.priority_groups or []
    if options.pinned and not (groups and all(one.pinned_client_id for one in groups)):
        report.bad("no client is pinned")
    report.servers(info)


@_kind(
    "kv",
    _required("bucket"),
    *_limits("values", int, "more values; fewer, if the warning is the larger limit"),
    arg("--key", help="critical if this key has no value"),
)
def _kv(options: Options, report: Report) -> None:
    """A bucket: its values, or a key."""
    with opened(options) as js:
        bucket = keyvalue.key_value(js, options.bucket)
        status = bucket.status()
        if options.key is not None:
            bucket.get(options.key)
    warn, critical = options.values_warn, options.values_critical
    fewer = warn is not None and critical is not None and warn > critical
    report.note("values", status.values, "values", "values", fewer)
    report.figures["bytes"] = status.bytes


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"must be a regular expression: {error}") from None


@_kind(
    "request",
    _required("subject"),
    *_limits("response", seconds, "the answer took longer", 0.5, 1.0),
    arg("--payload", default=""),
    HEADERS,
    arg("--match-payload", type=_regex, metavar="REGEX", help="critical if the answer does not match"),
)
def _request(options: Options, report: Report) -> None:
    """A service: the time and content of an answer."""
    with connect(options) as nc:
        start, headers = time.monotonic(), headers_of(options.header)
        try:
            answer = nc.request(options.subject, options.payload, headers=headers, timeout=options.timeout)
        except (errors.NoResponders, errors.RequestTimeout) as error:
            report.bad(errors.brief(error))
            return
        report.note("response_time", time.monotonic() - start, "seconds to answer", "response")
    report.figures["bytes"] = len(answer.data)
    wanted: re.Pattern[str] | None = options.match_payload
    if wanted and not wanted.search(answer.data.decode(errors="replace")):
        report.bad(f"the answer does not match {wanted.pattern!r}")


@_kind(
    "credential",
    _required("credential"),
    *_limits("validity", seconds, "it expires sooner, such as within 5d"),
    arg("--require-expiry", action="store_true", help="critical if it never expires"),
)
def _credential(options: Options, report: Report) -> None:
    """A .creds file: until when it is valid. A revocation is not seen."""
    try:
        jwt, _ = parse_creds(Path(options.credential).read_bytes())
        body = jwt.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))).get("exp")
    except FileNotFoundError:
        report.bad("there is no such file")
    except (ValueError, IndexError, AttributeError, errors.ConfigError):
        report.bad("it holds no user JWT with its seed")
    else:
        left = int((expires or 0) - time.time())
        if expires and left <= 0:
            report.bad("it has expired")
        if expires:
            report.note("valid_seconds", left, "seconds until it expires", "validity", fewer=True)
        elif options.require_expiry:
            report.bad("it never expires")
