"""Reading single messages of a stream by sequence or subject: from the leader, or "direct" from any replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import ApiError, BadResponse, MessageNotFound, NoResponders, RequestTimeout, TooManyRequests, brief
from jsclient.jetstream.api import batch_answers, model_base
from jsclient.jetstream.api import headers as names
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


def taken_apart(message: Msg) -> batch_answers.Parts:
    """The server's own headers of a direct get's answer, and the stored ones."""
    try:
        return batch_answers.parts_of(message)
    except ValueError as error:
        raise BadResponse(
            f"a direct get was answered without the stream's headers: {brief(error)}", message.data
        ) from error


def from_parts(parts: batch_answers.Parts, data: bytes) -> RawStreamMsg:
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
