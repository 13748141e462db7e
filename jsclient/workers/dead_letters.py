"""Dead letters of pools; how one looks stands in `jsclient.jetstream.dead_letters`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsclient.durations import Deadline
from jsclient.errors import MessageNotFound, brief
from jsclient.jetstream.dead_letters import (
    CONSUMER,
    DELIVERIES,
    LOST,
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
from jsclient.jetstream.without_payload import payload_of
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
    """Store the message under `subject` and wait for the PubAck; raises what `JetStream.publish` raises.

    A message that came without its payload is read from its stream, `lost` if that has it no more. PayloadMissing.
    """
    deadline = Deadline(DEAD_LETTER_TIMEOUT)
    headers, message_id = letter_of(js, message, reason, deliveries)
    try:
        data = payload_of(js, message, deadline)
    except MessageNotFound:
        data = b""
        headers[LOST] = "true"
    return store(js, subject, data, headers, message_id, deadline)
