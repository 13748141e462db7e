"""What a push consumer sends, without a server: messages, flow control, statuses, silence, and the end."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from tests.pull_rig import Connection, Server, Stored, message

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.consuming.pump import Notice
from jsclient.jetstream.consuming.push import PushIntake, PushOptions, PushSource
from jsclient.message import Msg
from jsclient.states import LinkEvent
from jsclient.testing import wait_until


class Source:
    """A push consumer, as the test says."""

    def __init__(self, **config: Any) -> None:
        self.nc: Any = Connection(Server(random.Random(1), []))
        self.config = ConsumerConfig(deliver_subject="d", **config)
        self.answers: list[Any] = []

    def examine(self, timeout: float) -> Any:
        return self.answers.pop(0) if self.answers else None

    def why_deleted(self, deleted: errors.ConsumerDeleted, timeout: float) -> Exception:
        return deleted

    def __str__(self) -> str:
        return "the consumer"


def intake_of(source: Source, **options: Any) -> PushIntake:
    return PushIntake(cast(PushSource, source), PushOptions(**options))


def status(text: str, headers: str = "", reply: bytes | None = None) -> Msg:
    return Msg(b"d", b"1", reply, b"", f"NATS/1.0 {text}\r\n{headers}\r\n".encode())


def deliver(source: Source, *items: Msg) -> None:
    source.nc.sinks["d"].deliver(list(items), 100)


def test_messages_come_in_order_and_what_is_beside_them_is_told_apart() -> None:
    source = Source()
    intake = intake_of(source)
    one = message(Stored(1, 100), 1, 0)
    deliver(source, one, status("100 Idle Heartbeat"))
    assert intake.take(Deadline(0)) is one
    assert not intake.is_control(one)
    beat = intake.take(Deadline(0))
    assert intake.is_control(beat)
    assert intake.status(beat) == ()
    assert intake.take(Deadline(0)) is None
    assert intake.take(Deadline(0.01)) is None


def test_a_stored_status_line_is_a_message() -> None:
    intake = intake_of(Source())
    assert not intake.is_control(Msg(b"stored", b"1", b"$JS.ACK.x", b"", b"NATS/1.0 409 Consumer Deleted\r\n\r\n"))


def test_flow_control_is_answered_where_it_stands() -> None:
    source = Source(flow_control=True, idle_heartbeat=5.0)
    intake = intake_of(source)
    intake.status(status("100 FlowControl Request", reply=b"$JS.FC.1"))
    intake.status(status("100 Idle Heartbeat", "Nats-Consumer-Stalled: $JS.FC.2\r\n"))
    assert source.nc.published == ["$JS.FC.1", "$JS.FC.2"]
    assert intake.mailbox.max_messages is None, "flow control bounds it"


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        ("409 Consumer Deleted", "failed", errors.ConsumerDeleted),
        ("409 Something New", "reported", errors.PullStatusError),
    ],
)
def test_other_statuses_are_told(text: str, kind: str, error: type[Exception]) -> None:
    (told,) = intake_of(Source()).status(status(text))
    assert (told.kind, type(told.what)) == (kind, error)


def test_what_nobody_takes_in_time_is_dropped_and_told_once() -> None:
    source = Source()
    intake = intake_of(source, pending_messages=2)
    deliver(source, *[message(Stored(number, 100), number, 0) for number in range(1, 6)])
    (told,) = intake.dropped()
    assert isinstance(told.what, errors.SlowConsumer)
    assert told.what.dropped == 3
    assert intake.dropped() == ()


def test_silence_is_asked_about_and_then_an_alarm() -> None:
    source = Source(idle_heartbeat=0.1)
    intake = intake_of(source)
    assert intake.look(Deadline(0)) == ()
    told: list[Any] = []
    wait_until(lambda: told.extend(intake.look(Deadline(1))) or told, 5)  # type: ignore[func-returns-value]
    assert isinstance(told[0].what, errors.NoHeartbeat)
    assert intake.missed_heartbeats == 1
    gone = errors.ConsumerDeleted(404, "gone")
    source.answers = [gone]
    told.clear()
    wait_until(lambda: told.extend(intake.look(Deadline(1))) or told, 5)  # type: ignore[func-returns-value]
    assert told[0] == Notice("failed", gone)


def test_a_wait_ends_when_it_is_time_to_look() -> None:
    intake = intake_of(Source(idle_heartbeat=0.1))
    assert intake.take(Deadline(None)) is None
    wait_until(lambda: intake.take(Deadline(None), until=0.0) is None, 5)


def test_without_a_link_silence_says_nothing() -> None:
    source = Source(idle_heartbeat=0.1)
    intake = intake_of(source)
    source.nc.sinks["d"].link_event(LinkEvent.DISCONNECTED)
    event = intake.take(Deadline(0))
    intake.link_event(event)
    assert (intake.connected, intake.look(Deadline(0))) == (False, ())
    intake.link_event(LinkEvent.RECONNECTED)
    assert intake.connected


def test_the_connection_closes() -> None:
    source = Source()
    intake = intake_of(source)
    sink = source.nc.sinks["d"]
    for _ in range(2):
        sink.link_event(LinkEvent.CLOSED)
    with pytest.raises(errors.ConnectionClosed):
        intake.take(Deadline(0))


def test_a_subscription_that_is_refused_says_why() -> None:
    source = Source()
    intake = intake_of(source)
    source.nc.sinks["d"].failed(errors.PermissionViolation("no", "subscribe", "d"))
    with pytest.raises(errors.PermissionViolation):
        intake.take(Deadline(0))


def test_a_server_that_leaves_is_passed_on() -> None:
    source = Source()
    intake = intake_of(source)
    intake.watch_servers()
    sink = source.nc.sinks["d"]
    sink.server_left(LinkEvent.RECONNECTED)
    sink.server_left(LinkEvent.SERVER_LEFT)
    assert intake.take(Deadline(0)) is LinkEvent.SERVER_LEFT


@pytest.mark.parametrize("connected", [True, False])
def test_what_was_not_taken_is_left_at_the_end(connected: bool) -> None:
    source = Source()
    intake = intake_of(source)
    one = message(Stored(1, 100), 1, 0)
    deliver(source, status("100 Idle Heartbeat"), one)
    source.nc.is_connected = connected
    intake.release()
    assert intake.settle(True) == [one]
    assert intake.settle(True) == []
    with pytest.raises(errors.SubscriptionClosed):
        intake.take(Deadline(0))


def test_a_drained_one_ends_behind_what_is_there() -> None:
    source = Source()
    intake = intake_of(source)
    one = message(Stored(1, 100), 1, 0)
    deliver(source, one)
    intake.withdraw()
    intake.complete()
    intake.withdraw()
    assert intake.take(Deadline(0)) is one
    with pytest.raises(errors.SubscriptionClosed):
        intake.take(Deadline(0))


@pytest.mark.parametrize(("give_back", "frames"), [(True, 1), (False, 0)])
def test_one_that_is_forgotten_gives_back_on_another_thread(give_back: bool, frames: int) -> None:
    source = Source()
    intake = intake_of(source)
    deliver(source, message(Stored(1, 100), 1, 0))
    intake.abandon(give_back)
    assert len(source.nc.server.returned) == frames
