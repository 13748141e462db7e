"""The part of `check` that asks the servers, in one process: reachability, streams, permissions, clock.

It writes nothing. Its requests to the JetStream API have a body that no server can decode. The server answers with an
error, or it refuses the request because the user lacks the permission.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from typing import Any, Final

import attrs
import msgspec

import jsclient
from jsclient import errors
from jsclient.connection import Connection
from jsclient.jetstream.api.requests import Api
from jsclient.protocol.subjects import matches
from jsclient.spark.connecting import connect_options
from jsclient.spark.options import SparkOptions, overlap

TIMEOUT: Final = 2.0
UNREADABLE: Final = b"{"
NOBODY: Final = "jsclient-check"
"""Takes the place of wildcards: a consumer or stream that does not exist."""
USER_INFO: Final = "$SYS.REQ.USER.INFO"
OPERATIONS: Final = ("INFO", "STREAM.", "CONSUMER.", "DIRECT.")

Finding = tuple[str, str, str, str]
"""Level (ok, warn, fail), check, text, advice."""


@attrs.frozen
class Settings:
    """The subject of the checks. The way also works without the `optional` permissions."""

    options: SparkOptions
    streams: tuple[str, ...]
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    optional: frozenset[str]


def look(settings: Settings) -> tuple[list[Finding], float | None]:
    """The findings, and the seconds by which the server's clock differs; None if the server gives no time."""
    options = settings.options
    try:
        given = attrs.evolve(connect_options(options), on_error=_ignore)
        with jsclient.connect(given) as nc:
            return _Look(nc, settings).run()
    except Exception as error:
        # Providers, files and environment variables of the user may fail with anything.
        text = options.hide(f"{type(error).__name__}: {errors.brief(error)}")
        return [("fail", "server", text, "check 'servers', the network and the credentials of this process")], None


def _ignore(*_: Any) -> None:
    """Refusals are findings, so they need no line in the log."""


class _Look:
    def __init__(self, nc: Connection, settings: Settings) -> None:
        self.nc = nc
        self.settings = settings
        options = settings.options
        self.api = Api(nc, domain=options.domain, prefix=options.api_prefix, timeout=TIMEOUT)
        self.clock: float | None = None

    def run(self) -> tuple[list[Finding], float | None]:
        info = self.nc.server_info
        if not info.at_least(2, 9):
            return [("fail", "server", f"nats-server {info.version}", "upgrade to 2.9 or later")], None
        found: list[Finding] = [("ok", "server", f"nats-server {info.version}", "")]
        granted = self._granted()
        found += self._streams()
        found += self._permissions(granted)
        return found, self.clock

    def _granted(self) -> dict[str, Any] | None:
        """None if the server does not report them: it is older than 2.10, or the user lacks that permission."""
        try:
            before = time.time()
            answer = msgspec.json.decode(self.nc.request(USER_INFO, timeout=TIMEOUT).data)
            self._set_clock(answer["server"]["time"], before)
            granted: dict[str, Any] = answer["data"].get("permissions") or {}
        except (errors.JsClientError, msgspec.DecodeError, LookupError, ValueError):
            return None
        return granted

    def _set_clock(self, theirs: str, before: float) -> None:
        at = dt.datetime.fromisoformat(theirs[:19] + "+00:00").timestamp()  # cut to seconds
        self.clock = max(0.0, at - time.time(), before - at - 1.0)

    def _streams(self) -> Iterator[Finding]:
        """The streams that are read, or the stream that stores the subject of a sink."""
        advice = "create the stream, or check 'stream', 'subject', 'domain' and the account of this user"
        subject = self.settings.options.subject
        stream = ""
        try:
            for stream in self.settings.streams:
                before = time.time()
                info = self.api.request(f"STREAM.INFO.{stream}", read=True)
                if self.clock is None and "ts" in info:
                    self._set_clock(info["ts"], before)
                yield "ok", "stream", stream, ""
            if subject and not self.settings.streams:
                found = self.api.request("STREAM.NAMES", {"subject": subject}, read=True)["streams"]
                if found:
                    yield "ok", "stream", f"{', '.join(found)} stores {subject}", ""
                else:
                    yield "fail", "stream", f"no stream stores {subject}", advice
        except errors.PermissionViolation:
            return  # the permissions report it
        except errors.JsClientError as error:
            yield "fail", "stream", f"{stream or subject}: {errors.brief(error)}", advice

    def _permissions(self, granted: dict[str, Any] | None) -> Iterator[Finding]:
        permitted, unknown = 0, []
        problems: dict[tuple[str, str], list[str]] = {}
        for kind, needed in (("publish", self.settings.publish), ("subscribe", self.settings.subscribe)):
            for subject in needed:
                if granted is not None:
                    problem = lacking(granted.get(kind) or {}, subject)
                elif kind == "subscribe":
                    problem = self._refused_subscription(subject)
                elif self._is_request(subject):
                    problem = self._refused_request(subject)
                else:
                    unknown.append(subject)
                    continue
                if problem:
                    level = "warn" if subject in self.settings.optional or problem.startswith("only") else "fail"
                    problems.setdefault((level, f"{problem}: {kind} on"), []).append(subject)
                else:
                    permitted += 1
        for (level, what), subjects in problems.items():
            advice = "grant it; jsclient.spark.permissions prints all that is needed"
            if level == "warn" and not what.startswith("only"):
                advice = "without it rows are written, but the driver cannot keep the journal or check the window"
            yield level, "permission", f"{what} {', '.join(subjects)}", advice
        if unknown:
            advice = f"grant publish on {USER_INFO}, with which the server reports the permissions of its user"
            yield "warn", "permission", f"not proven: publish on {', '.join(unknown)}", advice
        if permitted:
            yield "ok", "permission", f"permitted: {permitted} subjects", ""

    def _is_request(self, subject: str) -> bool:
        return subject.startswith(self.api.prefix) and subject[len(self.api.prefix) :].startswith(OPERATIONS)

    def _refused_request(self, pattern: str) -> str:
        subject = ".".join(NOBODY if token in ("*", ">") else token for token in pattern.split("."))
        try:
            self.nc.request(subject, UNREADABLE, timeout=TIMEOUT)
        except errors.PermissionViolation:
            return "not permitted"
        except (errors.NoResponders, errors.RequestTimeout):
            self.nc.flush(TIMEOUT)  # a refusal comes before this answer
        return ""

    def _refused_subscription(self, subject: str) -> str:
        with self.nc.subscribe(subject) as subscription:
            self.nc.flush(TIMEOUT)
            try:
                subscription.next(0)
            except errors.TimedOut:
                return ""
            except (errors.PermissionViolation, errors.SubscriptionClosed):
                return "not permitted"
        return ""


def lacking(rules: dict[str, list[str]], needed: str) -> str:
    """The part of the pattern `needed` that the `rules` of a user do not permit."""
    allowed, denied = rules.get("allow") or [">"], rules.get("deny") or []
    if any(_covers(rule, needed) for rule in denied):
        return "denied"
    if not any(_covers(rule, needed) for rule in allowed):
        some = [rule for rule in allowed if overlap(rule, needed)]
        return f"only permitted for {', '.join(some)}" if some else "not permitted"
    some = [rule for rule in denied if overlap(rule, needed)]
    return f"only permitted without {', '.join(some)}" if some else ""


def _covers(rule: str, needed: str) -> bool:
    return matches(rule, needed) and (rule.endswith(">") or not needed.endswith(">"))
