"""`kv.typed(Order)` and `kv.encoded(keys=..., values=...)`: the keys and values of a program as a bucket stores them.

A bucket without them has no Coding: its keys are stored as they are, and its values are bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import attrs

from jsclient import codecs
from jsclient.codecs import Codec
from jsclient.errors import ConfigError, DecodeFailed, EncodeFailed, KeyDeleted
from jsclient.keyvalue import key_codecs
from jsclient.keyvalue.key_codecs import KeyCodec, ValueCodec

if TYPE_CHECKING:
    from jsclient.keyvalue.entry import KeyValueEntry

log: logging.Logger = logging.getLogger("jsclient.keyvalue")

OnBadEntry: TypeAlias = Literal["raise", "skip"]
"""The action of watches and listings for an entry that cannot be decoded. "raise" returns it, and its `value` raises;
"skip" leaves it out and logs a warning. It stays in the bucket."""


@attrs.frozen(eq=False)
class Values:
    """The type of the values, and the codec that writes and reads them."""

    type: Any
    codec: Codec
    decode: Callable[[bytes], Any]

    def write(self, value: Any) -> bytes:
        """The bytes of a value, which can be read again as one: a mistake shows here, and not when it is read."""
        data = codecs.encode(self.codec, value)
        try:
            self.decode(data)
        except Exception as error:
            what = f"this {type(value).__name__} cannot be read again as {codecs.name_of(self.type)}: {error}"
            raise EncodeFailed(f"{what}. Nothing was sent. Store a value of the type of the bucket.") from error
        return data


@attrs.frozen(eq=False)
class Coding:
    """The codecs of one handle. `key_codec` and `value_codec` are of `encoded`, `values` is of `typed`."""

    bucket: str
    key_codec: KeyCodec | None = None
    value_codec: ValueCodec | None = None
    values: Values | None = None
    skips: bool = False
    """`on_bad="skip"` of `typed` or `encoded`: watches and listings leave out what cannot be decoded."""

    # --- to the bucket ------------------------------------------------------------------------------------

    def key(self, key: str) -> str:
        """The stored form of a key. Raises EncodeFailed."""
        if self.key_codec is None or not isinstance(key, str):
            return key  # the bucket raises the error
        try:
            return self.key_codec.encode(key)
        except Exception as error:
            _not_encoded(self.key_codec, f"the key {key[:80]!r}", error)

    def pattern(self, pattern: str) -> str:
        """The stored form of a pattern. Raises EncodeFailed, or ConfigError if the codec does not support patterns."""
        if self.key_codec is None or not isinstance(pattern, str):
            return pattern
        try:
            return key_codecs.filter_of(self.key_codec, pattern)
        except ConfigError:
            raise
        except Exception as error:
            _not_encoded(self.key_codec, f"the key pattern {pattern[:80]!r}", error)

    def write(self, value: Any) -> Any:
        """The stored form of a value. Raises EncodeFailed."""
        if self.values is not None:
            value = self.values.write(value)
        if self.value_codec is None:
            return value
        try:
            # Not bytes(value): an int would become a string of that number of zero bytes.
            return self.value_codec.encode(value.encode() if isinstance(value, str) else bytes(memoryview(value)))
        except Exception as error:
            _not_encoded(self.value_codec, f"a value of type {type(value).__name__}", error)

    # --- from the bucket ----------------------------------------------------------------------------------

    def checked(self, entry: KeyValueEntry[Any]) -> KeyValueEntry[Any]:
        """The entry of a key that the program named. Raises DecodeFailed."""
        entry._read = self.value
        entry.value  # noqa: B018
        return entry

    def found(self, entry: KeyValueEntry[Any], meta_only: bool = False) -> KeyValueEntry[Any] | None:
        """An entry of a watch or listing, whose key is still in its stored form.

        Returns None if it cannot be decoded and is to be left out. Raises DecodeFailed for its key. A value that cannot
        be decoded raises when the program reads it.
        """
        entry._read = self.no_value if meta_only else self.value
        try:
            if self.key_codec is not None:
                entry.key = self.read_key(entry.key, entry.revision)
            if self.skips and entry.is_put and not meta_only:
                entry.value  # noqa: B018
        except DecodeFailed as error:
            if not self.skips:
                raise
            log.warning("%s", error)
            return None
        return entry

    def read_key(self, stored: str, revision: int) -> str:
        """The key again. Raises DecodeFailed."""
        if self.key_codec is None:
            return stored
        try:
            return self.key_codec.decode(stored)
        except Exception as error:
            text = f"{stored!r} in bucket {self.bucket!r} is no key of {self.key_codec!r}: {error}"
            raise DecodeFailed(text, stored.encode("utf-8", "surrogateescape"), stored, revision) from error

    def value(self, entry: KeyValueEntry[Any]) -> Any:
        """The value of an entry. Raises DecodeFailed, or KeyDeleted for a marker in a typed bucket."""
        self._check_typed_marker(entry)
        data = entry.data
        if self.value_codec is not None and entry.is_put:
            try:
                data = self.value_codec.decode(data)
            except Exception as error:
                raise self._unread(entry, data, f"value of {self.value_codec!r}", error) from error
        if self.values is None:
            return data
        try:
            return self.values.decode(data)
        except Exception as error:
            raise self._unread(entry, data, codecs.name_of(self.values.type), error) from error

    def no_value(self, entry: KeyValueEntry[Any]) -> bytes:
        """The value of an entry whose value the server did not send: empty, or an error in a typed bucket."""
        self._check_typed_marker(entry)
        if self.values is None:
            return entry.data
        raise ConfigError(f"there is no value of {entry.key!r}: meta_only leaves it out. Call get for the key.")

    def _unread(self, entry: KeyValueEntry[Any], data: bytes, kind: str, error: Exception) -> DecodeFailed:
        where = f"of {entry.key!r} in bucket {self.bucket!r}, revision {entry.revision},"
        text = f"the {len(data)} bytes {where} are no {kind}: {error}"
        return DecodeFailed(text, bytes(data), entry.key, entry.revision)

    def _check_typed_marker(self, entry: KeyValueEntry[Any]) -> None:
        if self.values is None or entry.is_put:
            return
        text = f"{entry.key!r} in bucket {self.bucket!r} was deleted at revision {entry.revision}: there is no value"
        raise KeyDeleted(text, self.bucket, entry.key, entry.revision)

    def __repr__(self) -> str:
        shown = [f" of {codecs.name_of(self.values.type)}"] if self.values is not None else []
        shown += [f" keys={self.key_codec!r}"] if self.key_codec is not None else []
        shown += [f" values={self.value_codec!r}"] if self.value_codec is not None else []
        return "".join(shown)


def typed(before: Coding | None, bucket: str, type: Any, codec: Codec, on_bad: OnBadEntry) -> Coding:
    """The coding of `kv.typed(...)`. Raises ConfigError."""
    codecs.check(codec)
    values = Values(type, codec, codecs.decoder(codec, type))
    before = before or Coding(bucket)
    return attrs.evolve(before, values=values, skips=_skips(on_bad) or before.skips)


def encoded(
    before: Coding | None, bucket: str, keys: KeyCodec | None, values: ValueCodec | None, on_bad: OnBadEntry
) -> Coding:
    """The coding of `kv.encoded(...)`. Raises ConfigError."""
    before = before or Coding(bucket)
    if before.key_codec is not None or before.value_codec is not None:
        raise ConfigError("this bucket is encoded already: give a KeyChain or ValueChain to the bucket itself")
    if keys is not None:
        key_codecs.check(keys, "keys")
    if values is not None:
        key_codecs.check(values, "values")
    return attrs.evolve(before, key_codec=keys, value_codec=values, skips=_skips(on_bad) or before.skips)


def _skips(on_bad: OnBadEntry) -> bool:
    if on_bad not in ("raise", "skip"):
        raise ConfigError(f'on_bad is "raise" or "skip" here, not {on_bad!r}: the entry stays in the bucket')
    return on_bad == "skip"


def _not_encoded(codec: Any, what: str, error: Exception) -> NoReturn:
    if isinstance(error, ConfigError):
        raise error
    raise EncodeFailed(f"{codec!r} cannot encode {what}: {error}") from error
