"""The reply side of requests: tokens, tickets, and what ends a wait."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

import protocol
from jsclient import Connection, ConnectOptions, errors
from jsclient._engine.relay import Relay
from jsclient._engine.requests import Collector, Replies, Requests
from jsclient._engine.session import MAX_PONGS
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.message import Msg

PREFIX = b"_INBOX.secret."


class Box:
    ticking = True
    frames = ()


def relay() -> Relay:
    return Relay(Box(), lambda: None)  # type: ignore[arg-type]


def requests() -> Requests:
    return Requests(lambda _: PREFIX, relay())


def begin(made: Requests, subject: str) -> tuple[bytes, bytes, Any]:
    """What a request does before it waits."""
    token, reply_to, ticket = made.new()
    made.waiting[token] = (ticket, subject)
    return token, reply_to, ticket


def reply(subject: bytes, payload: bytes = b"") -> Msg:
    return Msg(subject, b"1", None, payload)


def test_the_inbox_is_subscribed_once() -> None:
    subscribed: list[int] = []
    made = Requests(lambda _: subscribed.append(1) or PREFIX, relay())  # type: ignore[func-returns-value]
    assert made.prefix is None
    threads = [threading.Thread(target=begin, args=(made, "s")) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(subscribed) == 1
    assert made.prefix is not None
    assert len(made.waiting) == 16
    made.refuse(lambda: errors.PermissionViolation("no"))
    begin(made, "s")
    assert len(subscribed) == 2


def test_replies_find_their_request() -> None:
    made = requests()
    first, second = begin(made, "a"), begin(made, "b")
    assert first[1].startswith(PREFIX)
    assert first[1] != second[1]
    made.deliver([reply(second[1], b"2"), reply(first[1], b"1"), reply(PREFIX + b"999", b"?")], 0)
    assert first[2].get_nowait().data == b"1"
    assert second[2].get_nowait().data == b"2"
    assert first[2].empty()


def test_a_rewritten_reply_is_meant_for_the_only_request() -> None:
    made = requests()
    token, _, ticket = begin(made, "a")
    made.deliver([reply(b"imported.subject", b"x")], 0)
    assert ticket.get_nowait().data == b"x"
    begin(made, "b")
    made.deliver([reply(b"imported.subject", b"x")], 0)
    assert ticket.empty(), "with two under way it cannot be told"
    del made.waiting[token]


def test_a_late_reply_is_not_taken_for_another_request() -> None:
    made = requests()
    token, old, _ = begin(made, "a")
    del made.waiting[token]
    _, _, ticket = begin(made, "b")
    made.deliver([reply(old, b"late")], 0)
    assert ticket.empty()


def test_fail_ends_all_or_those_of_one_subject() -> None:
    made = requests()
    first, second = begin(made, "a")[2], begin(made, "b")[2]
    made.fail(lambda: errors.PermissionViolation("no"), "a")
    assert isinstance(first.get_nowait(), errors.PermissionViolation)
    with pytest.raises(queue.Empty):
        second.get_nowait()
    made.fail(lambda: errors.ConnectionLost("gone"))
    assert isinstance(second.get_nowait(), errors.ConnectionLost)


def test_pings_of_a_server_that_does_not_read_fill_no_memory() -> None:
    connection = Connection(ConnectOptions())
    session, outbox = engine_of(connection).session, engine_of(connection).outbox
    outbox.offline = False
    link: Any = None
    session._control(link, [protocol.Ping()] * (MAX_PONGS + 1000))
    assert len(outbox.frames) == MAX_PONGS
    assert len({id(frame) for frame in outbox.frames}) == 1, "one PONG for all of them"


@pytest.mark.parametrize("when", ["with the first", "before it is kept", "later"])
def test_a_further_reply_is_heard_by_who_keeps_the_request(when: str) -> None:
    made = requests()
    token, subject, ticket = begin(made, "s")
    first, second = reply(subject, b"1"), reply(subject, b"2")
    if when == "with the first":
        made.deliver([first, second], 2)
    else:
        made.deliver([first], 1)
    assert ticket.get_nowait() is first
    if when == "before it is kept":
        made.deliver([second], 1)
    made.keep(first, ticket)
    made.waiting.pop(token)
    if when == "later":
        made.deliver([second], 1)
    assert ticket.get_nowait() is second
    made.fail(lambda: errors.ConnectionLost("gone"))
    assert isinstance(ticket.get_nowait(), errors.ConnectionLost)


def test_further_replies_that_nobody_keeps_cost_little() -> None:
    made = requests()
    for _ in range(1000):
        token, subject, ticket = begin(made, "s")
        made.deliver([reply(subject), reply(subject, b"x"), reply(subject, bytes(5000))], 3)
        assert not made.kept
        ticket.get_nowait()
        made.waiting.pop(token)
    assert len(made._early) <= 64
    for _ in range(2000):
        _, subject, ticket = begin(made, "s")
        made.keep(reply(subject), ticket)
    assert len(made.kept) <= 1024


def test_a_token_that_its_thread_left_behind_does_not_count_as_waiting() -> None:
    made = requests()
    first, second = begin(made, "a"), begin(made, "b")
    made.deliver([reply(second[1])], 0)
    assert not made.all_served(), "the first one waits"
    assert len(made.waiting) == 2
    token = first[0]
    del first
    assert made.all_served(), "nobody has its ticket any more"
    assert token not in made.waiting
    assert second[0] in made.waiting


def test_replies_of_many_requests_wake_once_and_leave_nothing_behind() -> None:
    """The reader may lend afterwards: what was answered does not count as waiting."""
    made, posted = requests(), []

    def read(collector: Collector, deadline: Deadline) -> None:
        answers = [reply(PREFIX + token, token) for token in made.waiting]
        made.deliver(answers[1:], 0)
        assert collector.done.empty()
        assert made.answers == 0
        assert not made.all_served()
        made.deliver([answers[0], answers[0]], 0)
        assert made.answers == 1
        assert made.all_served()
        assert not made.waiting

    replies, ended = made.ask_each(
        [b"a", b"b", b"c"], b"+ACK", Deadline(5), lambda frame, _: posted.append(frame), read
    )
    assert ended is None
    assert [replies[number].data for number in range(3)] == [
        frame.split(PREFIX)[1].split(b" ")[0] for frame in posted[0].split(b"PUB ")[1:]
    ]


def test_what_is_not_answered_in_time_is_missing() -> None:
    made = requests()

    def read(collector: Collector, deadline: Deadline) -> None:
        made.deliver([reply(PREFIX + next(iter(made.waiting)), b"x")], 0)

    replies, ended = made.ask_each([b"a", b"b"], b"+ACK", Deadline(0.01), lambda frame, _: None, read)
    assert ended is None
    assert list(replies) == [0]
    assert not made.waiting


def test_what_waits_for_one_answer_is_under_way() -> None:
    """A link that is left is kept until it is answered. A request for many answers has no last one to wait for: it is
    kept until the first."""
    made = requests()
    one, many = begin(made, "a"), begin(made, "b")
    made.many[many[0]] = Replies()
    assert made.under_way() == [one[0], many[0]]
    made.many[many[0]].received = 1
    assert made.under_way() == [one[0]]
