"""Headers of entries, as the program gave them, without the headers that NATS itself uses."""

from __future__ import annotations

from typing import Final

from jsclient import errors
from jsclient.message import HeadersLike, headers_of
from jsclient.protocol import Headers, InvalidHeader
from jsclient.protocol.headers import encode_plain

_OF_NATS: Final = ("nats-", "kv-operation")
"""Names of headers that a bucket, its server or its clients use begin with these words."""


def to_store(headers: HeadersLike | None) -> HeadersLike | None:
    """A copy of the headers of a write. Raises ConfigError for headers that would change its meaning."""
    if headers is None:
        return None
    found: dict[str, str] | Headers
    try:
        # A plain dict is checked by the encoder, in a tenth of the time of Headers.
        plain = headers.__class__ is dict and encode_plain(headers) is not None
        found = dict(headers) if plain else Headers(headers)  # type: ignore[arg-type]  # what is not a str is refused there
    except InvalidHeader as error:
        raise errors.InvalidHeader(error.what) from None
    for name in found:
        if name.lower().startswith(_OF_NATS):
            raise errors.ConfigError(
                f"an entry cannot have the header {name!r}: NATS uses the names that begin with Nats- or KV-Operation. "
                "Nothing was sent. Use an argument of the call, such as ttl, or another name."
            )
    return found


def of_block(block: bytes | None) -> Headers:
    """The headers of an entry, from the header block of its message. Raises MalformedHeaders."""
    pairs = headers_of(block).items()
    return Headers.received([pair for pair in pairs if not pair[0].lower().startswith(_OF_NATS)])
