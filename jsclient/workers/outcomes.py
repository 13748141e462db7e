"""Exceptions that a handler can raise to choose the outcome of its message."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from typing import Any

from jsclient import errors, handlers
from jsclient.errors import PayloadMissing
from jsclient.jetstream.dead_letters import MAX_REASON, one_line


class Reject(Exception):
    """This message can never be handled: dead-letter it (or, without a dead-letter subject, terminate it).

    Attributes:
        reason: Why, for the dead letter.
    """

    def __init__(self, reason: str = "rejected") -> None:
        super().__init__(reason)
        self.reason = reason


class Skipped(Reject):
    """This message is terminated without a dead letter, as a pool does with `on_bad="skip"`."""


class Retry(Exception):
    """Deliver the message again after `delay` seconds (None: after the pool's or the consumer's back-off).

    It does not count as a failed attempt. The pool's `retries` limits it.

    Attributes:
        delay: Seconds; None means the backoff of the pool.
    """

    def __init__(self, delay: float | dt.timedelta | None = None, reason: str = "retry") -> None:
        super().__init__(reason)
        seconds = delay.total_seconds() if isinstance(delay, dt.timedelta) else delay
        if seconds is not None and not math.isfinite(seconds):
            raise ValueError(f"delay must be a number of seconds, got {delay!r}")
        self.delay: float | None = None if seconds is None else max(float(seconds), 0.0)


class BatchFailed(Exception):
    """Some messages of a batch failed: index in the batch -> its error (Reject, Retry or any exception).

    Messages that are not named are acked.

    Attributes:
        failures: Index of a message in the batch -> why it failed.
    """

    def __init__(self, failures: Mapping[int, BaseException]) -> None:
        super().__init__(f"{errors.counted(len(failures), 'message')} of the batch failed")
        self.failures: dict[int, BaseException] = dict(failures)


def reason_of(error: BaseException) -> str:
    """One line that fits into a header."""
    try:
        text = str(error.reason) if isinstance(error, Reject) else errors.brief(error)
    except Exception:  # an error of the application that cannot even be printed
        text = "(without a text)"
    if not isinstance(error, Reject):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return one_line(text)[:MAX_REASON]


def puts_off(error: BaseException) -> bool:
    """True if the message is tried again without a failed attempt, as for a payload that did not arrive."""
    return isinstance(error, (Retry, PayloadMissing))


Outcome = BaseException | None
"""None: handled. Reject, Retry, or any other exception: failed."""


def call_batch(handler: Callable[[Any], Any], batch: list[Any]) -> list[Outcome]:
    """The outcome of each message: the handler's result or exception."""
    try:
        return outcomes_of(handlers.ran(handler(list(batch))), len(batch))
    except BatchFailed as failed:
        return [failed.failures.get(index) for index in range(len(batch))]
    except BaseException as error:
        return [error] * len(batch)


def outcomes_of(result: Any, count: int) -> list[Outcome]:
    """The outcome per message of a batch handler's result: None (all handled), or a sequence of None/True and
    exceptions.
    """
    if result is None:
        return [None] * count
    if isinstance(result, (str, bytes)) or not hasattr(result, "__len__") or len(result) != count:
        error = TypeError(
            f"a batch handler returns None or {count} outcomes, one per message; it returned {result!r:.80}"
        )
        return [error] * count
    return [_outcome(item) for item in result]


def _outcome(item: Any) -> Outcome:
    if item is None or item is True:
        return None
    try:
        handlers.ran(item)
    except errors.ConfigError as error:
        return error
    if isinstance(item, BaseException):
        return item
    return TypeError(f"an outcome is None, True or an exception, not {item!r:.80}")
