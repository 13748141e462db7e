"""Synchronous publish: one message, its PubAck, and the rules for when there is none.

A 503 ("no responders") means certainly not stored, and is retried until a total deadline: the election of a stream
leader lasts 4 to 8 s, and nats.go's 2 x 250 ms give up long before. A timeout or a lost link means unknown; only a
message id makes sending again safe then, within the stream's duplicate window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jsclient import waiting
from jsclient.durations import Deadline, check_timeout
from jsclient.errors import (
    ApiError,
    ConfigError,
    ConnectionLost,
    InvalidPubAck,
    JetStreamError,
    NoResponders,
    NoStreamForSubject,
    NoStreamResponse,
    NotStored,
    PayloadTooLarge,
    PermissionViolation,
    PublishUnknown,
    RequestTimeout,
    UnknownOutcome,
    api_error,
)
from jsclient.jetstream import headers as names
from jsclient.jetstream import wire
from jsclient.jetstream.models import PubAck
from jsclient.states import LinkEvent
from protocol.errors import BAD_JSON

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.context import JetStream

PUBLISH_TIMEOUT: Final = 15.0
"""Seconds that a synchronous publish may take in all: twice the longest election measured (7.6 s)."""

ATTEMPT_TIMEOUT: Final = 5.0
"""Seconds without an ack after which a message with an id is sent again."""

RETRY_WAIT: Final = 0.25
"""Seconds between two attempts after a 503 (nats.go)."""

FORBIDDEN_ATTEMPTS: Final = 2
"""Retries after a 503 when we may not ask whether a stream exists (nats.go's number)."""

ASK_AFTER: Final = 2
"""The 503 after which we ask whether any stream takes the subject."""

ASK_TIMEOUT: Final = 0.5
"""Seconds that this question may take; a typo shall be told in under a second."""

TEMPORARY: Final = frozenset({10008, 10158, 10163, 10167})
"""Errors that pass: no leader at the moment, duplicate in process, sequence check not possible yet, overload."""

FAILURES: Final = (NoResponders, RequestTimeout, ConnectionLost, UnknownOutcome, ApiError)
"""What an attempt may end with that deserves a second thought."""

_MSG_ID_LINE: Final = f"\r\n{names.MSG_ID}: ".encode()

decode_fast: Final = msgspec.json.Decoder(PubAck).decode


def decode_ack(payload: bytes) -> PubAck:
    """The PubAck in a reply. Raises the typed ApiError it holds instead, or InvalidPubAck."""
    try:
        ack = decode_fast(payload)
        if ack.seq:
            return ack
    except BAD_JSON:
        pass
    error = reply_error(payload)
    raise error


def reply_error(payload: bytes) -> JetStreamError:
    """Why a reply is no PubAck."""
    try:
        plain = msgspec.json.decode(payload)
        found = plain["error"]
        return api_error(int(found.get("code", 0)), int(found.get("err_code", 0)), str(found.get("description", "")))
    except (*BAD_JSON, LookupError, TypeError, ValueError, AttributeError):
        return InvalidPubAck(f"something that is not a stream answered the publish: {payload[:120]!r}")


# --- which streams take a subject ---------------------------------------------------------------------------------

EXISTS, NONE, UNAVAILABLE, FORBIDDEN = "exists", "none", "unavailable", "forbidden"


def names_request(subject: str) -> bytes:
    """The body of STREAM.NAMES that asks which streams take the subject."""
    return msgspec.json.encode({"subject": subject})


def names_answer(payload: bytes) -> str:
    """What the reply to it says: EXISTS, NONE or UNAVAILABLE."""
    try:
        plain = wire.decode_json(payload)
    except JetStreamError:
        return UNAVAILABLE
    if not isinstance(plain, dict) or plain.get("error"):
        return UNAVAILABLE
    return EXISTS if plain.get("streams") else NONE


def passes(error: ApiError) -> bool:
    """Whether a refused message was not stored and may be tried again: no leader, overload and the like.

    What the raft layer says while a leader steps down ("raft: not leader", seen on 2.10) comes without an err_code.
    """
    return error.err_code in TEMPORARY or (error.code == 503 and error.description.startswith("raft:"))


def ask_for_stream(js: JetStream, subject: str, timeout: float) -> str:
    """Is there a stream for the subject? FORBIDDEN when this user may not ask."""
    try:
        reply = js.nc.request(js.api.subject("STREAM.NAMES"), names_request(subject), timeout=timeout)
    except PermissionViolation:
        return FORBIDDEN
    except (NoResponders, RequestTimeout, ConnectionLost):
        return UNAVAILABLE
    return names_answer(reply.payload)


# --- delivering ---------------------------------------------------------------------------------------------------


def has_id(block: bytes | None) -> bool:
    """Whether an encoded header block holds a message id: only then is sending again safe."""
    return block is not None and _MSG_ID_LINE in block


def attempt_timeout(deadline: Deadline, headers: bytes | None) -> float | None:
    """How long one attempt may wait: all that is left, unless a message id allows to send again."""
    if not has_id(headers):
        return deadline.remaining()
    return deadline.at_most(ATTEMPT_TIMEOUT)


def wait_connected(nc: Connection, timeout: float | None) -> bool:
    """Wait for the link to come back; False after `timeout` seconds. Raises ConnectionClosed."""
    deadline = Deadline(timeout)
    while not nc.is_connected:  # it may come and go
        if deadline.expired():
            return False
        _wait_for_event(nc, (LinkEvent.RECONNECTED, LinkEvent.CLOSED), deadline.remaining(), lambda: nc.is_connected)
    return True


def _wait_for_event(
    nc: Connection, events: tuple[LinkEvent, ...], timeout: float | None, done: Callable[[], bool]
) -> None:
    """Wait for one of the events, or `timeout` seconds; raises ConnectionClosed."""
    happened = waiting.Gate()

    def listener(event: LinkEvent) -> None:
        if event in events:
            happened.set()

    nc.add_link_listener(listener)
    try:
        nc.check_usable()
        if not done():
            happened.wait(timeout)
        nc.check_usable()
    finally:
        nc.remove_link_listener(listener)


class Delivery:
    """The further life of a publish whose first attempt brought no ack."""

    def __init__(
        self,
        js: JetStream,
        subject: str,
        payload: bytes | str,
        headers: bytes | None,
        deadline: Deadline,
        retry_attempts: int | None,
        retry_wait: float,
    ) -> None:
        if retry_attempts is not None and retry_attempts < 0:
            raise ConfigError(f"retry_attempts must be 0 or more, got {retry_attempts}")
        check_timeout(retry_wait, "retry_wait")
        self.js = js
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.has_id = has_id(headers)
        self.deadline = deadline
        self.retry_attempts = retry_attempts
        self.retry_wait = retry_wait
        self.no_responders = 0
        self.attempts = 1
        self.losses = 0
        self.in_doubt = False  # some attempt may have stored it
        self.stream = UNAVAILABLE

    def persist(self, error: Exception) -> PubAck:
        """Judge the failure, wait as long as it deserves, try again."""
        while True:
            self.judge(error)
            self.attempts += 1
            try:
                wait = attempt_timeout(self.deadline, self.headers)
                reply = self.js.nc.request(self.subject, self.payload, timeout=wait, headers=self.headers)
                return decode_ack(reply.payload)
            except FAILURES as again:
                error = again

    def judge(self, error: Exception) -> None:
        """Raise what ends the publish, or return when another attempt is due."""
        if isinstance(error, ApiError):
            if not passes(error):
                raise error
            self._pause(error)
        elif isinstance(error, NoResponders):
            self._after_no_responders(error)
        elif isinstance(error, (ConnectionLost, RequestTimeout)) and not error.sent:
            if self.deadline.expired():
                raise self._give_up(error) from error
            self._wait_for_link(error)
        else:
            self.in_doubt = True
            if not self.has_id or self.deadline.expired():
                raise self._unknown(error) from error
            self._wait_for_link(error)

    def _after_no_responders(self, error: NoResponders) -> None:
        self.no_responders += 1
        limit = self.retry_attempts
        if limit is None:
            if self.no_responders >= ASK_AFTER and self.stream == UNAVAILABLE:
                self.stream = ask_for_stream(self.js, self.subject, self.deadline.at_most(ASK_TIMEOUT))
                if self.stream == NONE and not self.in_doubt:
                    raise NoStreamForSubject(f"no stream takes messages on {self.subject!r}", self.subject) from error
            if self.stream == FORBIDDEN:
                limit = FORBIDDEN_ATTEMPTS
        if limit is not None and self.no_responders > limit:
            raise self._no_stream(error) from error
        self._pause(error)

    def _pause(self, error: Exception) -> None:
        """Wait before the next attempt."""
        left = self.deadline.remaining()
        if left is not None and left <= self.retry_wait:
            raise self._give_up(error) from error
        _wait_for_event(self.js.nc, (LinkEvent.CLOSED,), self.retry_wait, lambda: False)

    def _wait_for_link(self, error: Exception) -> None:
        self.losses += 1
        if self.losses > 1:
            self._pause(error)  # links come and go: do not run along with them
        if not wait_connected(self.js.nc, self.deadline.remaining()):
            raise self._give_up(error) from error

    def _give_up(self, error: Exception) -> Exception:
        if self.in_doubt:
            return self._unknown(error)
        if isinstance(error, NoResponders):
            return self._no_stream(error)
        if isinstance(error, ApiError):
            return error
        return NotStored(f"the message on {self.subject!r} was not sent: the connection did not come back in time")

    def _no_stream(self, error: Exception) -> Exception:
        if self.in_doubt:
            return self._unknown(error)
        return NoStreamResponse(
            f"nobody took the message on {self.subject!r} in {self.attempts} attempts: no stream for it, or no leader",
            self.subject,
        )

    def _unknown(self, error: Exception) -> PublishUnknown:
        return PublishUnknown(
            f"no ack for the message on {self.subject!r} ({self.attempts} sent, last: {error}): it may be stored"
        )


def check_payload(payload: Any, limit: int, headers: int = 0) -> bytes:
    """The payload as bytes, no larger than the server accepts together with the headers."""
    if isinstance(payload, str):
        payload = payload.encode()
    raw = payload if isinstance(payload, bytes) else bytes(memoryview(payload))
    if len(raw) + headers > limit:
        raise PayloadTooLarge(
            f"headers and payload have {len(raw) + headers} bytes, the server takes {limit} (max_payload): nothing was "
            "sent. Split it, use an object store, or raise the server's limit"
        )
    return raw
