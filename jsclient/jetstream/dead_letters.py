"""Dead letters: a message that cannot be handled is stored elsewhere, with its reason, before it is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jsclient.errors import NotJetStreamMessage
from protocol import Headers
from protocol.errors import InvalidHeader

if TYPE_CHECKING:
    from jsclient.jetstream.message import JetStreamMsg

REASON: Final = "Dead-Letter-Reason"
SUBJECT: Final = "Dead-Letter-Subject"
STREAM: Final = "Dead-Letter-Stream"
CONSUMER: Final = "Dead-Letter-Consumer"
SEQUENCE: Final = "Dead-Letter-Sequence"
DELIVERIES: Final = "Dead-Letter-Deliveries"
TIME: Final = "Dead-Letter-Time"

_DROPPED: Final = "Nats-"
"""Headers with this prefix mean something to the server that stores the dead letter (ids, TTL, expectations)."""

MAX_REASON: Final = 500


def one_line(text: str) -> str:
    """Text that fits into a header."""
    return "".join(char if char.isprintable() else " " for char in text)


def letter_of(message: JetStreamMsg, reason: str, deliveries: int) -> tuple[Headers, str | None]:
    """The headers and the message id of its dead letter.

    The id is `<stream>.<consumer>.<stream sequence>`: a second try within the duplicate window of the dead-letter
    stream stores nothing.
    """
    headers = Headers(headers_of(message))
    headers[REASON] = one_line(reason)[:MAX_REASON]
    subject = message.subject  # as it is, so that a replay finds back; of all that it may hold only NUL does not fit
    headers[SUBJECT] = one_line(subject) if "\0" in subject else subject
    headers[DELIVERIES] = str(deliveries)
    try:
        meta = message.metadata
    except NotJetStreamMessage:
        return headers, None  # an account import rewrote the ack subject: where it comes from is not known
    headers[STREAM] = meta.stream
    headers[CONSUMER] = meta.consumer
    headers[SEQUENCE] = str(meta.stream_seq)
    headers[TIME] = meta.timestamp.isoformat()
    return headers, f"{meta.stream}.{meta.consumer}.{meta.stream_seq}"


def headers_of(message: JetStreamMsg) -> list[tuple[str, str]]:
    """Those of the publisher that may be published again: what is broken must not keep it out of the dead letters."""
    try:
        pairs = message.headers.items() if message.headers else []
    except Exception:
        return []
    return [pair for pair in pairs if not pair[0].startswith(_DROPPED) and _is_valid(pair)]


def _is_valid(pair: tuple[str, str]) -> bool:
    try:
        Headers([pair]).encode()
    except InvalidHeader:
        return False
    return True
