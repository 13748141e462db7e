"""Neither Ctrl-C nor a signal handler, at any line of a turn, loses or doubles what is read."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.reading_rig import (
    CHUNKS,
    EXPECTED,
    REPLIES,
    REPLY,
    FakeInbox,
    asked,
    finish,
    lent,
    message,
    read_replies,
    read_reply,
    read_rest,
    replies_of,
)

from jsclient import waiting
from jsclient._connection import reading as module
from jsclient._connection import reading as taking
from jsclient.durations import Deadline
from jsclient.protocol import parser as parsing

struck_at: list[Any] = []
FILES = (module.__file__, taking.__file__, parsing.__file__)


def struck(number: int, strike: Callable[[], None], call: Callable[[], Any]) -> bool:
    """Run `call`, and `strike` on top of it at its `number`-th line in our files; False when there are fewer.

    Not at a line that is only `try:`; there no Python lets a signal in, or no `finally` could be relied on.
    """
    left, done = number, False

    def local(frame: Any, event: str, arg: Any) -> Any:
        nonlocal left, done
        if (
            event == "line"
            and not done
            and linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() != "try:"
        ):
            left -= 1
            if left == 0:
                done = True
                struck_at[:] = [frame.f_code.co_filename, frame.f_lineno]
                strike()
        return local

    def enter(frame: Any, event: str, arg: Any) -> Any:
        return local if frame.f_code.co_filename in FILES and not done else None

    previous = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(previous)
    return done


def ctrl_c() -> None:
    sys.settrace(None)
    raise KeyboardInterrupt


@pytest.mark.parametrize("before", [0, 1, 2])
def test_ctrl_c_at_any_line_loses_and_doubles_no_message(before: int) -> None:
    number = 1
    while True:
        made, inbox = lent(*CHUNKS), FakeInbox()
        for _ in range(before):  # in the middle of a frame
            inbox_items = inbox.mailbox.items
            taken = list(inbox_items)
            inbox_items.clear()
            taking.read_messages(made, inbox, Deadline(1))
            inbox_items.extendleft(reversed(taken))
        here = list(inbox.mailbox.items)
        inbox.mailbox.items.clear()
        more = struck(number, ctrl_c, lambda: taking.read_messages(made, inbox, Deadline(1)))  # noqa: B023
        assert not made.lock._is_owned(), struck_at
        assert [item.data for item in here] + finish(made, inbox) == EXPECTED, number
        if not more:
            break
        number += 1
    assert number > 50


def test_ctrl_c_at_any_line_of_a_wait_for_a_reply_leaves_the_right_with_the_reader() -> None:
    number = 1
    while True:
        made = lent(message(1, REPLY), message(2))
        more = struck(number, ctrl_c, lambda: read_reply(made))  # noqa: B023
        assert not made.lock._is_owned(), struck_at
        assert not made.seat._is_owned(), struck_at
        assert finish(made, FakeInbox())[-1:] == [b"2"], number
        if not more:
            break
        number += 1
    assert number > 20


def test_ctrl_c_at_any_line_among_many_replies_leaves_the_rest_to_the_reader() -> None:
    """In order, and from the right byte on. The call has ended, and nobody wants its own replies."""
    number = 1
    while True:
        made, call = lent(*REPLIES), asked()
        more = struck(number, ctrl_c, lambda: read_replies(made, call))  # noqa: B023
        assert not made.lock._is_owned(), struck_at
        assert not made.seat._is_owned(), struck_at
        taken = made.messages_in
        brought = finish(made, FakeInbox())
        assert brought in (EXPECTED[taken:], EXPECTED[12:], EXPECTED[17:]), struck_at
        if not more:
            break
        number += 1
    assert number > 40


def test_a_signal_handler_at_any_line_among_many_replies_may_wait_for_something_itself() -> None:
    number = 1
    while True:
        made, call = lent(*REPLIES), asked()
        brought: list[bytes] = []

        def handler() -> None:
            previous = sys.gettrace()
            sys.settrace(None)
            if made.seat._is_owned():  # noqa: B023
                assert read_replies(made, call) is None  # noqa: B023
                assert not made.lock._is_owned()  # noqa: B023
                brought.extend(read_rest(made, call))  # noqa: B023
            sys.settrace(previous)

        more = struck(number, handler, lambda: read_replies(made, call))  # noqa: B023
        brought = brought or read_rest(made, call)
        assert replies_of(call) == EXPECTED[:17], struck_at
        assert brought[-3:] == EXPECTED[17:], struck_at
        if not more:
            break
        number += 1
    assert number > 40


@pytest.mark.parametrize("kind", ["reply", "messages"])
def test_a_signal_handler_at_any_line_may_wait_for_something_itself(kind: str) -> None:
    """It ends the turn beneath it: the reader goes on where that was, and the wait beneath finds its permit gone."""
    number = 1
    while True:
        made, inbox = lent(*CHUNKS), FakeInbox()
        reader: list[bytes] = []

        def handler() -> None:
            previous = sys.gettrace()
            sys.settrace(None)
            if made.seat._is_owned():  # noqa: B023
                assert read_reply(made) is None  # noqa: B023
                assert not made.lock._is_owned()  # noqa: B023
                reader.extend(finish(made, inbox))  # noqa: B023
            sys.settrace(previous)

        if kind == "reply":
            more = struck(number, handler, lambda: read_reply(made))  # noqa: B023
        else:
            more = struck(number, handler, lambda: taking.read_messages(made, inbox, Deadline(1)))  # noqa: B023
        if reader:
            assert not made.lock._is_owned(), struck_at
            assert [item.data for item in inbox.mailbox.items] == reader, number
            assert reader == EXPECTED, number
        else:
            assert finish(made, inbox) == EXPECTED, number
        if not more:
            break
        number += 1
    assert number > 20


def test_a_borrower_who_does_not_look_any_more_loses_his_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler runs on top of the borrower for long, at any line, and waits for what only the reader brings."""
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    number = 1
    while True:
        made, inbox = lent(*CHUNKS), FakeInbox()
        reader: list[bytes] = []

        def handler() -> None:
            previous = sys.gettrace()
            sys.settrace(None)
            reader.extend(finish(made, inbox))  # noqa: B023
            sys.settrace(previous)

        more = struck(number, handler, lambda: taking.read_messages(made, inbox, Deadline(1)))  # noqa: B023
        if not more:
            break
        assert not made.lock._is_owned(), struck_at
        assert [item.data for item in inbox.mailbox.items] == reader == EXPECTED, struck_at
        assert not made.seat._is_owned(), struck_at
        number += 1
    assert number > 50


class OfAHandler(TimeoutError, IndexError, RuntimeError):
    """What `signal.alarm` idioms raise."""


@pytest.mark.parametrize("kind", ["reply", "replies", "messages"])
def test_what_a_signal_handler_raises_comes_through(kind: str) -> None:
    number = 1
    while True:
        made, inbox, raised = lent(*(REPLIES if kind == "replies" else CHUNKS)), FakeInbox(), False

        def handler() -> None:
            sys.settrace(None)
            raise OfAHandler

        def call() -> None:
            nonlocal raised
            try:
                if kind == "reply":
                    read_reply(made)  # noqa: B023
                elif kind == "replies":
                    read_replies(made, asked())  # noqa: B023
                else:
                    taking.read_messages(made, inbox, Deadline(1))  # noqa: B023
            except OfAHandler:
                raised = True

        if not struck(number, handler, call):
            break
        assert raised, struck_at
        assert finish(made, inbox) in ((EXPECTED, EXPECTED[12:], EXPECTED[17:]) if kind == "replies" else (EXPECTED,))
        number += 1
    assert number > 20


def test_ctrl_c_wakes_all_the_same_who_shares_the_mailbox() -> None:
    number = 1
    while True:
        made, inbox = lent(*CHUNKS), FakeInbox()
        ticket: waiting.Ticket[Any] = waiting.Ticket()
        inbox.mailbox._waiters.append(ticket)
        more = struck(number, ctrl_c, lambda: taking.read_messages(made, inbox, Deadline(1)))  # noqa: B023
        assert not (inbox.mailbox.items and ticket.empty()), struck_at
        if not more:
            break
        number += 1
    assert number > 50
