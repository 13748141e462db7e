"""Batched direct gets (server 2.11) for callers that take the messages of an answer in chunks.

The reader thread hands over the messages of one read from the socket. This needs one queue operation for each chunk,
and no object for a message other than the message itself. `batch_get` is the same for callers that take single
messages.
"""

from __future__ import annotations

import queue
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from jsclient import errors, protocol, waiting
from jsclient._connection import LinkFrame, MessageSink
from jsclient.connection import engine_of
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api import model_base
from jsclient.message import Msg
from jsclient.nuid import new_token
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.api.requests import Api


class Lost(Exception):
    """A message of an answer did not arrive. The messages of an answer are plain messages, and a broken route of a
    cluster can lose some of them without a sign on our link."""


def check_follows(named: int | None, previous: int) -> None:
    """Each message, and the one at the end, names the sequence of the message sent before it; the first one has 0."""
    if named is not None and named != previous:
        raise Lost(f"after {previous} came what follows {named}")


class Parts(msgspec.Struct, gc=False):
    """One message of an answer, taken apart."""

    stream: bytes  # the stream that answered: the one asked for, or a mirror of it
    subject: bytes
    sequence: int
    time: bytes
    pending: int | None
    previous: int | None  # sequence of the message before it in the same answer, 0 for the first; only in batches
    headers: bytes | None  # the headers that were stored


class Answered(NamedTuple):
    """The part of an answer that has arrived."""

    messages: list[Msg]
    parts: list[Parts]  # of each message
    end: Msg | None  # the status behind the last message; None if more is to come


class AnswerSink(MessageSink):
    """Gets lists of messages, link events and a refusal of its subject from the reader thread, in order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[Msg] | LinkEvent | BaseException] = queue.SimpleQueue()

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        self._queue.put(messages)

    def link_event(self, event: LinkEvent) -> None:
        self._queue.put(event)

    def failed(self, error: BaseException) -> None:
        self._queue.put(error)

    def next(self, timeout: float | None) -> list[Msg] | LinkEvent | None:
        """The next list or event; None after `timeout` seconds. Raises what the server refused."""
        try:
            item = waiting.get(self._queue, timeout)
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        return item  # type: ignore[no-any-return]


class BatchGets:
    """Batched direct gets of one stream, one at a time. For one thread; to be closed."""

    def __init__(self, api: Api, stream: str) -> None:
        self._engine = engine_of(api.nc)
        self._subject = api.subject(f"DIRECT.GET.{stream}")
        self._sink = AnswerSink()
        self._inbox = api.nc.new_inbox()
        self._subscription = self._engine.open_sink(f"{self._inbox}.*", self._sink)
        self._reply = b""
        self._previous = 0  # sequence of the last message of the answer

    def ask(self, request: dict[str, Any]) -> None:
        """Ask for a batch; the rest of the answer before is not wanted any more."""
        reply = f"{self._inbox}.{new_token().decode()}"
        self._engine.enqueue_at_once(
            LinkFrame(self._engine.encode(self._subject, model_base.encode(request), reply=reply))
        )
        self._reply, self._previous = reply.encode(), 0

    def next(self, silence: float) -> Answered:
        """The next part of the answer. Raises RequestTimeout after `silence` seconds without a message, Lost,
        ConnectionLost, and ValueError for a message without the headers of a direct get."""
        while True:
            item = self._sink.next(silence)
            if item is None:
                raise errors.RequestTimeout(f"no answer on {self._subject!r} for {silence:g} s")
            if isinstance(item, LinkEvent):
                self._engine.check_usable()
                if item is LinkEvent.DISCONNECTED:
                    raise errors.ConnectionLost("the link was lost before the answer was complete")
                continue
            messages = [message for message in item if message.raw_subject == self._reply]
            if messages:
                return self._taken_apart(messages)

    def _taken_apart(self, messages: list[Msg]) -> Answered:
        end = messages.pop() if messages[-1].status is not None else None
        parts = [parts_of(message) for message in messages]
        for part in parts:
            check_follows(part.previous, self._previous)
            self._previous = part.sequence
        if end is not None and header_names.LAST_SEQUENCE in end.headers:
            check_follows(int(end.headers[header_names.LAST_SEQUENCE]), self._previous)
        return Answered(messages, parts, end)

    def close(self) -> None:
        self._subscription.close()


# The headers that the server appends to the stored ones, in this order (2.9 to 2.15); the last two only in batches.
# Headers of the same names that were stored with the message (republished or forged ones) come first and stay.
_FIELDS = (
    rb"Nats-Stream: ?([^\r]*)\r\n"
    rb"Nats-Subject: ?([^\r]*)\r\n"
    rb"Nats-Sequence: ?(\d+)\r\n"
    rb"Nats-Time-Stamp: ?([^\r]*)\r\n"
    rb"(?:Nats-Num-Pending: ?(\d+)\r\n)?"
    rb"(?:Nats-Last-Sequence: ?(\d+)\r\n)?"
    rb"\r\n\Z"
)
_OWN = re.compile(rb"\r\n" + _FIELDS)
_CUT = re.compile(_FIELDS)
"""Behind a stored block without its end: the server cuts two bytes off, so the last stored line is incomplete."""
_STREAM: Final = header_names.STREAM.encode()
_SUBJECT: Final = header_names.SUBJECT.encode()
_SEQUENCE: Final = header_names.SEQUENCE.encode()
_TIME_STAMP: Final = header_names.TIME_STAMP.encode()
_NUM_PENDING: Final = header_names.NUM_PENDING.encode()
_LAST_SEQUENCE: Final = header_names.LAST_SEQUENCE.encode()
_OURS: Final = frozenset({
    _STREAM, _SUBJECT, _SEQUENCE, _TIME_STAMP, _NUM_PENDING, _LAST_SEQUENCE, header_names.UP_TO_SEQUENCE.encode(),
})  # fmt: skip
EMPTY_BLOCK: Final = b"NATS/1.0\r\n\r\n"


def parts_of(message: protocol.Msg) -> Parts:
    """Remove the server's own headers; ValueError if they are missing."""
    block = message.raw_headers or b""
    found = _OWN.match(block, 8) or _OWN.search(block)
    if found is not None:
        rest = block[: found.start()] + b"\r\n\r\n"
    elif found := _CUT.search(block):
        whole = block.rfind(b"\r\n", 0, found.start())
        rest = block[:whole] + b"\r\n\r\n" if whole > 0 else EMPTY_BLOCK
    else:
        return _parts_in_any_order(block)
    stream, subject, sequence, time, pending, previous = found.groups()
    return Parts(
        stream,
        subject,
        int(sequence),
        time,
        None if pending is None else int(pending),
        None if previous is None else int(previous),
        None if rest == EMPTY_BLOCK else rest,
    )


def _parts_in_any_order(block: bytes) -> Parts:
    """The same for another order of the headers: a future server may add or move some."""
    values: dict[bytes, bytes] = {}
    rest: list[bytes] = []
    for line in reversed(block.split(b"\r\n")[1:]):
        name, colon, value = line.partition(b":")
        if colon and name.startswith(b"Nats-") and name in _OURS and name not in values:
            values[name] = value.strip()
        elif line:
            rest.append(line)
    try:
        pending, previous = values.get(_NUM_PENDING), values.get(_LAST_SEQUENCE)
        return Parts(
            values[_STREAM],
            values[_SUBJECT],
            int(values[_SEQUENCE]),
            values[_TIME_STAMP],
            None if pending is None else int(pending),
            None if previous is None else int(previous),
            b"\r\n".join([b"NATS/1.0", *reversed(rest), b"", b""]) if rest else None,
        )
    except KeyError as error:
        raise ValueError(f"a direct get answered without the header {error}") from None
