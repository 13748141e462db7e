"""The options of `messages()`, `consume()` and `fetch()`, and the request of one pull that follows from them."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypedDict

import attrs
import msgspec

from jsclient import checks, kinds
from jsclient.cancel import Cancel
from jsclient.durations import (
    DEFAULT,
    MOST_SECONDS,
    Deadline,
    Default,
    Timeout,
    check_timeout,
    plain,
    plain_or_none,
    resolve,
    seconds_of,
    to_ns,
)
from jsclient.errors import ConfigError
from jsclient.jetstream.consuming.credit import UNLIMITED_BATCH, WindowCredit
from jsclient.jetstream.consuming.hooks import ErrorHook

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import ConsumerConfig

MAX_MESSAGES: Final = 500
"""Messages buffered and requested together (nats.go, nats.java, async-nats 200-500)."""

MOST_MESSAGES: Final = 64_000
"""The same for an application that is quick and far from its server (`FASTEST` and `ROUND_TRIPS` in `credit.py`).
Over 200 ms a read of 60,000 took 1.07 s with half of it, and 0.9 s with this. The push of nats-py, where the server
sends all of them immediately, takes as long.
"""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes buffered and requested together. A server ends a connection ("slow consumer") when 64 MiB wait for it (its
`max_pending`). A busy application causes that in a moment. Without acks, messages on their way are then lost. So four
reads fit into the 64 MiB.
"""

FETCH_BYTES: Final = 16_777_213
"""Bytes of a pull of a fetch: about MAX_BYTES. It is a prime number, so messages of one size never use it up exactly.
No server reports the end of a pull in that case.
"""

LARGEST: Final = 64 * 1024 * 1024
"""The limit while a single message is larger than the default; no server accepts a message larger than this."""

MOST_UNMEASURED: Final = 2_000
"""Messages if bytes must not be limited (the last of each subject), unless they are headers alone. That is 16 MiB if
they have 8 KiB each.
"""

EXPIRES: Final = 30.0
"""Seconds that a pull lives on the server (nats.go, nats.java)."""

HEARTBEAT: Final = 5.0
"""Seconds between heartbeats; twice this without one is an alarm. nats.go uses 15 s and notices after half a minute."""


@attrs.frozen
class Paused:
    """The consumer was paused on the server (2.11): pulls wait, nothing is delivered until `until`.

    Attributes:
        until: The end of the pause (UTC); None if the server did not name it.
    """

    until: dt.datetime | None


@attrs.frozen
class Resumed:
    """A paused consumer delivers again."""


class FetchLimitsDict(TypedDict, total=False):
    """The keyword arguments common to all calls that pass theirs on to `fetch()`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        heartbeat: Seconds between the server's heartbeats. The default is 5 for a timeout of 10 or more, otherwise
            none; None requests none.
        group: The priority group (server 2.11). By default there is none.
        min_pending: Take only while at least this number of messages wait (overflow, server 2.11). With the default 0,
            always.
        min_ack_pending: Take only while at least this number of messages wait for their ack (overflow, server 2.11).
            With the default 0, always.
        priority: 0 to 9, lower first (prioritized, server 2.12). With the default None there is no priority.
        cancel: A token that ends the call with Cancelled; default None.
    """

    heartbeat: Timeout
    group: str
    min_pending: int
    min_ack_pending: int
    priority: int | None
    cancel: Cancel | None


class FetchBatchesDict(FetchLimitsDict, total=False):
    """The keyword arguments that `batches()` passes on to `fetch()`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        max_bytes: Bytes of subjects, replies, headers and payloads in a batch. The default 0 means unlimited.

    It also has the fields of `FetchLimitsDict`.
    """

    max_bytes: int


class FetchBytesDict(FetchLimitsDict, total=False):
    """The keyword arguments that `fetch_bytes()` passes on to `fetch()`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        no_wait_then: Seconds to wait for the first message if none is available; the fetch then takes the available
            messages immediately. Use it instead of `timeout`. With the default None it waits for all messages.

    It also has the fields of `FetchLimitsDict`.
    """

    no_wait_then: float | dt.timedelta | None


class FetchDict(FetchBytesDict, total=False):
    """The keyword arguments that `next()` passes on to `fetch()`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        max_bytes: Bytes of subjects, replies, headers and payloads in a batch. The default 0 means unlimited.

    It also has the fields of `FetchBytesDict`.
    """

    max_bytes: int


class PullOptionsDict(TypedDict, total=False):
    """Keyword arguments of `messages()` and `consume()`; see PullOptions.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `PullOptions`.
    """

    max_messages: int | None
    max_bytes: int
    expires: float | dt.timedelta
    heartbeat: float | dt.timedelta | Default | None
    threshold_messages: int | None
    threshold_bytes: int | None
    stop_after: int | None
    group: str
    min_pending: int
    min_ack_pending: int
    priority: int | None
    leave_buffered: bool
    on_error: ErrorHook | None
    on_event: Callable[[Any], Any] | None
    cancel: Cancel | None


def _heartbeat(value: float | dt.timedelta | Default | None) -> float | Default | None:
    return value.total_seconds() if isinstance(value, dt.timedelta) else value


@attrs.frozen(kw_only=True)
class PullOptions:
    """The limits of a continuous pull, and its watch over the server.

    `max_messages` and `max_bytes` (0: no limit of that kind) bound what is buffered and requested together. A new pull
    goes out when less than `threshold_messages` or `threshold_bytes` are under way. Without `max_messages` and
    `threshold_messages` the window is 500. It grows while the application takes a window in 0.1 s or in 16 round trips.
    It grows to 4,000 on a near server, to 64,000 over 100 ms or more. Layers set `first_messages` and `most_messages`.

    `expires` (at least 1 s) is the life of a pull. `heartbeat` is the interval of the server's heartbeats (5 s, at most
    half of `expires`). After one and a half intervals without any, the client asks the server what is wrong
    (ConsumerDeleted, StreamRecreated, MaxWaitingExceeded, Paused ...). After two it reports NoHeartbeat. With None it
    notices a dead pull a second after its end. With policy "pinned_client", `expires` is at most half of the consumer's
    `priority_timeout`, if known.

    `stop_after` ends the iteration after exactly that number of messages. `group`, `min_pending`, `min_ack_pending`
    (server 2.11) and `priority` (2.12) are for priority groups. `leave_buffered` leaves unread messages to the server's
    ack_wait at the end, instead of returning them immediately.

    The waiting thread calls `on_error(error)` for everything that the pull survives (NoHeartbeat,
    ConsumerLeadershipChanged, PullNoResponders ...); without it such errors are logged. `on_event` gets Paused and
    Resumed. For `consume` a function of two arguments gets `(error, message)`. That is the message on which the handler
    failed, and the function may `nak`, `term` or reject it; None if the error is not about a message. `cancel` is a
    token that ends the iteration with Cancelled.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        max_messages: Messages buffered and requested together. None is 500, and more if the application is fast.
        max_bytes: Bytes buffered and requested together, without a limit if it is 0.
        expires: Seconds that one pull lives (at least 1).
        heartbeat: Seconds between the server's heartbeats; None requests none.
        threshold_messages: A new pull goes out when fewer messages are under way; None is half of `max_messages`.
        threshold_bytes: A new pull goes out when fewer bytes are under way. None is half of `max_bytes` if messages are
            unlimited; otherwise the next pull goes out when one has used up its bytes.
        stop_after: End after exactly this number of messages.
        group: The priority group (server 2.11).
        min_pending: Take only while at least this number of messages wait (overflow, server 2.11).
        min_ack_pending: Take only while at least this number of messages wait for their ack (overflow, server 2.11).
        priority: 0 to 9, lower first (prioritized, server 2.12).
        leave_buffered: At the end leave unread messages to `ack_wait`, instead of returning them immediately.
        on_error: Called with everything that the pull survives; without it such errors are logged.
        on_event: Called with Paused and Resumed.
        cancel: A token that ends the iteration with Cancelled.
        first_messages: For layers: the window at the start, if `max_messages` is None.
        most_messages: For layers: the largest window, if `max_messages` is None.
    """

    max_messages: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    max_bytes: int = attrs.field(default=MAX_BYTES, validator=kinds.field(int))
    expires: float = attrs.field(default=EXPIRES, converter=plain, validator=kinds.field(float))
    heartbeat: float | Default | None = attrs.field(
        default=DEFAULT, converter=_heartbeat, validator=kinds.field(float, Default, None)
    )
    threshold_messages: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    threshold_bytes: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    stop_after: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int | None = None
    leave_buffered: bool = attrs.field(default=False, validator=kinds.field(bool))
    on_error: ErrorHook | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    on_event: Callable[[Any], Any] | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    cancel: Cancel | None = attrs.field(default=None, validator=kinds.field(Cancel, None))
    first_messages: int = attrs.field(default=MAX_MESSAGES, validator=kinds.field(int))
    most_messages: int = attrs.field(default=MOST_MESSAGES, validator=kinds.field(int))

    def __attrs_post_init__(self) -> None:
        if self.batch_limit < 0 or self.max_bytes < 0 or (self.max_messages == 0 and not self.max_bytes):
            raise ConfigError("max_messages and max_bytes must not be negative, and one of them must be set")
        if not 1.0 <= self.expires <= MOST_SECONDS:
            raise ConfigError(f"expires must be at least 1 s, and at most 292 years, got {self.expires!r}")
        beat = self.seconds_between_heartbeats
        if beat and not SHORTEST_HEARTBEAT <= beat <= self.expires / 2:
            between = f"{SHORTEST_HEARTBEAT} s and half of expires ({self.expires / 2:g} s)"
            raise ConfigError(f"heartbeat must be between {between}, or None; got {beat:g}")
        for name, limit in (("threshold_messages", self.batch_limit), ("threshold_bytes", self.max_bytes)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= limit:
                raise ConfigError(f"{name} must be between 1 and {limit}, got {value}")
        if self.stop_after is not None and self.stop_after < 1:
            raise ConfigError(f"stop_after must be positive, got {self.stop_after}")
        check_priority(self.group, self.min_pending, self.min_ack_pending, self.priority)

    @property
    def batch_limit(self) -> int:
        """For layers: the window in messages at the start."""
        return self.first_messages if self.max_messages is None else self.max_messages or UNLIMITED_BATCH

    @property
    def seconds_between_heartbeats(self) -> float:
        """For layers: the requested interval, or 0 without heartbeats."""
        if isinstance(self.heartbeat, Default):
            return min(HEARTBEAT, self.expires / 2)
        return self.heartbeat or 0.0

    def terms(self) -> PullTerms:
        """For layers: the terms of every pull."""
        return PullTerms(
            self.expires,
            self.seconds_between_heartbeats,
            self.group,
            self.min_pending,
            self.min_ack_pending,
            self.priority,
        )

    def state(self, numbers: Callable[[], int]) -> WindowCredit:
        """For layers: the bookkeeping of one reading."""
        return WindowCredit(
            self.batch_limit,
            self.max_bytes,
            threshold_messages=self.threshold_messages,
            threshold_bytes=self.threshold_bytes,
            stop_after=self.stop_after,
            numbers=numbers,
            most_messages=self.most_messages if self.max_messages is None and self.threshold_messages is None else 0,
        )


def options_for(given: PullOptionsDict, config: ConsumerConfig | None) -> PullOptions:
    """Options of `messages`, with defaults lowered to the known limits of the consumer."""
    most = MAX_MESSAGES if config is None else _most_messages(config)
    if config is not None:
        if config.deliver_policy == "last_per_subject":
            # Servers (2.9 to 2.15) forget a message of such a consumer when a pull has no bytes left for it.
            given.setdefault("max_bytes", 0)
            if not config.headers_only:
                most = min(most, MOST_UNMEASURED)
        if config.max_bytes and "max_bytes" not in given:
            given["max_bytes"] = min(MAX_BYTES, config.max_bytes)
        if config.max_expires and "expires" not in given:
            given["expires"] = max(1.0, min(EXPIRES, seconds_of(config.max_expires)))
        if config.priority_policy == "pinned_client" and config.priority_timeout:
            # The server takes the pin away if no pull has come for priority_timeout, even from a healthy holder.
            longest = max(1.0, seconds_of(config.priority_timeout) / 2)
            given["expires"] = min(plain(given.get("expires", EXPIRES)), longest)
    return PullOptions(**given, first_messages=min(MAX_MESSAGES, most), most_messages=most)


SMALL_FETCH: Final = MAX_BYTES // 4
"""A fetch with at most this number of bytes in all its messages pulls without a limit of bytes, because a limit costs a
status per pull. The server ends a connection for which 64 MiB wait (see MAX_BYTES).
"""


def bytes_of_a_pull(messages: int, size: int, config: ConsumerConfig | None) -> int:
    """The limit in bytes for each pull of a fetch, from the number and size of its messages; 0: none."""
    if messages * size <= SMALL_FETCH or config is None:
        return 0
    if config.deliver_policy == "last_per_subject":
        return 0  # servers (2.9 to 2.15) forget a message of such a consumer when a pull has no bytes left for it
    return min(config.max_bytes or FETCH_BYTES, FETCH_BYTES)


def _most_messages(config: ConsumerConfig) -> int:
    """The largest size of a window.

    The server refuses pulls of more than `max_batch`. Twice `max_ack_pending` is enough, because a pull goes out when
    half of the window has come.
    """
    most = min(MOST_MESSAGES, config.max_batch or MOST_MESSAGES)
    unacked = config.max_ack_pending or 0
    if unacked > 0 and config.ack_policy != "none":
        most = min(most, max(MAX_MESSAGES, 2 * unacked))
    return most


# --- one pull ---------------------------------------------------------------------------------------------------

FETCH_TIMEOUT: Final = 30.0
"""Seconds that fetch and next wait by default (nats.go, nats.java: 30 s)."""

FETCH_HEARTBEAT: Final = 5.0
"""Idle heartbeat of pulls that wait for 10 s or more (nats.go)."""

SHORTEST_HEARTBEAT: Final = 0.1
"""Seconds; less would make the server send more heartbeats than messages."""

KNOWN_BODIES: Final = 128
"""Requests kept: a loop of fetches sends the same one again and again, and making it takes 3 µs."""


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
        """The body of CONSUMER.MSG.NEXT; durations in ns."""
        return _body(self, batch, max_bytes, pin_id)

    def within(self, seconds: float) -> PullTerms:
        """The same for the rest of the time: a heartbeat must be at most half of it, or the server refuses the pull."""
        heartbeat = self.heartbeat if 2 * self.heartbeat <= seconds else 0.0
        return msgspec.structs.replace(self, expires=seconds, heartbeat=heartbeat)


@functools.lru_cache(KNOWN_BODIES)
def _body(terms: PullTerms, batch: int, max_bytes: int, pin_id: str) -> bytes:
    fields = {
        "batch": batch,
        "expires": to_ns(terms.expires),
        "max_bytes": max_bytes,
        "no_wait": terms.no_wait,
        "idle_heartbeat": to_ns(terms.heartbeat),
        "group": terms.group,
        "min_pending": terms.min_pending,
        "min_ack_pending": terms.min_ack_pending,
        "id": pin_id,
    }
    request: dict[str, Any] = {name: value for name, value in fields.items() if value}
    if terms.priority is not None:
        request["priority"] = terms.priority  # 0 is the highest
    return msgspec.json.encode(request)


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
