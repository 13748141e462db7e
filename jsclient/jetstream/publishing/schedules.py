"""Message schedules (nats-server 2.12, ADR-51): the server publishes a message later, or again and again.

A schedule is a message like any other, stored on its own subject. The server publishes its content to `target`, which
must be another subject of the same stream. The newest message on a subject is its schedule. Publish a new message to
change the schedule, or purge the subject to end it. A one-shot schedule disappears when it has fired.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

import msgspec

from jsclient import kinds
from jsclient.durations import NANOSECONDS, to_ns
from jsclient.errors import ConfigError
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api.model_base import as_timestamp, format_time
from jsclient.protocol import check_subject

_PREDEFINED = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_CRON = re.compile(r"\S+( \S+){5}")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The time and target of a publish by the server; make one with `at`, `every` or `cron`.

    js.publish("schedules.invoice", b"send it", schedule=Schedule.at(when, target="invoices.due"))

    Attributes:
        spec: The value of Nats-Schedule, as the server reads it.
        target: The subject that the message is published to. It is in the same stream and differs from the subject of
            the schedule.
        source: Publish the last message of this subject instead of the schedule's own (server 2.14).
        ttl: The TTL of the published message, in seconds.
        rollup: "sub" makes the published message replace the earlier ones of its subject (server 2.14).
        time_zone: An IANA name for cron specifications, for example "Europe/Berlin" (server 2.14). The default is UTC.
    """

    spec: str
    target: str
    source: str | None = None
    ttl: float | dt.timedelta | Literal["never"] | None = None
    rollup: Literal["sub"] | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        check_subject(self.target, "schedule target")
        if self.source is not None:
            check_subject(self.source, "schedule source")
        if self.rollup not in (None, "sub"):
            raise ConfigError(f'the rollup of a schedule must be "sub", got {self.rollup!r}')
        if self.time_zone is not None and self.spec.startswith(("@at ", "@every ")):
            raise ConfigError("time_zone belongs to cron specifications only")

    @classmethod
    def at(
        cls,
        when: dt.datetime,
        target: str,
        *,
        source: str | None = None,
        ttl: float | dt.timedelta | Literal["never"] | None = None,
        rollup: Literal["sub"] | None = None,
    ) -> Schedule:
        """Once, at a timezone-aware point in time; the server fires up to about 0.25 s after it, never before."""
        moment = as_timestamp(when, "when").astimezone(dt.timezone.utc)
        return cls(spec=f"@at {format_time(moment)}", target=target, source=source, ttl=ttl, rollup=rollup)

    @classmethod
    def every(
        cls,
        interval: float | dt.timedelta,
        target: str,
        *,
        source: str | None = None,
        ttl: float | dt.timedelta | Literal["never"] | None = None,
        rollup: Literal["sub"] | None = None,
    ) -> Schedule:
        """Again and again, every `interval` seconds (1 or more)."""
        ns = to_ns(interval)
        if ns < NANOSECONDS:
            raise ConfigError(f"the interval of a schedule must be at least 1 second, got {interval!r}")
        whole, rest = divmod(ns, NANOSECONDS)
        text = f"{whole}s" if not rest else f"{ns // 1_000_000}ms"
        return cls(spec=f"@every {text}", target=target, source=source, ttl=ttl, rollup=rollup)

    @classmethod
    def cron(
        cls,
        spec: str,
        target: str,
        *,
        source: str | None = None,
        ttl: float | dt.timedelta | Literal["never"] | None = None,
        rollup: Literal["sub"] | None = None,
        time_zone: str | None = None,
    ) -> Schedule:
        """Six fields (seconds first), or "@hourly", "@daily", "@weekly", "@monthly", "@yearly"."""
        kinds.check(str, spec=spec)
        if spec not in _PREDEFINED and not _CRON.fullmatch(spec):
            raise ConfigError(f"cron wants six fields (seconds first) or one of {', '.join(_PREDEFINED)}; got {spec!r}")
        return cls(spec=spec, target=target, source=source, ttl=ttl, rollup=rollup, time_zone=time_zone)

    def headers(self) -> list[tuple[str, str]]:
        """The headers of the schedule message."""
        out = [(names.SCHEDULE, self.spec), (names.SCHEDULE_TARGET, self.target)]
        if self.source is not None:
            out.append((names.SCHEDULE_SOURCE, self.source))
        if self.ttl is not None:
            out.append((names.SCHEDULE_TTL, ttl_text(self.ttl, "schedule ttl")))
        if self.rollup is not None:
            out.append((names.SCHEDULE_ROLLUP, self.rollup))
        if self.time_zone is not None:
            out.append((names.SCHEDULE_TIME_ZONE, self.time_zone))
        return out


def ttl_text(ttl: float | dt.timedelta | str, name: str = "ttl") -> str:
    """A TTL for the wire: whole seconds as a number, other values as a Go duration; "never" stays unchanged."""
    if isinstance(ttl, str):
        if ttl != "never":
            raise ConfigError(f'{name} must be seconds, a timedelta or "never", not {ttl!r}')
        return ttl
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float, dt.timedelta)):
        raise ConfigError(f'{name} must be seconds, a timedelta or "never", not {type(ttl).__name__}')
    seconds = ttl.total_seconds() if isinstance(ttl, dt.timedelta) else float(ttl)
    if not 1 <= seconds < 9e9:
        raise ConfigError(f"{name} must be at least 1 second, got {seconds!r}")
    return str(int(seconds)) if seconds == int(seconds) else f"{round(seconds * 1000)}ms"
