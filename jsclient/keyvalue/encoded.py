"""`kv.encoded(keys=..., values=...)`: a bucket with keys and values that codecs write."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, overload

from jsclient import handlers
from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Deadline, Timeout, check_timeout, plain_or_none
from jsclient.errors import ConfigError, DecodeFailed, EncodeFailed, KeyExists, KeyNotFound, RevisionMismatch
from jsclient.keyvalue import key_codecs
from jsclient.keyvalue.batch import KeyValueBatch
from jsclient.keyvalue.bucket import KeyValue
from jsclient.keyvalue.entry import KeyValueEntry
from jsclient.keyvalue.key_codecs import KeyCodec, ValueCodec
from jsclient.keyvalue.keys import check_filter
from jsclient.keyvalue.typed import OnBadEntry
from jsclient.keyvalue.watch import OPEN_TIMEOUT, KeyWatcher, WatchOptions
from jsclient.message import HeadersLike, Payload

if TYPE_CHECKING:
    from jsclient.jetstream.message import JetStreamMsg

log: logging.Logger = logging.getLogger("jsclient.keyvalue")

_OF_A_KEY: Final = (KeyNotFound, KeyExists, RevisionMismatch)
"""Errors that name a key: they name it as the program does."""

D = TypeVar("D")
_RAISE: Final[Any] = object()


class Writing:
    """Writes and reads keys and values with their codecs. A stored text that cannot be read raises DecodeFailed."""

    def __init__(self, bucket: str, keys: KeyCodec | None, values: ValueCodec | None) -> None:
        if keys is not None:
            key_codecs.check(keys, "keys")
        if values is not None:
            key_codecs.check(values, "values")
        self.bucket = bucket
        self.keys = keys
        self.values = values

    def key(self, key: str) -> str:
        """The stored form of a key. Raises EncodeFailed."""
        if self.keys is None or not isinstance(key, str):
            return key  # the bucket raises the error
        try:
            return self.keys.encode(key)
        except Exception as error:
            _not_encoded(self.keys, f"the key {key[:80]!r}", error)

    def pattern(self, pattern: str) -> str:
        """The stored form of a pattern. Raises EncodeFailed, or ConfigError if the codec does not support patterns."""
        if self.keys is None or not isinstance(pattern, str):
            return pattern
        try:
            return key_codecs.filter_of(self.keys, pattern)
        except ConfigError:
            raise
        except Exception as error:
            _not_encoded(self.keys, f"the key pattern {pattern[:80]!r}", error)

    def value(self, value: Payload) -> Payload:
        """The stored form of a value. Raises EncodeFailed."""
        if self.values is None:
            return value
        try:
            # Not bytes(value): an int would become a string of that number of zero bytes.
            return self.values.encode(value.encode() if isinstance(value, str) else bytes(memoryview(value)))
        except Exception as error:
            _not_encoded(self.values, f"a value of type {type(value).__name__}", error)

    def read_key(self, stored: str, revision: int | None = None) -> str:
        """The key again. Raises DecodeFailed."""
        if self.keys is None:
            return stored
        try:
            return self.keys.decode(stored)
        except Exception as error:
            text = f"{stored!r} in bucket {self.bucket!r} is no key of {self.keys!r}: {error}"
            raise DecodeFailed(text, stored.encode("utf-8", "surrogateescape"), stored, revision) from error

    def read(self, entry: KeyValueEntry, key: str | None = None, *, values: bool = True) -> KeyValueEntry:
        """The decoded entry. Raises DecodeFailed."""
        stored = entry.key
        entry.key = self.read_key(stored, entry.revision) if key is None else key
        if values and self.values is not None and entry.is_put:
            try:
                entry.value = self.values.decode(entry.value)
            except Exception as error:
                where = f"of {entry.key!r} in bucket {self.bucket!r}, revision {entry.revision},"
                text = f"the {len(entry.value)} bytes {where} are no value of {self.values!r}: {error}"
                raise DecodeFailed(text, entry.value, stored, entry.revision) from error
        return entry


def _not_encoded(codec: Any, what: str, error: Exception) -> NoReturn:
    if isinstance(error, ConfigError):
        raise error
    raise EncodeFailed(f"{codec!r} cannot encode {what}: {error}") from error


class EncodedKeyValue(KeyValue):
    """A bucket whose keys or values are written by codecs. `kv.encoded(...)` makes it, without a round trip.

    Use it like any bucket: arguments, entries and errors have your program's keys and patterns. An entry of another
    writer that the codecs cannot read raises DecodeFailed when it is reached. A watcher continues after it. With
    `on_bad="skip"`, watches and listings leave the entry out and log a warning. It stays in the bucket.

    It has the fields of `KeyValue`.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        direct: True reads by direct get, which any replica answers; False reads from the leader. By default the
            stream's `allow_direct` decides.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.
    """

    def __init__(
        self, kv: KeyValue, keys: KeyCodec | None, values: ValueCodec | None, on_bad: OnBadEntry = "raise"
    ) -> None:
        if isinstance(kv, EncodedKeyValue):
            raise ConfigError("this bucket is encoded already: give a KeyChain or ValueChain to the bucket itself")
        if on_bad not in ("raise", "skip"):
            raise ConfigError(f'on_bad is "raise" or "skip" here, not {on_bad!r}: the entry stays in the bucket')
        self.__dict__.update(kv.__dict__)
        self._writing = Writing(kv.bucket, keys, values)
        self._skips = on_bad == "skip"

    def _named(self, error: Exception, key: str) -> NoReturn:
        """Raise the error with the program's own form of the key."""
        stored = self._writing.key(key)
        error.args = tuple(
            text.replace(repr(stored), repr(key)) if isinstance(text, str) else text for text in error.args
        )
        vars(error)["key"] = key
        raise error

    # --- one key ------------------------------------------------------------------------------------------

    @overload
    def get(self, key: str, *, direct: bool | None = None, timeout: Timeout = DEFAULT) -> KeyValueEntry: ...
    @overload
    def get(
        self, key: str, *, default: D, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> KeyValueEntry | D: ...
    @arguments
    def get(self, key: str, *, default: Any = _RAISE, direct: bool | None = None, timeout: Timeout = DEFAULT) -> Any:
        """See KeyValue.get. DecodeFailed when the value is not one of the codec."""
        try:
            entry = super().get(self._writing.key(key), direct=direct, timeout=timeout)
        except KeyNotFound as error:
            if default is _RAISE:
                self._named(error, key)
            return default
        return self._writing.read(entry, key)

    def __contains__(self, key: str) -> bool:
        try:
            super().get(self._writing.key(key))  # it does not have to be readable
        except KeyNotFound:
            return False
        return True

    @arguments
    def get_revision(
        self, key: str, revision: int, *, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> KeyValueEntry:
        """See KeyValue.get_revision. DecodeFailed when the value is not one of the codec."""
        try:
            entry = super().get_revision(self._writing.key(key), revision, direct=direct, timeout=timeout)
        except KeyNotFound as error:
            self._named(error, key)
        return self._writing.read(entry, key)

    @arguments
    def history(self, key: str, *, meta_only: bool = False, timeout: Timeout = DEFAULT) -> list[KeyValueEntry]:
        """See KeyValue.history."""
        try:
            entries = super().history(self._writing.key(key), meta_only=meta_only, timeout=timeout)
        except KeyNotFound as error:
            self._named(error, key)
        return [found for entry in entries if (found := self._readable(entry, key, not meta_only)) is not None]

    @arguments
    def get_many(self, keys: Iterable[str], *, timeout: Timeout = DEFAULT) -> dict[str, KeyValueEntry]:
        """See KeyValue.get_many. DecodeFailed when a value is not one of the codec."""
        if isinstance(keys, str):
            return super().get_many(keys, timeout=timeout)  # refuses it
        wanted = {self._writing.key(key): key for key in keys}
        found = {}
        for stored, raw in super().get_many(wanted, timeout=timeout).items():
            entry = self._readable(raw, wanted[stored], True)
            if entry is not None:
                found[wanted[stored]] = entry
        return found

    def _readable(self, entry: KeyValueEntry, key: str, values: bool) -> KeyValueEntry | None:
        try:
            return self._writing.read(entry, key, values=values)
        except DecodeFailed as error:
            if not self._skips:
                raise
            log.warning("%s", error)
            return None

    def put(self, key: str, value: Payload, *, headers: HeadersLike | None = None, timeout: Timeout = DEFAULT) -> int:
        """See KeyValue.put. EncodeFailed: nothing was sent."""
        return super().put(self._writing.key(key), self._writing.value(value), headers=headers, timeout=timeout)

    def create(
        self,
        key: str,
        value: Payload,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """See KeyValue.create."""
        stored, data = self._writing.key(key), self._writing.value(value)
        try:
            return super().create(stored, data, ttl=ttl, headers=headers, timeout=timeout)
        except _OF_A_KEY as error:
            self._named(error, key)

    @arguments
    def update(
        self,
        key: str,
        value: Payload,
        revision: int,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """See KeyValue.update."""
        stored, data = self._writing.key(key), self._writing.value(value)
        try:
            return super().update(stored, data, revision, ttl=ttl, headers=headers, timeout=timeout)
        except _OF_A_KEY as error:
            self._named(error, key)

    def delete(self, key: str, *, revision: int | None = None, timeout: Timeout = DEFAULT) -> None:
        """See KeyValue.delete."""
        try:
            super().delete(self._writing.key(key), revision=revision, timeout=timeout)
        except _OF_A_KEY as error:
            self._named(error, key)

    def purge(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: float | dt.timedelta | None = None,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """See KeyValue.purge."""
        try:
            super().purge(self._writing.key(key), revision=revision, ttl=ttl, timeout=timeout)
        except _OF_A_KEY as error:
            self._named(error, key)

    # --- many keys ----------------------------------------------------------------------------------------

    def batch(self, *, timeout: Timeout = DEFAULT) -> KeyValueBatch[Payload]:
        """See KeyValue.batch."""
        self._check_writable()
        return KeyValueBatch(self, self._writing.key, self._writing.value, timeout)

    @arguments
    def watch(
        self,
        *patterns: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from_revision: int | None = None,
        callback: Callable[[KeyValueEntry], Any] | None = None,
        timeout: float | dt.timedelta | None = None,
    ) -> KeyWatcher:
        """See KeyValue.watch. An unreadable entry raises DecodeFailed in its place. The next call continues."""
        handlers.check(callback, "callback")
        stored = tuple(check_filter(self._writing.pattern(pattern), self._limit) for pattern in patterns)
        options = WatchOptions(
            include_history=include_history,
            updates_only=updates_only,
            ignore_deletes=ignore_deletes,
            meta_only=meta_only,
            resume_from_revision=resume_from_revision,
        )
        seconds = plain_or_none(timeout)
        check_timeout(seconds)
        deadline = Deadline(seconds or OPEN_TIMEOUT)
        where = (self._js, self.bucket, self.stream_name, self._prefix, stored or (">",))
        watcher = EncodedKeyWatcher(self._writing, self._skips, not meta_only, *where, options, seconds, deadline)
        if callback is not None:
            watcher.call(callback, self.bucket)
        return watcher

    def keys(self, *patterns: str, timeout: Timeout = DEFAULT) -> Iterator[str]:
        """See KeyValue.keys. A key that the codec cannot read ends it with DecodeFailed, unless those are skipped."""
        return self._read_keys(super().keys(*map(self._writing.pattern, patterns), timeout=timeout))

    def _read_keys(self, stored: Iterator[str]) -> Iterator[str]:
        for one in stored:
            try:
                key = self._writing.read_key(one)
            except DecodeFailed as error:
                if not self._skips:
                    raise
                log.warning("%s", error)
                continue
            yield key

    def __repr__(self) -> str:
        read_only = " read-only" if self._read_only else ""
        return f"<EncodedKeyValue {self.bucket}{read_only} keys={self._writing.keys!r} values={self._writing.values!r}>"


class EncodedKeyWatcher(KeyWatcher):
    """The result of `watch` on an encoded bucket: a KeyWatcher with decoded entries."""

    def __init__(self, writing: Writing, skips: bool, values: bool, *given: Any) -> None:
        """`values`: whether the server sends them."""
        self._writing = writing
        self._skips = skips
        self._values = values
        super().__init__(*given)

    def _entry(self, message: JetStreamMsg) -> Any:
        entry = super()._entry(message)
        if entry is None:
            return None
        try:
            return self._writing.read(entry, values=self._values)
        except DecodeFailed as error:
            if not self._skips:
                return error  # raised when it is its turn
            log.warning("%s", error)
            return None

    def _set_delta(self, entry: Any, delta: int) -> None:
        if not isinstance(entry, DecodeFailed):
            super()._set_delta(entry, delta)

    def next(self, timeout: Timeout = DEFAULT) -> KeyValueEntry | None:
        """See KeyWatcher.next. Raises DecodeFailed in the place of an unreadable entry, and then continues."""
        found: Any = super().next(timeout)
        if isinstance(found, DecodeFailed):
            raise found
        return found  # type: ignore[no-any-return]
