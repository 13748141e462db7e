"""Reading many stored messages with one request (server 2.11, direct gets), or one by one on other servers.

`BatchGets` is for callers that take the messages of an answer in chunks. The reader thread hands over the messages of
one read from the socket. This needs one queue operation for each chunk, and no object for a message other than the
message itself.
"""

from __future__ import annotations

import datetime as dt
import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jsclient import checks, errors, kinds, waiting
from jsclient._connection import LinkFrame, MessageSink
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api import model_base, names, stored_messages
from jsclient.jetstream.api.capabilities import OPERATIONS
from jsclient.jetstream.api.models import RawStreamMsg
from jsclient.message import Msg
from jsclient.nuid import new_token
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.jetstream.api.requests import Api
    from jsclient.jetstream.stream import Stream

MAX_SUBJECTS: Final = 1000
"""Subjects in one multi-last request; the server refuses when more than 1,024 match."""

TOO_MANY_RESULTS: Final = 413

NONE_FOUND: Final = 404
NO_RESULTS: Final = "No Results"
"""The server's words if no message matches; it also ends an answer with 404 if a message has gone meanwhile."""

PART: Final = 500
PART_BYTES: Final = 8 << 20
"""Messages and bytes of one server answer at most; an answer is read completely before its messages are handed out."""


ATTEMPTS: Final = 4
"""Requests for one part, if its messages are lost on the way."""


class Lost(Exception):
    """A message of an answer did not arrive. The messages of an answer are plain messages, and a broken route of a
    cluster can lose some of them without a sign on our link."""


class Answered(NamedTuple):
    """The part of an answer that has arrived."""

    messages: list[Msg]
    parts: list[stored_messages.Parts]  # of each message
    end: Msg | None  # the status behind the last message; None if more is to come


class Answer:
    """The messages of one answer, without a gap.

    Each message, and the one at the end, names the sequence of the message sent before it; the first one has 0.
    """

    def __init__(self) -> None:
        self._previous = 0

    def take(self, messages: list[Msg]) -> Answered:
        """The next messages. Raises Lost, and BadResponse for one without the headers of a direct get."""
        end = messages.pop() if messages[-1].status is not None else None
        parts = [stored_messages.taken_apart(message) for message in messages]
        for part in parts:
            self._check(part.previous)
            self._previous = part.sequence
        if end is not None and header_names.LAST_SEQUENCE in end.headers:
            self._check(_number(end, header_names.LAST_SEQUENCE))
        return Answered(messages, parts, end)

    def _check(self, named: int | None) -> None:
        if named is not None and named != self._previous:
            raise Lost(f"after {self._previous} came what follows {named}")


class _TooManyError(Exception):
    """More than 1,024 subjects match."""


def get_batch(
    stream: Stream,
    batch: int,
    *,
    seq: int | None,
    start_time: dt.datetime | None,
    subject: str | None,
    max_bytes: int | None,
    timeout: Timeout,
) -> Iterator[RawStreamMsg]:
    """See Stream.get_batch; the call checks its arguments immediately, not at the first message."""
    kinds.check(int, None, max_bytes=max_bytes)
    if names.whole(batch, "batch") < 1:
        raise errors.ConfigError(f"batch must be 1 or more, got {batch}")
    if seq is not None and start_time is not None:
        raise errors.ConfigError("get_batch: seq and start_time exclude each other")
    if seq is not None and names.whole(seq, "seq") < 1:
        raise errors.ConfigError(f"seq must be 1 or more, got {seq}")
    filter_ = None if subject is None else names.check_subject(subject, wildcards=True)
    since = None if start_time is None else model_base.format_time(model_base.as_timestamp(start_time, "start_time"))
    many = serves_many(stream, timeout)
    if start_time is not None and not many:
        return _one_by_one_since(stream, batch, start_time, filter_, timeout)
    begin: dict[str, Any] = {"seq": seq or 1} if since is None else {"start_time": since}
    if not many:
        return _one_by_one(stream, batch, seq or 1, filter_ or ">", timeout)
    if filter_ is not None:
        begin["next_by_subj"] = filter_
    if max_bytes is not None:
        begin["max_bytes"] = max_bytes
    return _batches(stream, batch, begin, timeout)


def first_since(stream: Stream, start_time: dt.datetime, subject: str | None, timeout: Timeout) -> RawStreamMsg:
    """See Stream.get_first_msg."""
    deadline = Deadline.of(timeout, stream.js.api.timeout)
    for message in get_batch(
        stream, 1, seq=None, start_time=start_time, subject=subject, max_bytes=None, timeout=deadline
    ):
        return message
    where = "" if subject is None else f" on {subject!r}"
    raise errors.MessageNotFound(404, 10037, f"no message{where} since {start_time.isoformat()}")


def _one_by_one_since(
    stream: Stream, left: int, start_time: dt.datetime, subject: str | None, timeout: Timeout
) -> Iterator[RawStreamMsg]:
    options: dict[str, Any] = {} if subject is None else {"filter_subjects": [subject]}
    reader = stream.ordered_consumer(
        deliver_policy="by_start_time", opt_start_time=start_time, headers_only=True, **options
    )
    deadline = Deadline.of(timeout, stream.js.api.timeout)
    with reader.read_until(drained=True, timeout=deadline.remaining()) as found:
        first = next(iter(found), None)
    if first is not None:
        yield from _one_by_one(stream, left, first.stream_seq, subject or ">", timeout)


def serves_many(stream: Stream, timeout: Timeout = DEFAULT) -> bool:
    """True if the server answers batched direct gets on this stream."""
    deadline = Deadline.of(timeout, stream.js.api.timeout)
    if stream.cached_info is None and stream.js.direct_get is None:
        stream.info(timeout=deadline)
    return stream.reads_direct() and bool(stream.js.capabilities.at_least(OPERATIONS["batch get"], deadline))


def _batches(stream: Stream, left: int | None, begin: dict[str, Any], timeout: Timeout) -> Iterator[RawStreamMsg]:
    """Requests for parts until `left` messages came (None for all) or the stream has no more."""
    request = {"max_bytes": PART_BYTES, **begin}
    while left is None or left > 0:
        request["batch"] = PART if left is None else min(left, PART)
        messages, end = _part(stream, request, timeout)
        yield from messages
        if not messages or not _number(end, header_names.NUM_PENDING):
            return
        if messages[-1].seq < request.get("seq", 0):
            text = f"a batched get from sequence {request['seq']} brought message {messages[-1].seq}"
            raise errors.BadResponse(text, messages[-1].data)
        left = None if left is None else left - len(messages)
        request.pop("start_time", None)
        request["seq"] = messages[-1].seq + 1
        if "multi_last" in request:
            # All parts show the stream as it was at the first one.
            request.pop("up_to_time", None)
            request["up_to_seq"] = _number(end, header_names.UP_TO_SEQUENCE)


def _part(stream: Stream, request: dict[str, Any], timeout: Timeout) -> tuple[list[RawStreamMsg], Msg]:
    """All messages of one part, and the message that ended it. The timeout covers all attempts.

    If a message of a part is lost, the part is discarded and requested again. No message of it has been handed out.
    """
    deadline = Deadline.of(timeout, stream.js.api.timeout)
    for _ in range(ATTEMPTS):
        try:
            return _exchange(stream, request, deadline)
        except Lost as error:
            lost = error
    text = f"stored messages of stream {stream.name!r} were lost on the way {ATTEMPTS} times: {lost}"
    raise errors.ListingIncomplete(text)


def _exchange(stream: Stream, request: dict[str, Any], deadline: Deadline) -> tuple[list[RawStreamMsg], Msg]:
    js = stream.js
    subject = js.api.subject(f"DIRECT.GET.{stream.name}")
    messages: list[RawStreamMsg] = []
    whole = Answer()
    try:
        for answer in js.nc.request_many(subject, model_base.encode(request), timeout=deadline.remaining()):
            found, parts, end = whole.take([answer])
            if end is not None:
                _check_end(end, stream.name)
                return messages, end
            messages += map(stored_messages.from_parts, parts, [message.data for message in found])
            if parts[0].pending is None:
                text = "the server answered a batched get with a single message: it is older than 2.11"
                raise errors.NotSupported(text)
    except errors.NoResponders as error:
        raise errors.JetStreamUnavailable(
            f"nobody answers on {subject!r}: no such stream, no direct gets on it, or no leader", subject
        ) from error
    raise errors.RequestTimeout(f"the answer from {subject!r} was not complete in time ({len(messages)} messages came)")


def _check_end(answer: Msg, stream: str) -> None:
    """Return if a status means that the server has sent all it wanted to; otherwise raise the error it means."""
    code = answer.status.code if answer.status else 0
    if code == TOO_MANY_RESULTS:
        raise _TooManyError
    if code not in (204, 404):
        stored_messages.check_status(answer, stream)


def _number(message: Msg, name: str) -> int:
    text = message.headers.get(name, "0")
    return int(text) if text and text.isdigit() else 0


def _one_by_one(stream: Stream, batch: int, seq: int, subject: str, timeout: Timeout) -> Iterator[RawStreamMsg]:
    for _ in range(batch):
        try:
            message = stream.get_msg(seq, subject=subject, timeout=timeout)
        except errors.MessageNotFound:
            return
        yield message
        seq = message.seq + 1


# --- the newest of each subject -----------------------------------------------------------------------------


def get_last(
    stream: Stream,
    subjects: list[str],
    *,
    up_to_seq: int | None,
    up_to_time: dt.datetime | None,
    timeout: Timeout,
) -> Iterator[RawStreamMsg]:
    """See Stream.get_last_msgs."""
    if not subjects:
        raise errors.ConfigError("get_last_msgs needs at least one subject")
    names.check_filters(subjects, "subjects")
    if up_to_seq is not None and up_to_time is not None:
        raise errors.ConfigError("get_last_msgs: up_to_seq and up_to_time exclude each other")
    bound: dict[str, Any] = {}
    if up_to_seq is not None:
        checks.positive(up_to_seq, "up_to_seq")
        bound["up_to_seq"] = up_to_seq
    if up_to_time is not None:
        bound["up_to_time"] = model_base.format_time(model_base.as_timestamp(up_to_time, "up_to_time"))
    # Read subject by subject it is one call of many requests, so a timeout that was given bounds all of it.
    whole = timeout if timeout is DEFAULT else Deadline.of(timeout, None)
    if serves_many(stream, whole):
        return _last_by_request(stream, subjects, bound, timeout)
    if bound:
        text = f"up_to_seq and up_to_time need nats-server 2.11 and allow_direct on stream {stream.name!r}"
        raise errors.NotSupported(text)
    return iter(_last_by_subject(stream, subjects, whole))


def get_last_together(stream: Stream, subjects: list[str], deadline: Deadline) -> list[RawStreamMsg] | None:
    """The newest message of each subject in one answer, as the stream was at one sequence. At most `MAX_SUBJECTS`.

    None if a message was replaced while the server answered, so ask again. Raises ConfigError if one answer cannot hold
    the messages.
    """
    messages, end = _part(stream, {"multi_last": subjects, "batch": len(subjects)}, deadline)
    if end.status is not None and end.status.code == NONE_FOUND:
        return None if messages or end.status.description != NO_RESULTS else []
    if _number(end, header_names.NUM_PENDING):
        raise errors.ConfigError(f"{len(subjects)} messages are too large for one answer of the server: ask for fewer")
    return messages


def _last_by_request(
    stream: Stream, subjects: list[str], bound: dict[str, Any], timeout: Timeout
) -> Iterator[RawStreamMsg]:
    try:
        yield from _batches(stream, None, {"multi_last": subjects, **bound}, timeout)
        return
    except _TooManyError:
        pass
    # Too many for one answer: ask for the subjects first, and then for parts of them. The order of the stream is
    # restored at the end. The parts are bound to one sequence, so together they are one state.
    if not bound:
        bound = {"up_to_seq": stream.info(timeout=timeout).state.last_seq}
    found: list[RawStreamMsg] = []
    matching = _matching(stream, subjects, timeout)
    for start in range(0, len(matching), MAX_SUBJECTS):
        part = matching[start : start + MAX_SUBJECTS]
        found += _batches(stream, None, {"multi_last": part, **bound}, timeout)
    yield from sorted(found, key=lambda message: message.seq)


def _matching(stream: Stream, subjects: list[str], timeout: Timeout) -> list[str]:
    """The subjects of stored messages that match any of the filters, each once.

    Raises InvalidSubject if someone stored a message on a subject with a wildcard in it. If asked for that name, the
    server would answer with other messages.
    """
    found: dict[str, None] = {}
    for pattern in subjects:
        for subject, _ in stream.subjects(pattern, timeout=timeout):
            found[names.check_subject(subject, f"a stored subject of stream {stream.name!r}")] = None
    return list(found)


def _last_by_subject(stream: Stream, subjects: list[str], timeout: Timeout) -> list[RawStreamMsg]:
    """One get for each subject, sorted by sequence; messages deleted meanwhile are left out."""
    found = []
    for subject in _matching(stream, subjects, timeout):
        try:
            found.append(stream.get_last_msg(subject, timeout=timeout))
        except errors.MessageNotFound:
            continue
    return sorted(found, key=lambda message: message.seq)


# --- in chunks --------------------------------------------------------------------------------------------------


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
        self._answer = Answer()

    def ask(self, request: dict[str, Any]) -> None:
        """Ask for a batch; the rest of the answer before is not wanted any more."""
        reply = f"{self._inbox}.{new_token().decode()}"
        self._engine.enqueue_at_once(
            LinkFrame(self._engine.encode(self._subject, model_base.encode(request), reply=reply))
        )
        self._reply, self._answer = reply.encode(), Answer()

    def next(self, silence: float) -> Answered:
        """The next part of the answer. Raises RequestTimeout after `silence` seconds without a message, Lost,
        ConnectionLost, and BadResponse for a message without the headers of a direct get."""
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
                return self._answer.take(messages)

    def close(self) -> None:
        self._subscription.close()
