"""Reading single messages of a stream by sequence or subject: from the leader, or "direct" from any replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsclient.durations import DEFAULT, Deadline, Timeout
from jsclient.errors import ApiError, BadResponse, MessageNotFound, NoResponders, RequestTimeout, TooManyRequests, brief
from jsclient.jetstream.api import batch_answers, model_base
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api.models import MessageResponse, RawStreamMsg
from protocol import Headers, MalformedHeaders, Msg, has_wildcard

if TYPE_CHECKING:
    from jsclient.jetstream.api.requests import Api

_ADDED: Final = frozenset(
    (names.STREAM, names.SUBJECT, names.SEQUENCE, names.TIME_STAMP, names.NUM_PENDING, names.LAST_SEQUENCE)
)

SILENCE: Final = 1.0
"""Seconds after which a server that may be too old to say no is taken to have said it."""


def from_leader(
    api: Api, stream: str, request: dict[str, Any], timeout: Timeout = DEFAULT, *, broken_headers: bool = False
) -> RawStreamMsg:
    """Ask the stream's leader: consistent with what was acknowledged before."""
    answer = api.request(f"STREAM.MSG.GET.{stream}", request, MessageResponse, timeout=timeout, read=True)
    return from_response(answer, stream, broken_headers=broken_headers)


def from_response(answer: MessageResponse, stream: str, *, broken_headers: bool = False) -> RawStreamMsg:
    """The message in a leader's answer. `broken_headers` reads a message without them if they cannot be read."""
    stored = answer.message
    # The block is as it was on the wire: let the protocol package read it as such.
    block = Msg(b"", b"", None, b"", stored.hdrs or None)
    try:
        return RawStreamMsg(
            subject=stored.subject,
            seq=stored.seq,
            data=stored.data,
            time=model_base.parse_time(stored.time) if stored.time else None,
            headers=names.readable(block) if broken_headers else block.headers,
            stream=stream,
        )
    except MalformedHeaders as error:
        raise _broken(f"message {stored.seq} of stream {stream!r}", error, stored.data) from error
    except ValueError as error:
        raise BadResponse(
            f"message {stored.seq} of stream {stream!r} cannot be read: {brief(error)}", stored.data
        ) from error


def _broken(what: str, error: MalformedHeaders, data: bytes) -> BadResponse:
    return BadResponse(
        f"{what} cannot be read, because its publisher sent broken headers ({brief(error)}). The stream is unchanged. "
        "A consumer delivers such a message.",
        data,
    )


def direct(api: Api, stream: str, request: dict[str, Any], timeout: Timeout = DEFAULT) -> RawStreamMsg:
    """Ask any replica or mirror: cheap, and possibly a moment behind what was acknowledged before."""
    operation = f"DIRECT.GET.{stream}"
    body: dict[str, Any] | None = request
    subject = request.get("last_by_subj")
    if subject and not has_wildcard(subject):
        # Permissions can be given by subject in this form.
        operation, body = f"{operation}.{subject}", None
    message = api.request_raw(operation, body, timeout=timeout, read=True)
    check_status(message, stream)
    return stored_message(message)


def check_status(message: Msg, stream: str) -> None:
    """Raise what an inline status of a direct get means."""
    status = message.status
    if status is None:
        return
    if status.code == 404:
        raise MessageNotFound(404, 10037, "no message found")
    if status.code == 429:
        raise TooManyRequests(429, 10167, status.description or "too many requests")
    raise ApiError(status.code, 0, f"direct get from stream {stream!r}: {status.description or 'refused'}")


def stored_message(message: Msg) -> RawStreamMsg:
    """A direct get's answer; what the server put behind the stored headers is taken out again.

    The last header of a name is the server's: a republished message that was stored again has the same names in it.
    """
    try:
        headers = message.headers
    except MalformedHeaders as error:
        raise _broken(_place_of(message), error, message.payload) from error
    try:
        kept, added = _split(headers)
        return RawStreamMsg(
            subject=added[names.SUBJECT],
            seq=int(added[names.SEQUENCE]),
            data=message.payload,
            time=model_base.parse_time(added[names.TIME_STAMP]),
            headers=kept,
            stream=added[names.STREAM],
        )
    except (ValueError, KeyError) as error:
        raise BadResponse(
            f"a direct get was answered without the stream's headers: {brief(error)}", message.payload
        ) from error


def _place_of(message: Msg) -> str:
    """Which stored message it is, where its other headers cannot be read."""
    try:
        parts = batch_answers.parts_of(message)
    except ValueError:
        return "a message"
    return f"message {parts.sequence} of stream {parts.stream.decode('utf-8', 'replace')!r}"


def _split(found: Headers) -> tuple[Headers, dict[str, str]]:
    """The stored headers, and those that the server added."""
    added: dict[str, str] = {}
    kept = []
    for name, value in reversed(found.items()):
        if name in _ADDED and name not in added:
            added[name] = value
        else:
            kept.append((name, value))
    return Headers.received(kept[::-1]), added


class Reader:
    """Reads from one stream: direct or from its leader, and direct with the leader as the way out.

    `silent`: the server is older than 2.10 and does not answer direct gets on a stream that does not allow them.
    """

    def __init__(self, api: Api, stream: str, use_direct: bool, *, fall_back: bool, silent: bool) -> None:
        self._api = api
        self._stream = stream
        self._direct = use_direct
        self._fall_back = fall_back
        self._patience = SILENCE if silent and fall_back else None

    def get(self, request: dict[str, Any], timeout: Timeout = DEFAULT) -> RawStreamMsg:
        if not self._direct:
            return from_leader(self._api, self._stream, request, timeout)
        deadline = Deadline.of(timeout, self._api.timeout)
        wait = deadline.remaining() if self._patience is None else deadline.at_most(self._patience)
        try:
            return direct(self._api, self._stream, request, wait)
        except (NoResponders, RequestTimeout) as error:
            # The stream does not exist, does not allow direct gets any more, or not yet on this server.
            if not self._fall_back or (self._patience is None and isinstance(error, RequestTimeout)):
                raise
        return from_leader(self._api, self._stream, request, deadline.remaining())
