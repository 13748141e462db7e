"""NKeys: the text form of Ed25519 keys that NATS uses (base32, a prefix, CRC16), and signing with them.

This module implements the text forms. Ed25519 itself comes from `cryptography` (extra `nkeys`). It is preferred over
PyNaCl because most environments have it already and it makes our test certificates, too.
"""

from __future__ import annotations

import base64
import binascii
import enum
from typing import TYPE_CHECKING, Final

from jsclient.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_PREFIX: Final = 18 << 3  # the letter S
KEY_SIZE: Final = 32
_MISSING: Final = (
    "nkeys and .creds need Ed25519 from the package `cryptography`: pip install jsclient[nkeys]"
    " (or sign yourself with the option `signature_callback`)"
)


class KeyType(enum.IntEnum):
    """The purpose of a key. The value is its prefix byte, which gives the first letter of the public form."""

    OPERATOR = 14 << 3  # O
    SERVER = 13 << 3  # N
    CLUSTER = 2 << 3  # C
    ACCOUNT = 0  # A
    USER = 20 << 3  # U
    CURVE = 23 << 3  # X


def crc16(data: bytes) -> int:
    """CRC-16/XMODEM: polynomial 0x1021, start 0."""
    return binascii.crc_hqx(data, 0)


def _to_text(raw: bytes) -> str:
    return base64.b32encode(raw + crc16(raw).to_bytes(2, "little")).decode().rstrip("=")


def _from_text(text: str, what: str) -> bytes:
    """The bytes in front of the checksum. The error never contains the text, because it may be a seed."""
    text = text.strip()
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise ConfigError(f"{what} is not base32 text: it is damaged, or no key") from None
    if len(raw) < 4 or crc16(raw[:-2]) != int.from_bytes(raw[-2:], "little"):
        raise ConfigError(f"{what} has a wrong checksum: it is damaged or incomplete. Copy it again")
    return raw[:-2]


def encode_public(kind: KeyType, key: bytes) -> str:
    """The public form (56 characters, `U...` for a user) of 32 bytes."""
    if len(key) != KEY_SIZE:
        raise ConfigError(f"a public key has 32 bytes, not {len(key)}")
    return _to_text(bytes([kind]) + key)


def decode_public(text: str) -> tuple[KeyType, bytes]:
    """The kind and the 32 bytes of a public key. Raises ConfigError."""
    raw = _from_text(text, "the public nkey")
    return _kind(raw[0], "the public nkey"), _sized(raw[1:], "the public nkey")


def encode_seed(kind: KeyType, seed: bytes) -> str:
    """The seed form (58 characters, `SU...` for a user) of 32 secret bytes."""
    if len(seed) != KEY_SIZE:
        raise ConfigError(f"a seed has 32 bytes, not {len(seed)}")
    return _to_text(bytes([SEED_PREFIX | kind >> 5, (kind & 31) << 3]) + seed)


def decode_seed(text: str) -> tuple[KeyType, bytes]:
    """The kind and the 32 secret bytes of a seed. Raises ConfigError without the seed in its text."""
    raw = _from_text(text, "the nkey seed")
    if raw[0] & 0xF8 != SEED_PREFIX:
        raise ConfigError("this is no nkey seed: a seed begins with S (SU... for a user)")
    return _kind((raw[0] & 7) << 5 | raw[1] >> 3, "the nkey seed"), _sized(raw[2:], "the nkey seed")


def is_public(text: str, kind: KeyType | None = None) -> bool:
    """True if `text` is a well-formed public key (of that kind)."""
    try:
        found, _ = decode_public(text)
    except ConfigError:
        return False
    return kind is None or found is kind


def _kind(prefix: int, what: str) -> KeyType:
    try:
        return KeyType(prefix)
    except ValueError:
        raise ConfigError(
            f"{what} has an unknown prefix: seeds begin with S, public keys with U, A, N, C or O"
        ) from None


def _sized(key: bytes, what: str) -> bytes:
    if len(key) != KEY_SIZE:
        raise ConfigError(f"{what} has {len(key)} bytes instead of 32: it was cut off, or is no key")
    return key


class KeyPair:
    """A key that can sign. Its repr shows only the public form."""

    __slots__ = ("_key", "kind", "public")

    def __init__(self, seed: str) -> None:
        self.kind: KeyType
        self.kind, raw = decode_seed(seed)
        self._key = _private_key(raw)
        self.public: str = encode_public(self.kind, self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of the Ed25519 signature."""
        return self._key.sign(data)

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


def verify(public: str, data: bytes, signature: bytes) -> bool:
    """True if `signature` of `data` was made with the seed that belongs to `public`."""
    _, raw = decode_public(public)
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ConfigError(_MISSING) from None
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _private_key(raw: bytes) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(_MISSING) from None
    return ed25519.Ed25519PrivateKey.from_private_bytes(raw)
