"""Outcomes, options and figures of a pool, without a server."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import JetStreamMsg
from jsclient.message import Msg
from jsclient.workers import BatchFailed, Reject, Retry
from jsclient.workers.core import PoolCore
from jsclient.workers.options import PoolOptions
from jsclient.workers.outcomes import outcomes_of, reason_of
from jsclient.workers.stats import percentile


def test_outcomes_of_a_batch() -> None:
    error = ValueError("no")
    assert outcomes_of(None, 2) == [None, None]
    assert outcomes_of([None, True, error], 3) == [None, None, error]
    assert all(isinstance(outcome, TypeError) for outcome in outcomes_of("ab", 2))
    assert all(isinstance(outcome, TypeError) for outcome in outcomes_of([None], 2))
    assert isinstance(outcomes_of([7], 1)[0], TypeError)


def test_verdicts_carry_what_they_say() -> None:
    assert Retry(dt.timedelta(milliseconds=1500)).delay == 1.5
    assert Retry().delay is None
    assert Reject("because").reason == "because"
    assert BatchFailed({1: ValueError()}).failures.keys() == {1}


def test_a_reason_fits_into_a_header() -> None:
    assert reason_of(ValueError("a\r\nb\x00c")) == "ValueError: a  b c"
    assert reason_of(ValueError()) == "ValueError"
    assert len(reason_of(ValueError("x" * 10_000))) == 500


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 0},
        {"attempts": 0},
        {"dead_letter": "a b"},
        {"dead_letter": "dead.*"},
        {"backoff": []},
        {"backoff": [-1]},
        {"progress_limit": 0},
        {"max_prefetch": -1},
        {"batch": (0, 1)},
        {"batch": (1, -1)},
        {"batch": (1, 1), "key": len},
        {"batch": (1, 1), "manual": True},
    ],
)
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigError):
        PoolOptions(**options)  # type: ignore[arg-type]


def test_percentiles() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0


@pytest.mark.parametrize(("told", "count"), [(b"3", 3), (b"1", 1), (b"0", 1), (b"-5", 1), (b"x", 1), (b"", 1)])
def test_how_often_a_message_was_delivered_is_a_number_from_1_on(told: bytes, count: int) -> None:
    """Schedules are looked up by it: -5 was an IndexError that ended the pool."""
    pool: Any = SimpleNamespace(_first_prefix=b"")
    nobody: Any = None
    message = JetStreamMsg(Msg(b"s", b"1", b"$JS.ACK.S.C.%b.30.20.1700000000123456789.5" % told, b""), nobody)
    assert PoolCore.count_of(pool, message) == count


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_another_number_of_outcomes_than_messages_fails_all_of_them(number: int) -> None:
    outcomes = outcomes_of([None] * number, 2)
    assert len(outcomes) == 2
    assert all(isinstance(outcome, TypeError) for outcome in outcomes)


def test_a_delay_is_never_negative() -> None:
    assert Retry(-5).delay == 0
    assert Retry(dt.timedelta(seconds=-1)).delay == 0
    assert Retry(dt.timedelta(seconds=90)).delay == 90
