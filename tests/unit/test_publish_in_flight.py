"""What a publisher has under way: acks that find their message, the inbox they come to, and the end of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.publish_rig import Rig, clock, outcome

from jsclient import errors
from jsclient.states import LinkEvent

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


def test_end_of_the_connection() -> None:
    rig = Rig()
    sent, refused = rig.publish(), rig.publish()
    rig.no_responders(rig.take()[1])
    rig.nc.closed = errors.ConnectionClosed("the connection is closed")
    rig.publisher.in_flight.link_event(LinkEvent.CLOSED)
    assert outcome(sent) is errors.PublishUnknown
    assert outcome(refused) is errors.NotStored
    with pytest.raises(errors.ConnectionClosed):
        rig.publish()
    assert rig.publisher.pending() == 0


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


def test_a_forked_child_has_nothing_under_way() -> None:
    rig = Rig()
    rig.publish()
    assert len(rig.publisher.in_flight.under_way()) == 1
    rig.publisher.in_flight.forked()
    assert rig.publisher.pending() == 0


def test_an_inbox_that_was_refused_is_opened_again_when_it_is_wanted() -> None:
    rig = Rig()
    future = rig.publish()
    rig.publisher.in_flight.failed(errors.PermissionViolation("not permitted", "_INBOX.x.*", "subscribe"))
    assert outcome(future) is errors.PublishUnknown
    assert rig.publisher.in_flight.inbox_start == b"_INBOX.x."
    rig.take()
    again = rig.publish()
    rig.ack(rig.take()[0])
    assert again.result(0).seq == 1
