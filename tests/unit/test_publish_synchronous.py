"""The life of a publish after a first attempt without an ack: sent again, looked for, or told; without a socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.delivery_rig import LOST, NO_LEADER, NOBODY, REFUSED, SILENCE, UNSENT, Line, stream

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.publishing import synchronous
from jsclient.jetstream.publishing.outcome import retry_rules
from jsclient.jetstream.publishing.streams import EXISTS, FORBIDDEN, NONE, UNAVAILABLE
from jsclient.jetstream.publishing.synchronous import PublishAttempts

ACK = b'{"stream":"S","seq":7}'
NOTED = b'{"stream":"S","seq":0,"duplicate":true}'
ID = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
EXPECTS = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 6\r\n\r\n"
STALE = b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}'


def of(js: Any, headers: bytes | None = None, **options: Any) -> PublishAttempts:
    timeout = options.pop("timeout", 5.0)
    retries, wait = options.pop("retry_attempts", None), options.pop("retry_wait", 0.001)
    rules = retry_rules(retries, wait)
    return PublishAttempts(js, "s.a", b"x", headers, Deadline(timeout), rules, time.monotonic())


def publish(*answers: Any, headers: bytes | None = None, window: Any = 120.0, **options: Any) -> Any:
    """(the ack, or the type of the error; how often it was sent)."""
    js = stream(*answers)
    js.publish_streams.window = lambda *_: window
    try:
        found: Any = of(js, headers, **options).run().seq
    except errors.JsClientError as error:
        found = type(error)
    line: Line = js.nc
    return found, len(line.requested)


@pytest.fixture
def exists(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What is answered to the question whether there is a stream."""
    said = {"answer": EXISTS}
    monkeypatch.setattr(synchronous, "ask_for_stream", lambda *_: said["answer"])
    return said  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answers", "headers", "found", "sent"),
    [
        ([ACK], None, 7, 1),
        ([NOBODY, NOBODY, ACK], None, 7, 3),
        ([NO_LEADER, ACK], None, 7, 2),
        ([UNSENT, ACK], None, 7, 2),
        ([SILENCE], None, errors.PublishUnknown, 1),
        ([LOST], None, errors.PublishUnknown, 1),
        ([SILENCE, ACK], ID, 7, 2),
        ([LOST, LOST, ACK], ID, 7, 3),
        ([NOTED, ACK], ID, 7, 2),
        ([REFUSED], None, errors.WrongLastSequence, 1),
        ([b"nonsense"], None, errors.InvalidPubAck, 1),
        ([SILENCE, errors.PermissionViolation("no", "s.a", "publish")], ID, errors.PublishUnknown, 2),
        ([NOBODY, errors.PermissionViolation("no", "s.a", "publish")], ID, errors.PermissionViolation, 2),
    ],
)
def test_what_becomes_of_it(answers: list[Any], headers: bytes | None, found: Any, sent: int) -> None:
    assert publish(*answers, headers=headers) == (found, sent)


@pytest.mark.parametrize(
    ("answer", "found", "sent"),
    [
        (EXISTS, 7, 6),
        (NONE, errors.NoStreamForSubject, 3),
        (FORBIDDEN, errors.NoStreamResponse, 3),
        (UNAVAILABLE, 7, 6),
    ],
)
def test_whether_there_is_a_stream_is_asked(exists: dict[str, str], answer: str, found: Any, sent: int) -> None:
    exists["answer"] = answer
    assert publish(*[NOBODY] * 5, ACK) == (found, sent)


def test_what_may_be_stored_is_not_said_to_have_no_stream(exists: dict[str, str]) -> None:
    exists["answer"] = FORBIDDEN
    assert publish(SILENCE, *[NOBODY] * 3, headers=ID) == (errors.PublishUnknown, 4)
    exists["answer"] = NONE
    assert publish(SILENCE, *[NOBODY] * 3, headers=ID) == (errors.PublishUnknown, 4)


def test_retries_may_be_counted() -> None:
    assert publish(*[NOBODY] * 3, retry_attempts=1) == (errors.NoStreamResponse, 2)
    for wrong in ({"retry_attempts": -1}, {"retry_wait": -1.0}):
        with pytest.raises(ValueError):
            of(stream(), **wrong)


@pytest.mark.parametrize(
    ("answers", "headers", "found"),
    [
        ([NOBODY], None, errors.NoStreamResponse),
        ([NO_LEADER], None, errors.JetStreamTemporarilyUnavailable),
        ([SILENCE, NOBODY], ID, errors.PublishUnknown),
        ([SILENCE, NO_LEADER], ID, errors.PublishUnknown),
        ([UNSENT, UNSENT], None, errors.NotStored),
    ],
)
def test_the_time_is_over(answers: list[Any], headers: bytes | None, found: type[Exception]) -> None:
    assert publish(*answers, headers=headers, retry_wait=20.0)[0] is found


def test_nothing_of_it_was_sent_in_its_time() -> None:
    assert publish(UNSENT, timeout=0.0)[0] is errors.NotStored


def test_a_link_that_stays_away() -> None:
    js = stream(UNSENT)
    js.nc.is_connected = False
    with pytest.raises(errors.NotStored, match="was not sent in its time"):
        of(js, timeout=0.02).run()


# --- the window of its stream -------------------------------------------------------------------------------------


def test_an_id_that_is_forgotten_is_not_sent_again() -> None:
    assert publish(SILENCE, headers=ID, window=FORBIDDEN) == (errors.PublishUnknown, 1)
    assert publish(SILENCE, headers=ID, window=0.0) == (errors.PublishUnknown, 1)


def test_the_window_is_asked_for_until_somebody_answers() -> None:
    js = stream(SILENCE, ACK)
    said = [UNAVAILABLE, EXISTS]
    known: list[float] = []

    def ask(*_: Any) -> str:
        found = said.pop(0)
        known.extend([120.0] if found == EXISTS else [])
        return found

    js.publish_streams.ask = ask
    js.publish_streams.window = lambda *_: known[0] if known else None
    assert of(js, ID).run().seq == 7
    assert said == []


@pytest.mark.parametrize("retry_wait", [0.0, 0.1])
def test_a_stream_whose_configuration_does_not_match_is_asked_for_with_pauses(retry_wait: float) -> None:
    js = stream(SILENCE, ACK)
    asked: list[str] = []

    def ask(*_: Any) -> str:
        asked.append(EXISTS)
        return EXISTS

    js.publish_streams.ask = ask
    js.publish_streams.window = lambda *_: None
    began = time.monotonic()
    with pytest.raises(errors.PublishUnknown):
        of(js, ID, timeout=1.2, retry_wait=retry_wait).run()
    assert 1 <= len(asked) <= 13
    assert time.monotonic() - began < 2


# --- looking ------------------------------------------------------------------------------------------------------


def looked(js: Any, *answers: Any, replicas: Any = 3) -> Any:
    """The outcome of a publish that a server refused which may not lead the stream any more."""
    left = list(answers)

    def request_raw(operation: str, body: Any, timeout: float) -> Any:
        found = left.pop(0) if left else errors.RequestTimeout("nothing")
        if isinstance(found, Exception):
            raise found
        return found

    js.api.request_raw = request_raw
    known: list[Any] = [None, replicas]
    js.publish_streams.replicas = lambda *_: known.pop(0) if len(known) > 1 else known[0]
    js.publish_streams.denied = lambda *_: 0
    js.publish_streams.deny = lambda *_: None
    try:
        return of(js, EXPECTS, timeout=1.0).run().seq
    except errors.JsClientError as error:
        return type(error)


def test_with_one_replica_its_word_counts() -> None:
    assert looked(stream(STALE), replicas=1) is errors.WrongLastSequence


def test_a_second_answer_counts() -> None:
    js = stream(STALE)
    js.nc.later = [STALE, None, ACK]
    assert looked(js) == 7


def test_a_lost_link_is_waited_for_and_the_look_goes_on() -> None:
    js = stream(STALE)
    js.nc.later = [LOST]
    assert looked(js) is errors.PublishUnknown


def test_who_may_not_look_does_not_know() -> None:
    denied = errors.PermissionViolation("no", "s", "publish")
    assert looked(stream(STALE), denied, denied) is errors.PublishUnknown


def test_an_ack_may_come_while_it_waits() -> None:
    js = stream(NO_LEADER)
    js.nc.later = [ACK]
    assert of(js, retry_wait=1.0).run().seq == 7
    js = stream(NO_LEADER, ACK)
    js.nc.later = [LOST]
    assert of(js).run().seq == 7


def test_an_instrument_sees_one_publish() -> None:
    js = stream(ACK)
    js.nc.options = SimpleNamespace(instrumentation=object())
    assert of(js).run().seq == 7
