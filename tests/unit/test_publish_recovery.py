"""What becomes of asynchronous publishes without a plain ack; a fake connection, a clock that the test turns."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
from tests.publish_rig import Rig, Turn, clock, outcome

from jsclient import errors

__all__ = ["clock"]


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
    rig.publisher.in_flight.withdrawn([b"PING\r\n", b"PUB elsewhere _INBOX.y.1 0\r\n\r\n", frames[1]])
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
    rig.publisher.recovery.hold(future)  # its enqueue failed, and the link is up again already
    assert len(rig.take()) == 1
    rig.ack(frame)
    assert future.done()
    assert not rig.publisher.recovery.held


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


def test_what_waits_to_be_sent_again_may_end_before(clock: Turn) -> None:
    rig = Rig()
    first, second = rig.publish(msg_id="1"), rig.publish(msg_id="2")
    frames_sent = rig.take()
    for frame in frames_sent:
        rig.error(frame, 10008)
    rig.ack(frames_sent[0])
    clock(rig, 0.25)
    assert len(rig.take()) == 1
    rig.publisher.in_flight.fail(second, errors.NotStored("x"))
    rig.publisher.recovery.retry(second)
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

    enqueue = rig.nc.enqueue
    rig.nc.enqueue = broken  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        rig.come_back()
    rig.nc.enqueue = enqueue  # type: ignore[method-assign]
    rig.publisher.recovery.send_held()
    rig.publish(msg_id="3")
    assert any(b"Nats-Msg-Id: 3" in frame for frame in rig.take())


def test_those_that_come_while_held_ones_are_sent_go_out_behind_them() -> None:
    rig = Rig()
    rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    rig.publish(msg_id="2")
    enqueue = rig.nc.enqueue
    more = ["3", "4"]

    def enqueuing(frame: bytes) -> None:
        if more:
            rig.publish(msg_id=more.pop(0))
            rig.publisher.recovery.send_held()
        enqueue(frame)

    rig.nc.enqueue = enqueuing  # type: ignore[method-assign]
    rig.come_back()
    found = [frame.partition(b"Nats-Msg-Id: ")[2][:1] for frame in rig.nc.sent]
    assert found == [b"1", b"2", b"3", b"4"]


def test_what_was_acknowledged_meanwhile_is_not_sent_again() -> None:
    rig = Rig()
    rig.publish(msg_id="1")
    rig.publish(msg_id="2")
    _, second = rig.take()
    rig.lose()
    enqueue = rig.nc.enqueue

    def enqueuing(frame: bytes) -> None:
        enqueue(frame)
        rig.ack(second, 2)

    rig.nc.enqueue = enqueuing  # type: ignore[method-assign]
    rig.come_back()
    assert [b"Nats-Msg-Id: 1" in frame for frame in rig.take()] == [True]


def test_without_an_id_nothing_in_doubt_is_sent_again(clock: Turn) -> None:
    rig = Rig()
    future = rig.publish()
    rig.take()
    rig.publisher.recovery.retry(future)
    clock(rig, 0.25)
    assert rig.take() == []
    assert outcome(future) is errors.PublishUnknown


def test_a_connection_that_is_closed_while_held_messages_are_sent() -> None:
    rig = Rig()
    sent = rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    never = rig.publish()
    rig.nc.closed = errors.ConnectionClosed("the connection is closed")
    rig.come_back()
    assert [outcome(sent), outcome(never)] == [errors.PublishUnknown, errors.NotStored]
