"""Reading: the reader and borrowers take turns."""

from __future__ import annotations

import errno
import queue
import socket
import threading
from typing import Any

import pytest
from tests.reading_rig import (
    EXPECTED,
    PREFIX,
    REPLY,
    FakeInbox,
    FakeStream,
    asked,
    finish,
    lent,
    message,
    read_replies,
    read_reply,
    read_rest,
    replies_of,
    reply,
)

from jsclient import protocol, waiting
from jsclient._connection import reading as module
from jsclient._connection import reading as taking
from jsclient._connection.reading import Reading
from jsclient._transport.tcp import TcpTransport
from jsclient.durations import Deadline
from jsclient.message import Msg
from jsclient.protocol.parser import only_message
from jsclient.testing import wait_until

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
            taking.read_messages(made, inbox, Deadline(1))
            taken += [item.data for item in inbox.mailbox.items]
            inbox.mailbox.items.clear()
        taken += finish(made, inbox)
        assert taken == [b"%d" % number for number in range(20)]


def test_a_chunk_with_something_for_others_is_the_readers() -> None:
    chunk = message(0) + b"PING\r\n" + message(1)
    made, inbox = lent(chunk), FakeInbox()
    taking.read_messages(made, inbox, Deadline(1))
    assert not inbox.mailbox.items
    assert list(made.left) == [chunk]
    assert finish(made, inbox) == [b"0", b"1"]


@pytest.mark.parametrize("chunk", [b"garbage\r\n", message(0) + b"garbage\r\n"])
def test_garbage_is_found_by_the_reader(chunk: bytes) -> None:
    made, inbox = lent(chunk), FakeInbox()
    taking.read_messages(made, inbox, Deadline(1))
    assert not inbox.mailbox.items
    with pytest.raises(protocol.ProtocolError):
        finish(made, inbox)


def test_large_messages_are_the_readers() -> None:
    """They come in parts; and a borrower that had begun with them would go on with all that follow."""
    large = b"MSG s 1 %d\r\n%b\r\n" % (taking.LARGE, bytes(taking.LARGE))
    for chunks in ([large], [large + large], [large[:-10], large[-10:]]):
        made, inbox = lent(*chunks), FakeInbox()
        taking.read_messages(made, inbox, Deadline(1))
        assert not inbox.mailbox.items
        assert list(made.left) == chunks[:1]
        assert bytes(taking.LARGE) in finish(made, inbox)


def test_who_shares_the_mailbox_is_woken_and_the_reader_called() -> None:
    made, inbox = lent(message(0) + message(1)), FakeInbox()
    tickets: list[waiting.Ticket[Any]] = [waiting.Ticket() for _ in range(2)]
    inbox.mailbox._waiters.extend(tickets)
    taking.read_messages(made, inbox, Deadline(1))
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


def test_who_has_been_served_does_not_wait() -> None:
    made, inbox = lent(), FakeInbox()
    polls: list[float] = []
    made._poller.poll = lambda timeout: polls.append(timeout)
    inbox.mailbox.items.append("there")
    taking.read_messages(made, inbox, Deadline(1e9))
    ticket: waiting.Ticket[Any] = waiting.Ticket()
    ticket.put("there")
    assert read_reply(made, ticket, 1e9) is None
    assert not polls


def test_parts_of_something_large_are_the_readers() -> None:
    made, inbox = lent(b"MSG s 1 100000\r\n" + b"x" * 1000, b"x" * 1000), FakeInbox()
    taking.read_messages(made, inbox, Deadline(1))
    assert list(made.left) == [b"x" * 1000]
    assert made.parser.held == 1000


def test_an_error_that_the_stream_tells_only_once_is_kept() -> None:
    made = lent(None, b"")
    assert read_reply(made) is None
    assert made.error is not None
    assert made.error.errno == errno.EBADF
