"""The reply side of requests: tokens, tickets, and what ends a wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import Connection, ConnectOptions, errors, nuid, protocol
from jsclient._connection.calls import Call, EachCall, ManyCall
from jsclient._connection.encoding import Encoder
from jsclient._connection.requests import MOST_FURTHER, Requests
from jsclient._connection.session import MAX_PONGS
from jsclient._connection.wake_chain import WakeChain
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.protocol.frames import reply_of


class Box:
    """An outbox that hands each frame to the next function in `line`, which may raise."""

    ticking = True
    offline = False
    frames = ()

    def __init__(self) -> None:
        self.line: list[Callable[[bytes], object]] = []
        self.withdrawals = 0
        self.counted: list[int] = []

    def enqueue_now(self, frame: bytes, deadline: Any) -> None:
        self.line.pop(0)(frame)

    def withdraw(self, frame: bytes) -> bool:
        self.withdrawals += 1
        return False


def requests(subscribed: list[str] | None = None) -> Requests:
    """On an engine that sends nothing."""

    def open_sink(subject: str, sink: Any) -> Any:
        (subscribed if subscribed is not None else []).append(subject)
        return SimpleNamespace(sid=b"1")

    box: Any = Box()
    recalls: list[None] = []
    engine: Any = SimpleNamespace(
        options=ConnectOptions(),
        outbox=box,
        encoder=Encoder(lambda: ""),
        wake_chain=WakeChain(box, lambda: None),
        open_sink=open_sink,
        draining=False,
        count_out=box.counted.append,
        connection=None,
        check_usable=lambda: None,
        lent_reading=lambda: None,
        session=SimpleNamespace(link=None, state=None, recall_reader=lambda: recalls.append(None), recalls=recalls),
    )
    return Requests(engine)


def line_of(made: Requests) -> list[Callable[[bytes], object]]:
    box: Any = made._outbox
    return box.line  # type: ignore[no-any-return]


def counted_by(made: Requests) -> list[int]:
    box: Any = made._outbox
    return box.counted  # type: ignore[no-any-return]


def answers(made: Requests, payload: bytes = b"ok") -> Callable[[bytes], object]:
    """A responder that replies at once."""
    return lambda frame: made.deliver([reply(reply_of(frame), payload)], 0)


def silent(frame: bytes) -> None:
    """Nobody replies."""


def lost(frame: bytes) -> None:
    """The link has gone before the frame was queued."""
    raise errors.ConnectionLost("gone", sent=False)


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


# --- further replies ------------------------------------------------------------------------------------


def test_answered_requests_that_may_go_on_are_bounded_and_do_not_wait() -> None:
    """The connection lends its reading although they are never forgotten, and their payloads are not kept."""
    made = requests()
    for number in range(2 * MOST_FURTHER):
        line_of(made).append(answers(made, b"%d" % number))
        first = made.request("s", bytes(1000), timeout=5, may_go_on=lambda _: True)
    assert not made.waiting
    assert made.all_served()
    assert len(made.further) == MOST_FURTHER
    made.deliver([reply(first.raw_subject, b"second")], 0)
    late = made.later_reply(first, 5)
    assert late is not None
    assert late.data == b"second"
    made.fail(lambda: errors.ConnectionLost("gone"))
    with pytest.raises(errors.ConnectionLost, match="gone"):
        made.later_reply(first, 5)
    made.forget_reply(first)
    with pytest.raises(errors.ConnectionLost, match="not heard"):
        made.later_reply(first, 5)


def test_a_reply_that_an_import_rewrote_is_forgotten_too() -> None:
    made = requests()
    line_of(made).append(lambda _: made.deliver([reply(b"imported.subject", b"1")], 0))
    first = made.request("s", timeout=5, may_go_on=lambda _: True)
    made.deliver([reply(b"imported.subject", b"2")], 0)
    late = made.later_reply(first, 5)
    assert late is not None
    assert late.data == b"2"
    made.forget_reply(first)
    assert not made.further
    assert not made.waiting


# --- losses and refusals on the way ---------------------------------------------------------------------


def test_a_request_for_many_that_was_not_sent_waits_for_the_next_link() -> None:
    made = requests()
    line_of(made).extend([lost, lost, answers(made)])
    assert [message.data for message in made.request_many("s", timeout=5, max_messages=1)] == [b"ok"]
    assert sum(counted_by(made)) == 1
    assert not made.waiting


def test_each_copy_of_a_repeated_request_that_left_is_counted() -> None:
    made = requests()
    line_of(made).extend([silent, lost, answers(made)])
    assert made.request("s", timeout=30, every=0.01).data == b"ok"
    assert sum(counted_by(made)) == 2


@pytest.mark.parametrize("many", [False, True])
def test_a_request_without_a_reply_is_withdrawn_once(many: bool) -> None:
    made = requests()
    line_of(made).append(silent)
    if many:
        assert not list(made.request_many("s", timeout=0.01))
    else:
        with pytest.raises(errors.RequestTimeout):
            made.request("s", timeout=0.01)
    box: Any = made._outbox
    assert box.withdrawals == 1


@pytest.mark.parametrize("kind", ["one", "many", "each"])
def test_a_second_inbox_does_not_hide_that_the_first_was_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before the token is entered, and another thread opens the next inbox just then."""
    made = requests()
    made._open_inbox()
    new_token = nuid.new_token

    def refused() -> bytes:
        monkeypatch.setattr(nuid, "new_token", new_token)
        made.refuse(lambda: errors.PermissionViolation("no inbox"))
        made._open_inbox()
        return new_token()

    monkeypatch.setattr(nuid, "new_token", refused)
    line_of(made).append(silent)
    calls: dict[str, Callable[[], object]] = {
        "one": lambda: made.request("s", timeout=0.1),
        "many": lambda: list(made.request_many("s", timeout=0.1)),
        "each": lambda: made.request_each([b"s"], b"", Deadline(0.1)),
    }
    with pytest.raises(errors.PermissionViolation, match="no inbox"):
        calls[kind]()
    assert not made.waiting


def test_requests_to_many_that_end_recall_the_reader_for_others() -> None:
    """Another thread counts on it, and this one may have the right to read."""
    made = requests()
    recalls: Any = made._engine.session
    line_of(made).extend([silent, silent])
    made.request_each([b"a", b"b"], b"", Deadline(0.01))
    assert not recalls.recalls
    other = begin(made, "s")
    made.request_each([b"a", b"b"], b"", Deadline(0.01))
    assert len(recalls.recalls) == 1
    assert made.waiting == {other.token: other}
