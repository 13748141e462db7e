"""The pump alone: what it sends, what it makes of a status, a link that is lost, and silence."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, Stored, message

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.credit import FetchCredit, WindowCredit
from jsclient.jetstream.consuming.pull_inboxes import PullInbox, message_size, pool_of
from jsclient.jetstream.consuming.pull_options import Paused, PullTerms, Resumed
from jsclient.jetstream.consuming.pump import Notice, Pump, WindowPump
from jsclient.jetstream.consuming.sources import QuestionLimit
from jsclient.jetstream.consuming.watchdog import Watchdog
from jsclient.message import Msg
from jsclient.states import LinkEvent
from jsclient.testing import wait_until

QUIET = PullTerms(expires=30.0, heartbeat=5.0)
PENDING = "Nats-Pending-Messages: {}\r\nNats-Pending-Bytes: {}\r\n"


class AskedSource(Source):
    """Its consumer is as the test says."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, "P")
        self.answers: list[Any] = []
        self.asked = 0

    def examine(self, timeout: float) -> Any:
        self.asked += 1
        return self.answers.pop(0) if self.answers else None


class Rig:
    def __init__(self, terms: PullTerms = QUIET, *, window: int = 10, max_bytes: int = 0, **more: Any) -> None:
        self.server = Server(random.Random(1), [])
        self.connection = Connection(self.server)
        self.source = AskedSource(self.connection)
        self.state = WindowCredit(window, max_bytes, numbers=PullInbox.numbers)
        self.pump = WindowPump(self.source, terms, self.state, **more)

    @property
    def asked(self) -> list[int]:
        """The messages of the pulls that are under way."""
        return [pull.messages for pull in self.server.pulls]

    def status(self, text: str, headers: str = "") -> Sequence[Notice]:
        """The oldest pull ends with it."""
        pull = self.server.pulls.popleft()
        self.server.say(pull, text, headers)
        return self.pump.status(self.pump.mailbox.items.pop())

    def came(self, count: int) -> None:
        """Messages of the oldest pull."""
        self.server.left.extend(Stored(number, 100) for number in range(1, count + 1))
        for _ in range(count):
            pull = self.server.pulls.popleft()
            self.server.send(pull)
            if pull.messages:
                self.server.pulls.appendleft(pull)

    def take(self, count: int) -> None:
        for _ in range(count):
            message = self.pump.mailbox.popleft()
            if self.state.take() >= self.state.check_at:
                self.pump.reached()
            self.state.taken_bytes += message_size(message)


def kinds(told: Sequence[Notice]) -> list[tuple[str, type]]:
    return [(each.kind, type(each.what)) for each in told]


def test_the_window_is_filled_again_when_half_of_it_was_taken() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    rig.pump.keep_pulling()
    assert rig.asked == [10]
    rig.came(10)
    rig.take(5)
    rig.pump.keep_pulling()
    assert rig.asked == []
    rig.take(1)
    assert rig.state.due
    rig.pump.keep_pulling()
    assert rig.asked == [6]
    assert rig.pump.delivered == 6


def test_whoever_waits_gets_the_next_pull_sent_at_once() -> None:
    rig = Rig(window=1)
    rig.pump.keep_pulling()
    rig.came(1)
    rig.pump.waiting += 1
    rig.take(1)
    assert rig.asked == [1]


def test_a_window_can_be_resized() -> None:
    rig = Rig()
    rig.pump.resize(20, 20)
    rig.pump.keep_pulling()
    assert rig.asked == [20]


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        ("100 Idle Heartbeat", "", []),
        ("404 No Messages", "", []),
        ("408 Request Timeout", PENDING.format(10, 0), []),
        ("409 Batch Completed", PENDING.format(0, 0), []),
        ("409 Consumer Deleted", "", [("failed", errors.ConsumerDeleted)]),
        ("409 Consumer is push based", "", [("failed", errors.NotPullConsumer)]),
        ("400 Bad Request", "", [("failed", errors.BadPullRequest)]),
        ("409 Leadership Change", "", [("reported", errors.ConsumerLeadershipChanged)]),
        ("409 Exceeded MaxWaiting", "", [("reported", errors.MaxWaitingExceeded)]),
        ("423 Nats-Wrong-Pin-Id", "", [("reported", errors.PinIdMismatch)]),
        ("503", "", [("reported", errors.PullNoResponders)]),
        ("777 nobody knows", "", [("reported", errors.PullStatusError)]),
        ("nonsense", "", [("reported", errors.PullStatusError)]),
    ],
)
def test_what_a_status_means(status: str, headers: str, expected: list[tuple[str, type]]) -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    assert kinds(rig.status(status, headers)) == expected


def test_what_a_pull_has_not_brought_is_asked_for_again() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    rig.came(2)
    assert not rig.status("408 Request Timeout", PENDING.format(8, 0))
    assert rig.asked == [8]


def test_a_status_that_somebody_else_sent_ends_nothing() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    forged = Msg(rig.pump.inbox.prefix + b"1-00", b"1", None, b"", b"NATS/1.0 409 Consumer Deleted\r\n\r\n")
    assert rig.pump.status(forged) == ()
    assert len(rig.state.open) == 1


def test_without_a_link_nothing_is_pulled_and_with_the_next_one_at_once() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    rig.came(3)
    rig.server.pulls.clear()
    rig.pump.link_event(LinkEvent.DISCONNECTED)
    rig.take(3)
    rig.pump.keep_pulling()
    assert (rig.asked, rig.pump.doubtful) == ([], True)
    rig.pump.link_event(LinkEvent.SERVER_LEFT)
    assert rig.asked == []
    rig.pump.link_event(LinkEvent.RECONNECTED)
    assert rig.asked == [10]


def test_a_pull_that_could_not_be_sent_is_not_counted_on() -> None:
    rig = Rig()
    rig.connection.is_connected = False
    rig.pump.keep_pulling()
    assert type(rig.pump.unsent) is errors.ConnectionLost
    assert (rig.state.open, rig.pump.connected) == ({}, False)


def test_silence_is_asked_about_and_then_an_alarm() -> None:
    rig = Rig(PullTerms(expires=30.0, heartbeat=0.05))
    rig.pump.keep_pulling()
    told: list[Notice] = []
    wait_until(lambda: told.extend(rig.pump.look(Deadline(1))) or told, 5)  # type: ignore[func-returns-value]
    assert kinds(told) == [("reported", errors.NoHeartbeat)]
    assert (rig.source.asked, rig.pump.missed_heartbeats, rig.pump.doubtful) == (1, 1, True)
    rig.server.pulls.clear()
    rig.pump.keep_pulling()
    assert rig.asked == [10]


def test_an_answer_takes_the_place_of_the_alarm() -> None:
    rig = Rig(PullTerms(expires=30.0, heartbeat=0.05))
    gone = errors.ConsumerDeleted(404, "gone")
    rig.source.answers = [gone]
    rig.pump.keep_pulling()
    told: list[Notice] = []
    wait_until(lambda: told.extend(rig.pump.look(Deadline(1))) or told, 5)  # type: ignore[func-returns-value]
    assert told == [Notice("failed", gone)]


def test_no_alarm_where_nothing_is_owed() -> None:
    rig = Rig(PullTerms(expires=30.0, heartbeat=0.05))
    assert rig.pump.look(Deadline(0)) == ()  # the pull goes out now
    rig.came(10)
    assert rig.pump.wait(Deadline(0)) is not None
    rig.pump.halted = True
    assert rig.pump.look(Deadline(0)) == ()


def test_a_pause_is_told_once_and_its_end() -> None:
    rig = Rig(questions=QuestionLimit(0.0))
    paused = Paused(None)
    rig.source.answers = [paused, None, None]
    assert rig.pump.diagnose() == [Notice("event", paused)]
    assert rig.pump.paused_until is paused
    assert kinds(rig.pump.diagnose()) == [("event", Resumed)]
    assert rig.pump.diagnose() == []


def test_an_answer_of_a_cluster_that_has_just_come_up_is_not_believed() -> None:
    rig = Rig(questions=QuestionLimit(100.0))
    rig.source.answers = [errors.ConsumerDeleted(404, "gone")]
    pool_of(rig.source.nc).reconnected_at = time.monotonic()
    assert kinds(rig.pump.diagnose()) == [("reported", errors.ConsumerDeleted)]
    assert rig.pump.diagnose() == (), "not too often"


def test_too_many_pulls_are_waited_for() -> None:
    rig = Rig(questions=QuestionLimit(0.0))
    rig.source.answers = [errors.MaxWaitingExceeded(409, "Exceeded MaxWaiting")]
    assert kinds(rig.pump.diagnose()) == [("reported", errors.MaxWaitingExceeded)]
    rig.pump.keep_pulling()
    assert rig.asked == []


def test_a_pull_that_brought_nothing_is_asked_about() -> None:
    rig = Rig(questions=QuestionLimit(0.0))
    rig.pump.keep_pulling()
    rig.status("408 Request Timeout", PENDING.format(10, 0))
    assert rig.source.asked == 1
    rig.status("503")
    assert rig.source.asked == 2


def test_a_message_larger_than_the_limit_is_told() -> None:
    rig = Rig(max_bytes=1000)
    rig.pump.keep_pulling()
    assert rig.status("409 Message Size Exceeds MaxBytes", PENDING.format(10, 500)) == ()  # half of the limit
    told = rig.status("409 Message Size Exceeds MaxBytes", PENDING.format(10, 1000))
    assert kinds(told) == [("reported", errors.MaxBytesExceeded)]


def test_a_window_that_has_grown_too_large_for_the_server_shrinks() -> None:
    rig = Rig()
    rig.state = rig.pump.state = WindowCredit(10, most_messages=100, numbers=PullInbox.numbers)
    rig.state.max_messages, rig.state.threshold_messages = 100, 50
    number = rig.state.opened(100, 0)
    refused = Msg(rig.pump.inbox.reply(number), b"1", None, b"", b"NATS/1.0 409 Exceeded MaxRequestBatch of 10\r\n\r\n")
    assert rig.pump.status(refused) == ()
    assert rig.asked == [10]


def test_no_pull_outlives_its_read() -> None:
    rig = Rig(PullTerms(expires=30.0, heartbeat=5.0))
    now = time.monotonic()
    rig.pump.ends_at = now + 6
    rig.pump.keep_pulling(now)
    assert rig.server.pulls[0].expires == pytest.approx(6e9)
    assert rig.pump.terms.heartbeat == 0.0, "more than half of the time: the server would refuse it"
    rig.status("404 No Messages")
    rig.server.pulls.clear()
    rig.state.lost(0)
    rig.pump.keep_pulling(now + 6)
    assert rig.asked == []


def test_a_pin_is_said_and_forgotten() -> None:
    rig = Rig(PullTerms(group="g"))
    rig.source.pins["g"] = "pin"
    rig.pump.keep_pulling()
    rig.status("423 Nats-Wrong-Pin-Id")
    assert rig.source.pins == {}


def test_a_credit_that_ends_pulls_once() -> None:
    rig = Rig()
    credit = FetchCredit(3, numbers=PullInbox.numbers)
    pump = Pump(rig.source, QUIET, credit, watchdog=Watchdog.of_pulls(QUIET, time.monotonic()))
    pump.keep_pulling()
    pull = rig.server.pulls.popleft()
    rig.server.say(pull, "404 No Messages")
    pump.status(pump.mailbox.popleft())
    assert credit.meaning is not None
    assert rig.asked == []
    credit.go_on()
    pump.keep_pulling()
    assert rig.asked == [3]


def test_the_end_leaves_what_was_not_taken() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    rig.came(3)
    rig.pump.mailbox.items.append(LinkEvent.DISCONNECTED)
    rig.pump.withdraw()
    rig.pump.release()
    assert [each.raw_subject for each in rig.pump.settle(True)] == [b"s"] * 3
    rig.pump.complete()


def test_an_iterator_that_is_forgotten_gives_back_on_another_thread() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    rig.came(2)
    rig.pump.abandon(True)
    assert len(rig.server.returned) == 2


def test_a_new_consumer_takes_the_place_of_the_old_one() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    rig.came(3)
    rig.server.pulls.clear()
    rig.pump.forget(0, 0)
    assert len(rig.pump.mailbox) == 0
    rig.source.pull_subject = "Q"
    rig.pump.go_on(0, 0)
    assert rig.asked == [10]
    assert rig.pump.inbox.pull_subject == "Q"


def test_messages_are_told_from_what_is_beside_them() -> None:
    rig = Rig()
    rig.pump.keep_pulling()
    assert not rig.pump.inbox.is_control(message(Stored(1, 100), 1, 0))


def test_a_silence_that_has_just_ended_is_none() -> None:
    """Between the look at the clock and the look at the mailbox another thread may have taken or pulled."""
    rig = Rig()
    rig.pump.keep_pulling()
    assert rig.pump._silent(Deadline(1)) == (), "it is not time yet"
    rig.came(1)
    assert rig.pump._silent(Deadline(1)) == (), "something has come"
    rig.take(1)
    rig.pump.disconnected()
    assert rig.pump._silent(Deadline(1)) == (), "the link is down"
    assert rig.source.asked == 0
