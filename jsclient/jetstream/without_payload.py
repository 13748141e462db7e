"""Messages that came without their payload, because their consumer has `headers_only`: the payload is in the stream.

An administrator may set `headers_only` while programs run. The client must then not decode an empty payload, store it
as a dead letter, or store it again for later in place of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.jetstream.api.headers import MSG_SIZE

if TYPE_CHECKING:
    from jsclient.protocol import Msg

_SIZE: Final = f"\r\n{MSG_SIZE}:".encode()


def lacks_payload(msg: Msg) -> bool:
    """True for an empty message with a header that names another size: the server adds it if it omits a payload."""
    raw = msg.raw_headers
    if msg.data or raw is None or _SIZE not in raw:
        return False
    return raw.rpartition(_SIZE)[2].partition(b"\r\n")[0].strip() != b"0"


def missing(subject: str, why: str = "the consumer delivers only headers") -> errors.PayloadMissing:
    """The error of a message that came without its payload."""
    return errors.PayloadMissing(f"a message on {subject!r} came without its payload: {why}")


def refuse_headers_only(headers_only: bool | None, source: object) -> None:
    """Raises ConfigError for `typed` of a consumer without payloads, by its last known configuration."""
    if headers_only:
        raise errors.ConfigError(
            f"{source} has headers_only, so there is nothing to decode. Switch headers_only off, or "
            "take the messages without typed(). If it was switched off since, call info() first."
        )
