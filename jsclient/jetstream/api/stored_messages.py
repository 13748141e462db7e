"""Reading single messages of a stream by sequence or subject: from the leader, or "direct" from any replica."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import ApiError, BadResponse, MessageNotFound, NoResponders, RequestTimeout, TooManyRequests, brief
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api import model_base
from jsclient.jetstream.api.models import MessageResponse, RawStreamMsg
from jsclient.protocol import Msg, has_wildcard

if TYPE_CHECKING:
    from jsclient.jetstream.api.requests import Api

T = TypeVar("T")
Ask: TypeAlias = "Callable[[Api, str, dict[str, Any], Timeout], T]"
"""Asks for one message: the API, the stream, the request, the timeout."""

_NAMES_SEQUENCE: Final = f"{names.SEQUENCE}:".encode()

SILENCE: Final = 1.0
"""Seconds of silence that count as a refusal, from a server that may be too old to send one."""


def from_leader(api: Api, stream: str, request: dict[str, Any], timeout: Timeout = DEFAULT) -> RawStreamMsg:
    """Ask the stream's leader: consistent with what was acknowledged before."""
    answer = api.request(f"STREAM.MSG.GET.{stream}", request, MessageResponse, timeout=timeout, read=True)
    return from_response(answer, stream)


def from_response(answer: MessageResponse, stream: str) -> RawStreamMsg:
    """The message in a leader's answer."""
    stored = answer.message
    try:
        return RawStreamMsg(
            subject=stored.subject,
            seq=stored.seq,
            data=stored.data,
            time=model_base.parse_time(stored.time) if stored.time else None,
            raw_headers=stored.hdrs or None,
            stream=stream,
        )
    except ValueError as error:
        raise BadResponse(
            f"message {stored.seq} of stream {stream!r} cannot be read: {brief(error)}", stored.data
        ) from error


def direct(api: Api, stream: str, request: dict[str, Any], timeout: Timeout = DEFAULT) -> RawStreamMsg:
    """Ask any replica or mirror. This is cheap, but may be a moment behind the last acknowledged message."""
    operation = f"DIRECT.GET.{stream}"
    body: dict[str, Any] | None = request
    subject = request.get("last_by_subj")
    if subject and not has_wildcard(subject):
        # Permissions can be given by subject in this form.
        operation, body = f"{operation}.{subject}", None
    message = api.request_raw(operation, body, timeout=timeout, read=True)
    if _NAMES_SEQUENCE not in (message.raw_headers or b""):  # before 2.11 a message may be stored with a status
        check_status(message, stream)
    return stored_message(message)


def leader_data(api: Api, stream: str, request: dict[str, Any], timeout: Timeout = DEFAULT) -> bytes:
    """The payload alone, from the stream's leader."""
    return from_leader(api, stream, request, timeout).data


def direct_data(api: Api, stream: str, request: dict[str, Any], timeout: Timeout = DEFAULT) -> bytes:
    """The payload alone, from any replica or mirror; the answer to a request with `no_hdr` has nothing else."""
    message = api.request_raw(f"DIRECT.GET.{stream}", request, timeout=timeout, read=True)
    if _NAMES_SEQUENCE not in (message.raw_headers or b""):
        check_status(message, stream)
    return message.data


def check_status(message: Msg, stream: str) -> None:
    """Raise the error that an inline status of a direct get means."""
    status = message.status
    if status is None:
        return
    if status.code == 404:
        raise MessageNotFound(404, 10037, "no message found")
    if status.code == 429:
        raise TooManyRequests(429, 10167, status.description or "too many requests")
    raise ApiError(status.code, 0, f"direct get from stream {stream!r}: {status.description or 'refused'}")


def stored_message(message: Msg) -> RawStreamMsg:
    """A direct get's answer, without the headers that the server put behind the stored ones."""
    return from_parts(taken_apart(message), message.data)


def taken_apart(message: Msg) -> Parts:
    """The server's own headers of a direct get's answer, and the stored ones."""
    try:
        return parts_of(message)
    except ValueError as error:
        raise BadResponse(
            f"a direct get was answered without the stream's headers: {brief(error)}", message.data
        ) from error


def from_parts(parts: Parts, data: bytes) -> RawStreamMsg:
    """The stored message."""
    try:
        time = model_base.parse_time(parts.time.decode())
    except ValueError as error:
        raise BadResponse(f"a direct get was answered with the time {parts.time!r}: {brief(error)}", data) from error
    return RawStreamMsg(
        subject=parts.subject.decode("utf-8", "surrogateescape"),
        seq=parts.sequence,
        data=data,
        time=time,
        raw_headers=parts.headers,
        stream=parts.stream.decode("utf-8", "surrogateescape"),
    )


class Reader:
    """Reads from one stream: direct, from its leader, or direct with the leader as the fallback.

    `silent` means that the server is older than 2.10. It then leaves direct gets unanswered if a stream lacks them.
    """

    def __init__(self, api: Api, stream: str, use_direct: bool, *, fall_back: bool, silent: bool) -> None:
        self._api = api
        self._stream = stream
        self._direct = use_direct
        self._fall_back = fall_back
        self._patience = SILENCE if silent and fall_back else None

    def get(self, request: dict[str, Any], timeout: Timeout = DEFAULT) -> RawStreamMsg:
        return self._read(direct, from_leader, request, timeout)

    def data(self, request: dict[str, Any], timeout: Timeout = DEFAULT) -> bytes:
        return self._read(direct_data, leader_data, request, timeout)

    def _read(self, direct: Ask[T], from_leader: Ask[T], request: dict[str, Any], timeout: Timeout) -> T:
        if not self._direct:
            return from_leader(self._api, self._stream, request, timeout)
        deadline = Deadline.of(timeout, self._api.timeout)
        wait = deadline.remaining() if self._patience is None else deadline.at_most(self._patience)
        try:
            return direct(self._api, self._stream, request, wait)
        except (NoResponders, RequestTimeout) as error:
            # The stream does not exist, no longer allows direct gets, or has none yet on this server.
            if not self._fall_back or (self._patience is None and isinstance(error, RequestTimeout)):
                raise
        return from_leader(self._api, self._stream, request, deadline.remaining())


# --- the headers of a direct get ------------------------------------------------------------------------------


class Parts(msgspec.Struct, gc=False):
    """One message of an answer, taken apart."""

    stream: bytes  # the stream that answered: the one asked for, or a mirror of it
    subject: bytes
    sequence: int
    time: bytes
    pending: int | None
    previous: int | None  # sequence of the message before it in the same answer, 0 for the first; only in batches
    headers: bytes | None  # the headers that were stored


# The headers that the server appends to the stored ones, in this order (2.9 to 2.15); the last two only in batches.
# Headers of the same names that were stored with the message (republished or forged ones) come first and stay.
_FIELDS: Final = (
    rb"Nats-Stream: ?([^\r]*)\r\n"
    rb"Nats-Subject: ?([^\r]*)\r\n"
    rb"Nats-Sequence: ?(\d+)\r\n"
    rb"Nats-Time-Stamp: ?([^\r]*)\r\n"
    rb"(?:Nats-Num-Pending: ?(\d+)\r\n)?"
    rb"(?:Nats-Last-Sequence: ?(\d+)\r\n)?"
    rb"\r\n\Z"
)
_OWN: Final = re.compile(rb"\r\n" + _FIELDS)
_CUT: Final = re.compile(_FIELDS)
"""Behind a stored block without its end: the server cuts two bytes off, so the last stored line is incomplete."""
_STREAM: Final = names.STREAM.encode()
_SUBJECT: Final = names.SUBJECT.encode()
_SEQUENCE: Final = names.SEQUENCE.encode()
_TIME_STAMP: Final = names.TIME_STAMP.encode()
_NUM_PENDING: Final = names.NUM_PENDING.encode()
_LAST_SEQUENCE: Final = names.LAST_SEQUENCE.encode()
_OURS: Final = frozenset({
    _STREAM, _SUBJECT, _SEQUENCE, _TIME_STAMP, _NUM_PENDING, _LAST_SEQUENCE, names.UP_TO_SEQUENCE.encode(),
})  # fmt: skip
EMPTY_BLOCK: Final = b"NATS/1.0\r\n\r\n"


def parts_of(message: Msg) -> Parts:
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
