"""`kv.typed(Order)`: a bucket with values of one type."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, overload

from jsclient import codecs
from jsclient.codecs import Codec
from jsclient.declared import arguments
from jsclient.durations import DEFAULT, Deadline, Timeout, plain_or_none
from jsclient.errors import ConfigError, DecodeFailed, EncodeFailed, KeyDeleted, KeyNotFound
from jsclient.keyvalue.batch import KeyValueBatch
from jsclient.keyvalue.entry import KeyValueEntry, Operation
from jsclient.message import HeadersLike
from jsclient.protocol import Headers

if TYPE_CHECKING:
    from jsclient.keyvalue.bucket import KeyValue
    from jsclient.keyvalue.watch import KeyWatcher


log: logging.Logger = logging.getLogger("jsclient.keyvalue")

T = TypeVar("T")
D = TypeVar("D")

OnBadEntry: TypeAlias = Literal["raise", "skip"]
"""The action of watches and histories for an entry that cannot be decoded. "raise" returns it, and its `value` raises;
"skip" leaves it out and logs a warning. It stays in the bucket."""

_UNREAD: Final = object()
_RAISE: Final[Any] = object()


class TypedEntry(Generic[T]):
    """One revision of a key. Its value is decoded when it is read first. `raw` is the entry as it is stored.

    Attributes:
        raw: The entry with its bytes.
    """

    __slots__ = ("_read", "_value", "raw")

    def __init__(self, raw: KeyValueEntry, read: Callable[[KeyValueEntry], T]) -> None:
        self.raw: KeyValueEntry = raw
        self._read = read
        self._value: Any = _UNREAD

    @property
    def value(self) -> T:
        """The decoded value. Raises DecodeFailed, or KeyDeleted if the entry is a delete or purge marker (`is_put`)."""
        if self._value is _UNREAD:
            self._value = self._read(self.raw)
        return self._value  # type: ignore[no-any-return]

    @property
    def bucket(self) -> str:
        """The bucket it is in."""
        return self.raw.bucket

    @property
    def key(self) -> str:
        """The key."""
        return self.raw.key

    @property
    def revision(self) -> int:
        """The sequence in the bucket's stream, unique over all keys."""
        return self.raw.revision

    @property
    def operation(self) -> Operation:
        """The operation that made the revision."""
        return self.raw.operation

    @property
    def delta(self) -> int:
        """Number of matching entries that came after it when the server sent it."""
        return self.raw.delta

    @property
    def headers(self) -> Headers:
        """The headers that were stored with the value. See KeyValueEntry."""
        return self.raw.headers

    @property
    def created(self) -> dt.datetime:
        """When it was stored, by the server's clock (UTC)."""
        return self.raw.created

    @property
    def is_put(self) -> bool:
        """True for a value, False for a delete or purge marker."""
        return self.raw.is_put

    def __repr__(self) -> str:
        return f"<TypedEntry {self.raw}>"


class TypedKeyWatcher(Generic[T]):
    """The result of `TypedKeyValue.watch`: a KeyWatcher with typed entries.

    A `for` loop returns only entries. `initial_complete` is True once all current ones have been returned. `next`
    returns None once, at that point.

    Attributes:
        watcher: The watcher of bytes.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(self, watcher: KeyWatcher, typed: TypedKeyValue[T], timeout: float | None) -> None:
        self.watcher = watcher
        self._timeout = timeout
        self._typed = typed

    def next(self, timeout: Timeout = DEFAULT) -> TypedEntry[T] | None:
        """The next entry, or None exactly once: when all current entries have been given. See KeyWatcher.next."""
        deadline = Deadline.of(timeout, self._timeout)
        while True:
            entry = self.watcher.next(deadline)
            if entry is None:
                return None
            found = self._typed._entry(entry)
            if found is not None:
                return found

    def initial(self, timeout: Timeout = DEFAULT) -> list[TypedEntry[T]]:
        """All current entries, up to the point where they are complete. See KeyWatcher.initial."""
        return self._typed._entries(self.watcher.initial(timeout))

    @property
    def initial_complete(self) -> bool:
        """True once all current entries were given (with `updates_only` from the start)."""
        return self.watcher.initial_complete

    def __iter__(self) -> TypedKeyWatcher[T]:
        return self

    def __next__(self) -> TypedEntry[T]:
        while True:
            entry = next(self.watcher)
            found = None if entry is None else self._typed._entry(entry)
            if found is not None:
                return found

    def stop(self) -> None:
        """End it, from any thread: a blocked or later iteration ends. Idempotent."""
        self.watcher.stop()

    @property
    def stopped(self) -> bool:
        """True after `stop`."""
        return self.watcher.stopped

    def __enter__(self) -> TypedKeyWatcher[T]:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<typed {self.watcher!r}>"


class TypedKeyValue(Generic[T]):
    """A bucket with values of one type. `kv.typed(Order)` makes it, without a round trip. Thread-safe.

    Methods with the same name as in KeyValue behave in the same way. A value that cannot be decoded raises DecodeFailed
    when it is read, and stays unchanged in the bucket. `kv` is the bucket itself.

    Attributes:
        kv: The bucket of bytes.
        type: The type of the values.
        codec: The codec that reads and writes them.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
        headers: Headers, or a mapping of names to one value or several, stored with the value. An invalid header
            raises InvalidHeader before anything is sent.
        direct: True reads by direct get, which any replica answers; False reads from the leader. By default the
            stream's `allow_direct` decides.
        on_bad: The action for a message that cannot be decoded. Default "raise": reading its `value` raises
            DecodeFailed. `Consumer.typed` describes the others.
    """

    def __init__(self, kv: KeyValue, type: type[T], codec: Codec, on_bad: OnBadEntry = "raise") -> None:
        codecs.check(codec)
        if on_bad not in ("raise", "skip"):
            raise ConfigError(f'on_bad is "raise" or "skip" here, not {on_bad!r}: the entry stays in the bucket')
        self.kv = kv
        self.type = type
        self.codec = codec
        self._decode: Callable[[bytes], T] = codecs.decoder(codec, type)
        self._read = partial(_read, self._decode, type)
        self._skips = on_bad == "skip"

    # --- reading ------------------------------------------------------------------------------------------

    @overload
    def get(self, key: str, *, direct: bool | None = None, timeout: Timeout = DEFAULT) -> TypedEntry[T]: ...
    @overload
    def get(
        self, key: str, *, default: D, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> TypedEntry[T] | D: ...
    @arguments
    def get(self, key: str, *, default: Any = _RAISE, direct: bool | None = None, timeout: Timeout = DEFAULT) -> Any:
        """The last entry of a key, decoded. Raises KeyNotFound if it has none, DecodeFailed if it is of another type.

        `default`: returned instead when the key has no value. `direct`: see KeyValue.get.
        """
        try:
            entry = TypedEntry(self.kv.get(key, direct=direct, timeout=timeout), self._read)
        except KeyNotFound:
            if default is _RAISE:
                raise
            return default
        entry.value  # noqa: B018
        return entry

    @arguments
    def get_revision(
        self, key: str, revision: int, *, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> TypedEntry[T]:
        """One revision of a key, decoded; KeyNotFound, DecodeFailed."""
        entry = TypedEntry(self.kv.get_revision(key, revision, direct=direct, timeout=timeout), self._read)
        entry.value  # noqa: B018
        return entry

    @arguments
    def get_many(self, keys: Iterable[str], *, timeout: Timeout = DEFAULT) -> dict[str, TypedEntry[T]]:
        """The last entries of several keys at one sequence. See KeyValue.get_many."""
        found = self.kv.get_many(keys, timeout=timeout)
        return {key: entry for key, raw in found.items() if (entry := self._entry(raw)) is not None}

    def history(self, key: str, *, timeout: Timeout = DEFAULT) -> list[TypedEntry[T]]:
        """All stored revisions of a key, oldest first, including markers. Raises KeyNotFound if there are none."""
        return self._entries(self.kv.history(key, timeout=timeout))

    def keys(self, *patterns: str, timeout: Timeout = DEFAULT) -> Iterator[str]:
        """All keys that have a value (or those matching any pattern). See KeyValue.keys."""
        return self.kv.keys(*patterns, timeout=timeout)

    @arguments
    def watch(
        self,
        *patterns: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        resume_from_revision: int | None = None,
        timeout: float | dt.timedelta | None = None,
    ) -> TypedKeyWatcher[T]:
        """The current entries of all keys (or those matching any pattern), then every change. See KeyValue.watch."""
        watcher = self.kv.watch(
            *patterns,
            include_history=include_history,
            updates_only=updates_only,
            ignore_deletes=ignore_deletes,
            resume_from_revision=resume_from_revision,
            timeout=timeout,
        )
        return TypedKeyWatcher(watcher, self, plain_or_none(timeout))

    def _entry(self, raw: KeyValueEntry) -> TypedEntry[T] | None:
        """The entry with a value. Returns None if it cannot be decoded, and is to be left out."""
        entry = TypedEntry(raw, self._read)
        if self._skips and raw.is_put:
            try:
                entry.value  # noqa: B018
            except DecodeFailed as error:
                log.warning("%s", error)
                return None
        return entry

    def _entries(self, raw: list[KeyValueEntry]) -> list[TypedEntry[T]]:
        """The same with many."""
        return [found for entry in raw if (found := self._entry(entry)) is not None]

    def __getitem__(self, key: str) -> T:
        return self.get(key).value

    def __setitem__(self, key: str, value: T) -> None:
        self.put(key, value)

    def __delitem__(self, key: str) -> None:
        self.kv.delete(key)

    def __contains__(self, key: str) -> bool:
        return key in self.kv

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    # --- writing ------------------------------------------------------------------------------------------

    def _written(self, value: T) -> bytes:
        """The bytes of a value, which can be read again as one: a mistake shows here, and not when it is read."""
        data = codecs.encode(self.codec, value)
        try:
            self._decode(data)
        except Exception as error:
            what = f"this {type(value).__name__} cannot be read again as {codecs.name_of(self.type)}: {error}"
            raise EncodeFailed(f"{what}. Nothing was sent. Store a value of the type of the bucket.") from error
        return data

    def put(self, key: str, value: T, *, headers: HeadersLike | None = None, timeout: Timeout = DEFAULT) -> int:
        """Store a value, regardless of the previous one. Returns its revision. Raises EncodeFailed without sending
        anything if the codec cannot write the value, or if the bucket's type could not be read from it again."""
        return self.kv.put(key, self._written(value), headers=headers, timeout=timeout)

    def create(
        self,
        key: str,
        value: T,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Store a value if the key has none. Otherwise it raises KeyExists. See KeyValue.create."""
        return self.kv.create(key, self._written(value), ttl=ttl, headers=headers, timeout=timeout)

    def update(
        self,
        key: str,
        value: T,
        revision: int,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Store a value if the key is still at `revision`; RevisionMismatch otherwise. See KeyValue.update."""
        return self.kv.update(key, self._written(value), revision, ttl=ttl, headers=headers, timeout=timeout)

    def delete(self, key: str, *, revision: int | None = None, timeout: Timeout = DEFAULT) -> None:
        """Store a delete marker. See KeyValue.delete."""
        self.kv.delete(key, revision=revision, timeout=timeout)

    def purge(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: float | dt.timedelta | None = None,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """Remove all revisions and leave a marker. See KeyValue.purge."""
        self.kv.purge(key, revision=revision, ttl=ttl, timeout=timeout)

    def batch(self, *, timeout: Timeout = DEFAULT) -> KeyValueBatch[T]:
        """Changes of several keys that are stored together or not at all. See KeyValue.batch."""
        raw = self.kv.batch(timeout=timeout)
        return KeyValueBatch(self.kv, raw._key, lambda value: raw._value(self._written(value)), timeout)

    def __repr__(self) -> str:
        return f"<TypedKeyValue {self.kv.bucket} of {codecs.name_of(self.type)}>"


def _read(decode: Callable[[bytes], T], type: Any, entry: KeyValueEntry) -> T:
    if not entry.is_put:
        text = f"{entry.key!r} in bucket {entry.bucket!r} was deleted at revision {entry.revision}: there is no value"
        raise KeyDeleted(text, entry.bucket, entry.key, entry.revision)
    try:
        return decode(entry.value)
    except Exception as error:
        where = f" of {entry.key!r} in bucket {entry.bucket!r}, revision {entry.revision},"
        raise codecs.failed(error, entry.value, type, where, entry.key, entry.revision) from error
