"""A key-value bucket: one stream. Its subjects are the keys, and the last message of a subject is the value."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from jsclient import handlers, kinds
from jsclient.codecs import Codec
from jsclient.durations import DEFAULT, Deadline, Patience, Timeout, check_timeout, plain_or_none, resolve
from jsclient.errors import (
    ConfigError,
    KeyNotFound,
    WrongLastSequence,
)
from jsclient.jetstream import JetStream, StreamInfo, StreamSource
from jsclient.keyvalue import coding, conditional, many, missing, purging, reading
from jsclient.keyvalue import headers as entry_headers
from jsclient.keyvalue.access import Access
from jsclient.keyvalue.batch import KeyValueBatch
from jsclient.keyvalue.coding import OnBadEntry
from jsclient.keyvalue.config import KeyValueStatus
from jsclient.keyvalue.entry import (
    OPERATION_HEADER,
    PURGE_HEADERS,
    KeyValueEntry,
    V,
)
from jsclient.keyvalue.key_codecs import KeyCodec, ValueCodec
from jsclient.keyvalue.keys import check_revision
from jsclient.keyvalue.watch import OPEN_TIMEOUT, KeyWatcher, WatchOptions
from jsclient.message import HeadersLike, Payload
from jsclient.nuid import next_nuid

if TYPE_CHECKING:
    pass


log: logging.Logger = logging.getLogger("jsclient.keyvalue")

READ_TIMEOUT: Final = 5.0
"""Seconds for a read; nats.go's API timeout."""

MARKER_AGE: Final = 1800.0
"""Seconds that `purge_deletes` leaves markers in place by default, as nats.go does (30 minutes)."""

_DEFAULT_API: Final = "$JS.API."

D = TypeVar("D")
_RAISE: Final[Any] = object()


class KeyValue(Generic[V]):
    """A handle on a bucket, from the functions of `jsclient.keyvalue`. Thread-safe.

        kv = keyvalue.key_value(js, "settings")
        kv.put("color", b"red")
        entry = kv.get("color")  # entry.value == b"red"
        kv.update("color", b"blue", entry.revision)  # RevisionMismatch if another was faster

    `get` reads from any replica if the bucket allows it (the default of all clients). After a put on one server,
    another one may still answer with the old value. `direct=False` reads from the leader instead, for one call.

    You can use a bucket like a dict: `kv["key"]` returns the value as bytes, and `kv["key"] = b"value"`,
    `del kv["key"]`, `"key" in kv` and `for key in kv` work as usual. Each is a round trip. There is no `len(kv)`,
    because others may write to the bucket at any time.

    Attributes:
        bucket: Its name.
        stream_name: The stream behind it: `KV_` and the name.

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
        self, js: JetStream, bucket: str, info: StreamInfo | None = None, mirror: StreamSource | None = None
    ) -> None:
        kinds.check(JetStream, js=js)
        kinds.check(StreamInfo, None, info=info)
        kinds.check(StreamSource, None, mirror=mirror)
        self._access = Access(js, bucket, info, mirror)
        self.bucket = bucket
        self.stream_name: str = self._access.stream_name

    def typed(self, type: type[D], *, codec: Codec | None = None, on_bad: OnBadEntry = "raise") -> KeyValue[D]:
        """The same bucket with values of a type: `orders = kv.typed(Order)`. Sends nothing.

        `codec` defaults to the codec of the JetStream object, else to JSON. With `on_bad="skip"`, watches and listings
        leave out entries that cannot be decoded. Otherwise reading their value raises DecodeFailed, as `get` always
        does. A write raises EncodeFailed, and sends nothing, if the value could not be read again as this type.
        """
        access = self._access
        codec = codec or access.js.decodes_with
        return self._with(coding=coding.typed(access.coding, self.bucket, type, codec, on_bad))

    def encoded(
        self, *, keys: KeyCodec | None = None, values: ValueCodec | None = None, on_bad: OnBadEntry = "raise"
    ) -> KeyValue[V]:
        """The same bucket with keys and values written by codecs (ADR-54): `paths = kv.encoded(keys=PATH_KEYS)`. Sends
        nothing.

        Arguments, entries and errors have your program's keys and patterns. A key that cannot be read raises
        DecodeFailed when it is reached, and a value when you read it. With `on_bad="skip"`, watches and listings leave
        such entries out and log a warning.
        """
        return self._with(coding=coding.encoded(self._access.coding, self.bucket, keys, values, on_bad))

    def read_only(self) -> KeyValue[V]:
        """The same bucket for reading: each write raises ConfigError and sends nothing. Sends nothing itself."""
        return self._with(read_only=True)

    def _with(self, **changes: Any) -> KeyValue[Any]:
        """Another handle on the same bucket."""
        made: KeyValue[Any] = object.__new__(type(self))
        vars(made).update(vars(self))
        made._access = self._access.changed(**changes)
        return made

    # --- reading ------------------------------------------------------------------------------------------

    @overload
    def get(self, key: str, *, direct: bool | None = None, timeout: Timeout = DEFAULT) -> KeyValueEntry[V]: ...
    @overload
    def get(
        self, key: str, *, default: D, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> KeyValueEntry[V] | D: ...
    def get(self, key: str, *, default: Any = _RAISE, direct: bool | None = None, timeout: Timeout = DEFAULT) -> Any:
        """The last entry of a key. Raises KeyNotFound if it has none, KeyDeleted (a KeyNotFound) after delete or purge.

        With `default` that is returned instead of these two errors. `direct=True` reads from the replica that answers
        first. `direct=False` reads from the leader, which has every put that was acknowledged before. None (the
        default) uses the bucket's setting. By default it takes at most 5 seconds.
        """
        try:
            entry = reading.last(self._access, key, self._reads_direct(direct), Deadline.of(timeout, READ_TIMEOUT))
            return reading.value_of(self._access, entry)
        except KeyNotFound:
            if default is _RAISE:
                raise
            return default

    def get_revision(
        self, key: str, revision: int, *, direct: bool | None = None, timeout: Timeout = DEFAULT
    ) -> KeyValueEntry[V]:
        """One revision of a key. Raises KeyNotFound if it is gone, never was, or belongs to another key."""
        check_revision(revision, 1)
        deadline = Deadline(resolve(timeout, READ_TIMEOUT))
        entry = reading.revision_of(self._access, key, revision, self._reads_direct(direct), deadline)
        return reading.value_of(self._access, entry)

    def get_many(self, keys: Iterable[str], *, timeout: Timeout = DEFAULT) -> dict[str, KeyValueEntry[V]]:
        """The last entries of several keys, as the bucket was at one sequence. Keys without a value are left out.

        At most 1,000 keys, in the order in which you give them. One replica answers, so a put that another server has
        just acknowledged may be missing. Needs nats-server 2.11 and direct gets, else NotSupported. Raises ConfigError
        if the values are too large for one answer. 5 seconds at most by default.
        """
        kinds.check(Iterable, keys=keys)
        if isinstance(keys, str):
            raise ConfigError("keys must be several keys, such as a list; `get` reads one")
        return many.get_many(self._access, list(keys), Deadline.of(timeout, READ_TIMEOUT))

    def _reads_direct(self, direct: bool | None) -> bool:
        if direct is None:
            return self._access.direct
        kinds.check(bool, direct=direct)
        return direct

    def __getitem__(self, key: str) -> V:
        return self.get(key).value

    @overload
    def __setitem__(self: KeyValue[bytes], key: str, value: Payload) -> None: ...
    @overload
    def __setitem__(self, key: str, value: V) -> None: ...
    def __setitem__(self, key: str, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: str) -> None:
        """Delete the key, even if it has no value: other clients may delete it at any moment."""
        self.delete(key)

    def __contains__(self, key: str) -> bool:
        try:  # the value does not have to be readable
            return reading.last(self._access, key, self._access.direct, Deadline(READ_TIMEOUT)).is_put
        except KeyNotFound:
            return False

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    # --- writing ------------------------------------------------------------------------------------------

    @overload
    def put(
        self: KeyValue[bytes],
        key: str,
        value: Payload,
        *,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int: ...
    @overload
    def put(self, key: str, value: V, *, headers: HeadersLike | None = None, timeout: Timeout = DEFAULT) -> int: ...
    def put(self, key: str, value: Any, *, headers: HeadersLike | None = None, timeout: Timeout = DEFAULT) -> int:
        """Store a value, regardless of the previous one. Returns its revision. `headers` are stored with it."""
        access = self._access
        stored, data = access.stored_key(key), access.stored_value(value)
        return access.publish(stored, data, headers=entry_headers.to_store(headers), timeout=timeout)

    @overload
    def create(
        self: KeyValue[bytes],
        key: str,
        value: Payload,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int: ...
    @overload
    def create(
        self,
        key: str,
        value: V,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int: ...
    def create(
        self,
        key: str,
        value: Any,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Store a value if the key has none (or was deleted). Otherwise it raises KeyExists. Returns the revision.
        NotStored if the server refused it and the reason could not be read in time, or was no longer there.

        `ttl` (seconds, 1 or more) lets this value expire. It needs nats-server 2.11 and a bucket with
        `limit_marker_ttl` or `allow_msg_ttl`. A server may raise a `ttl` below `limit_marker_ttl` to that time.
        `headers` are stored with the value.
        """
        stored, data = self._access.stored_key(key), self._access.stored_value(value)
        options = _options(ttl, headers)
        deadline, own = self._deadline(timeout), next_nuid()
        return conditional.create(self._access, key, stored, data, options, own, deadline)

    @overload
    def update(
        self: KeyValue[bytes],
        key: str,
        value: Payload,
        revision: int,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int: ...
    @overload
    def update(
        self,
        key: str,
        value: V,
        revision: int,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int: ...
    def update(
        self,
        key: str,
        value: Any,
        revision: int,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Store a value if the key is still at `revision` (compare and set). Otherwise it raises RevisionMismatch.

        `ttl` as for `create`: without it the new value does not expire, even if the previous one did. `headers` are
        stored with the value, in place of the headers of the earlier revision.
        """
        stored, data = self._access.stored_key(key), self._access.stored_value(value)
        check_revision(revision)
        deadline, own = self._deadline(timeout), next_nuid()
        try:
            return conditional.store(self._access, stored, data, revision, _options(ttl, headers), own, deadline)
        except WrongLastSequence as error:
            return conditional.own_revision(self._access, key, stored, revision, own, error, deadline)

    def delete(self, key: str, *, revision: int | None = None, timeout: Timeout = DEFAULT) -> None:
        """Store a delete marker. Earlier revisions stay. With `revision` only if the key is still at that one."""
        self._mark(key, {OPERATION_HEADER: "DEL"}, revision, None, timeout)

    def purge(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: float | dt.timedelta | None = None,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """Remove all revisions and leave a marker, which itself goes after `ttl` seconds if that is given.

        With `revision` only if the key is still at that one (RevisionMismatch). `ttl` needs nats-server 2.11 and
        a bucket with `limit_marker_ttl`.
        """
        self._mark(key, PURGE_HEADERS, revision, ttl, timeout)

    def _deadline(self, timeout: Timeout) -> Deadline:
        """The time of a write with all that belongs to it."""
        return Deadline(resolve(timeout, self._access.js.publish_timeout))

    def _mark(
        self,
        key: str,
        headers: dict[str, str],
        revision: int | None,
        ttl: float | dt.timedelta | None,
        timeout: Timeout,
    ) -> None:
        stored = self._access.stored_key(key)
        deadline, own = self._deadline(timeout), next_nuid()
        options: dict[str, Any] = {}
        if revision is not None:
            check_revision(revision)
            options["expected_last_subject_seq"] = revision
        if ttl is not None:
            options["ttl"] = ttl
        try:
            self._access.publish(stored, b"", headers=headers, msg_id=own, timeout=deadline.remaining(), **options)
        except WrongLastSequence as error:
            if revision is None:
                raise
            conditional.own_revision(self._access, key, stored, revision, own, error, deadline)

    # --- many keys ----------------------------------------------------------------------------------------

    @overload
    def batch(self: KeyValue[bytes], *, timeout: Timeout = DEFAULT) -> KeyValueBatch[Payload]: ...
    @overload
    def batch(self, *, timeout: Timeout = DEFAULT) -> KeyValueBatch[V]: ...
    def batch(self, *, timeout: Timeout = DEFAULT) -> KeyValueBatch[Any]:
        """Changes of several keys that are stored together or not at all. See KeyValueBatch. Sends nothing.

        The bucket needs `allow_atomic=True`, and the server version 2.12. `timeout` bounds the commit at the end of the
        `with` block (15 s by default).
        """
        self._access.check_writable()
        return KeyValueBatch(self._access, timeout)

    def watch(
        self,
        *patterns: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from_revision: int | None = None,
        callback: Callable[[KeyValueEntry[V]], Any] | None = None,
        timeout: float | dt.timedelta | None = None,
    ) -> KeyWatcher[V]:
        """The current values of all keys (or only keys matching any pattern), then every change as it happens.

        An iterator of entries: `initial()` returns the current ones, and a loop the rest. It continues over reconnects
        and server restarts without gap or repeat, until `stop()` or the end of its `with`. With a `callback`, a
        separate thread calls it for every entry. Its exceptions, and the error that ends the watcher, go to `on_error`.

        `include_history` returns all revisions instead of the last one per key, and `updates_only` only changes.
        `ignore_deletes` hides markers, `meta_only` leaves values out, and `resume_from_revision` begins at that
        revision. `timeout` is in seconds and bounds both this call and the wait of an iteration for the next entry,
        which then raises TimedOut (None: forever). `next(timeout=)` overrides it.
        """
        handlers.check(callback, "callback")
        access = self._access
        stored = access.stored_patterns(patterns)
        options = WatchOptions(
            include_history=include_history,
            updates_only=updates_only,
            ignore_deletes=ignore_deletes,
            meta_only=meta_only,
            resume_from_revision=resume_from_revision,
        )
        seconds = plain_or_none(timeout)
        check_timeout(seconds)
        watcher = access.watch(stored, options, seconds, Deadline(seconds or OPEN_TIMEOUT), access.coding)
        if callback is not None:
            watcher.call(callback, self.bucket)
        return watcher

    def keys(self, *patterns: str, timeout: Timeout = DEFAULT) -> Iterator[str]:
        """All keys that have a value (or only keys matching any pattern), lazily and each once. Values are not sent.

        A key that has a value all the time is always listed. A key that is written or deleted while the listing runs
        may be missing. Raises ListingIncomplete if the end cannot be proven. `timeout` bounds the whole listing,
        without what you do between two keys. By default only 5 s without a key end it.
        """
        access = self._access
        return access.keys(access.stored_patterns(patterns), Patience(timeout, READ_TIMEOUT), access.coding)

    def history(self, key: str, *, meta_only: bool = False, timeout: Timeout = DEFAULT) -> list[KeyValueEntry[V]]:
        """All stored revisions of a key, oldest first, including markers. Raises KeyNotFound if there are none.

        `meta_only` leaves the values out.
        """
        access, coding = self._access, self._access.coding
        stored = access.stored_key(key)
        deadline = Deadline(resolve(timeout, READ_TIMEOUT))
        options = WatchOptions(include_history=True, meta_only=meta_only)
        with access.watch((stored,), options, None, deadline) as watcher:
            entries = watcher.initial(deadline.remaining())
        if not entries:
            raise reading.not_found(access, key)
        if coding is None:
            return entries
        return [found for entry in entries if (found := coding.found(entry, meta_only)) is not None]

    def purge_all(self, *, timeout: Timeout = DEFAULT) -> int:
        """Purge every key: each keeps one marker, all revisions go. Returns the number of purged keys.

        `timeout` bounds the whole call. By default only 5 s without a key or an ack end it.
        """
        self._access.check_writable()
        return purging.purge_all(self._access, Patience(timeout, READ_TIMEOUT))

    def purge_deletes(self, older_than: float | dt.timedelta = MARKER_AGE, *, timeout: Timeout = DEFAULT) -> int:
        """Remove the remains of deleted keys and markers older than `older_than` seconds (30 minutes by default, 0:
        all).

        Younger markers stay. Only the revisions that they cover are removed. A key that was written again meanwhile is
        left alone. On a mirror it cleans the copy only. Returns the number of removed markers. `timeout` bounds the
        whole call. By default each step has 5 s.
        """
        self._access.check_writable()
        return purging.purge_deletes(self._access, older_than, Patience(timeout, READ_TIMEOUT))

    def status(self, *, timeout: Timeout = DEFAULT) -> KeyValueStatus:
        """The bucket's configuration and state. Raises BucketNotFound if it is gone."""
        with missing.named(self.stream_name):
            return KeyValueStatus(self._access.stream.info(timeout=timeout))

    def __reduce__(self) -> Any:
        return self._access.engine.refuse_pickle(self)

    def __repr__(self) -> str:
        access = self._access
        return f"<KeyValue {self.bucket}{' read-only' if access.read_only else ''}{access.coding or ''}>"


def _options(ttl: float | dt.timedelta | None, headers: HeadersLike | None) -> dict[str, Any]:
    """Options of the publish that stores a value."""
    given = {"ttl": ttl, "headers": entry_headers.to_store(headers)}
    return {name: value for name, value in given.items() if value is not None}
