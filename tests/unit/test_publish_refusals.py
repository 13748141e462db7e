"""What a refusal means for a message under way; a fake connection, a clock that the test turns."""

from __future__ import annotations

import pytest
from tests.publish_rig import Rig, Turn, clock, outcome

from jsclient import errors

__all__ = ["clock"]


def test_503s_are_retried_in_order_and_asked_about(clock: Turn) -> None:
    rig = Rig()
    futures = [rig.publish() for _ in range(3)]
    for frame in rig.take():
        rig.no_responders(frame)
    assert not rig.take()
    clock(rig, 0.25)
    again = rig.take()
    assert [rig.reply_of(frame)[-12:] for frame in again] == [future._token for future in futures]
    for frame in again:
        rig.no_responders(frame)
    (question,) = rig.take()
    assert question.startswith(b"PUB $JS.API.STREAM.NAMES _INBOX.x.?")
    rig.answer(question, b'{"streams":["S"],"total":1}')
    clock(rig, 0.25)
    third = rig.take()
    assert len(third) == 3
    for number, frame in enumerate(third, 1):
        rig.ack(frame, number)
    assert [future.result(0).seq for future in futures] == [1, 2, 3]
    assert not rig.publisher.recovery.retries


def test_no_stream_fails_those_that_were_refused_three_times(clock: Turn) -> None:
    """As long as nats.go tries; by then the answer is there."""
    rig = Rig()
    first, other = rig.publish("typo"), rig.publish("other")
    for frame in rig.take():
        rig.no_responders(frame)
    clock(rig, 0.25)
    for frame in rig.take():
        rig.no_responders(frame)
    questions = rig.take()
    assert len(questions) == 2
    rig.answer(questions[0], b'{"streams":null,"total":0}')
    assert not first.done()
    clock(rig, 0.25)
    for frame in rig.take():
        rig.no_responders(frame)
    assert outcome(first) is errors.NoStreamForSubject
    assert not other.done()
    later = rig.publish("typo")
    (frame,) = rig.take()
    rig.no_responders(frame)
    for _ in range(2):
        clock(rig, 0.25)
        rig.no_responders(next(f for f in rig.take() if b" typo " in f))
    assert outcome(later) is errors.NoStreamForSubject


def test_number_of_retries() -> None:
    rig = Rig(retry_attempts=1)
    future = rig.publish()
    rig.no_responders(rig.take()[0])
    rig.nc.clock.run()
    rig.no_responders(rig.take()[0])
    assert outcome(future) is errors.NoStreamResponse


@pytest.mark.parametrize("err_code", [10008, 10158, 10163, 10167])
def test_errors_that_pass_are_retried(err_code: int, clock: Turn) -> None:
    rig = Rig()
    future = rig.publish(msg_id="1")
    rig.error(rig.take()[0], err_code)
    assert not future.done()
    clock(rig, 0.25)
    rig.ack(rig.take()[0])
    assert future.result(0).seq == 1


def test_other_errors_are_final() -> None:
    rig = Rig()
    future = rig.publish()
    rig.error(rig.take()[0], 10077)
    assert outcome(future) is errors.StoreFailed


def test_refused_publish_and_refused_inbox() -> None:
    rig = Rig()
    bad, good = rig.publish("no.permission"), rig.publish("s.a")
    rig.publisher.recovery.refused_publish(errors.PermissionViolation("x", "no.permission", "publish"))
    assert outcome(bad) is errors.PermissionViolation
    assert not good.done()
    rig.publisher.in_flight.failed(errors.PermissionViolation("x", "_INBOX.x.*", "subscribe"))
    assert outcome(good) is errors.PublishUnknown


def test_no_permission_to_ask_means_two_retries(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish()
    rig.no_responders(rig.take()[0])
    clock(rig, 0.25)
    rig.no_responders(rig.take()[0])
    rig.publisher.recovery.refused_publish(errors.PermissionViolation("x", "$JS.API.STREAM.NAMES", "publish"))
    clock(rig, 0.25)
    rig.no_responders(next(frame for frame in rig.take() if frame.startswith(b"PUB s.a")))
    assert outcome(future) is errors.NoStreamResponse


def test_a_copy_that_was_refused_for_the_moment_says_nothing_about_an_earlier_one(clock: Turn) -> None:
    rig = Rig(ack_timeout=6)
    future, only = rig.publish(msg_id="1"), rig.publish("s.b", msg_id="2")
    rig.take()
    clock(rig, 3)
    (again, _) = rig.take()
    clock(rig, 2.9)
    rig.error(again, 10008)
    assert outcome(future) is errors.PublishUnknown
    del only


def test_a_refused_subscription_is_not_a_refused_publish() -> None:
    rig = Rig()
    future = rig.publish()
    rig.publisher.recovery.refused_publish(errors.PermissionViolation("no", "s.a", "subscribe"))
    assert not future.done()


def test_nobody_takes_what_may_be_stored(clock: Turn) -> None:
    rig = Rig(ack_timeout=60)
    future = rig.publish(msg_id="1")
    rig.take()
    clock(rig, 6)
    for _ in range(4):
        for frame in rig.take():
            if b" s.a " in frame:
                rig.no_responders(frame)
            elif b"STREAM.NAMES" in frame:
                rig.answer(frame, b'{"streams":null}')
        clock(rig, 0.3)
    assert outcome(future) is errors.PublishUnknown


def test_an_answer_that_comes_after_the_last_503(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish("typo")
    questions: list[bytes] = []
    for _ in range(3):
        for frame in rig.take():
            if b"STREAM.NAMES" in frame:
                questions.append(frame)
            else:
                rig.no_responders(frame)
        questions += [frame for frame in rig.nc.sent if b"STREAM.NAMES" in frame]
        rig.nc.sent = [frame for frame in rig.nc.sent if b"STREAM.NAMES" not in frame]
        if len(questions) and future._no_responders >= 3:
            break
        clock(rig, 0.25)
    assert not future.done()
    rig.answer(questions[0], b'{"streams":null,"total":0}')
    assert outcome(future) is errors.NoStreamForSubject
