"""Synchronous publish: one message, its PubAck, and the rules for a publish that gets none.

After a 503 ("no responders") the message is certainly not stored, so the client retries until a total deadline. The
election of a stream leader lasts 4 to 8 s, and nats.go's 2 x 250 ms give up long before. After a timeout or a lost
link the outcome is unknown. Then only a message id makes it safe to send again, within the stream's duplicate window.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from jsclient import checks, waiting
from jsclient.connection import engine_of
from jsclient.durations import Deadline, check_timeout, plain
from jsclient.errors import (
    ApiError,
    ConfigError,
    ConnectionLost,
    DuplicateInProcess,
    InvalidPubAck,
    JetStreamError,
    MaxSubscriptionsExceeded,
    NoResponders,
    PayloadTooLarge,
    RequestTimeout,
    UnknownOutcome,
    api_error,
)
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api.models import PubAck
from jsclient.protocol.errors import BAD_JSON
from jsclient.states import LinkEvent

if TYPE_CHECKING:
    from jsclient.cancel import Cancel
    from jsclient.connection import Connection

PUBLISH_TIMEOUT: Final = 15.0
"""Seconds for the complete synchronous publish: twice the longest election measured (7.6 s)."""

ATTEMPT_TIMEOUT: Final = 5.0
"""Seconds without an ack after which a message with an id is sent again."""

RETRY_WAIT: Final = 0.25
"""Seconds between two attempts after a 503 (nats.go)."""

FORBIDDEN_ATTEMPTS: Final = 2
"""Retries after a 503 if this user has no permission to ask whether a stream exists (nats.go's number)."""

ASK_AFTER: Final = 2
"""The number of the 503 after which an asynchronous publish asks whether any stream takes the subject."""

TRIES: Final = 3
"""The number of the 503 from which on that answer counts: half a second after the first one, as long as nats.go tries.
So a stream that is just being created has time to appear. A synchronous publish asks only then."""

ACK_TIMEOUT: Final = 30.0
"""Seconds until the client gives up a message without an ack (async-nats)."""

SWEEP: Final = 0.5
"""Seconds between two looks at the pending messages, at most; a tenth of the ack timeout if that is less."""

HOLD_FOR: Final = 120.0
"""Seconds for which messages are held while the link is down, or as long as the stated window or the ack timeout."""

FAILURES: Final = (NoResponders, RequestTimeout, ConnectionLost, UnknownOutcome, ApiError, MaxSubscriptionsExceeded)
"""The errors of an attempt after which the publish may continue."""

_MSG_ID_LINE: Final = f"\r\n{names.MSG_ID}: ".encode()

DUPLICATE_IN_PROCESS: Final = 10158

decode_fast: Final = msgspec.json.Decoder(PubAck).decode


@attrs.frozen
class Rules:
    """The rules of one publisher. By default they are the rules of `publish_async`."""

    ack_timeout: float = ACK_TIMEOUT
    """Seconds until the client gives up a message without an ack."""
    hold_for: float = HOLD_FOR
    """Seconds for which messages wait for the link."""
    resend_after: float = attrs.field()
    """Seconds of silence after which a message is sent again."""
    retry_wait: float = RETRY_WAIT
    """Seconds before the client sends a message again after a 503 or a temporary refusal."""
    retry_attempts: int | None = None
    """The number of these retries; None retries as long as a stream exists for the message."""
    ask_after: int = ASK_AFTER
    """The number of the 503 after which the client asks whether there is a stream."""
    tries: int = TRIES
    """The number of the 503 from which on that answer counts."""
    unasked_attempts: int = FORBIDDEN_ATTEMPTS
    """Number of retries of a message if this user has no permission to ask that."""
    copies_allowed: bool = False
    """True if a message without an id may be stored twice. It is sent again indefinitely, like one with an id."""
    looks_beyond_window: bool = True
    """True to look for a message whose id the stream has forgotten. If False, its outcome is unknown immediately."""

    @resend_after.default
    def _resend_after(self) -> float:
        return min(ATTEMPT_TIMEOUT, max(self.ack_timeout / 3, 2 * min(SWEEP, self.ack_timeout / 10)))

    @property
    def tick(self) -> float:
        """Seconds between two looks at the pending messages."""
        return min(SWEEP, self.ack_timeout / 10, self.resend_after / 2)


def check_retries(attempts: int | None, wait: float | dt.timedelta) -> None:
    """Check the retry options of a call; raises ConfigError."""
    if attempts is not None and (isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0):
        raise ConfigError(f"retry_attempts must be an int of 0 or more, or None, got {attempts!r}")
    seconds = plain(wait)
    check_timeout(seconds, "retry_wait")
    if seconds is None:
        raise ConfigError("retry_wait must be 0 or more seconds, not None")


def may_go_on(payload: bytes) -> bool:
    """True if another answer to a publish may follow this one: it is a refusal, by a server that leads no more."""
    return payload.startswith(b'{"error"') and isinstance(reply_error(payload), ApiError)


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
    """The reason why a reply does not hold a PubAck."""
    try:
        plain = msgspec.json.decode(payload)
        if plain.get("seq") == 0 and plain.get("duplicate") and plain.get("stream"):
            # Replicated streams of 2.9 and 2.10: the id is noted; its message has no sequence yet, or never will.
            return DuplicateInProcess(503, DUPLICATE_IN_PROCESS, "the message with this id is not stored yet")
        found = plain["error"]
        return api_error(int(found.get("code", 0)), int(found.get("err_code", 0)), str(found.get("description", "")))
    except (*BAD_JSON, LookupError, TypeError, ValueError, AttributeError):
        return InvalidPubAck(f"something that is not a stream answered the publish: {payload[:120]!r}")


# --- delivering ---------------------------------------------------------------------------------------------------


def has_id(block: bytes | None) -> bool:
    """True if an encoded header block holds a message id; only then is it safe to send again."""
    return block is not None and _MSG_ID_LINE in block


def wait_connected(nc: Connection, timeout: float | None, cancel: Cancel | None = None) -> bool:
    """Wait for the link to come back; False after `timeout` seconds. Raises ConnectionClosed, Cancelled."""
    deadline = Deadline(timeout)
    while not nc.is_connected:  # it may come and go
        if deadline.expired():
            return False
        events = LinkEvent.RECONNECTED, LinkEvent.CLOSED
        wait_for_event(nc, events, deadline.remaining(), lambda: nc.is_connected, cancel)
    return True


def wait_for_event(
    nc: Connection,
    events: tuple[LinkEvent, ...],
    timeout: float | None,
    done: Callable[[], bool],
    cancel: Cancel | None = None,
) -> None:
    """Wait for one of the events, or `timeout` seconds; raises ConnectionClosed, Cancelled."""
    happened = waiting.Gate()

    def listener(event: LinkEvent) -> None:
        if event in events:
            happened.set()

    engine_of(nc).add_link_listener(listener)
    try:
        engine_of(nc).check_usable()
        with nullcontext() if cancel is None else cancel.ends(happened.set):
            if not done():
                happened.wait(timeout)
        engine_of(nc).check_usable()
        if cancel is not None:
            cancel.check()
    finally:
        engine_of(nc).remove_link_listener(listener)


def check_payload(payload: Any, limit: int, headers: int = 0) -> bytes:
    """The payload as bytes, no larger than the server accepts together with the headers."""
    if isinstance(payload, str):
        payload = checks.utf8(payload, "a payload")
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise ConfigError(f"a payload is bytes or str, not {type(payload).__name__}; encode it, or use a codec")
    raw = payload if isinstance(payload, bytes) else bytes(payload)
    if len(raw) + headers > limit:
        raise PayloadTooLarge(
            f"headers and payload have {len(raw) + headers} bytes, the server takes {limit} (max_payload): nothing was "
            "sent. Split it, use an object store, or raise the server's limit"
        )
    return raw
