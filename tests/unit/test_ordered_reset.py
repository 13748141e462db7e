"""How often and how long the consumer of an ordered read is made again; and whether its stream is still the same."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.api import consumer_requests
from jsclient.jetstream.consuming.ordered_messages import (
    GONE_ATTEMPTS,
    SHORTEST_CREATE,
    ConsumerRecreator,
    OrderedSource,
    take_turn,
)
from jsclient.jetstream.consuming.ordered_sequence import OrderedOptions, OrderedState
from jsclient.waiting import new_turn

MADE = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
NO_STREAM = errors.StreamNotFound(404, 10059, "no stream")
SILENCE = errors.RequestTimeout("nothing")
DENIED = errors.PermissionViolation("not permitted", "s", "publish")
UNAVAILABLE = errors.JetStreamUnavailable("nobody", "s")


class Read:
    """What `ConsumerRecreator` drives: each attempt ends as the test says; then it works."""

    source = "the consumer"

    def __init__(self, *attempts: Any) -> None:
        self.attempts = list(attempts)
        self.ending = False
        self.told: list[Exception] = []
        self.given_up: list[Exception] = []
        self.pauses: list[float] = []
        self.timeouts: list[float] = []
        self.comes_back = False

    def make_next(self, timeout: float) -> bool:
        self.timeouts.append(timeout)
        found = self.attempts.pop(0) if self.attempts else True
        if isinstance(found, Exception):
            raise found
        return bool(found)

    def pause(self, delay: float) -> bool:
        self.pauses.append(delay)
        return self.comes_back

    def tell(self, error: Exception) -> None:
        self.told.append(error)

    def give_up(self, error: Exception) -> None:
        self.given_up.append(error)
        self.ending = True


def test_it_is_tried_until_it_works_with_longer_and_longer_pauses() -> None:
    read: Any = Read(SILENCE, SILENCE, SILENCE, SILENCE)
    assert ConsumerRecreator(None).run(read, Deadline(None))
    assert read.pauses == [0.25, 0.5, 1.0, 1.0]
    assert read.told == [SILENCE] * 4


def test_a_link_that_is_down_is_no_attempt_and_its_return_begins_anew() -> None:
    read: Any = Read(False, False, SILENCE, SILENCE)
    read.comes_back = True
    assert ConsumerRecreator(1_000).run(read, Deadline(None))
    assert read.pauses == [1.0, 1.0, 0.25, 0.25]


def test_the_next_call_goes_on_with_it() -> None:
    read: Any = Read(SILENCE)
    again = ConsumerRecreator(None)
    assert not again.run(read, Deadline(0))
    assert again.run(read, Deadline(0))
    assert read.timeouts[0] == SHORTEST_CREATE


def test_attempts_are_limited() -> None:
    read: Any = Read(SILENCE, SILENCE, SILENCE)
    assert ConsumerRecreator(2).run(read, Deadline(None))
    assert [type(error) for error in read.given_up] == [errors.OrderedConsumerReset]
    assert read.given_up[0].__cause__ is SILENCE


def test_a_stream_that_is_not_there_is_believed_the_third_time() -> None:
    read: Any = Read(*[NO_STREAM] * GONE_ATTEMPTS)
    assert ConsumerRecreator(None).run(read, Deadline(None))
    assert (read.told, read.given_up) == ([NO_STREAM] * 2, [NO_STREAM])


@pytest.mark.parametrize("error", [DENIED, errors.StreamRecreated(404, ""), errors.ConfigError("no")])
def test_what_no_attempt_can_mend_ends_it(error: Exception) -> None:
    read: Any = Read(error)
    assert ConsumerRecreator(None).run(read, Deadline(None))
    assert read.given_up == [error]


@pytest.mark.parametrize("error", [errors.ConnectionClosed("closed"), errors.Cancelled("cancelled")])
def test_what_is_no_failure_goes_to_the_caller(error: Exception) -> None:
    read: Any = Read(error)
    with pytest.raises(type(error)):
        ConsumerRecreator(None).run(read, Deadline(None))
    assert read.told == []


def test_patience_grows_with_the_attempts() -> None:
    read: Any = Read(*[SILENCE] * 6)
    ConsumerRecreator(None).run(read, Deadline(None))
    assert read.timeouts == [2.0] * 6 + [5.0]


# --- the stream -------------------------------------------------------------------------------------------------


def js_of(answer: Any) -> Any:
    def request(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(created=answer)

    return SimpleNamespace(nc=None, api=SimpleNamespace(request=request, timeout=5.0))


def source_of(answer: Any) -> OrderedSource:
    return OrderedSource(js_of(answer), "S", OrderedState(OrderedOptions()))


def check(answer: Any) -> None:
    made: Any = SimpleNamespace(created=MADE)
    source = source_of(errors.ApiError(500, 1, "not asked for the first one"))
    source.check_stream(made, Deadline(1))
    source.js = js_of(answer)
    source.check_stream(made, Deadline(1))


@pytest.mark.parametrize("answer", [MADE, None, DENIED, UNAVAILABLE])
def test_the_same_stream_or_one_that_nobody_may_ask_for(answer: Any) -> None:
    check(answer)


def test_a_younger_stream_is_another_one() -> None:
    with pytest.raises(errors.StreamRecreated):
        check(MADE + dt.timedelta(seconds=1))


@pytest.mark.parametrize("answer", [SILENCE, NO_STREAM, errors.ApiError(503, 10008, "no leader")])
def test_where_nobody_answers_it_is_not_taken_for_the_same(answer: Exception) -> None:
    """A stream that was made again begins with sequences that would be left out."""
    with pytest.raises(type(answer)):
        check(answer)


# --- silence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (MADE, type(None)),
        (errors.ConsumerNotFound(404, 10014, "gone"), errors.ConsumerDeleted),
        (NO_STREAM, errors.ConsumerDeleted),
        (DENIED, type(None)),
        (SILENCE, errors.NoHeartbeat),
    ],
)
def test_a_silent_consumer_is_asked_for(monkeypatch: pytest.MonkeyPatch, answer: Any, found: type) -> None:
    def info(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer

    monkeypatch.setattr(consumer_requests, "info", info)
    assert type(source_of(None).examine(1.0)) is found


def test_a_turn_is_waited_for() -> None:
    turn = new_turn()
    assert take_turn(turn, None)
    turn.release()
    assert take_turn(turn, 1e12), "longer than any lock waits"
    turn.release()
