"""The asynchronous publisher without a server: settings, back-pressure, which hooks are called, and how it ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.publish_rig import FakeConnection, Rig, outcome

from jsclient import errors
from jsclient.jetstream.publishing.future import PublishFuture, PubMsg
from jsclient.protocol.frames import LARGE_PAYLOAD


@pytest.mark.parametrize(
    "settings",
    [
        {"max_pending": 0},
        {"max_pending_bytes": 0},
        {"ack_timeout": 0},
        {"ack_timeout": float("nan")},
        {"stall_wait": -1},
        {"retry_wait": -1},
        {"duplicate_window": -1},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Rig(**settings)


def test_message_objects() -> None:
    rig = Rig()
    future = rig.publisher.publish_msg(PubMsg("s.a", b"x", {"A": "b"}), msg_id="1")
    assert (future.headers["A"], future.msg_id) == ("b", "1")
    with pytest.raises(errors.AsyncPublishReplySet):
        rig.publisher.publish_msg(PubMsg("s.a", reply="elsewhere"))


@pytest.mark.parametrize("headers", [None, {"A": "b"}])
def test_large_messages(headers: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeConnection, "max_payload", 8 * LARGE_PAYLOAD)
    rig = Rig(max_pending=2, max_pending_bytes=4 * LARGE_PAYLOAD, stall_wait=0)
    publisher = rig.publisher
    future = publisher.publish("s.a", b"x" * 3 * LARGE_PAYLOAD, headers=headers)
    with pytest.raises(errors.TooManyStalledMessages, match="no ack came in 0 s for 1 message of this publisher"):
        publisher.publish("s.a", b"x" * 3 * LARGE_PAYLOAD, headers=headers)
    assert rig.publisher.pending() == 1
    publisher.in_flight.succeed(future, publisher_ack())
    assert publisher.futures == {}
    with pytest.raises(errors.PayloadTooLarge):
        publisher.publish("s.a", b"x" * 9 * LARGE_PAYLOAD, headers=headers)


def publisher_ack() -> Any:
    from jsclient.jetstream.api.models import PubAck

    return PubAck(stream="S", seq=1)


def test_a_full_window_raises_or_waits() -> None:
    rig = Rig(max_pending=1, stall_wait=0)
    rig.publish()
    with pytest.raises(errors.TooManyStalledMessages):
        rig.publish()
    assert "pending=1 of 1" in repr(rig.publisher)


def test_what_cannot_be_sent_is_not_pending() -> None:
    rig = Rig()
    rig.publish()
    rig.nc.closed = errors.ConnectionClosed("closed")
    with pytest.raises(errors.ConnectionClosed):
        rig.publish()
    assert rig.publisher.pending() == 1


def test_an_old_server_takes_no_headers() -> None:
    rig = Rig()
    rig.nc.takes_headers = False

    def check() -> None:
        raise errors.HeadersNotSupported("it takes no headers")

    rig.nc.check_headers = check  # type: ignore[attr-defined]
    with pytest.raises(errors.HeadersNotSupported):
        rig.publish(msg_id="1")
    assert rig.publisher.pending() == 0


def test_a_connection_that_drains_takes_nothing_new() -> None:
    rig = Rig()
    rig.nc.draining = True

    def check() -> None:
        raise errors.ConnectionDraining("it drains")

    rig.nc.check_draining = check  # type: ignore[attr-defined]
    with pytest.raises(errors.ConnectionDraining):
        rig.publish()


def test_hooks_are_told() -> None:
    acked: list[PublishFuture] = []
    failed: list[tuple[PublishFuture, type[BaseException]]] = []
    rig = Rig(on_ack=acked.append, on_error=lambda future, error: failed.append((future, type(error))))
    good, bad, found = rig.publish(), rig.publish(), rig.publish()
    frames = rig.take()
    rig.ack(frames[0])
    rig.error(frames[1], 10077)
    rig.publisher.in_flight.succeed(found, publisher_ack())
    rig.publisher.in_flight.succeed(found, publisher_ack())
    assert acked == [good, found]
    assert failed == [(bad, errors.StoreFailed)]


def test_everything_is_waited_for() -> None:
    rig = Rig()
    future = rig.publish()
    with pytest.raises(errors.TimedOut, match="Each may be stored"):
        rig.publisher.complete(0.01)
    frame = rig.take()[0]
    timer = threading.Timer(0.02, rig.ack, (frame,))
    timer.start()
    with rig.publisher:
        pass
    assert future.result(0).seq == 1
    timer.join()


def test_what_is_left_at_the_end_is_unknown() -> None:
    rig = Rig()
    future = rig.publish()
    with pytest.raises(errors.TimedOut):
        rig.publisher.close(0)
    assert outcome(future) is errors.PublishUnknown


def test_an_interrupt_does_not_wait() -> None:
    rig = Rig()
    with pytest.raises(KeyboardInterrupt), rig.publisher:
        future = rig.publish()
        raise KeyboardInterrupt
    assert outcome(future) is errors.PublishUnknown


def test_a_watcher_may_go_away() -> None:
    rig = Rig()
    future = rig.publish()
    told: list[PublishFuture] = []
    rig.publisher.watch(future, told.append)
    rig.publisher.unwatch(future, told.append)
    rig.publisher.unwatch(future, told.append)
    rig.ack(rig.take()[0])
    rig.publisher.wake(future)
    assert told == []
