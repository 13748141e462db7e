"""Dead letters: a message that cannot be handled is stored elsewhere with its reason before it is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsclient.errors import NotJetStreamMessage, brief
from jsclient.workers.options import DEAD_LETTER_TIMEOUT
from jsclient.workers.outcomes import Reject
from protocol import Headers
from protocol.errors import InvalidHeader

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream, JetStreamMsg

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


def reason_of(error: BaseException) -> str:
    """One line that fits into a header."""
    try:
        text = str(error.reason) if isinstance(error, Reject) else brief(error)
    except Exception:  # an error of the application that cannot even be printed
        text = "(without a text)"
    if not isinstance(error, Reject):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return one_line(text)[:MAX_REASON]


def one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def publish(js: JetStream, subject: str, message: JetStreamMsg, reason: str, deliveries: int) -> Any:
    """Store the message under `subject` and wait for the PubAck; raises what `JetStream.publish` raises.

    The message id is `<stream>.<consumer>.<stream sequence>`: a second try within the duplicate window of the
    dead-letter stream stores nothing.
    """
    headers = Headers(headers_of(message))
    headers[REASON] = reason
    headers[SUBJECT] = one_line(message.subject)
    headers[DELIVERIES] = str(deliveries)
    message_id = None
    try:
        meta = message.metadata
    except NotJetStreamMessage:
        pass  # an account import rewrote the ack subject: where it comes from is not known
    else:
        headers[STREAM] = meta.stream
        headers[CONSUMER] = meta.consumer
        headers[SEQUENCE] = str(meta.stream_seq)
        headers[TIME] = meta.timestamp.isoformat()
        message_id = f"{meta.stream}.{meta.consumer}.{meta.stream_seq}"
    return js.publish(subject, message.data, headers=headers, msg_id=message_id, timeout=DEAD_LETTER_TIMEOUT)


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
