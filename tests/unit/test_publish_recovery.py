"""What becomes of asynchronous publishes without a plain ack; a fake connection, a clock that the test turns."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest

from jsclient import errors
from jsclient.states import LinkEvent
from tests.publish_rig import Rig, Turn, clock, outcome

__all__ = ["clock"]


def test_ack_resolves_once() -> None:
    rig = Rig()
    future = rig.publish()
    (frame,) = rig.take()
    assert frame.startswith(b"PUB s.a _INBOX.x.")
    rig.ack(frame, 7)
    rig.ack(frame, 8)
    rig.no_responders(frame)
    assert future.result(0).seq == 7
    assert rig.publisher.pending() == 0


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


def test_lost_link(clock: Turn) -> None:
    rig = Rig()
    plain, with_id = rig.publish(), rig.publish(msg_id="1")
    refused = rig.publish()
    frames = rig.take()
    rig.no_responders(frames[2])
    clock(rig, 0)
    for frame in rig.take():
        rig.no_responders(frame)
    rig.take()
    rig.lose()
    assert outcome(plain) is errors.PublishUnknown
    assert not with_id.done()
    assert not refused.done()
    held = rig.publish()
    assert not rig.take()
    clock(rig, 40)
    assert not held.done()
    rig.come_back()
    frames = rig.take()
    assert len(frames) == 3
    for number, frame in enumerate(frames, 1):
        rig.ack(frame, number)
    assert {outcome(future) for future in (with_id, refused, held)} == {None}
    assert not rig.publisher.recovery.held


def test_withdrawn_frames_go_out_later_without_an_id(clock: Turn) -> None:
    rig = Rig()
    sent, queued = rig.publish(), rig.publish()
    frames = rig.take()
    rig.publisher.unacked.withdrawn([b"PING\r\n", b"PUB elsewhere _INBOX.y.1 0\r\n\r\n", frames[1]])
    rig.lose()
    assert outcome(sent) is errors.PublishUnknown
    assert not queued.done()
    rig.come_back()
    (again,) = rig.take()
    rig.ack(again, 2)
    assert queued.result(0).seq == 2


def test_no_same_id_beyond_the_duplicate_window(clock: Turn) -> None:
    rig = Rig(ack_timeout=200, duplicate_window=60)
    future = rig.publish(msg_id="1")
    clock(rig, 1)
    rig.lose()
    clock(rig, 70)
    rig.take()
    rig.come_back()
    assert not rig.take()
    assert outcome(future) is errors.PublishUnknown


def test_coming_back_while_a_message_is_being_held() -> None:
    rig = Rig()
    rig.publish("s.first")
    rig.take()
    future = rig.publish()
    (frame,) = rig.take()
    rig.publisher.recovery.hold(future)  # its post failed, and the link is up again already
    assert len(rig.take()) == 1
    rig.ack(frame)
    assert future.done()
    assert not rig.publisher.recovery.held


def test_end_of_the_connection() -> None:
    rig = Rig()
    sent, refused = rig.publish(), rig.publish()
    rig.no_responders(rig.take()[1])
    rig.nc.closed = errors.ConnectionClosed("the connection is closed")
    rig.publisher.unacked.link_event(LinkEvent.CLOSED)
    assert outcome(sent) is errors.PublishUnknown
    assert outcome(refused) is errors.NotStored
    with pytest.raises(errors.ConnectionClosed):
        rig.publish()
    assert rig.publisher.pending() == 0


def test_refused_publish_and_refused_inbox() -> None:
    rig = Rig()
    bad, good = rig.publish("no.permission"), rig.publish("s.a")
    rig.publisher.unacked.refusals.refused_publish(errors.PermissionViolation("x", "no.permission", "publish"))
    assert outcome(bad) is errors.PermissionViolation
    assert not good.done()
    rig.publisher.unacked.failed(errors.PermissionViolation("x", "_INBOX.x.*", "subscribe"))
    assert outcome(good) is errors.PublishUnknown


def test_no_permission_to_ask_means_two_retries(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish()
    rig.no_responders(rig.take()[0])
    clock(rig, 0.25)
    rig.no_responders(rig.take()[0])
    rig.publisher.unacked.refusals.refused_publish(errors.PermissionViolation("x", "$JS.API.STREAM.NAMES", "publish"))
    clock(rig, 0.25)
    rig.no_responders(next(frame for frame in rig.take() if frame.startswith(b"PUB s.a")))
    assert outcome(future) is errors.NoStreamResponse


def test_result_waits_no_longer_than_asked() -> None:
    future = Rig().publish()
    start = time.monotonic()
    with pytest.raises(errors.TimedOut):
        future.result(0.05)
    with pytest.raises(errors.ConfigError):
        future.result(-1)
    assert time.monotonic() - start < 5


def test_failed_futures_leave_nothing_for_ever() -> None:
    """Futures are outside the garbage collector: an error raised from one must not lead back to it."""
    rig = Rig()

    def fail_one() -> weakref.ref[BaseException]:
        future = rig.publish()
        rig.error(rig.take()[0], 10077)
        try:
            future.result(0)
        except errors.StoreFailed as error:
            return weakref.ref(error)
        raise AssertionError

    reference = fail_one()
    gc.collect()
    assert reference() is None


def test_a_refusal_that_overtakes_the_opening_of_the_inbox_is_told_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader may hear of it before the thread that opens the inbox goes on."""
    rig = Rig()
    opened: list[str] = []

    def refuse(subject: str, sink: Any) -> Any:
        opened.append(subject)
        sink.failed(errors.PermissionViolation("no", subject, "subscribe"))
        return rig.nc

    monkeypatch.setattr(rig.nc, "open_sink", refuse)
    for _ in range(3):
        with pytest.raises(errors.PermissionViolation):
            rig.publish()
    assert len(opened) == 3
    assert not rig.publisher.futures
    assert rig.take() == []


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


def test_a_forked_child_has_nothing_under_way() -> None:
    rig = Rig()
    rig.publish()
    assert len(rig.publisher.unacked.under_way()) == 1
    rig.publisher.unacked.forked()
    assert rig.publisher.pending() == 0


def test_what_waits_to_be_sent_again_may_end_before(clock: Turn) -> None:
    rig = Rig()
    first, second = rig.publish(msg_id="1"), rig.publish(msg_id="2")
    frames_sent = rig.take()
    for frame in frames_sent:
        rig.error(frame, 10008)
    rig.ack(frames_sent[0])
    clock(rig, 0.25)
    assert len(rig.take()) == 1
    rig.publisher.unacked.fail(second, errors.NotStored("x"))
    rig.publisher.recovery.retry(second, errors.NotStored("x"))
    assert rig.publisher.recovery.retries == {}
    assert first.done()


def test_an_error_while_held_messages_are_sent_does_not_block_later_ones() -> None:
    rig = Rig()
    rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    rig.publish(msg_id="2")

    def broken(frame: bytes) -> None:
        raise KeyboardInterrupt

    post = rig.nc.post
    rig.nc.post = broken  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        rig.come_back()
    rig.nc.post = post  # type: ignore[method-assign]
    rig.publisher.recovery.send_held()
    rig.publish(msg_id="3")
    assert any(b"Nats-Msg-Id: 3" in frame for frame in rig.take())


def test_those_that_come_while_held_ones_are_sent_go_out_behind_them() -> None:
    rig = Rig()
    rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    rig.publish(msg_id="2")
    post = rig.nc.post
    more = ["3", "4"]

    def posting(frame: bytes) -> None:
        if more:
            rig.publish(msg_id=more.pop(0))
            rig.publisher.recovery.send_held()
        post(frame)

    rig.nc.post = posting  # type: ignore[method-assign]
    rig.come_back()
    found = [frame.partition(b"Nats-Msg-Id: ")[2][:1] for frame in rig.nc.sent]
    assert found == [b"1", b"2", b"3", b"4"]


def test_a_refused_subscription_is_not_a_refused_publish() -> None:
    rig = Rig()
    future = rig.publish()
    rig.publisher.unacked.refusals.refused_publish(errors.PermissionViolation("no", "s.a", "subscribe"))
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
