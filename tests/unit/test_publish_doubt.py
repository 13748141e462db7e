"""Asynchronous publishes in doubt: when an id goes out again, what a refusal means, in which order things are sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.publish_rig import Rig, Turn, clock, outcome

from jsclient import errors
from jsclient.durations import Deadline, elapsed
from jsclient.jetstream import PubAck
from jsclient.jetstream.publishing import recovery, synchronous
from jsclient.jetstream.publishing.outcome import retry_rules
from jsclient.jetstream.publishing.streams import Streams
from jsclient.message import Msg
from jsclient.states import LinkEvent

__all__ = ["clock"]


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
    awake = vars(recovery)["elapsed"]  # the clock of the rig: the machine may have started just now
    monkeypatch.setattr(recovery, "elapsed", lambda: awake() + 200)
    rig.lose()
    rig.come_back()
    assert not rig.take()
    assert outcome(future) is errors.PublishUnknown


def test_nor_by_a_synchronous_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Msg(b"r", b"1", None, b'{"stream":"S","seq":1}')
    engine = SimpleNamespace(request=lambda *_, **__: answer, wait_connected=lambda timeout: True)
    nc = SimpleNamespace(_engine=engine, options=SimpleNamespace(instrumentation=None))
    js: Any = SimpleNamespace(publish_streams=Streams(120), nc=nc)

    def publish_again(slept: float) -> PubAck:
        block, began = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", elapsed()
        attempt = synchronous.PublishAttempts(js, "s", b"", block, Deadline(5), retry_rules(None, 0.1), began)
        monkeypatch.setattr(synchronous, "elapsed", lambda: began + slept)
        return attempt.persist(errors.ConnectionLost("cut"), None)

    assert publish_again(1).seq == 1
    with pytest.raises(errors.PublishUnknown):
        publish_again(200)


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
    assert "sent 1 time)" in str(sent.exception(0))
    assert "max_payload" in str(sent.exception(0))


def test_order_holds_over_a_lost_link() -> None:
    """Sent before and without an ack, withdrawn, published while the link was down, and just when it came back."""
    rig = Rig()
    futures = [rig.publish("s.0", msg_id="0"), rig.publish("s.1", msg_id="1"), rig.publish("s.2")]
    rig.publisher.in_flight.withdrawn([rig.take()[2]])
    rig.lose()
    futures.append(rig.publish("s.3"))
    rig.nc.is_connected = True  # the publisher has not heard of it yet
    futures.append(rig.publish("s.4"))
    assert not rig.take()
    rig.publisher.in_flight.link_event(LinkEvent.RECONNECTED)
    futures.append(rig.publish("s.5"))
    frames = rig.take()
    assert [frame.split(b" ")[1] for frame in frames] == [b"s.%d" % number for number in range(6)]
    for number, frame in enumerate(frames, 1):
        rig.ack(frame, number)
    assert [future.result(0).seq for future in futures] == [1, 2, 3, 4, 5, 6]


def test_what_the_queue_has_no_room_for_goes_later(clock: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.publish("s.0", msg_id="0")
    rig.take()
    rig.lose()
    enqueue = rig.nc.enqueue

    def full(frame: bytes) -> None:
        raise errors.BufferFull("full")

    monkeypatch.setattr(rig.nc, "enqueue", full)
    rig.come_back()
    monkeypatch.setattr(rig.nc, "enqueue", enqueue)
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
