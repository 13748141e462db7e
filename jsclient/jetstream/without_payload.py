"""Messages that came without their payload, because their consumer has `headers_only`: the payload is in the stream.

An administrator may set `headers_only` while programs run. The client must then not decode an empty payload, store it
as a dead letter, or store it again for later in place of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from jsclient import errors
from jsclient.durations import DEFAULT, Timeout
from jsclient.jetstream.api.headers import MSG_SIZE
from jsclient.jetstream.api.stored_messages import from_leader

if TYPE_CHECKING:
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.message import JetStreamMsg
    from jsclient.protocol import Msg

_SIZE: Final = f"\r\n{MSG_SIZE}:".encode()


def lacks_payload(msg: Msg) -> bool:
    """True for an empty message with a header that names another size: the server adds it if it omits a payload."""
    raw = msg.raw_headers
    if msg.data or raw is None or _SIZE not in raw:
        return False
    return raw.rpartition(_SIZE)[2].partition(b"\r\n")[0].strip() != b"0"


def missing(message: JetStreamMsg, why: str = "the consumer delivers only headers") -> errors.PayloadMissing:
    """The error of a message that came without its payload."""
    return errors.PayloadMissing(f"a message on {message.subject!r} came without its payload: {why}")


def payload_of(js: JetStream, message: JetStreamMsg, timeout: Timeout = DEFAULT) -> bytes:
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
        raise missing(message, errors.brief(error)) from error
    if stored.time != meta.timestamp:  # both in microseconds
        raise errors.MessageNotFound(404, 10037, "the stream was re-created")
    return stored.data


def fill(js: JetStream, message: JetStreamMsg, timeout: Timeout = DEFAULT) -> bytes:
    """Put the payload into the message; see `payload_of`."""
    payload = payload_of(js, message, timeout)
    message.msg = msgspec.structs.replace(message.msg, data=payload)
    return payload


def refuse_headers_only(headers_only: bool | None, source: object) -> None:
    """Raises ConfigError for `typed` of a consumer without payloads, by its last known configuration."""
    if headers_only:
        raise errors.ConfigError(
            f"{source} has headers_only, so there is nothing to decode. Nothing was sent. Switch headers_only off, or "
            "take the messages without typed(). If it was switched off since, call info() first."
        )
