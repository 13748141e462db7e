"""Reading: the reader and borrowers take turns; neither Ctrl-C nor a signal handler loses or doubles anything."""

from __future__ import annotations

import errno
import linecache
import os
import queue
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from jsclient import protocol, waiting
from jsclient._connection import reading as module
from jsclient._connection import reading as taking
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.reading import Reading
from jsclient._connection.requests import EachCall
from jsclient._transport.tcp import TcpTransport
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.protocol import parser as parsing
from jsclient.protocol.parser import only_message
from jsclient.testing import wait_until

REPLY = b"_INBOX.secret.7"


class FakeStream:
    """A stream of chunks that are given beforehand; b"" is its end, None an error."""

    can_take = True

    def __init__(self, *chunks: bytes | None) -> None:
        self.chunks = deque(chunks)

    def new_poller(self) -> Any:
        return self

    def poll(self, timeout: float) -> bool:
        return bool(self.chunks)

    def take(self, permit: list[int]) -> Iterable[bytes]:
        # As the real one: in calls into C, and only with a permit.
        if self.chunks and self.chunks[0] is None:
            self.chunks.popleft()
            return map(os.read, (-1,), permit)
        return map(next_chunk, permit, (self.chunks,))


def next_chunk(size: int, chunks: deque[Any]) -> bytes:
    return chunks.popleft()  # type: ignore[no-any-return]


class FakeInbox:
    def __init__(self, sid: bytes = b"1") -> None:
        self.sid = sid
        self.mailbox = Mailbox()
        self.received = 0


def message(number: int, subject: bytes = b"s", sid: bytes = b"1") -> bytes:
    payload = b"%d" % number
    return b"MSG %b %b %d\r\n%b\r\n" % (subject, sid, len(payload), payload)


def lent(*chunks: Any) -> Reading:
    """As a borrower finds it while the reader is parked; the lock is this thread's only through a turn."""
    made = Reading(FakeStream(*chunks), protocol.Parser(message=Msg))  # type: ignore[arg-type]
    made.lock.acquire()
    made.lend()
    return made


def read_reply(made: Reading, ticket: Any = None, seconds: float = 1.0) -> Msg | None:
    return taking.read_reply(made, b"1", REPLY, ticket or waiting.Ticket(), Deadline(seconds))


def finish(made: Reading, inbox: Any) -> list[bytes]:
    """The reader (another thread) comes back and handles all that is left; the payloads of the mailbox, in order."""
    failures: list[Exception] = []

    def read() -> None:
        made.take_back()
        stream: Any = made._stream
        try:
            while made.left or stream.chunks:
                chunk = made.left.popleft() if made.left else stream.chunks.popleft()
                events = made.parser.feed(chunk)
                inbox.mailbox.items.extend(event for event in events if event.sid == inbox.sid)
        except Exception as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join()
    if failures:
        raise failures[0]
    return [item.data for item in inbox.mailbox.items]


# --- a reply --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunk",
    [
        message(5, REPLY),
        b"MSG %b 1  2\r\nhi\r\n" % REPLY,  # 2.9: two blanks
        b"MSG %b 1 answer.here 2\r\nhi\r\n" % REPLY,
        b"HMSG %b 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" % REPLY,
        b"HMSG %b 1 answer.here 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" % REPLY,
    ],
)
def test_a_reply_that_comes_alone_is_the_borrowers(chunk: bytes) -> None:
    made = lent(chunk)
    found = read_reply(made)
    assert [found] == protocol.Parser(message=Msg).feed(chunk)
    assert not made.left
    assert made.messages_in == 1
    assert made.bytes_in == len(chunk)
    made.take_back()
    assert made.lock._is_owned()


@pytest.mark.parametrize(
    "chunk",
    [
        message(5, b"_INBOX.secret.8"),  # of another request
        message(5, REPLY) + message(6, b"_INBOX.secret.8"),
        message(5, REPLY) + b"PING\r\n",
        b"MSG %b 2 2\r\nhi\r\n" % REPLY,  # to another subscription that has the same subject
        b"PING\r\n",
        b"-ERR 'Authorization Violation'\r\n",
        message(5, REPLY)[:-3],  # the rest is still to come
        b"MSG %b 1\t2\r\nhi\r\n" % REPLY,
        b"MSG %b 1 99999999999999999999\r\nhi\r\n" % REPLY,
        b"MSG %b 1 x\r\nhi\r\n" % REPLY,
        b"HMSG %b 1 x 14\r\nNATS/1.0\r\n\r\nhi\r\n" % REPLY,
        b"HMSG %b 1 15 14\r\nNATS/1.0\r\n\r\nhi\r\n" % REPLY,
        b"MSG %b 1 2\r\nhi++" % REPLY,
        b"garbage",
        b"",
    ],
)
def test_all_else_is_left_to_the_reader_as_it_is(chunk: bytes) -> None:
    made = lent(chunk)
    assert read_reply(made) is None
    assert list(made.left) == [chunk]
    assert not made.park(1e12)  # called back
    made.take_back()
    assert made.lock._is_owned()
    assert made.messages_in == 0


def test_a_message_is_only_taken_for_one_if_the_parser_says_the_same() -> None:
    whole = b"HMSG %b 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" % REPLY
    for cut in range(len(whole)):
        assert only_message(whole[:cut], REPLY, Msg) is None
        assert only_message(whole + whole[:cut], REPLY, Msg) is None or cut == 0
    for index in range(len(whole)):
        for byte in (b" ", b"\t", b"\r", b"\n", b"0", b"9", b"x"):
            changed = whole[:index] + byte + whole[index + 1 :]
            found = only_message(changed, REPLY, Msg)
            if found is not None:
                assert protocol.Parser(message=Msg).feed(changed) == [found]


def test_a_wait_ends_with_the_deadline_or_when_the_ticket_has_something() -> None:
    made = lent()
    assert read_reply(made, seconds=0) is None
    ticket: waiting.Ticket[Any] = waiting.Ticket()
    ticket.put(OSError("the link is gone"))
    assert read_reply(made, ticket, 1e9) is None
    made.take_back()
    assert made.lock._is_owned()


def test_nobody_reads_what_was_not_lent() -> None:
    made = Reading(FakeStream(message(1, REPLY)), protocol.Parser(message=Msg))  # type: ignore[arg-type]
    assert read_reply(made) is None
    assert made.borrowed == 0


def test_nobody_reads_while_something_is_left_to_the_reader_or_in_the_middle_of_a_frame() -> None:
    made = lent(message(2, REPLY))
    made.left.append(b"PING\r\n")
    assert read_reply(made) is None
    made = lent(message(2, REPLY))
    made.parser.feed(b"MSG x 1 5\r\n")
    assert not made.parser.between_frames
    assert read_reply(made) is None


def test_an_error_of_the_stream_is_the_readers() -> None:
    made = lent(None)
    assert read_reply(made) is None
    assert not made.park(1e12)
    made.take_back()
    assert made.lock._is_owned()


def test_a_second_borrower_calls_the_reader() -> None:
    made = lent()
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    assert made.seat.acquire(False)
    other = threading.Thread(target=lambda: found.put(read_reply(made)))
    other.start()
    other.join()
    assert found.get() is None
    made.seat.release()
    assert not made.park(1e12)


def test_the_reader_parks_as_long_as_somebody_borrows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARK", 0.0001)
    made = lent()
    waits: list[float] = []

    def get(ticket: Any, timeout: float) -> None:
        waits.append(timeout)
        if len(waits) < 10:
            made.borrowed += 1
        raise queue.Empty

    monkeypatch.setattr(waiting, "get", get)
    assert not made.park(1e12)
    assert len(waits) == 10
    assert max(waits) <= module.LONGEST_PARK
    made.borrowed += 1
    waits.clear()
    assert made.park(0)  # a ping is due


# --- replies to many requests -----------------------------------------------------------------------------

PREFIX = b"_INBOX.secret."


def reply(number: int, payload: int | None = None) -> bytes:
    return message(number if payload is None else payload, PREFIX + b"%d" % number)


def asked() -> EachCall:
    call = EachCall(PREFIX, 20)
    call.numbers = {b"%d" % number: number for number in range(20)}
    return call


def replies_of(call: EachCall) -> list[bytes]:
    return [call.replies[number].data for number in sorted(call.replies)]


def read_replies(made: Reading, call: EachCall) -> Msg | None:
    return taking.read_replies(made, b"1", call, Deadline(1))


def read_rest(made: Reading, call: EachCall) -> list[bytes]:
    """The reader comes back; what it has then brought, and to whom it is all the same."""
    brought = finish(made, inbox := FakeInbox())
    for item in inbox.mailbox.items:
        if item.raw_subject.startswith(PREFIX):
            call.take(item.raw_subject[len(PREFIX) :], item)
    return brought


def test_replies_to_many_requests_are_the_borrowers_whatever_the_chunking() -> None:
    wire = b"".join(map(reply, reversed(range(20))))
    for cut in range(1, len(wire)):
        made, call = lent(wire[:cut], wire[cut:]), asked()
        last = read_replies(made, call)
        brought = read_rest(made, call)  # what has no end of its own in a chunk is the reader's
        assert (last is None) == bool(brought), cut
        assert replies_of(call) == EXPECTED, cut
        assert made.messages_in + len(brought) == 20


def test_of_two_answers_to_one_request_the_first_one_counts() -> None:
    made, call = lent(b"".join(map(reply, range(19))) + reply(3, 7), reply(19)), asked()
    assert read_replies(made, call) is not None
    assert replies_of(call) == EXPECTED


@pytest.mark.parametrize(
    "chunk",
    [
        reply(1) + message(2, PREFIX + b"other"),
        reply(1) + b"MSG %b 2 1\r\n2\r\n" % (PREFIX + b"2"),  # to another subscription
        reply(1) + b"PING\r\n",
        reply(1) + b"-ERR 'Authorization Violation'\r\n",
        reply(1) + b"garbage\r\n",
        b"",
    ],
)
def test_a_chunk_of_replies_with_something_for_others_is_the_readers(chunk: bytes) -> None:
    made, call = lent(chunk), asked()
    assert read_replies(made, call) is None
    assert not call.replies
    assert list(made.left) == [chunk]


# --- messages -------------------------------------------------------------------------------------------


def test_messages_go_to_the_mailbox_whatever_the_chunking() -> None:
    wire = b"".join(map(message, range(20)))
    for cut in range(1, len(wire)):
        made, inbox = lent(wire[:cut], wire[cut:]), FakeInbox()
        taken: list[bytes] = []
        while made._stream.chunks and not made.left:  # type: ignore[attr-defined]
            taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
            taken += [item.data for item in inbox.mailbox.items]
            inbox.mailbox.items.clear()
        taken += finish(made, inbox)
        assert taken == [b"%d" % number for number in range(20)]


def test_a_chunk_with_something_for_others_is_the_readers() -> None:
    chunk = message(0) + b"PING\r\n" + message(1)
    made, inbox = lent(chunk), FakeInbox()
    taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
    assert not inbox.mailbox.items
    assert list(made.left) == [chunk]
    assert finish(made, inbox) == [b"0", b"1"]


@pytest.mark.parametrize("chunk", [b"garbage\r\n", message(0) + b"garbage\r\n"])
def test_garbage_is_found_by_the_reader(chunk: bytes) -> None:
    made, inbox = lent(chunk), FakeInbox()
    taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
    assert not inbox.mailbox.items
    with pytest.raises(protocol.ProtocolError):
        finish(made, inbox)


def test_large_messages_are_the_readers() -> None:
    """They come in parts; and a borrower that had begun with them would go on with all that follow."""
    large = b"MSG s 1 %d\r\n%b\r\n" % (taking.LARGE, bytes(taking.LARGE))
    for chunks in ([large], [large + large], [large[:-10], large[-10:]]):
        made, inbox = lent(*chunks), FakeInbox()
        taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
        assert not inbox.mailbox.items
        assert list(made.left) == chunks[:1]
        assert bytes(taking.LARGE) in finish(made, inbox)


def test_who_shares_the_mailbox_is_woken_and_the_reader_called() -> None:
    made, inbox = lent(message(0) + message(1)), FakeInbox()
    tickets: list[waiting.Ticket[Any]] = [waiting.Ticket() for _ in range(2)]
    inbox.mailbox._waiters.extend(tickets)
    taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
    assert [ticket.empty() for ticket in tickets] == [False, False]
    assert not made.park(1e12)


def test_a_copy_of_a_parser_is_at_the_same_point() -> None:
    wire = b"".join(map(message, range(5))) + b"HMSG h 1 12 5014\r\nNATS/1.0\r\n\r\n" + b"x" * 5002 + b"\r\nPING\r\n"
    whole = protocol.Parser(message=Msg).feed(wire)
    for cut in range(0, len(wire), 7):
        first = protocol.Parser(message=Msg)
        begun = first.feed(wire[:cut])
        second = first.copy()
        assert begun + first.feed(wire[cut:]) == whole
        halves = second.feed(wire[cut : cut + 40]) + second.feed(wire[cut + 40 :])
        assert begun + halves == whole


def test_what_does_not_complete_a_frame_brings_no_event() -> None:
    wire = b"MSG s 1 3\r\nabc\r\nHMSG h 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n"
    for start in range(len(wire)):
        begun = protocol.Parser(message=Msg)
        begun.feed(wire[:start])
        for end in range(start + 1, len(wire) + 1):
            if not begun.completed_by(wire[start:end]):
                assert not begun.between_frames
                # A line may also end with the LF alone that belongs to a CR held: that is left to the reader as well.
                assert not begun.copy().feed(wire[start:end]) or wire[start : start + 1] == b"\n"


# --- whatever strikes in between ------------------------------------------------------------------------

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


CHUNKS = [
    b"".join(map(message, range(12))) + b"MSG s 1 2",
    b"\r\n12\r\n" + b"MSG s",
    b" 1 2\r\n13\r\n" + b"".join(map(message, range(14, 20))),
]
EXPECTED = [b"%d" % number for number in range(20)]
REPLIES = [
    b"".join(map(reply, range(12))) + b"MSG _INBOX.sec",
    b"ret.12 1 2\r\n12\r\n" + b"".join(map(reply, range(13, 17))),
    b"".join(map(message, range(17, 20))),  # for somebody else
]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_ctrl_c_at_any_line_loses_and_doubles_no_message(before: int) -> None:
    number = 1
    while True:
        made, inbox = lent(*CHUNKS), FakeInbox()
        for _ in range(before):  # in the middle of a frame
            inbox_items = inbox.mailbox.items
            taken = list(inbox_items)
            inbox_items.clear()
            taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
            inbox_items.extendleft(reversed(taken))
        here = list(inbox.mailbox.items)
        inbox.mailbox.items.clear()
        more = struck(number, ctrl_c, lambda: taking.read_messages(made, inbox, Deadline(1)))  # type: ignore[arg-type] # noqa: B023
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
            more = struck(number, handler, lambda: taking.read_messages(made, inbox, Deadline(1)))  # type: ignore[arg-type] # noqa: B023
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

        more = struck(number, handler, lambda: taking.read_messages(made, inbox, Deadline(1)))  # type: ignore[arg-type] # noqa: B023
        if not more:
            break
        assert not made.lock._is_owned(), struck_at
        assert [item.data for item in inbox.mailbox.items] == reader == EXPECTED, struck_at
        assert not made.seat._is_owned(), struck_at
        number += 1
    assert number > 50


def test_a_borrower_that_is_slow_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is within a call, or its machine is busy: to end its turn then would lose the order of bytes, and the link."""
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    made, inbox = lent(b""), FakeInbox()
    arriving: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    stream: Any = made._stream
    stream.take = lambda permit: map(arriving.get, permit)  # a call into C that does not return yet
    looks: list[int] = []
    holder = waiting.holder

    def look(turn: Any) -> Any:
        looks.append(1)
        return holder(turn)

    monkeypatch.setattr(waiting, "holder", look)
    borrower = threading.Thread(target=taking.read_messages, args=(made, inbox, Deadline(5)))
    reader = threading.Thread(target=made.take_back)
    borrower.start()
    wait_until(lambda: holder(made.lock))
    reader.start()
    wait_until(lambda: len(looks) > 10)
    assert reader.is_alive(), "it has taken over"
    arriving.put(message(0))
    for thread in (borrower, reader):
        thread.join(5)
        assert not thread.is_alive()
    assert [item.data for item in inbox.mailbox.items] == [b"0"]
    assert not made.left


def test_a_socket_that_reads_in_python_code_is_never_lent() -> None:
    class Socket(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            return super().recv(size, flags)

    for kind, expected in ((Socket, False), (socket.socket, True)):
        ours, peer = socket.socketpair()
        with peer:
            transport = TcpTransport(kind(fileno=ours.detach()))
            assert transport.can_take is expected
            transport.close()


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
                    taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type] # noqa: B023
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
        more = struck(number, ctrl_c, lambda: taking.read_messages(made, inbox, Deadline(1)))  # type: ignore[arg-type] # noqa: B023
        assert not (inbox.mailbox.items and ticket.empty()), struck_at
        if not more:
            break
        number += 1
    assert number > 50


def test_who_has_been_served_does_not_wait() -> None:
    made, inbox = lent(), FakeInbox()
    polls: list[float] = []
    made._poller.poll = lambda timeout: polls.append(timeout)
    inbox.mailbox.items.append("there")
    taking.read_messages(made, inbox, Deadline(1e9))  # type: ignore[arg-type]
    ticket: waiting.Ticket[Any] = waiting.Ticket()
    ticket.put("there")
    assert read_reply(made, ticket, 1e9) is None
    assert not polls


def test_parts_of_something_large_are_the_readers() -> None:
    made, inbox = lent(b"MSG s 1 100000\r\n" + b"x" * 1000, b"x" * 1000), FakeInbox()
    taking.read_messages(made, inbox, Deadline(1))  # type: ignore[arg-type]
    assert list(made.left) == [b"x" * 1000]
    assert made.parser.held == 1000


def test_an_error_that_the_stream_tells_only_once_is_kept() -> None:
    made = lent(None, b"")
    assert read_reply(made) is None
    assert made.error is not None
    assert made.error.errno == errno.EBADF
