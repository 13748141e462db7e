"""The digest of an object as its meta information carries it: `SHA-256=` and base64url."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from jsclient import kinds
from jsclient.errors import BadObjectMeta

DIGEST_PREFIX: Final = "SHA-256="


def object_digest(data: bytes | bytearray | memoryview) -> str:
    """The digest of an object with this data, as `ObjectInfo.digest` has it: `SHA-256=` and base64url."""
    kinds.check(bytes, bytearray, memoryview, data=data)
    return encode_digest(hashlib.sha256(data).digest())


def encode_digest(raw: bytes) -> str:
    """The text of a SHA-256 of 32 bytes, as `ObjectInfo.digest` has it."""
    kinds.check(bytes, raw=raw)
    return DIGEST_PREFIX + base64.urlsafe_b64encode(raw).decode()


def decode_digest(text: str, bucket: str = "") -> bytes:
    """The SHA-256 in `SHA-256=<base64url>`. Some clients write it in lower case or without padding.

    `bucket`: for the text of the error.
    """
    kinds.check(str, text=text, bucket=bucket)
    kind, _, value = text.partition("=")
    try:
        raw = base64.urlsafe_b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4))
    except (binascii.Error, ValueError) as error:
        raise BadObjectMeta(f"the digest {text[:80]!r} cannot be read: {error}", bucket) from None
    if kind.upper() != "SHA-256" or len(raw) != hashlib.sha256().digest_size:
        raise BadObjectMeta(f"the digest {text[:80]!r} is no SHA-256", bucket)
    return raw
