"""Payloads that a server has left out of deliveries, read from the stream. See `without_payload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jsclient import errors
from jsclient.durations import DEFAULT, Timeout
from jsclient.jetstream.api.stored_messages import from_leader
from jsclient.jetstream.without_payload import lacks_payload, missing

if TYPE_CHECKING:
    from jsclient.jetstream.api.access import Access
    from jsclient.jetstream.message import JetStreamMsg


def payload_of(js: Access, message: JetStreamMsg, timeout: Timeout = DEFAULT) -> bytes:
    """The payload of a message, from its stream if the server has left it out.

    `js` received the message. Raises MessageNotFound if the stream no longer has it, PayloadMissing if the request
    fails.
    """
    if not lacks_payload(message.msg):
        return message.msg.data
    try:
        meta = message.metadata
        stored = from_leader(js.api, meta.stream, {"seq": meta.stream_seq}, timeout)
    except (errors.MessageNotFound, errors.ConnectionClosed):
        raise
    except errors.JsClientError as error:
        raise missing(message.subject, errors.brief(error)) from error
    if stored.time != meta.timestamp:  # both in microseconds
        raise errors.MessageNotFound(404, 10037, "the stream was re-created")
    return stored.data


def fill(js: Access, message: JetStreamMsg, timeout: Timeout = DEFAULT) -> bytes:
    """Put the payload into the message; see `payload_of`."""
    payload = payload_of(js, message, timeout)
    message.msg = msgspec.structs.replace(message.msg, data=payload)
    return payload
