"""The options of a WorkerPool, each default with its reason."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict

import attrs

from jsclient import checks, kinds
from jsclient.durations import check_timeout, plain, plain_or_none
from jsclient.errors import ConfigError

THREADS: Final = 8

STOP_TIMEOUT: Final = 25.0
"""Seconds that `stop` waits for running handlers. Kubernetes kills after 30 s. The last acks need the rest."""

PROGRESS_LIMIT: Final = 3600.0
"""Seconds after which a handler that still runs counts as hung: no more in-progress, so another worker gets it."""

MAX_PREFETCH: Final = 4_000
"""Messages a pool holds at most in addition to those being handled, as `consume` does."""

PREFETCH_SECONDS: Final = 0.1
"""Work that may wait in this process: fast handlers prefetch, slow ones take a message only when they are free."""

RETRY_DELAY: Final = 1.0
"""Seconds before a failed message is redelivered if neither the pool nor the consumer has a back-off."""

RETRIES: Final = 100
"""Times that a handler may raise Retry for a message, with `attempts`. A handler that always does comes to an end."""

LATER_FROM: Final = 60.0
"""Seconds of delay from which on a message is stored again for later instead of nak'd."""

FORGIVEN: Final = 5
"""Deliveries beyond `attempts` after which a message is given up without another try. The server also counts deliveries
that no handler saw: messages that a stopping pool returned, or that a killed process had prefetched."""

REASONS_KEPT: Final = 10_000
"""Reasons remembered of dead letters that could not be stored yet."""


def _delays(value: Sequence[float | dt.timedelta] | None) -> tuple[float, ...] | None:
    kinds.check(kinds.many(float, dt.timedelta), None, backoff=value)
    return None if value is None else tuple(map(plain, value))


def _batch(value: tuple[int, float | dt.timedelta] | None) -> tuple[int, float] | None:
    kinds.check(kinds.pair(int, float, dt.timedelta), None, batch=value)
    return None if value is None else (value[0], plain(value[1]))


@attrs.frozen(kw_only=True)
class PoolOptions:
    """The keyword arguments of WorkerPool, and what each does.

        with WorkerPool(consumer, handle, threads=4, attempts=5, backoff=[1, 10]) as pool:
            pool.run_until_signal()

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        threads: Threads that run the handler.
        key: Returns the key of a message. Messages of one key are handled one at a time, in order.
        attempts: Deliveries after which the pool gives up a failing message; None means never. A delivery that ended in
            Retry is left out.
        retries: The most Retries of a handler for one message; at the next Retry the pool gives it up. None (default)
            allows 100 with `attempts`, and any number without.
        dead_letter: Subject under which a message that is given up is stored, with the reason. The default is the
            subject of `consumer.typed(..., on_bad="reject", dead_letter=...)`.
        backoff: Seconds before each further attempt; the last one is used for all that follow.
        jitter: Spreads the delays of `backoff`: 0.2 makes 10 s any time from 8 to 12 s. Messages that failed together
            are then redelivered at different times.
        confirm: Wait for the server's confirmation of every ack.
        manual: The handler acknowledges; the pool does not.
        in_progress: Tell the server that a handler still works, to prevent a redelivery of its message.
        progress_limit: Seconds after which a running handler counts as hung and is no longer reported.
        batch: (messages, seconds): hand lists to the handler, at the latest that number of seconds after the first
            message.
        max_prefetch: The most messages that the pool holds in addition to messages in work.
        ack_wait: Seconds of the consumer's `ack_wait`, if this user has no permission to read it.
        group: The consumer's priority group (server 2.11).
        stop_timeout: Seconds that running handlers have at the end.
        on_event: Called with a `PoolEvent` for each event of a message, in the worker threads.
        later: Subject in the stream under which messages wait as schedules (server 2.12) for a late retry. None means
            that they are nak'd.
        later_from: Seconds of delay from which on they wait in this way.
    """

    threads: int = attrs.field(default=THREADS, validator=kinds.field(int))
    key: Callable[[Any], Any] | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    attempts: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    retries: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    dead_letter: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    backoff: tuple[float, ...] | None = attrs.field(default=None, converter=_delays)
    jitter: float = attrs.field(default=0.0, validator=kinds.field(float))
    confirm: bool = attrs.field(default=False, validator=kinds.field(bool))
    manual: bool = attrs.field(default=False, validator=kinds.field(bool))
    in_progress: bool = attrs.field(default=True, validator=kinds.field(bool))
    progress_limit: float = attrs.field(default=PROGRESS_LIMIT, converter=plain, validator=kinds.field(float))
    batch: tuple[int, float] | None = attrs.field(default=None, converter=_batch)
    max_prefetch: int = attrs.field(default=MAX_PREFETCH, validator=kinds.field(int))
    ack_wait: float | None = attrs.field(default=None, converter=plain_or_none)
    group: str = attrs.field(default="", validator=kinds.field(str))
    stop_timeout: float = attrs.field(default=STOP_TIMEOUT, converter=plain, validator=kinds.field(float))
    on_event: Callable[[Any], Any] | None = attrs.field(default=None, validator=kinds.field(Callable, None))
    later: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    later_from: float = attrs.field(default=LATER_FROM, converter=plain, validator=kinds.field(float))

    def __attrs_post_init__(self) -> None:
        checks.threads(self.threads, "threads")
        if self.attempts is not None and self.attempts < 1:
            raise ConfigError(f"attempts must be positive, got {self.attempts}")
        if self.retries is not None and self.retries < 0:
            raise ConfigError(f"retries must be 0 or more, got {self.retries}")
        if self.dead_letter is not None:
            checks.subject(self.dead_letter, "dead_letter")
        if self.backoff is not None and (not self.backoff or any(not 0 <= delay < math.inf for delay in self.backoff)):
            raise ConfigError("backoff must be one or more delays in seconds, 0 or more each")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"jitter must be from 0 to 1, got {self.jitter!r}")
        if not self.progress_limit > 0:
            raise ConfigError(f"progress_limit must be positive, got {self.progress_limit!r}")
        check_timeout(self.stop_timeout, "stop_timeout")
        check_timeout(self.ack_wait, "ack_wait")
        if self.max_prefetch < 0:
            raise ConfigError(f"max_prefetch must be 0 or more, got {self.max_prefetch}")
        if self.batch is not None:
            self._check_batch(self.batch)
        if self.later is not None:
            checks.subject(self.later, "later")
            if self.key is not None or self.manual:
                raise ConfigError("later= excludes key= and manual=: a message that is stored again comes last")
        if not self.later_from >= 0:
            raise ConfigError(f"later_from must be 0 or more seconds, got {self.later_from!r}")

    @property
    def retries_allowed(self) -> int | None:
        """For layers: `retries` with its default; None for no limit."""
        return RETRIES if self.retries is None and self.attempts is not None else self.retries

    def _check_batch(self, batch: tuple[int, float]) -> None:
        size, seconds = batch
        if size < 1 or not seconds >= 0:
            raise ConfigError(f"batch is (messages, seconds), at least (1, 0); got {batch!r}")
        if self.key is not None:
            raise ConfigError("batch and key exclude each other: a batch mixes keys")
        if self.manual:
            raise ConfigError("batch and manual exclude each other: return outcomes instead")


class HandlingDict(TypedDict, total=False):
    """The keyword arguments that WorkerPool and GroupPool share, for type checkers.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `PoolOptions`.
    """

    threads: int
    key: Callable[[Any], Any] | None
    attempts: int | None
    retries: int | None
    dead_letter: str | None
    backoff: Sequence[float | dt.timedelta] | None
    jitter: float
    confirm: bool
    in_progress: bool
    progress_limit: float | dt.timedelta
    stop_timeout: float | dt.timedelta
    on_event: Callable[[Any], Any] | None


class PoolOptionsDict(HandlingDict, total=False):
    """The keyword arguments of WorkerPool, for type checkers: the fields of PoolOptions.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `PoolOptions`.
    """

    manual: bool
    batch: tuple[int, float | dt.timedelta] | None
    max_prefetch: int
    ack_wait: float | dt.timedelta | None
    group: str
    later: str | None
    later_from: float | dt.timedelta
