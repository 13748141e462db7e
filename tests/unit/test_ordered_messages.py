"""The iterator of an ordered consumer, without a server: gaps, new consumers, tokens, and how it ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.ordered_rig import GONE, SILENCE, a_question_ends_with_the_call, sent, stream

from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.messages import Messages
from jsclient.jetstream.consuming.ordered import OrderedConsumer
from jsclient.jetstream.consuming.ordered_messages import OrderedMessages, OrderedSource
from jsclient.jetstream.consuming.ordered_sequence import OrderedOptions, OrderedState
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.consuming.typed_message import UnreadMsg
from jsclient.message import Msg
from jsclient.states import LinkEvent

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


class Rig:
    def __init__(self, **options: Any) -> None:
        self.js = stream()
        self.api = self.js.api
        self.state = OrderedState(OrderedOptions(max_reset_attempts=options.pop("max_reset_attempts", None)))
        self.source = OrderedSource(self.js, "S", self.state)
        self.closed = 0
        self.messages = OrderedMessages(self.source, PullOptions(**options), self._on_close)
        self.reported: list[Exception] = []

    def _on_close(self) -> None:
        self.closed += 1

    def comes(self, *items: Any, headers: bytes | None = None) -> None:
        """Pairs of (stream sequence, consumer sequence) of the present consumer, or what is no message."""
        for item in items:
            if isinstance(item, tuple):
                stream_seq, consumer_seq = item
                item = sent(self.state.name, stream_seq, consumer_seq, headers)
            self.mailbox.items.append(item)

    @property
    def mailbox(self) -> Any:
        return next(iter(self.js.nc.inboxes.values())).mailbox

    def taken(self) -> list[int]:
        """What is there."""
        found = []
        while True:
            try:
                found.append(self.messages.next(timeout=0).stream_seq)
            except errors.NoMessages:
                return found

    def lose(self) -> None:
        self.js.nc.is_connected = False
        self.comes(LinkEvent.DISCONNECTED)

    def come_back(self) -> None:
        self.js.nc.is_connected = True
        self.comes(LinkEvent.RECONNECTED)


def test_messages_in_a_row() -> None:
    rig = Rig()
    rig.comes((1, 1), (2, 2), (5, 3))
    assert rig.taken() == [1, 2, 5]
    assert rig.state.last_seq == 5


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([(3, 2)], []),
        ([(1, 1), (3, 3)], [1]),
        ([(1, 1), (2, 2), (4, 4), (5, 5)], [1, 2]),
        ([(1, 1), (2, 2), LinkEvent.RECONNECTED, (3, 3)], [1, 2]),
        ([(1, 1), (3, 3), LinkEvent.DISCONNECTED], [1]),
    ],
)
def test_a_gap_or_a_new_link_makes_a_new_consumer(items: list[Any], expected: list[int]) -> None:
    rig = Rig()
    rig.comes(*items)
    assert rig.taken() == expected
    assert rig.messages.resets == 1
    assert rig.state.name.endswith(b"_2")
    last = rig.state.last_seq
    rig.comes((last + 1, 1))
    assert rig.taken() == [last + 1]


def test_what_an_earlier_consumer_sends_is_left_out() -> None:
    rig = Rig()
    rig.comes(sent(b"other_1", 7, 7), (1, 1))
    assert rig.taken() == [1]


@pytest.mark.parametrize("looped", [True, False])
def test_it_stops_after_so_many(looped: bool) -> None:
    rig = Rig(stop_after=2)
    rig.comes((1, 1), (2, 2), (3, 3), headers=HEADERS)
    if looped:
        assert [message.stream_seq for message in rig.messages] == [1, 2]
    else:
        assert [rig.messages.next().stream_seq for _ in range(2)] == [1, 2]
        with pytest.raises(errors.IteratorClosed):
            rig.messages.next()
    rig.messages.close()
    assert rig.closed == 1


def test_what_comes_after_it_was_stopped_is_not_delivered() -> None:
    rig = Rig()
    rig.comes((1, 1), (2, 2))
    assert rig.messages.next().stream_seq == 1
    rig.messages.stop()
    rig.messages._handle(sent(rig.state.name, 3, 3))
    assert list(rig.messages) == []
    assert rig.state.last_seq == 1, "the next use begins with the second"


def test_a_server_that_leaves_the_cluster_is_asked_soon() -> None:
    rig = Rig()
    rig.api.answers["CONSUMER.INFO"] = [GONE]
    rig.comes(LinkEvent.SERVER_LEFT)
    with pytest.raises(errors.NoMessages):
        rig.messages.next(timeout=0.2)
    assert rig.messages.resets == 1


def test_such_a_question_ends_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.consuming.ordered_messages.QUESTIONS", (0.0, 0.4))
    a_question_ends_with_the_call(Rig())


def test_a_pull_that_is_refused_is_raised() -> None:
    rig = Rig()
    with pytest.raises(errors.NoMessages):
        rig.messages.next(timeout=0)
    pull = rig.js.nc.server.pulls[0]
    rig.comes(Msg(pull.reply, b"1", None, b"", b"NATS/1.0 400 Bad Request\r\n\r\n"))
    with pytest.raises(errors.BadPullRequest):
        rig.messages.next(timeout=1)


def test_a_permission_that_is_missing_is_raised() -> None:
    rig = Rig()
    rig.comes(errors.PermissionViolation("not permitted", "s", "publish"))
    with pytest.raises(errors.PermissionViolation):
        rig.messages.next(timeout=1)


def test_what_cannot_be_mended_is_raised() -> None:
    rig = Rig(max_reset_attempts=1)
    rig.api.answers["CONSUMER.CREATE"] = [SILENCE]
    rig.messages.start_again("lost on the way")
    with pytest.raises(errors.OrderedConsumerReset):
        rig.messages.next(timeout=1)


def test_what_the_pump_knows_is_shown() -> None:
    rig = Rig()
    assert (rig.messages.missed_heartbeats, rig.messages.paused_until) == (0, None)
    shown = Messages(rig.messages)
    assert "open buffered=0" in repr(shown)
    rig.messages.stop()
    assert "ending" in repr(shown)
    rig.messages.close()
    assert "closed" in repr(shown)


# --- the consumer and its stream ----------------------------------------------------------------------------------


def test_one_that_is_to_be_made_again_is_not_asked_for() -> None:
    rig = Rig()
    rig.messages.start_again("lost on the way")
    assert rig.source.examine(1.0) is None
    assert "CONSUMER.INFO" not in rig.api.asked


def test_a_stream_of_which_it_is_not_known_whether_it_is_the_same_is_asked_for_again() -> None:
    """On one that was made again, going on after the last sequence would leave out what it holds."""
    rig = Rig()
    rig.comes((1, 1))
    assert rig.taken() == [1]
    rig.api.answers["STREAM.INFO"] = [SILENCE]
    rig.messages.start_again("lost on the way")
    with pytest.raises(errors.NoMessages):
        rig.messages.next(timeout=1)
    assert rig.api.asked.count("CONSUMER.CREATE") == 3
    assert rig.messages.resets == 1


# --- catching up, tokens ------------------------------------------------------------------------------------------


def test_catching_up_takes_no_longer_than_it_may() -> None:
    rig = Rig()
    rig.comes((1, 1))
    assert rig.messages.catch_up(Deadline(1))
    assert rig.messages.available == 1
    rig.lose()
    rig.comes(LinkEvent.RECONNECTED)  # and was lost once more
    assert not rig.messages.catch_up(Deadline(0.05))
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with rig.messages._order:
            held.set()
            let_go.wait(10)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(5)
    assert not rig.messages.catch_up(Deadline(0.01))
    let_go.set()
    thread.join(5)


def consumer_of(rig: Any) -> OrderedConsumer:
    return OrderedConsumer(rig.js, "S")


def test_a_fetch_is_cancelled_while_its_consumer_is_made_again() -> None:
    rig = Rig()
    consumer, token = consumer_of(rig), Cancel()
    assert not consumer.fetch(1, timeout=0)
    rig.js.nc.is_connected = False
    for inbox in rig.js.nc.inboxes.values():
        inbox.mailbox.put(LinkEvent.DISCONNECTED)
        inbox.mailbox.put(LinkEvent.RECONNECTED)  # and was lost once more
    threading.Timer(0.05, token.cancel).start()
    began = time.monotonic()
    with pytest.raises(errors.Cancelled):
        consumer.fetch(1, timeout=20, cancel=token)
    assert time.monotonic() - began < 10
    with pytest.raises(errors.Cancelled):
        consumer.fetch(1, timeout=20, cancel=token)


def test_the_token_of_an_earlier_fetch_ends_no_later_one() -> None:
    rig = Rig()
    consumer, token = consumer_of(rig), Cancel()
    assert not consumer.fetch(1, timeout=0, cancel=token)
    for inbox in rig.js.nc.inboxes.values():
        inbox.mailbox.put(token)  # it was cancelled just when the fetch had ended
    assert not consumer.fetch(1, timeout=0.01)


def test_a_token_that_was_used_up_makes_nothing() -> None:
    token = Cancel()
    token.cancel()
    with pytest.raises(errors.Cancelled):
        Rig(cancel=token)


# --- the end ------------------------------------------------------------------------------------------------------


def test_it_is_closed_by_another_thread_while_its_consumer_cannot_be_made() -> None:
    rig = Rig()

    def closed_meanwhile() -> Exception:
        thread = threading.Thread(target=rig.messages.close)
        thread.start()
        thread.join(10)
        return SILENCE

    rig.api.answers["CONSUMER.CREATE"] = [closed_meanwhile]
    rig.messages.start_again("lost on the way")
    assert list(rig.messages) == []
    assert rig.closed == 1


def test_a_message_that_cannot_be_decoded_says_so_when_its_value_is_read() -> None:
    rig = Rig()
    js: Any = None
    made = Values(js, int, int, "raise", "", False)
    rig.messages.makes(made.maker(), made.decode)
    rig.comes((1, 1), (2, 2))
    for seq in (1, 2):
        message = next(rig.messages)
        assert (type(message), message.stream_seq) == (UnreadMsg, seq)


def test_it_is_closed_while_its_stream_is_being_checked() -> None:
    """By another thread: there was an AttributeError in the thread of a group."""
    rig = Rig()
    rig.source.check_stream = lambda *_: rig.source.delete()  # type: ignore[method-assign]
    rig.source.create()
    assert rig.source.info is None
