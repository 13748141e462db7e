"""The reply inboxes of pulls: which are used again, what is given back, and what old servers have to be told."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.pull_rig import Connection, Inbox, Server, Stored, message

from jsclient import errors
from jsclient.cancel import Cancel
from jsclient.jetstream.consuming import pull_inboxes
from jsclient.jetstream.consuming.pull_inboxes import FORGED, IDLE_INBOXES, PullInbox, nak_all, pool_if_any, pool_of
from jsclient.message import Msg
from jsclient.states import LinkEvent

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"
INFO = "$JS.API.CONSUMER.INFO.S.C"


class Told(Connection):
    """Remembers what it was asked and what listens."""

    def __init__(self, version: tuple[int, int, int] = (2, 15, 1)) -> None:
        super().__init__(Server(random.Random(1), []))
        self.server_info = SimpleNamespace(version_tuple=version)
        self.links: list[Callable[[LinkEvent], None]] = []
        self.violations: list[Callable[[Exception], None]] = []
        self.asked: list[str] = []
        self.late: list[Callable[[], None]] = []
        self.flushes: list[Exception | None] = []

    def add_link_listener(self, *listeners: Callable[[LinkEvent], None]) -> None:
        self.links.extend(listeners)

    def add_violation_listener(self, *listeners: Callable[[Exception], None]) -> None:
        self.violations.extend(listeners)

    def when_read(self, *calls: Callable[[], None]) -> None:
        self.late.extend(calls)

    def encode(self, subject: str, payload: bytes = b"", reply: bytes = b"") -> bytes:
        return subject.encode()

    def enqueue_now(self, frame: bytes, deadline: Any = None) -> None:
        self.asked.append(frame.decode())

    def request(self, subject: str, timeout: Any = None) -> None:
        self.asked.append(subject)

    def flush(self, timeout: Any) -> None:
        error = self.flushes.pop(0) if self.flushes else None
        if error is not None:
            raise error


def leased(connection: Any, subject: str = NEXT) -> PullInbox:
    return pool_of(connection).lease(connection, subject)


def filled(connection: Any, subject: str = NEXT) -> PullInbox:
    inbox = leased(connection, subject)
    inbox.mailbox.items.append(message(Stored(1, 100), 1, 0))
    inbox.mailbox.items.append(LinkEvent.DISCONNECTED)
    inbox.mailbox.items.append(Cancel())
    inbox.mailbox.items.append(errors.PermissionViolation("no", subject, "publish"))
    return inbox


def test_one_that_ended_well_is_used_again_and_what_came_late_goes_back() -> None:
    connection: Any = Told()
    inbox = filled(connection)
    pool_of(connection).give_back(inbox)
    assert leased(connection) is inbox
    assert len(connection.server.returned) == 1


def test_one_that_was_closed_is_not_used_again() -> None:
    connection: Any = Told()
    inbox, closed = leased(connection), leased(connection)
    for each in (inbox, closed):
        pool_of(connection).give_back(each)
    closed.inbox.close()
    assert leased(connection) is inbox
    assert leased(connection) not in (inbox, closed)


def test_few_are_kept() -> None:
    connection: Any = Told()
    inboxes = [leased(connection) for _ in range(IDLE_INBOXES + 1)]
    for inbox in inboxes:
        pool_of(connection).give_back(inbox)
    assert [inbox.mailbox.closed is None for inbox in inboxes] == [True] * IDLE_INBOXES + [False]


def test_a_connection_without_pulls_has_none() -> None:
    connection: Any = Told()
    assert pool_if_any(connection) is None
    assert pool_of(connection) is pool_if_any(connection)


def test_the_table_of_pulls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_inboxes, "KNOWN_PULLS", 2)
    pool = pool_of(Told())  # type: ignore[arg-type]
    for subject in ("a", "a", "b", "c"):
        pool.remember(subject)
    assert pool.pulled == {"c"}


def test_everything_that_is_there() -> None:
    connection: Any = Told()
    assert len(filled(connection).take_all()) == 4
    assert filled(connection).snapshot() == (1, 100)


def test_statuses_are_known_by_their_seal() -> None:
    inbox = leased(Told())
    assert inbox.number(Msg(inbox.reply(7), b"1", None, b"")) == 7
    for forged in (b"7", b"x-1", b"7-0"):
        assert inbox.number(Msg(inbox.prefix + forged, b"1", None, b"")) == FORGED


# --- what the connection tells ------------------------------------------------------------------------------------


def test_who_lives_on_one_server_hears_that_one_leaves() -> None:
    connection: Any = Told()
    one, other = leased(connection), leased(connection)
    one.one_server = True
    for listener in connection.links:
        listener(LinkEvent.SERVER_LEFT)
    assert (list(one.mailbox.items), list(other.mailbox.items)) == ([LinkEvent.SERVER_LEFT], [])


def test_a_reconnect_may_mean_an_election() -> None:
    connection: Any = Told()
    pool = pool_of(connection)
    assert not pool.electing(0.0)
    connection.links[0](LinkEvent.RECONNECTED)
    assert pool.electing(pool.reconnected_at + 1)
    assert pool.electing(5.0, since=0.0)


def test_a_refused_pull_is_told_to_those_that_sent_it() -> None:
    connection: Any = Told()
    one, other = leased(connection), leased(connection, "elsewhere")
    refused = errors.PermissionViolation("no", NEXT, "publish")
    connection.violations[0](refused)
    assert (list(one.mailbox.items), list(other.mailbox.items)) == ([refused], [])


@pytest.mark.parametrize(
    ("version", "subject", "asked"),
    [((2, 9, 10), NEXT, [INFO]), ((2, 10, 0), NEXT, []), ((2, 9, 10), "$JS.ACK.S.C.1.1.1.1.0", [])],
)
def test_old_servers_are_made_to_forget_pulls(version: tuple[int, int, int], subject: str, asked: list[str]) -> None:
    connection: Any = Told(version)
    inbox = filled(connection, subject)
    assert len(inbox.settle()) == 1
    assert connection.asked == asked
    connection.asked.clear()
    leased(connection, subject)
    pool_of(connection).forget(inbox)
    connection.links[0](LinkEvent.CLOSED)
    assert connection.asked == asked


# --- the end ------------------------------------------------------------------------------------------------------


def test_over_a_link_that_is_lost_nothing_more_comes() -> None:
    connection: Any = Told()
    connection.flushes = [errors.ConnectionLost("lost")]
    inbox = filled(connection)
    assert len(inbox.settle()) == 1
    assert inbox.mailbox.closed is not None


def test_what_the_server_has_not_read_in_time_goes_back_when_it_has() -> None:
    connection: Any = Told((2, 9, 10))
    connection.flushes = [errors.TimedOut("late")]
    inbox = filled(connection)
    assert inbox.settle() == []
    assert connection.server.returned == []
    (settle,) = connection.late
    settle()
    assert len(connection.server.returned) == 1
    assert connection.asked == [INFO]
    assert isinstance(inbox.inbox, Inbox)
    assert inbox.mailbox.closed is not None


def test_without_a_connection_nothing_is_given_back() -> None:
    connection: Any = Told()
    sent: list[bytes] = []

    def enqueue(frame: bytes) -> None:
        sent.append(frame)
        raise errors.ConnectionClosed("closed")

    connection.enqueue = enqueue
    nak_all([message(Stored(number, 100), number, 0) for number in (1, 2)], connection)
    assert len(sent) == 1
