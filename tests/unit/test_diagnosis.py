"""What is made of the answers about a consumer that is silent or gone; the API is scripted."""

from __future__ import annotations

import datetime as dt
import time
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream.consuming import sources
from jsclient.jetstream.consuming.sources import ConsumerSource

MADE = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
LATER = MADE + dt.timedelta(seconds=1)
GONE = errors.ConsumerDeleted(404, "", "deleted")
NO_STREAM = errors.StreamNotFound(404, 10059, "no stream")
NO_CONSUMER = errors.ConsumerNotFound(404, 10014, "no consumer")
SILENCE = errors.RequestTimeout("nothing")
DENIED = errors.PermissionViolation("not permitted", "s", "publish")
CUT = errors.JetStreamUnavailable("nobody", "s")
NOBODY = errors.PullNoResponders("nobody pulls", "s")


def js_of(*answers: Any) -> Any:
    """Answers in turn: errors, or when the stream or consumer was made."""
    left = list(answers)
    timeouts: list[float] = []

    def request(operation: str, body: Any, response: Any = None, *, timeout: Any, **_: Any) -> Any:
        timeouts.append(timeout)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(created=found)

    api = SimpleNamespace(request=request, subject=str)
    return SimpleNamespace(nc=SimpleNamespace(max_payload=1), api=api, timeouts=timeouts)


def source_of(js: Any, made: dt.datetime | None = MADE) -> ConsumerSource:
    info: Any = SimpleNamespace(created=made)
    return ConsumerSource(js, "S", "C", info)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LOOK_AGAIN", 0.001)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([MADE], errors.ConsumerDeleted),
        ([None], errors.ConsumerDeleted),
        ([LATER], errors.StreamRecreated),
        ([NO_STREAM, NO_STREAM], errors.StreamNotFound),
        ([NO_STREAM, LATER], errors.StreamRecreated),
        ([NO_STREAM, SILENCE], errors.StreamNotFound),
        ([SILENCE], errors.ConsumerDeleted),
        ([DENIED], errors.ConsumerDeleted),
    ],
)
def test_the_fate_of_the_stream_is_told(answers: list[Any], found: type[Exception]) -> None:
    assert type(source_of(js_of(*answers)).why_deleted(GONE, 1.0)) is found


def test_a_handle_that_never_asked_cannot_compare() -> None:
    assert source_of(js_of(), None).why_deleted(GONE, 1.0) is GONE


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([MADE], SimpleNamespace),
        ([NO_CONSUMER, MADE], errors.ConsumerDeleted),
        ([NO_CONSUMER, LATER], errors.StreamRecreated),
        ([NO_STREAM], errors.StreamNotFound),
        ([SILENCE], type(None)),
        ([DENIED], type(None)),
        ([LATER, MADE], SimpleNamespace),  # the consumer alone was made again: that one is read
        ([LATER, LATER], errors.StreamRecreated),
        ([LATER, SILENCE], SimpleNamespace),
    ],
)
def test_what_an_alarm_finds_out(answers: list[Any], found: type) -> None:
    assert type(source_of(js_of(*answers)).look_up(1.0)) is found


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([MADE], type(None)),
        ([NO_CONSUMER, MADE], errors.PullNoResponders),
        ([NO_CONSUMER, LATER], errors.StreamRecreated),
        ([NO_STREAM], errors.PullNoResponders),
        ([CUT], errors.PullNoResponders),
        ([SILENCE], type(None)),
    ],
)
def test_why_nobody_takes_pulls(answers: list[Any], found: type) -> None:
    assert type(source_of(js_of(*answers)).why_nobody(NOBODY, 1.0)) is found


def test_one_who_may_not_ask_is_told() -> None:
    with pytest.raises(errors.PermissionViolation):
        source_of(js_of(DENIED)).why_nobody(NOBODY, 1.0)


def test_the_second_question_has_what_time_the_first_has_left() -> None:
    js = js_of(NO_CONSUMER, MADE)
    ask = js.api.request

    def slow(*args: Any, **options: Any) -> Any:
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
        return ask(*args, **options)

    js.api.request = slow
    source_of(js).why_nobody(NOBODY, 1.0)
    first, second = js.timeouts
    assert first == 1.0
    assert second <= 0.98
