"""Dead letters: a message that cannot be handled is stored elsewhere with its reason before it is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsclient.workers.options import DEAD_LETTER_TIMEOUT
from protocol import Headers

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
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_REASON]


def publish(js: JetStream, subject: str, message: JetStreamMsg, reason: str, deliveries: int) -> Any:
    """Store the message under `subject` and wait for the PubAck; raises what `JetStream.publish` raises.

    The message id is `<stream>.<consumer>.<stream sequence>`: a second try within the duplicate window of the
    dead-letter stream stores nothing.
    """
    meta = message.metadata
    headers = Headers([pair for pair in _headers(message) if not pair[0].startswith(_DROPPED)])
    headers[REASON] = reason
    headers[SUBJECT] = message.subject
    headers[STREAM] = meta.stream
    headers[CONSUMER] = meta.consumer
    headers[SEQUENCE] = str(meta.stream_seq)
    headers[DELIVERIES] = str(deliveries)
    headers[TIME] = meta.timestamp.isoformat()
    message_id = f"{meta.stream}.{meta.consumer}.{meta.stream_seq}"
    return js.publish(subject, message.data, headers=headers, msg_id=message_id, timeout=DEAD_LETTER_TIMEOUT)


def _headers(message: JetStreamMsg) -> list[tuple[str, str]]:
    try:
        headers = message.headers
    except Exception:  # a publisher's broken block must not keep a message out of the dead letters
        return []
    return [] if headers is None else headers.items()
