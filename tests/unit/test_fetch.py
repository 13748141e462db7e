"""Fetches with pulls that are not answered as they should be; without a server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, Stored, message

from jsclient import errors
from jsclient.jetstream.consuming import watchdog
from jsclient.jetstream.consuming.fetch import Batch, BatchEnd, Fetch, next_after
from jsclient.jetstream.consuming.pull_options import Paused, PullTerms
from jsclient.jetstream.message import JetStreamMsg
from jsclient.message import Msg
from jsclient.states import LinkEvent

WAITS = PullTerms(expires=5.0)
INSTANT = PullTerms(expires=0.0, no_wait=True)


class Answering(Connection):
    """Answers every pull with the same items: text for a status, or what goes into the mailbox as it is."""

    def __init__(self, *items: Any) -> None:
        super().__init__(Server(random.Random(1), []))
        self.items = items
        self.pulls = 0

    def enqueue_at_once(self, frame: bytes) -> None:
        if not self.is_connected:
            raise errors.ConnectionLost("there is no link")
        self.pulls += 1
        reply = frame.partition(b" ")[0]
        mailbox = self.inboxes[reply[: reply.rindex(b".") + 1]].mailbox
        for item in self.items:
            if isinstance(item, str):
                item = Msg(reply, b"1", None, b"", f"NATS/1.0 {item}\r\n\r\n".encode())
            if isinstance(item, errors.ConnectionClosed):
                mailbox.close(item)
            else:
                mailbox.items.append(item)


def one(sequence: int = 1) -> Msg:
    return message(Stored(sequence, 100), sequence, 0)


def fetch(connection: Connection, terms: PullTerms = WAITS, source: Any = None, **options: Any) -> Batch:
    source = source or Source(connection, "P")  # type: ignore[arg-type]
    make: Callable[..., JetStreamMsg] = options.pop("make", JetStreamMsg)
    return Fetch(source, options.pop("want", 2), terms, make, timeout=options.pop("timeout", 5.0), **options).run()


# --- ack_next ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "timeout", "error", "text", "again"),
    [
        (Answering("408 Request Timeout"), 0.04, errors.NoMessages, "^acked;", False),
        (Answering("404 No Messages"), 0.0, errors.NoMessages, "^acked;", False),
        (Answering(), 0.04, errors.NoMessages, "not known to have arrived", True),
        (Answering(LinkEvent.DISCONNECTED), 0.04, errors.NoMessages, "not known to have arrived", True),
        (Answering("400 Bad Request"), 5.0, errors.BadPullRequest, "Bad Request", True),
    ],
    ids=["the pull expired", "nothing there", "silence", "the link was lost", "refused"],
)
def test_an_ack_without_a_next_message_is_called_acked_only_when_the_server_has_answered(
    connection: Any, timeout: float, error: type[Exception], text: str, again: bool
) -> None:
    given = JetStreamMsg(one(), connection)
    given.claim()
    with pytest.raises(error, match=text):
        next_after(given, timeout)
    assert given.is_acked is not again


def test_an_ack_that_could_not_be_sent_may_be_sent_again() -> None:
    connection: Any = Answering()
    connection.is_connected = False
    given = JetStreamMsg(one(), connection)
    given.claim()
    with pytest.raises(errors.ConnectionLost):
        next_after(given, 0)
    assert not given.is_acked


# --- no answer --------------------------------------------------------------------------------------------------


def test_a_pull_that_does_not_wait_and_gets_no_answer_is_no_empty_stream() -> None:
    with pytest.raises(errors.ReadStalled, match="did not answer"):
        fetch(Answering(), INSTANT, answer_within=0.1)


def test_messages_without_an_end_are_returned() -> None:
    batch = fetch(Answering(one()), INSTANT, answer_within=0.1)
    assert (len(batch), batch.ended) == (1, BatchEnd.TIMEOUT), "nobody said that there are no more"


def test_a_link_that_is_lost_and_stays_away_is_no_empty_stream() -> None:
    with pytest.raises(errors.ConnectionLost):
        fetch(Answering(LinkEvent.DISCONNECTED), INSTANT, answer_within=0.1)


def test_missing_heartbeats_end_it_and_a_pause_does_not() -> None:
    class Asked(Source):
        def examine(self, timeout: float) -> Any:
            return Paused(None)

    connection = Answering()
    with pytest.raises(errors.NoHeartbeat):
        fetch(connection, PullTerms(expires=5.0, heartbeat=0.1), Asked(connection, "P"))  # type: ignore[arg-type]


def test_without_heartbeats_a_pull_that_was_swallowed_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "ENDS_LATE", 0.02)
    connection = Answering()
    batch = fetch(connection, PullTerms(expires=0.05), timeout=0.2)
    assert (len(batch), batch.ended) == (0, BatchEnd.TIMEOUT)
    assert connection.pulls > 1


class Forbidden(Source):
    """Its user may not ask for the consumer."""

    def why_nobody(self, error: errors.PullNoResponders, timeout: float) -> Exception | None:
        raise errors.PermissionViolation("not permitted", "$JS.API.CONSUMER.INFO.S.C", "publish")


@pytest.mark.parametrize("left", ["", "-1", "0", "1", "many"])
@pytest.mark.parametrize("heartbeat", [0.0, 0.2])
def test_a_pull_that_ends_before_its_time_is_followed_by_others_with_pauses(left: str, heartbeat: float) -> None:
    """Whatever the status says of what is left: this pull brings nothing more."""
    headers = f"\r\nNats-Pending-Messages: {left}" if left else ""
    connection = Answering(f"408 Request Timeout{headers}")
    began = time.monotonic()
    batch = fetch(connection, PullTerms(expires=5.0, heartbeat=heartbeat), timeout=0.7)
    assert (len(batch), batch.ended) == (0, BatchEnd.TIMEOUT)
    assert time.monotonic() - began > 0.6
    assert 2 < connection.pulls < 8


@pytest.mark.parametrize("left", ["-1", "0", "1"])
def test_what_comes_for_a_later_pull_is_taken(left: str) -> None:
    class Later(Answering):
        def enqueue_at_once(self, frame: bytes) -> None:
            self.items = (one(1), one(2)) if self.pulls else self.items
            super().enqueue_at_once(frame)

    for said in ("408 Request Timeout", "409 Batch Completed"):
        batch = fetch(Later(f"{said}\r\nNats-Pending-Messages: {left}"), timeout=2.0)
        assert (len(batch), batch.ended) == (2, BatchEnd.COMPLETE)


def test_nobody_there_until_the_end_is_told() -> None:
    connection = Answering("503")
    with pytest.raises(errors.PullNoResponders):
        fetch(connection, source=Forbidden(connection, "P"), timeout=0.3)  # type: ignore[arg-type]


def test_nobody_there_may_be_known_at_once() -> None:
    with pytest.raises(errors.PullNoResponders):
        fetch(Answering("503"))


def test_a_pull_that_ends_before_anybody_waits_is_followed_by_the_next_one() -> None:
    """All of it may be there when the fetch looks for the first time."""

    class Early(Answering):
        def enqueue_at_once(self, frame: bytes) -> None:
            self.items = (one(1), "408 Request Timeout") if self.pulls == 0 else (one(2),)
            super().enqueue_at_once(frame)

    connection = Early()
    batch = fetch(connection, timeout=1.5)
    assert (len(batch), batch.ended, connection.pulls) == (2, BatchEnd.COMPLETE, 2)


def test_the_size_of_messages_is_not_told_by_the_last_one_alone() -> None:
    """Batches of large messages that ended with a small one lost their limit in bytes, and then the link."""
    learnt: list[int] = []

    class Learns(Source):
        def learn_size(self, nbytes: int) -> None:
            learnt.append(nbytes)

    connection = Answering(Msg(b"s", b"1", b"r", bytes(50_000), None), one(2))
    fetch(connection, source=Learns(connection, "P"))  # type: ignore[arg-type]
    assert learnt[0] > 50_000


# --- what came before ---------------------------------------------------------------------------------------------


def test_messages_of_a_connection_that_failed_are_returned() -> None:
    closed = errors.ConnectionClosed("the connection is closed")
    closed.reason = errors.AuthError("revoked")
    batch = fetch(Answering(one(), closed))
    assert (len(batch), batch.ended, type(batch.error)) == (1, BatchEnd.ERROR, errors.ConnectionClosed)


def test_messages_of_a_fetch_that_is_interrupted_go_back() -> None:
    connection = Answering(one(1), one(2), one(3))

    def make(item: Msg, engine: Any) -> JetStreamMsg:
        if b".2.2." in (item.raw_reply or b""):
            raise KeyboardInterrupt
        return JetStreamMsg(item, engine)

    with pytest.raises(KeyboardInterrupt):
        fetch(connection, want=5, make=make)
    assert len(connection.server.returned) == 2


def test_a_pinned_fetch_counts_its_bytes() -> None:
    plain = one()
    pinned = Msg(b"s", b"1", plain.raw_reply, plain.data, b"NATS/1.0\r\nNats-Pin-Id: pin\r\n\r\n")
    connection = Answering(pinned)
    source = Source(connection, "P")  # type: ignore[arg-type]
    batch = fetch(connection, PullTerms(group="g"), source, max_bytes=100)
    assert (len(batch), batch.ended) == (1, BatchEnd.MAX_BYTES)
    assert source.pins == {"g": "pin"}


def test_an_interruption_before_it_has_begun() -> None:
    """Ctrl-C may strike before the connection knows of the call: its end has nothing to take back then."""

    class Struck(list[int]):
        def append(self, ident: int) -> None:
            raise KeyboardInterrupt

    connection = Answering("404 No Messages")
    connection.drainables.calls = Struck()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        fetch(connection)
    assert connection.pulls == 0
