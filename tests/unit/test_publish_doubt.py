"""Asynchronous publishes in doubt: when an id goes out again, what a refusal means, in which order things are sent."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream import PubAck
from jsclient.jetstream.publishing import delivery, recovery
from jsclient.jetstream.publishing.streams import Streams
from jsclient.message import Msg
from jsclient.states import LinkEvent
from tests.publish_rig import Rig, Turn, clock, outcome

__all__ = ["clock"]


# --- the window of ids: asked for before an id goes out again ---------------------------------------------------------


def info(window: float, max_age: float = 0, replicas: int = 1) -> bytes:
    config = {
        "name": "S",
        "subjects": ["s.>"],
        "duplicate_window": int(window * 1e9),
        "max_age": int(max_age * 1e9),
        "num_replicas": replicas,
    }
    return json.dumps({"config": config, "state": {}, "created": "2026-01-01T00:00:00Z"}).encode()


def answer_questions(rig: Rig, window: bytes) -> list[bytes]:
    """Answer what is asked about the stream; returns the other frames."""
    others: list[bytes] = []
    for _ in range(3):
        for frame in rig.take():
            if b"STREAM.NAMES" in frame:
                rig.answer(frame, b'{"streams":["S"],"total":1}')
            elif b"STREAM.INFO.S" in frame:
                rig.answer(frame, window)
            else:
                others.append(frame)
    return others


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


HEADERS = base64.b64encode(b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")


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


def test_the_time_of_an_id_begins_before_the_sweep_sees_it(clock: Turn) -> None:
    """It may have been published just after the sweep before."""
    rig = Rig(duplicate_window=1, ack_timeout=20)
    first = rig.publish("s.first")
    rig.ack(rig.take()[0])
    assert first.done()
    future = rig.publish(msg_id="1")
    rig.take()
    clock(rig, 0.45)
    rig.lose()
    rig.come_back()
    assert len(rig.take()) == 1  # 0.45 of the 0.5 s that a window of 1 s leaves
    clock(rig, 0.1)
    rig.lose()
    rig.come_back()
    assert not rig.take()
    assert outcome(future) is errors.PublishUnknown


def test_no_id_is_sent_again_after_the_machine_was_suspended(clock: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of timeouts stood still, and the stream has forgotten the id meanwhile."""
    rig = Rig(duplicate_window=120, ack_timeout=20)
    future = rig.publish(msg_id="1")
    rig.take()
    clock(rig, 1)
    awake = recovery.elapsed
    monkeypatch.setattr(recovery, "elapsed", lambda: awake() + 200)
    rig.lose()
    rig.come_back()
    assert not rig.take()
    assert outcome(future) is errors.PublishUnknown


def test_nor_by_a_synchronous_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Msg(b"r", b"1", None, b'{"stream":"S","seq":1}')
    engine = SimpleNamespace(request=lambda *_, **__: answer)
    nc = SimpleNamespace(is_connected=True, _engine=engine, options=SimpleNamespace(instrumentation=None))
    js: Any = SimpleNamespace(publish_streams=Streams(120), nc=nc)

    def publish_again(slept: float) -> PubAck:
        block, began = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", delivery.elapsed()
        attempt = delivery.Delivery(js, "s", b"", block, Deadline(5), None, 0.1, began)
        monkeypatch.setattr(delivery, "elapsed", lambda: began + slept)
        return attempt.persist(errors.ConnectionLost("cut"), None)

    assert publish_again(1).seq == 1
    with pytest.raises(errors.PublishUnknown):
        publish_again(200)


def test_who_may_not_ask_does_not_send_again() -> None:
    rig = Rig(duplicate_window=None)
    unsafe, plain = rig.publish(msg_id="1"), rig.publish("s.b")
    rig.publisher.unacked.withdrawn([rig.take()[1]])
    rig.lose()
    rig.come_back()
    assert b"STREAM.NAMES" in rig.take()[0]
    rig.publisher.unacked.refusals.refused_publish(errors.PermissionViolation("x", "$JS.API.STREAM.NAMES", "publish"))
    assert outcome(unsafe) is errors.PublishUnknown
    assert "publish_async_duplicate_window" in str(unsafe.exception(0))
    (frame,) = rig.take()
    rig.ack(frame)
    assert plain.result(0).seq == 1


def test_who_gets_no_answer_does_not_send_again(clock: Turn) -> None:
    rig = Rig(duplicate_window=None, ack_timeout=10)
    unsafe, plain = rig.publish(msg_id="1"), rig.publish("s.b")
    clock(rig, 0)
    rig.publisher.unacked.withdrawn([rig.take()[1]])
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


# --- refusals: another copy in doubt, or a leader that is none any more -----------------------------------------------


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


# --- what is held -----------------------------------------------------------------------------------------------------


def test_what_became_too_large_while_it_was_held_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    sent = rig.publish(msg_id="1")
    rig.take()
    rig.lose()
    never = rig.publish()
    encode = rig.nc.encode

    def refuse(subject: str, payload: bytes, reply: bytes, block: bytes | None = None) -> bytes:
        if subject == "s.a":
            raise errors.PayloadTooLarge("headers and payload have 1 bytes, the server takes 0 (max_payload)")
        return encode(subject, payload, reply, block)

    monkeypatch.setattr(rig.nc, "encode", refuse)
    rig.come_back()
    assert outcome(never) is errors.PayloadTooLarge
    assert outcome(sent) is errors.PublishUnknown
    assert "sent 1 times" in str(sent.exception(0))
    assert "max_payload" in str(sent.exception(0))


def test_order_holds_over_a_lost_link() -> None:
    """Sent before and without an ack, withdrawn, published while the link was down, and just when it came back."""
    rig = Rig()
    futures = [rig.publish("s.0", msg_id="0"), rig.publish("s.1", msg_id="1"), rig.publish("s.2")]
    rig.publisher.unacked.withdrawn([rig.take()[2]])
    rig.lose()
    futures.append(rig.publish("s.3"))
    rig.nc.is_connected = True  # the publisher has not heard of it yet
    futures.append(rig.publish("s.4"))
    assert not rig.take()
    rig.publisher.unacked.link_event(LinkEvent.RECONNECTED)
    futures.append(rig.publish("s.5"))
    frames = rig.take()
    assert [frame.split(b" ")[1] for frame in frames] == [b"s.%d" % number for number in range(6)]
    for number, frame in enumerate(frames, 1):
        rig.ack(frame, number)
    assert [future.result(0).seq for future in futures] == [1, 2, 3, 4, 5, 6]


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


def test_what_the_queue_has_no_room_for_goes_later(clock: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.publish("s.0", msg_id="0")
    rig.take()
    rig.lose()
    post = rig.nc.post

    def full(frame: bytes) -> None:
        raise errors.BufferFull("full")

    monkeypatch.setattr(rig.nc, "post", full)
    rig.come_back()
    monkeypatch.setattr(rig.nc, "post", post)
    clock(rig, 1)
    assert len(rig.take()) == 1


def test_a_publish_on_a_closed_connection_is_not_held() -> None:
    rig = Rig()
    rig.publish(msg_id="1")
    rig.lose()
    rig.nc.closed = errors.ConnectionClosed("the connection is closed")
    with pytest.raises(errors.ConnectionClosed):
        rig.publish()
    assert rig.publisher.pending() == 1
