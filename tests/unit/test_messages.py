"""The iterator over a pull consumer, without a server: what comes beside messages, and what it shows of itself."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, Stored, message

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.pull_messages import PullMessages, each
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.message import Msg
from jsclient.states import LinkEvent


class Rig:
    def __init__(self, **options: Any) -> None:
        self.connection = Connection(Server(random.Random(1), []))
        self.source: Any = Source(self.connection, "P")  # type: ignore[arg-type]
        self.messages = PullMessages(self.source, PullOptions(max_messages=10, **options))

    def comes(self, *items: Any) -> None:
        (inbox,) = self.connection.inboxes.values()
        inbox.mailbox.items.extend(items)


def one(sequence: int, headers: bytes | None = None) -> Msg:
    plain = message(Stored(sequence, 100), sequence, 0)
    return Msg(b"s", b"1", plain.raw_reply, plain.data, headers)


@pytest.mark.parametrize("looped", [True, False])
def test_link_events_between_messages(looped: bool) -> None:
    rig = Rig(stop_after=2)
    rig.comes(LinkEvent.DISCONNECTED, one(1), LinkEvent.RECONNECTED, one(2, b"NATS/1.0\r\nA: b\r\n\r\n"))
    if looped:
        assert [each.stream_seq for each in rig.messages] == [1, 2]
    else:
        assert [rig.messages.next().stream_seq for _ in range(2)] == [1, 2]
        rig.messages.close()


def test_a_pinned_group_learns_its_pin() -> None:
    rig = Rig(group="g")
    rig.comes(one(1, b"NATS/1.0\r\nNats-Pin-Id: pin\r\n\r\n"))
    assert next(rig.messages).stream_seq == 1
    assert rig.source.pins == {"g": "pin"}
    rig.messages.close()


def test_a_permission_that_is_missing_is_raised() -> None:
    rig = Rig()
    rig.comes(errors.PermissionViolation("not permitted", "P", "publish"))
    with pytest.raises(errors.PermissionViolation):
        rig.messages.next()
    assert rig.messages.closed


def test_what_it_shows() -> None:
    rig = Rig()
    assert (rig.messages.missed_heartbeats, rig.messages.paused_until) == (0, None)
    shown = Messages(rig.messages)
    assert repr(shown) == "<Messages of the consumer open buffered=0>"
    rig.messages.stop()
    assert "ending" in repr(shown)
    rig.messages.close()
    assert "closed" in repr(shown)


def test_what_comes_after_it_was_stopped_goes_back() -> None:
    rig = Rig()
    rig.messages.stop()
    rig.comes(one(1))
    assert rig.messages._handle(one(2)) is None
    assert list(rig.messages) == []
    assert len(rig.connection.server.returned) == 2


class Ending:
    """An iterator that brings what it is given, or raises it."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.delivered = 0
        self.closed = False

    def next(self, timeout: float | None) -> Any:
        item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        self.delivered += 1
        return item

    def close(self, timeout: float) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("last", "delivered", "raised"),
    [
        (errors.NoMessages("none in time"), 1, False),
        (errors.IteratorClosed("somebody closed it"), 1, True),
        (errors.IteratorClosed("it has brought all"), 2, False),
    ],
)
def test_one_after_the_other_until_the_end(last: Exception, delivered: int, raised: bool) -> None:
    messages: Any = Ending(one(1), last)
    found = each(messages, 2, Deadline(5))
    assert next(found)
    messages.delivered = delivered
    if raised:
        with pytest.raises(type(last)):
            next(found)
    else:
        assert list(found) == []
    assert messages.closed
