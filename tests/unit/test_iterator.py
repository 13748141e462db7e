"""How an iterator is used and how it ends, whatever it takes from; without a server."""

from __future__ import annotations

import pickle
import random
import threading
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, Stored

from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.hooks import call_hook
from jsclient.jetstream.consuming.pull_messages import PullMessages
from jsclient.jetstream.consuming.pull_options import Paused, PullOptions
from jsclient.jetstream.consuming.pump import Notice

COUNT = 10


class Rig:
    def __init__(self, **options: Any) -> None:
        self.server = Server(random.Random(1), [Stored(number, 100) for number in range(1, COUNT + 1)])
        self.connection = Connection(self.server)
        self.source: Any = Source(self.connection, "P")  # type: ignore[arg-type]
        self.messages = PullMessages(self.source, PullOptions(max_messages=COUNT, max_bytes=0, **options))

    def fill(self) -> None:
        """One was taken, the others wait."""
        assert self.messages.next().stream_seq == 1
        while self.messages.buffered < COUNT - 1:
            self.server.step()


def test_it_is_iterated_over_or_asked_for_one() -> None:
    rig = Rig(stop_after=3)
    assert [each.stream_seq for each in rig.messages] == [1, 2, 3]
    assert (rig.messages.closed, rig.messages.delivered) == (True, 3)
    with pytest.raises(errors.IteratorClosed):
        rig.messages.next()


def test_nothing_in_time_is_no_end() -> None:
    rig = Rig()
    rig.server.left.clear()
    with pytest.raises(errors.NoMessages):
        rig.messages.next(timeout=0)
    assert not rig.messages.ending
    rig.messages.close()


def test_close_gives_back_what_was_not_taken() -> None:
    rig = Rig()
    rig.fill()
    with rig.messages as messages:
        assert messages.buffered == COUNT - 1
    assert len(rig.server.returned) == COUNT - 1
    rig.messages.close()
    assert len(rig.server.returned) == COUNT - 1


def test_it_may_be_told_to_leave_it() -> None:
    rig = Rig(leave_buffered=True)
    rig.fill()
    rig.messages.close()
    assert rig.server.returned == []


def test_stop_ends_and_gives_back_when_it_is_next_asked() -> None:
    rig = Rig()
    rig.fill()
    rig.messages.stop()
    assert (rig.messages.ending, rig.messages.closed) == (True, False)
    assert list(rig.messages) == []
    assert len(rig.server.returned) == COUNT - 1


def test_a_drained_one_ends_behind_what_is_there() -> None:
    rig = Rig()
    rig.fill()
    rig.messages.drain()
    rig.messages.drain()
    assert [each.stream_seq for each in rig.messages] == list(range(2, COUNT + 1))
    assert rig.server.returned == []


def test_a_token_ends_it_with_its_own_error() -> None:
    token = Cancel()
    rig = Rig(cancel=token)
    rig.fill()
    token.cancel()
    with pytest.raises(errors.Cancelled):
        for _ in range(COUNT):
            rig.messages.next()


def test_what_is_told_reaches_the_hooks_and_their_errors_nobody() -> None:
    heard: list[Any] = []

    def hook(what: Any) -> None:
        heard.append(what)
        raise RuntimeError("of the application")

    call_hook(hook, "said")
    assert heard == ["said"]


def test_the_end_of_the_connection_hands_back_and_says_why() -> None:
    rig = Rig()
    rig.fill()
    gone = errors.ConnectionClosed("closed")
    rig.messages.end(gone)
    assert len(rig.messages.hand_back()) == COUNT - 1
    rig.connection.closed = gone
    with pytest.raises(errors.ConnectionClosed):
        rig.messages.next()
    assert rig.server.returned == [], "they went with what the connection sends last"


def test_a_drain_of_the_connection_waits_for_the_application() -> None:
    rig = Rig()
    rig.fill()
    rig.messages.begin_drain()
    rig.messages.all_received()
    rig.messages.finish_drain(Deadline(5))  # its own thread has taken from it: nobody else comes
    assert rig.messages.closed
    assert len(rig.server.returned) == COUNT - 1


def test_one_without_acks_loses_nothing_in_a_drain() -> None:
    rig = Rig()
    rig.source.ack_none = True
    rig.fill()
    rig.messages.begin_drain()
    rig.messages.all_received()
    assert not rig.messages.ending
    rig.messages.finish_drain(Deadline(5))
    assert [each.stream_seq for each in rig.messages] == list(range(2, COUNT + 1))


def test_one_that_is_forgotten_gives_back() -> None:
    rig = Rig()
    rig.fill()
    rig.messages.__del__()
    assert len(rig.server.returned) == COUNT - 1
    rig.messages.close()


def test_events_and_errors_reach_the_hooks_that_were_given() -> None:
    events: list[Any] = []
    told: list[Exception] = []
    rig = Rig(on_event=events.append, on_error=told.append)
    paused, lost = Paused(None), errors.NoHeartbeat("silence")
    rig.messages._on_notices([Notice("event", paused), Notice("reported", lost)])
    assert (events, told) == ([paused], [lost])


def test_a_finalizer_raises_nothing() -> None:
    rig = Rig()

    def broken(give_back: bool) -> None:
        raise RuntimeError("the interpreter is going down")

    rig.messages._intake.abandon = broken  # type: ignore[method-assign]
    rig.messages.__del__()
    rig.messages.close()


class Busy(Rig):
    """Another thread works on the first message."""

    def __init__(self) -> None:
        super().__init__()
        self.fill()
        self.messages._user = -1


def test_a_drain_that_ends_while_the_application_works_says_so() -> None:
    rig = Busy()
    with pytest.raises(errors.DrainTimeout, match=f"and {COUNT - 1} messages"):
        rig.messages.finish_drain(Deadline(0.05))
    assert len(rig.server.returned) == COUNT - 1


def test_a_drain_does_not_wait_for_one_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.jetstream.consuming.iterator.PATIENCE", 0.02)
    rig = Busy()
    rig.messages.finish_drain(Deadline(30))
    assert len(rig.server.returned) == COUNT - 1


def test_a_drain_waits_until_the_application_has_come() -> None:
    rig = Busy()
    timer = threading.Timer(0.02, rig.messages.close)
    timer.start()
    rig.messages.finish_drain(Deadline(30))
    timer.join()


def test_what_is_taken_after_the_end_goes_back_at_once() -> None:
    rig = Rig()
    rig.fill()
    late = rig.connection.inboxes.popitem()[1].mailbox.popleft()
    rig.messages.close()
    before = len(rig.server.returned)
    rig.messages._return(late)
    assert len(rig.server.returned) == before + 1


def test_it_belongs_to_its_process() -> None:
    rig = Rig()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(rig.messages)
    rig.messages.close()
