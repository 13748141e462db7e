"""The reply side of requests: tokens, tickets, and what ends a wait."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import Connection, ConnectOptions, errors, protocol
from jsclient._connection.requests import Call, EachCall, ManyCall, Requests
from jsclient._connection.session import MAX_PONGS
from jsclient._connection.wake_chain import WakeChain
from jsclient.connection import engine_of
from jsclient.message import Msg


class Box:
    ticking = True
    frames = ()


def requests(subscribed: list[str] | None = None) -> Requests:
    """On an engine that sends nothing."""

    def open_sink(subject: str, sink: Any) -> Any:
        (subscribed if subscribed is not None else []).append(subject)
        return SimpleNamespace(sid=b"1")

    engine: Any = SimpleNamespace(
        options=ConnectOptions(),
        outbox=SimpleNamespace(post_now=None),
        encoder=SimpleNamespace(encode=None),
        wake_chain=WakeChain(Box(), lambda: None),  # type: ignore[arg-type]
        open_sink=open_sink,
    )
    return Requests(engine)


def begin(made: Requests, subject: str, kind: Any = Call) -> Any:
    """What a request does before it waits."""
    call = kind(made.prefix or made._open_inbox(), subject)
    made.waiting[call.token] = call
    return call


def reply(subject: bytes, payload: bytes = b"") -> Msg:
    return Msg(subject, b"1", None, payload)


def test_the_inbox_is_subscribed_once() -> None:
    subscribed: list[str] = []
    made = requests(subscribed)
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
    assert made.prefix is not None
    assert first.reply.startswith(made.prefix)
    assert first.reply != second.reply
    made.deliver([reply(second.reply, b"2"), reply(first.reply, b"1"), reply(made.prefix + b"999", b"?")], 0)
    assert first.ticket.get_nowait().data == b"1"
    assert second.ticket.get_nowait().data == b"2"
    assert first.ticket.empty()


def test_a_rewritten_reply_is_meant_for_the_only_request() -> None:
    made = requests()
    call = begin(made, "a")
    made.deliver([reply(b"imported.subject", b"x")], 0)
    assert call.ticket.get_nowait().data == b"x"
    others = [begin(made, "b"), begin(made, "c")]
    made.deliver([reply(b"imported.subject", b"x")], 0)
    assert all(other.ticket.empty() for other in others), "with two under way it cannot be told"


def test_a_late_reply_is_not_taken_for_another_request() -> None:
    made = requests()
    old = begin(made, "a")
    del made.waiting[old.token]
    call = begin(made, "b")
    made.deliver([reply(old.reply, b"late")], 0)
    assert call.ticket.empty()


def test_fail_ends_all_or_those_of_one_subject() -> None:
    made = requests()
    first, second = begin(made, "a").ticket, begin(made, "b").ticket
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


@pytest.mark.parametrize("when", ["with the first", "later"])
def test_a_further_reply_is_heard_where_one_may_be_wanted(when: str) -> None:
    made = requests()
    call = begin(made, "s")
    call.several = True
    first, second = reply(call.reply, b"1"), reply(call.reply, b"2")
    made.deliver([first, second] if when == "with the first" else [first], 2)
    assert call.ticket.get_nowait() is first
    assert made.all_served()
    assert made.under_way() == []
    if when == "later":
        made.deliver([second], 1)
    assert call.ticket.get_nowait() is second
    made.fail(lambda: errors.ConnectionLost("gone"))
    assert isinstance(call.ticket.get_nowait(), errors.ConnectionLost)


def test_further_replies_that_nobody_takes_cost_little() -> None:
    made = requests()
    plain, several = begin(made, "s"), begin(made, "s")
    several.several = True
    for call in (plain, several):
        made.deliver([reply(call.reply, b"x")] * 1000, 3)
        made.deliver([reply(call.reply, bytes(5000))], 3)
    assert plain.ticket.size() == 1
    assert several.ticket.size() == 2


def test_replies_of_many_requests_wake_once() -> None:
    """The reader may lend afterwards: what was answered does not count as waiting."""
    made = requests()
    call = EachCall(made.prefix or made._open_inbox(), 3)
    made.waiting.update(dict.fromkeys(call.numbers, call))
    answers = [reply((made.prefix or b"") + token, token) for token in call.numbers]
    made.deliver([answers[1], answers[1]], 0)
    made.deliver([answers[2]], 0)
    assert call.ticket.empty()
    assert made.answers == 0
    assert not made.all_served()
    made.deliver([answers[0], answers[0]], 0)
    assert made.answers == 1
    assert made.all_served()
    assert call.ticket.size() == 1
    assert [call.replies[number].data for number in range(3)] == list(call.numbers)


def test_what_waits_for_one_answer_is_under_way() -> None:
    """A link that is left is kept until it is answered. A request for many answers has no last one to wait for: it is
    kept until the first."""
    made = requests()
    one, many = begin(made, "a"), begin(made, "b", ManyCall)
    assert made.under_way() == [one.token, many.token]
    made.deliver([reply(many.reply, b"1")], 0)
    assert made.under_way() == [one.token]
    assert not made.all_served()
