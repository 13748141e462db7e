from __future__ import annotations

import datetime as dt
import math

import pytest

from jsclient.durations import (
    DEFAULT,
    FOREVER,
    Deadline,
    Patience,
    doubled,
    resolve,
    seconds_of,
    to_ns,
    to_seconds,
)


def test_seconds_become_nanoseconds_without_loss() -> None:
    assert to_ns(1.5) == 1_500_000_000
    assert to_ns(9_000_000_000.000000001) == 9_000_000_000 * 1_000_000_000
    assert to_ns(dt.timedelta(days=36_500, microseconds=1)) == 36_500 * 86_400 * 1_000_000_000 + 1_000
    assert to_seconds(2_500_000_000) == seconds_of(dt.timedelta(milliseconds=2500)) == 2.5


def test_a_deadline_that_has_come_leaves_nothing() -> None:
    deadline = Deadline(0)
    assert deadline.expired()
    assert deadline.remaining() == deadline.at_most(3) == 0


@pytest.mark.parametrize("timeout", [None, FOREVER, math.inf])
def test_a_deadline_without_a_limit(timeout: float | None) -> None:
    deadline = Deadline(timeout)
    assert not deadline.expired()
    assert deadline.remaining() is None
    assert deadline.at_most(3) == 3


def test_a_prolonged_deadline_begins_with_the_first() -> None:
    first = Deadline(0.5)
    assert first.at is not None
    later = first.prolonged(5.0)
    assert later.at == pytest.approx(first.at + 4.5)
    assert later.seconds == 5.0  # what an error says
    assert first.prolonged(None).remaining() is None


def test_a_pause_that_doubles_has_an_end() -> None:
    assert [doubled(0.2, times, 1.0) for times in range(4)] == [0.2, 0.4, 0.8, 1.0]
    assert doubled(0.03, 100_000, 0.25) == 0.25, "2**1024 is no float any more"


@pytest.mark.parametrize("timeout", [FOREVER, FOREVER * 2, dt.timedelta(seconds=FOREVER)])
def test_a_timeout_of_decades_is_none(timeout: float | dt.timedelta) -> None:
    assert resolve(timeout, 5.0) is None


def test_the_default_bounds_each_step_and_a_given_timeout_the_whole_call() -> None:
    step = Patience(DEFAULT, 0.5)
    assert step.whole is None
    assert step.remaining() == 0.5
    left = Patience(60.0, 0.5).remaining()
    assert left is not None
    assert left > 30
