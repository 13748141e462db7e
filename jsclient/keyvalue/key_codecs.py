"""Codecs for keys and values of a bucket: the codecs of ADR-54, compatible with orbit's `kvcodec`.

A program can name its keys as it likes (paths, names with blanks), and the bucket stores them as valid subjects. A key
codec is an object with two functions, `encode` and `decode`. With a third one, `encode_filter`, its keys can be watched
and listed by patterns. A value codec has the first two functions, on bytes, for example for compression or encryption.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, Protocol

from jsclient import handlers
from jsclient.errors import ConfigError, InvalidName

_ROOT: Final = "_root_"


class KeyCodec(Protocol):
    """Two functions. Both may raise any exception: it becomes the cause of EncodeFailed or DecodeFailed.

    `encode` must give every key a different name, or one key overwrites another. With a third method
    `encode_filter(pattern)`, which leaves `*` and `>` unchanged, patterns work in `watch` and `keys`.
    """

    def encode(self, key: str, /) -> str:
        """The stored form of a key."""

    def decode(self, stored: str, /) -> str:
        """The key again."""


class ValueCodec(Protocol):
    """The same for values, which are bytes on both sides."""

    def encode(self, value: bytes, /) -> bytes:
        """The stored form of a value."""

    def decode(self, stored: bytes, /) -> bytes:
        """The value again."""


class _Base64Keys:
    """Every token between two dots as base64 (URL alphabet, no padding): any text may be a key."""

    def encode(self, key: str, /) -> str:
        return ".".join(map(_encode_token, key.split(".")))

    def encode_filter(self, pattern: str, /) -> str:
        return ".".join(token if token in ("*", ">") else _encode_token(token) for token in pattern.split("."))

    def decode(self, stored: str, /) -> str:
        return ".".join(_decode_base64(token.encode()).decode() for token in stored.split("."))

    def __repr__(self) -> str:
        return "jsclient.keyvalue.BASE64_KEYS"


class _Base64Values:
    """Values as base64 text of the same form."""

    def encode(self, value: bytes, /) -> bytes:
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    def decode(self, stored: bytes, /) -> bytes:
        return _decode_base64(stored)

    def __repr__(self) -> str:
        return "jsclient.keyvalue.BASE64_VALUES"


def _encode_token(token: str) -> str:
    return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


def _decode_base64(stored: bytes) -> bytes:
    found = base64.b64decode(stored + b"=" * (-len(stored) % 4), b"-_", validate=True)
    if base64.urlsafe_b64encode(found).rstrip(b"=") != stored:  # two texts would be the same key
        raise binascii.Error(f"{stored!r:.80} is no base64 as it is written")
    return found


class _PathKeys:
    """Paths, separated by `/` instead of `.`. A leading `/` becomes a token `_root_`. A `/` at the end is left out."""

    def encode(self, key: str, /) -> str:
        if "." in key:
            raise InvalidName(f"the path {key[:80]!r} has a '.', which would come back as '/'")
        if key == _ROOT or key.startswith(_ROOT + "/"):
            raise InvalidName(f"the path {key[:80]!r} begins with {_ROOT!r}, which stands for a leading '/'")
        if key == "/":
            return _ROOT
        path = f"{_ROOT}{key}" if key.startswith("/") else key
        return path.removesuffix("/").replace("/", ".")

    encode_filter = encode

    def decode(self, stored: str, /) -> str:
        if stored == _ROOT:
            return "/"
        return stored.removeprefix(_ROOT if stored.startswith(_ROOT + ".") else "").replace(".", "/")

    def __repr__(self) -> str:
        return "jsclient.keyvalue.PATH_KEYS"


class KeyChain:
    """Several key codecs in sequence: the first one encodes first, and decodes last.

    Attributes:
        codecs: As given.
    """

    def __init__(self, *codecs: KeyCodec) -> None:
        self.codecs: tuple[Any, ...] = _checked(codecs)

    def encode(self, key: str, /) -> str:
        """The stored form of a key."""
        for codec in self.codecs:
            key = codec.encode(key)
        return key

    def encode_filter(self, pattern: str, /) -> str:
        """The pattern as the bucket has its keys. Raises ConfigError where one of them takes no patterns."""
        for codec in self.codecs:
            pattern = filter_of(codec, pattern)
        return pattern

    def decode(self, stored: str, /) -> str:
        """The key again."""
        for codec in reversed(self.codecs):
            stored = codec.decode(stored)
        return stored

    def __repr__(self) -> str:
        return f"KeyChain{self.codecs!r}"


class ValueChain:
    """Several value codecs in sequence: the first one encodes first, and decodes last.

    Attributes:
        codecs: As given.
    """

    def __init__(self, *codecs: ValueCodec) -> None:
        self.codecs: tuple[Any, ...] = _checked(codecs)

    def encode(self, value: bytes, /) -> bytes:
        """The stored form of a value."""
        for codec in self.codecs:
            value = codec.encode(value)
        return value

    def decode(self, stored: bytes, /) -> bytes:
        """The value again."""
        for codec in reversed(self.codecs):
            stored = codec.decode(stored)
        return stored

    def __repr__(self) -> str:
        return f"ValueChain{self.codecs!r}"


BASE64_KEYS: Final = _Base64Keys()
"""Keys of any text: every token between two dots as base64 (URL alphabet, no padding). Patterns work."""

BASE64_VALUES: Final = _Base64Values()
"""Values as base64 text."""

PATH_KEYS: Final = _PathKeys()
"""Keys are paths: `/etc/hosts` is stored as `_root_.etc.hosts`. A `/` at the end is left out. A `.` raises an error,
because it would be read back as `/`. Patterns such as `/etc/*` and `/etc/>` work."""


def filter_of(codec: KeyCodec, pattern: str) -> str:
    """The pattern as the bucket has its keys. Raises ConfigError where the codec takes no patterns."""
    encode = getattr(codec, "encode_filter", None)
    if encode is not None:
        found: str = encode(pattern)
        return found
    if "*" in pattern or ">" in pattern:
        text = f"{codec!r} has no encode_filter, so keys cannot be asked for by the pattern {pattern[:80]!r}"
        raise ConfigError(f"{text}. Ask for all, and compare here.")
    return codec.encode(pattern)


def check(codec: Any, what: str) -> None:
    """Raises ConfigError for an object without the two functions."""
    if isinstance(codec, type) or not all(callable(getattr(codec, name, None)) for name in ("encode", "decode")):
        raise ConfigError(f"a codec of {what} is an object with encode and decode, not {codec!r:.80}")
    handlers.check(codec.encode, f"encode of a codec of {what}")
    handlers.check(codec.decode, f"decode of a codec of {what}")


def _checked(codecs: tuple[Any, ...]) -> tuple[Any, ...]:
    if not codecs:
        raise ConfigError("a chain needs at least one codec")
    for codec in codecs:
        check(codec, "a chain")
    return codecs
