"""What asynchronous publishes ask meanwhile: how long a stream knows ids, and what became of a refused message."""

from __future__ import annotations

import pytest
from tests.publish_rig import HEADERS, Rig, Turn, answer_questions, clock, info, outcome

from jsclient import errors

__all__ = ["clock"]


@pytest.mark.parametrize(
    ("window", "after", "again"),
    [(info(120), 50, True), (info(120), 110, False), (info(10), 50, False), (info(120, max_age=10), 50, False)],
    ids=["inside", "nearly over", "short window", "short age"],
)
def test_the_window_of_the_stream_is_learned_first(window: bytes, after: float, again: bool, clock: Turn) -> None:
    rig = Rig(duplicate_window=None, ack_timeout=200)
    future = rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    clock(rig, after)
    rig.come_back()
    assert len(rig.nc.sent) == 1  # the question
    frames = answer_questions(rig, window)
    if again:
        rig.ack(frames[0])
        assert future.result(0).seq == 1
    else:
        assert all(b"STREAM.MSG.GET.S" in frame for frame in frames)  # it is looked for, and not sent
        rig.answer(frames[0], b'{"message":{"subject":"s.a","seq":4,"data":"","hdrs":"%b"}}' % HEADERS)
        assert (future.result(0).seq, future.result(0).duplicate) == (4, True)


def test_an_id_that_is_overdue_waits_for_the_window_too(clock: Turn) -> None:
    rig = Rig(duplicate_window=None)
    future = rig.publish(msg_id="1")
    rig.take()
    clock(rig, 6)
    frames = answer_questions(rig, info(120))
    assert not frames
    clock(rig, 1)
    (again,) = rig.take()
    rig.ack(again)
    assert future.result(0).seq == 1


def test_who_may_not_ask_does_not_send_again() -> None:
    rig = Rig(duplicate_window=None)
    unsafe, plain = rig.publish(msg_id="1"), rig.publish("s.b")
    rig.publisher.in_flight.withdrawn([rig.take()[1]])
    rig.lose()
    rig.come_back()
    assert b"STREAM.NAMES" in rig.take()[0]
    rig.publisher.recovery.refused_publish(errors.PermissionViolation("x", "$JS.API.STREAM.NAMES", "publish"))
    assert outcome(unsafe) is errors.PublishUnknown
    assert "publish_async_duplicate_window" in str(unsafe.exception(0))
    (frame,) = rig.take()
    rig.ack(frame)
    assert plain.result(0).seq == 1


def test_who_gets_no_answer_does_not_send_again(clock: Turn) -> None:
    rig = Rig(duplicate_window=None, ack_timeout=10)
    unsafe, plain = rig.publish(msg_id="1"), rig.publish("s.b")
    clock(rig, 0)
    rig.publisher.in_flight.withdrawn([rig.take()[1]])
    rig.lose()
    rig.come_back()
    for _ in range(3):
        clock(rig, 1)
    assert any(b" s.b " in frame or b"PUB s.b" in frame for frame in rig.nc.sent)  # others do not wait for ever
    assert not plain.done()
    for _ in range(12):
        clock(rig, 1)
    assert outcome(unsafe) is errors.PublishUnknown
    assert not any(b"Nats-Msg-Id" in frame for frame in rig.nc.sent)


def test_a_refusal_of_the_second_copy_is_looked_into(clock: Turn) -> None:
    rig = Rig()
    stored, gone = rig.publish(msg_id="1"), rig.publish("s.b", msg_id="2")
    rig.take()
    rig.lose()
    rig.come_back()
    for frame in rig.take():
        rig.error(frame, 10109)
    assert not stored.done()
    looks = rig.take()
    assert all(b"STREAM.MSG.GET.S" in frame for frame in looks)
    rig.answer(looks[0], b'{"message":{"subject":"s.a","seq":4,"data":"","hdrs":"%b"}}' % HEADERS)
    assert stored.result(0).seq == 4
    for _ in range(10):
        clock(rig, 1)
    assert outcome(gone) is errors.PublishUnknown
    assert "refused" in str(gone.exception(0))
    assert not rig.publisher.recovery.questions.inquiries


def test_a_lost_link_while_it_is_looked_for(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish(msg_id="1")
    rig.error(rig.take()[0], 10164)
    rig.take()
    rig.lose()
    clock(rig, 1)
    assert not rig.take()
    rig.come_back()
    clock(rig, 1)
    looks = [frame for frame in rig.take() if b"STREAM.MSG.GET.S" in frame]
    assert not future.done()
    rig.answer(looks[-1], b'{"message":{"subject":"s.a","seq":4,"data":"","hdrs":"%b"}}' % HEADERS)
    assert future.result(0).seq == 4


def test_a_second_answer_ends_an_inquiry(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish()
    (frame,) = rig.take()
    rig.error(frame, 10164)
    rig.error(frame, 10071)  # and the other one refuses it, too
    assert not future.done()
    rig.ack(frame, 5)
    assert future.result(0).seq == 5
    for _ in range(10):
        clock(rig, 1)
    assert not rig.nc.clock.calls
    assert not rig.publisher.recovery.questions.inquiries


def test_order_holds_while_a_window_is_asked_for() -> None:
    rig = Rig(duplicate_window=None)
    rig.publish("s.0", msg_id="0")
    rig.take()
    rig.lose()
    rig.publish("s.1")
    rig.come_back()
    rig.publish("s.2")
    frames = answer_questions(rig, info(120))
    rig.publish("s.3")
    frames += rig.take()
    assert [frame.split(b" ")[1] for frame in frames] == [b"s.%d" % number for number in range(4)]
    assert rig.publisher.recovery.calm


def test_a_question_that_cannot_be_sent_is_lost_with_the_link(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish()
    rig.no_responders(rig.take()[0])
    clock(rig, 0.25)
    (again,) = rig.take()
    rig.nc.is_connected = False  # nobody has heard of it yet
    rig.no_responders(again)
    assert not rig.take()
    assert not future.done()


def test_an_answer_without_the_stream_says_nothing(clock: Turn) -> None:
    rig = Rig(duplicate_window=None)
    future = rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    rig.come_back()
    assert answer_questions(rig, b'{"error":{"code":500,"err_code":10000,"description":"x"}}') == []
    assert not future.done()
    clock(rig, 1.1)
    (again,) = answer_questions(rig, info(120))
    rig.ack(again)
    assert future.result(0).seq == 1


def test_a_stream_whose_configuration_does_not_match_is_asked_for_with_pauses(clock: Turn) -> None:
    rig = Rig(duplicate_window=None)
    future = rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    rig.come_back()
    other = info(120).replace(b"s.>", b"other.>")
    assert other != info(120)
    assert answer_questions(rig, other) == []
    for _ in range(5):
        assert not rig.take()
    assert not future.done()
    clock(rig, 1.1)
    (again,) = answer_questions(rig, info(120))
    rig.ack(again)
    assert future.result(0).seq == 1


def test_the_only_leader_is_believed(clock: Turn) -> None:
    """A stream with one replica has no other leader with a word that could count more."""
    rig = Rig(duplicate_window=None)
    first = rig.publish(msg_id="1")
    rig.error(rig.take()[0], 10164)
    answer_questions(rig, info(120, replicas=1))
    assert outcome(first) is errors.WrongLastSequence
    second = rig.publish(msg_id="2")
    rig.error(rig.take()[0], 10164)
    assert outcome(second) is errors.WrongLastSequence
