"""Dead letters of pools; how one looks stands in `jsclient.jetstream.dead_letters`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsclient.errors import brief
from jsclient.jetstream.dead_letters import (
    CONSUMER,
    DELIVERIES,
    MAX_REASON,
    REASON,
    SEQUENCE,
    STREAM,
    SUBJECT,
    TIME,
    headers_of,
    letter_of,
    one_line,
    store,
)
from jsclient.workers.options import DEAD_LETTER_TIMEOUT
from jsclient.workers.outcomes import Reject

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream, JetStreamMsg

__all__ = [
    "CONSUMER",
    "DELIVERIES",
    "MAX_REASON",
    "REASON",
    "SEQUENCE",
    "STREAM",
    "SUBJECT",
    "TIME",
    "headers_of",
    "one_line",
    "publish",
    "reason_of",
]


def reason_of(error: BaseException) -> str:
    """One line that fits into a header."""
    try:
        text = str(error.reason) if isinstance(error, Reject) else brief(error)
    except Exception:  # an error of the application that cannot even be printed
        text = "(without a text)"
    if not isinstance(error, Reject):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return one_line(text)[:MAX_REASON]


def publish(js: JetStream, subject: str, message: JetStreamMsg, reason: str, deliveries: int) -> Any:
    """Store the message under `subject` and wait for the PubAck; raises what `JetStream.publish` raises."""
    headers, message_id = letter_of(js, message, reason, deliveries)
    return store(js, subject, message.data, headers, message_id, DEAD_LETTER_TIMEOUT)
