"""One pull: the body of its request, and the terms that all pulls of a call share."""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from jsclient import checks, kinds
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, plain_or_none, resolve, to_ns
from jsclient.errors import ConfigError
from jsclient.jetstream.consuming.pull import UNLIMITED_BATCH

FETCH_TIMEOUT: Final = 30.0
"""Seconds that fetch and next wait by default (nats.go, nats.java: 30 s)."""

FETCH_HEARTBEAT: Final = 5.0
"""Idle heartbeat of pulls that wait for 10 s or more (nats.go)."""

SHORTEST_HEARTBEAT: Final = 0.1
"""Seconds; less would make the server send more heartbeats than messages."""

KNOWN_BODIES: Final = 128
"""Requests kept: a loop of fetches sends the same one again and again, and making it takes 3 µs."""


class PullRequest(msgspec.Struct, omit_defaults=True):
    """The JSON body of CONSUMER.MSG.NEXT; durations in ns."""

    batch: int = 0
    expires: int = 0
    max_bytes: int = 0
    no_wait: bool = False
    idle_heartbeat: int = 0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    id: str = ""
    priority: int | None = None  # 0 is the highest and must be sent


class PullTerms(msgspec.Struct, frozen=True):
    """The common terms of all pulls of a call: seconds, and the priority group options."""

    expires: float = 30.0
    heartbeat: float = 0.0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int | None = None
    no_wait: bool = False
    """The pull ends if there are no messages; with `expires`, if none has come by then."""

    def request(self, batch: int, max_bytes: int = 0, pin_id: str = "") -> bytes:
        """The body of one pull."""
        return _body(self, batch, max_bytes, pin_id)

    def within(self, seconds: float) -> PullTerms:
        """The same for the rest of the time: a heartbeat must be at most half of it, or the server refuses the pull."""
        heartbeat = self.heartbeat if 2 * self.heartbeat <= seconds else 0.0
        return msgspec.structs.replace(self, expires=seconds, heartbeat=heartbeat)


@functools.lru_cache(KNOWN_BODIES)
def _body(terms: PullTerms, batch: int, max_bytes: int, pin_id: str) -> bytes:
    return msgspec.json.encode(
        PullRequest(
            batch=batch,
            expires=to_ns(terms.expires),
            max_bytes=max_bytes,
            no_wait=terms.no_wait,
            idle_heartbeat=to_ns(terms.heartbeat),
            group=terms.group,
            min_pending=terms.min_pending,
            min_ack_pending=terms.min_ack_pending,
            id=pin_id,
            priority=terms.priority,
        )
    )


def terms_for(
    timeout: float | None,
    heartbeat: Timeout,
    *,
    group: str = "",
    min_pending: int = 0,
    min_ack_pending: int = 0,
    priority: int | None = None,
    no_wait: bool = False,
) -> PullTerms:
    """The pull terms of a fetch; heartbeats by default from 10 s on. Raises ConfigError."""
    expires = FETCH_TIMEOUT if timeout is None else timeout
    if heartbeat is DEFAULT:
        beat = FETCH_HEARTBEAT if expires >= 2 * FETCH_HEARTBEAT else 0.0
    else:
        if not isinstance(heartbeat, Deadline):
            check_timeout(plain_or_none(heartbeat), "heartbeat")
        beat = resolve(heartbeat, None) or 0.0
        if 0 < beat < SHORTEST_HEARTBEAT:
            raise ConfigError(f"heartbeat must be at least {SHORTEST_HEARTBEAT} s, or None; got {beat:g}")
        if 2 * beat > expires:
            raise ConfigError(f"heartbeat must be at most half of the timeout, {expires / 2:g} s; got {beat:g}")
    check_priority(group, min_pending, min_ack_pending, priority)
    return PullTerms(expires, beat, group, min_pending, min_ack_pending, priority, no_wait)


def check_number(max_messages: int) -> None:
    """Raises ConfigError for a number that a fetch cannot request."""
    if type(max_messages) is bool or not isinstance(max_messages, int) or not 0 < max_messages <= UNLIMITED_BATCH:
        raise ConfigError(f"max_messages must be an int of 1 to {UNLIMITED_BATCH}, got {max_messages!r}")


def check_priority(group: str, min_pending: int, min_ack_pending: int, priority: int | None) -> None:
    """Refuse options that the server would answer with 400 or ignore."""
    if group.__class__ is not str or min_pending.__class__ is not int or min_ack_pending.__class__ is not int:
        kinds.check(str, group=group)
        kinds.check(int, min_pending=min_pending, min_ack_pending=min_ack_pending)
    if priority is not None:
        kinds.check(int, priority=priority)
    if group:
        checks.utf8(group, "group", "")
    elif min_pending or min_ack_pending or priority is not None:
        raise ConfigError("min_pending, min_ack_pending and priority need group=, a priority group")
    if min_pending < 0 or min_ack_pending < 0:
        raise ConfigError("min_pending and min_ack_pending must not be negative")
    if priority is not None and not 0 <= priority <= 9:
        raise ConfigError(f"priority must be between 0 (highest) and 9, got {priority}")
