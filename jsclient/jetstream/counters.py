"""Distributed counters (nats-server 2.12, ADR-49): reading what the stream stores for one.

Add with `js.publish(subject, incr=5)`; the ack's `val` is the new value. A value may be larger than 64 bits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jsclient.errors import BadResponse
from jsclient.jetstream.api import headers as names
from protocol.errors import BAD_JSON


def counter_value(msg: Any) -> int:
    """The value of a counter in a message of its stream (from get_last_msg, or delivered by a consumer).

    Raises BadResponse for a message that is not a counter.
    """
    try:
        return int(msgspec.json.decode(msg.data)["val"])
    except (*BAD_JSON, LookupError, TypeError, ValueError) as error:
        raise BadResponse(f"the message on {msg.subject!r} is not a counter: {msg.data[:80]!r}", msg.data) from error


def counter_sources(msg: Any) -> dict[str, dict[str, int]]:
    """What a counter aggregated from other streams is made of: stream name -> subject -> value there."""
    text = msg.headers.get(names.COUNTER_SOURCES)
    if text is None:
        return {}
    try:
        plain = msgspec.json.decode(text)
        return {stream: {subject: int(value) for subject, value in of.items()} for stream, of in plain.items()}
    except (*BAD_JSON, AttributeError, TypeError, ValueError) as error:
        raise BadResponse(f"the sources of the counter cannot be read: {text[:80]!r}") from error
