"""The iterator of an ordered push consumer, without a server: gaps, heartbeats, new consumers, and how it ends."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import pytest
from tests.ordered_rig import GONE, SILENCE, a_question_ends_with_the_call, sent, stream

from jsclient import errors
from jsclient.jetstream.consuming.ordered_sequence import OrderedOptions, OrderedState
from jsclient.jetstream.consuming.push import OrderedPushConsumer, OrderedPushMessages, OrderedPushSource, PushOptions
from jsclient.message import Msg
from jsclient.states import LinkEvent


class Rig:
    def __init__(self, *, connected: bool = True, **answers: list[Any]) -> None:
        self.js = stream()
        self.api = self.js.api
        self.api.answers = {name.replace("_", "."): script for name, script in answers.items()}
        self.js.nc.is_connected = connected
        self.state = OrderedState(OrderedOptions())
        self.source = OrderedPushSource(self.js, "S", self.state, 5.0)
        self.messages = OrderedPushMessages(self.source, PushOptions())

    @property
    def subject(self) -> bytes:
        return (self.source.config.deliver_subject or "").encode()

    def comes(self, *items: Any) -> None:
        """Pairs of (stream sequence, consumer sequence) of the present consumer, or what is no message."""
        for item in items:
            self.mailbox.put(sent(self.state.name, *item) if isinstance(item, tuple) else item)

    def status(self, text: str, headers: str = "", subject: bytes = b"") -> Msg:
        return Msg(subject or self.subject, b"1", None, b"", f"NATS/1.0 {text}\r\n{headers}\r\n".encode())

    @property
    def mailbox(self) -> Any:
        return next(iter(self.js.nc.sinks.values())).mailbox

    def taken(self) -> list[int]:
        found = []
        while True:
            try:
                found.append(self.messages.next(timeout=0).stream_seq)
            except errors.NoMessages:
                return found


def test_messages_in_a_row() -> None:
    rig = Rig()
    rig.comes((1, 1), rig.status("100 Idle Heartbeat", "Nats-Last-Consumer: 1\r\n"), (2, 2))
    assert rig.taken() == [1, 2]
    assert rig.messages.delivered == 2


def test_a_gap_makes_a_new_consumer() -> None:
    rig = Rig()
    rig.comes((1, 1), (3, 3))
    assert rig.taken() == [1]
    assert rig.messages.resets == 1
    rig.comes((2, 1))
    assert rig.taken() == [2]


def test_a_heartbeat_may_tell_of_what_has_not_come() -> None:
    rig = Rig()
    rig.comes((1, 1), rig.status("100 Idle Heartbeat", "Nats-Last-Consumer: 2\r\n"))
    assert rig.taken() == [1]
    assert rig.messages.resets == 1


def test_a_new_link_makes_a_new_consumer() -> None:
    rig = Rig()
    rig.comes(LinkEvent.DISCONNECTED, LinkEvent.RECONNECTED)
    assert rig.taken() == []
    assert rig.messages.resets == 1


def test_control_frames_of_an_earlier_consumer_say_nothing() -> None:
    rig = Rig()
    rig.comes(rig.status("409 Consumer Deleted", subject=b"_INBOX.old"), (1, 1))
    assert rig.taken() == [1]
    assert rig.messages.resets == 0


def test_every_consumer_has_its_own_subject() -> None:
    rig = Rig()
    before = rig.subject
    rig.comes((1, 1), (3, 3))
    assert rig.taken() == [1]
    assert rig.subject != before
    rig.comes(
        rig.status("100 Idle Heartbeat", "Nats-Last-Consumer: 3\r\n", subject=before),
        rig.status("409 Consumer Deleted", subject=before),
        (2, 1),
    )
    assert rig.taken() == [2]
    assert rig.messages.resets == 1


def test_what_is_no_reason_for_a_new_one_is_told() -> None:
    rig = Rig()
    told: list[Exception] = []
    rig.messages.options = PushOptions(on_error=told.append)
    rig.comes(rig.status("409 Something New"))
    assert rig.taken() == []
    assert [type(error) for error in told] == [errors.PullStatusError]
    assert (rig.messages.resets, rig.messages.missed_heartbeats) == (0, 0)


def test_a_consumer_that_was_deleted_is_made_again() -> None:
    rig = Rig()
    rig.comes(rig.status("409 Consumer Deleted"))
    assert rig.taken() == []
    assert rig.messages.resets == 1


def test_a_server_that_leaves_the_cluster_is_asked_soon() -> None:
    rig = Rig(CONSUMER_INFO=[None, GONE])
    rig.comes(LinkEvent.SERVER_LEFT)
    with pytest.raises(errors.NoMessages):
        rig.messages.next(timeout=0.8)
    assert rig.messages.resets == 1


def test_such_a_question_ends_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.consuming.ordered_messages.QUESTIONS", (0.0, 0.4))
    a_question_ends_with_the_call(Rig())


def test_without_a_link_it_waits_for_one() -> None:
    rig = Rig(connected=False)
    assert rig.taken() == []
    assert rig.api.asked == []
    rig.js.nc.is_connected = True
    rig.comes(LinkEvent.RECONNECTED)
    assert rig.taken() == []
    assert rig.api.asked == ["CONSUMER.CREATE"]


def test_one_that_cannot_be_made_leaves_nothing() -> None:
    with pytest.raises(errors.StreamNotFound):
        Rig(CONSUMER_CREATE=[errors.StreamNotFound(404, 10059, "no stream")])


def test_the_question_for_the_stream_has_what_time_is_left() -> None:
    rig = Rig()
    asked: list[float] = []
    request = rig.api.request

    def slow(operation: str, *args: Any, **options: Any) -> Any:
        until = time.monotonic() + 0.05
        while operation.startswith("CONSUMER.CREATE") and time.monotonic() < until:
            pass
        asked.append(options["timeout"] if isinstance(options["timeout"], float) else 0.0)
        return request(operation, *args, **options)

    rig.api.request = slow
    rig.messages.make_next(1.0)
    assert 0 < asked[-1] <= 0.95


def test_what_comes_after_it_was_stopped_is_not_delivered() -> None:
    rig = Rig()
    rig.comes((1, 1), (2, 2))
    assert rig.messages.next().stream_seq == 1
    rig.messages.stop()
    assert list(rig.messages) == []


def test_a_drained_one_ends_behind_what_is_there() -> None:
    rig = Rig()
    rig.comes((1, 1))
    rig.messages.drain()
    assert [message.stream_seq for message in rig.messages] == [1]


def test_it_is_closed_by_another_thread_while_its_consumer_cannot_be_made() -> None:
    rig = Rig()

    def closed_meanwhile() -> Exception:
        thread = threading.Thread(target=rig.messages.close)
        thread.start()
        thread.join(10)
        return SILENCE

    rig.api.answers["CONSUMER.CREATE"] = [closed_meanwhile]
    rig.comes((2, 2))
    assert list(rig.messages) == []


def test_it_is_closed_while_its_stream_is_being_checked() -> None:
    rig = Rig()
    rig.source.check_stream = lambda *_: rig.source.delete()  # type: ignore[method-assign]
    rig.source.create()
    assert rig.source.info is None


def test_to_remove_it_is_no_duty() -> None:
    rig = Rig()
    rig.js.nc.is_connected = False
    rig.source.delete()
    assert rig.source.info is None


def test_it_belongs_to_its_process() -> None:
    js = stream()
    consumer = OrderedPushConsumer(js, "S")
    assert repr(consumer) == "<OrderedPushConsumer of 'S'>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(consumer)
    assert OrderedPushSource(js, "S", OrderedState(OrderedOptions()), 5.0).why_deleted(GONE, 1.0) is GONE


def test_a_hook_may_stop_it_while_it_waits() -> None:
    rig = Rig()
    rig.messages.options = PushOptions(on_error=lambda error: rig.messages.stop())
    rig.comes(rig.status("409 Something New"), (1, 1))
    assert list(rig.messages) == []
    assert rig.messages.delivered == 0


def test_a_message_that_comes_just_when_it_is_stopped_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread stops it while this one waits for the next message."""
    rig = Rig()

    def take(*_: Any) -> Any:
        rig.messages.stop()
        return sent(rig.state.name, 1, 1)

    monkeypatch.setattr(type(rig.messages._intake), "take", take)
    assert list(rig.messages) == []
    assert rig.messages.delivered == 0
