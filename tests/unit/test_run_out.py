"""How the pulls of a consumer without acks end: what is waited for and how long, and what is said to be missing."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.pull_rig import Connection, Inbox, Server, Source, Stored

from jsclient import errors
from jsclient._connection import Mailbox
from jsclient.durations import Deadline
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.api.models import ConsumerInfo
from jsclient.jetstream.api.models_consumer import SequenceInfo
from jsclient.jetstream.consuming import pull_messages
from jsclient.jetstream.consuming.pull_messages import PullMessages
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.message import Msg
from jsclient.states import LinkEvent

WINDOW = 10
QUIET = 0.005


def position(delivered: int, waiting: int = 0) -> ConsumerInfo:
    at = SequenceInfo(consumer_seq=delivered, stream_seq=delivered)
    config = ConsumerConfig(ack_policy="none")
    return ConsumerInfo(stream_name="S", name="C", config=config, delivered=at, ack_floor=at, num_waiting=waiting)


class InFlight(Source):
    """A consumer with ack policy none; `answers` is what it says of itself, the last one again and again."""

    ack_none = True

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, "P")
        self.answers: list[Any] = [None]
        self.asked = 0

    def ask_position(self, timeout: float) -> ConsumerInfo | None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer() if isinstance(answer, Callable) else answer  # type: ignore[arg-type,no-any-return]


class Rig:
    def __init__(self) -> None:
        self.server = Server(random.Random(1), [])
        self.connection = Connection(self.server)
        self.source = InFlight(self.connection)
        self.told: list[Any] = []
        options = PullOptions(max_messages=WINDOW, on_error=self.told.append)
        self.messages = PullMessages(self.source, options)
        self.begin()

    def begin(self) -> None:
        """The application comes for the first message."""
        with pytest.raises(errors.NoMessages):
            self.messages.next(0)
        (self.pull,) = self.server.pulls

    def comes(self, count: int) -> None:
        self.server.left.extend(Stored(self.server.delivery + number, 100) for number in range(1, count + 1))
        for _ in range(count):
            self.server.send(self.pull)
            self.pull.inbox.received += 1

    def says(self, text: str, unserved: int | None = None) -> None:
        self.server.say(self.pull, text, "" if unserved is None else f"Nats-Pending-Messages: {unserved}\r\n")

    def drain(self, timeout: float = 5.0) -> list[str]:
        """What is reported by it."""
        assert self.server.pulls
        self.messages.drain(timeout)
        assert not self.server.pulls
        assert all(isinstance(each, errors.DrainIncomplete) for each in self.told)
        return [str(each) for each in self.told]

    def rest(self) -> int:
        return len(list(self.messages))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    for name, times in (("QUIET", 1), ("SETTLE", 1), ("LONGEST_SILENCE", 4)):
        monkeypatch.setattr(pull_messages, name, times * QUIET)
    return Rig()


def test_nothing_is_asked_where_all_has_come(rig: Rig) -> None:
    rig.comes(WINDOW)
    assert rig.drain() == []
    assert (rig.source.asked, rig.rest()) == (0, WINDOW)


@pytest.mark.parametrize(
    ("status", "unserved"),
    [("408 Request Timeout", WINDOW - 3), ("404 No Messages", WINDOW - 3), ("409 Leadership Change", None)],
)
def test_what_a_status_says_will_not_come_is_not_waited_for(rig: Rig, status: str, unserved: int | None) -> None:
    rig.comes(3)
    rig.says("100 Idle Heartbeat")
    rig.says(status, unserved)
    assert rig.drain() == []
    assert rig.source.asked == 0


def test_what_is_on_its_way_is_waited_for(rig: Rig) -> None:
    def meanwhile() -> ConsumerInfo:
        rig.comes(WINDOW - 3)
        return position(WINDOW)

    rig.comes(3)
    rig.source.answers = [meanwhile, position(WINDOW)]
    assert rig.drain() == []
    assert (rig.source.asked, rig.rest()) == (2, WINDOW)


def test_a_quiet_pull_ends_when_the_consumer_says_that_nothing_is_on_its_way(rig: Rig) -> None:
    rig.comes(3)
    rig.source.answers = [position(3)]
    assert rig.drain() == []
    assert (rig.source.asked, rig.rest()) == (2, 3)


def test_what_was_taken_during_the_drain_has_come(rig: Rig) -> None:
    def taken() -> ConsumerInfo:
        rig.messages.next(0)
        return position(1)

    rig.comes(1)
    rig.source.answers = [taken, position(1)]
    assert rig.drain() == []


def test_where_nothing_came_the_consumer_is_asked_twice(rig: Rig) -> None:
    rig.comes(2)
    assert [rig.messages.next().stream_seq for _ in range(2)] == [1, 2]
    rig.source.answers = [position(2)]
    assert rig.drain() == []
    assert rig.source.asked == 3
    assert rig.rest() == 0


def test_what_is_sent_at_the_end_is_reported(rig: Rig) -> None:
    rig.comes(3)
    rig.source.answers = [position(3), position(5)]
    (text,) = rig.drain()
    assert text.startswith("the server sent 2 messages of the consumer that had not come when the drain ended")
    assert rig.rest() == 3


def test_what_is_sent_after_all_was_taken_is_reported(rig: Rig) -> None:
    rig.comes(2)
    assert [rig.messages.next().stream_seq for _ in range(2)] == [1, 2]
    rig.source.answers = [position(2), position(2), position(3)]
    (text,) = rig.drain()
    assert text.startswith("the server sent 1 message of")


def test_what_never_comes_is_not_waited_for_without_end(rig: Rig) -> None:
    rig.comes(3)
    rig.source.answers = [position(4)]
    (text,) = rig.drain()
    assert text.startswith("the server sent 1 message of")


def test_nothing_is_said_where_others_pull(rig: Rig) -> None:
    rig.comes(3)
    rig.source.answers = [position(7, waiting=2), position(8, waiting=1)]
    assert rig.drain() == []


def test_nothing_is_said_where_others_got_what_lies_between(rig: Rig) -> None:
    rig.comes(1)
    rig.server.delivery += 4
    rig.comes(1)
    rig.source.answers = [position(9)]
    assert rig.drain() == []


def test_nothing_is_said_where_the_consumer_does_not_answer(rig: Rig) -> None:
    rig.comes(3)
    rig.says("100 Idle Heartbeat")
    rig.pull.inbox.mailbox.items.append(LinkEvent.RECONNECTED)
    assert rig.drain() == []
    assert rig.source.asked == 2


def test_a_pull_that_is_not_counted_on_makes_it_ask(rig: Rig) -> None:
    rig.pull.inbox.mailbox.items.extend([LinkEvent.DISCONNECTED, LinkEvent.RECONNECTED])
    rig.server.pulls.clear()
    rig.begin()  # the server may serve the old one, too
    rig.comes(WINDOW)
    rig.source.answers = [position(WINDOW + 1)]
    (text,) = rig.drain()
    assert text.startswith("the server sent 1 message of")


def test_without_time_it_ends_at_once(rig: Rig) -> None:
    rig.comes(3)
    rig.source.answers = [position(3)]
    assert rig.drain(0.0) == []
    assert rig.source.asked == 1


def test_a_thin_flow_is_not_waited_for_to_the_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_messages, "LOOK", 0.0)
    monkeypatch.setattr(pull_messages, "QUIET", 60.0)

    class Coming(type(rig.pull.inbox)):  # type: ignore[misc]
        looks = 0

        @property
        def received(self) -> int:
            self.looks += 1
            return int(self.looks > 1)

    rig.comes(1)
    rig.pull.inbox.__class__ = Coming
    rig.source.answers = [position(1)]
    assert rig.drain(0.1) == []
    assert rig.source.asked == 1


def test_a_link_that_is_gone_brings_nothing(rig: Rig) -> None:
    rig.comes(3)
    rig.connection.is_connected = False
    assert rig.drain() == []
    assert (rig.source.asked, rig.rest()) == (0, 3)


def test_a_stop_ends_the_wait(rig: Rig) -> None:
    def meanwhile() -> ConsumerInfo:
        rig.messages.stop()
        return position(5)

    rig.comes(3)
    rig.source.answers = [meanwhile]
    assert rig.drain() == []
    assert rig.source.asked == 1
    rig.messages.close()


def test_a_second_drain_does_nothing(rig: Rig) -> None:
    rig.comes(WINDOW)
    rig.messages.ask_no_more()
    rig.messages.ask_no_more()
    rig.messages.drain()  # somebody else sees to it
    rig.messages.run_out(Deadline(1.0))
    rig.messages.run_out(Deadline(1.0))
    assert not rig.told
    rig.messages.complete()
    assert rig.rest() == WINDOW


def test_what_another_thread_takes_first_is_remembered_too() -> None:
    class Raced(deque[Any]):
        def __getitem__(self, index: Any) -> Any:
            return LinkEvent.RECONNECTED  # in front of it until just now

    server = Server(random.Random(1), [])
    connection = Connection(server)
    source = InFlight(connection)
    mailbox = Mailbox()
    mailbox.items = Raced()
    mailbox.popleft = mailbox.items.popleft
    connection.open_inbox = lambda subject: made(subject, connection, mailbox)  # type: ignore[method-assign]
    told: list[Any] = []
    messages = PullMessages(source, PullOptions(max_messages=WINDOW, on_error=told.append))
    with pytest.raises(errors.NoMessages):
        messages.next(0)
    server.left.append(Stored(1, 100))
    server.send(server.pulls[0])
    messages.ask_no_more()
    assert messages.next(0).stream_seq == 1
    source.answers = [position(2)]
    messages.drain()
    messages.run_out(Deadline(0.0))
    (error,) = told
    assert str(error).startswith("the server sent 1 message of")


def made(subject: str, connection: Connection, mailbox: Mailbox) -> Inbox:
    inbox = Inbox(connection)
    inbox.mailbox = mailbox
    connection.inboxes[subject.removesuffix("*").encode()] = inbox
    return inbox


def test_a_status_of_a_pull_that_is_over_says_nothing(rig: Rig) -> None:
    rig.comes(3)
    rig.pull.inbox.mailbox.items.append(Msg(rig.pull.reply + b"x", b"1", None, b"", b"NATS/1.0 408 Over\r\n\r\n"))
    rig.source.answers = [position(3)]
    assert rig.drain() == []
    assert rig.source.asked == 2


def test_a_handler_on_top_of_a_drain_does_not_wait_for_it(rig: Rig) -> None:
    """A signal handler that drains the connection, on top of the thread that drains the iterator."""
    came: list[bool] = []

    def struck() -> ConsumerInfo:
        rig.messages.run_out(Deadline(None))
        came.append(True)
        return position(0)

    rig.source.answers = [struck, position(0)]
    assert rig.drain() == []
    assert came
