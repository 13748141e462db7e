"""What a reader and its borrowers share, without a socket: chunks given beforehand, and replies to many requests."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from jsclient import protocol, waiting
from jsclient._connection import reading as taking
from jsclient._connection.calls import EachCall
from jsclient._connection.mailbox import Mailbox
from jsclient._connection.reading import Reading
from jsclient.durations import Deadline
from jsclient.message import Msg

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
