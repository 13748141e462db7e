"""`kv.batch()`: changes of several keys that are stored together or not at all (nats-server 2.12, ADR-50)."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

import attrs

from jsclient.codecs import payload_of
from jsclient.durations import DEFAULT, Deadline, Timeout, resolve
from jsclient.errors import (
    BatchClosed,
    BatchRefused,
    BatchTooLarge,
    ConfigError,
    KeyExists,
    MessageTtlRefused,
    NoStreamForSubject,
    NotStored,
    RevisionMismatch,
    WrongLastSequence,
)
from jsclient.jetstream.api.headers import readable
from jsclient.jetstream.publishing.atomic_batch import MAX_MESSAGES, AtomicBatch
from jsclient.keyvalue import conditional, missing
from jsclient.keyvalue import headers as entry_headers
from jsclient.keyvalue.access import Access
from jsclient.keyvalue.entry import OPERATION_HEADER, PURGE_HEADERS, Operation, operation_of
from jsclient.keyvalue.keys import check_revision
from jsclient.message import HeadersLike, Payload

if TYPE_CHECKING:
    from jsclient.jetstream import PubAck, RawStreamMsg


V = TypeVar("V")

ATTEMPTS: Final = 5
"""Batches sent at most, if a key that the batch creates has only a marker, which the value must follow."""

DISABLED: Final = 10174
"""The server's code for a stream without `allow_atomic`."""

_DELETE: Final = {OPERATION_HEADER: "DEL"}


@attrs.define
class Change:
    """The change of one key."""

    stored: str
    """The key as the bucket has it."""
    value: Payload
    headers: HeadersLike | None
    options: dict[str, Any]
    creates: bool = False

    @property
    def expected(self) -> int | None:
        """The revision that the key must have. It is None if any is fine."""
        return self.options.get("expected_last_subject_seq")


class KeyValueBatch(Generic[V]):
    """Changes of several keys, which the bucket stores together or not at all. Made by `kv.batch()`. Not for several
    threads.

        with kv.batch() as batch:
            batch.update("stock.apple", b"6", revision)
            batch.create("order.1", b"2 apples")
        print(batch.revisions)  # {'stock.apple': 3, 'order.1': 4}

    The client sends the changes when the `with` block ends, or in `commit`. An exception in the block discards them.
    A batch has at most 1,000 keys, each once.

    Attributes:
        revisions: The new revision of each key, in the order of the calls; empty before the commit.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self,
        access: Access,
        timeout: Timeout,
    ) -> None:
        self._access = access
        self._bucket = access.bucket
        self._timeout = resolve(timeout, access.js.publish_timeout)
        self._changes: dict[str, Change] = {}
        self._keys: set[str] = set()  # as the bucket has them
        self._closed = ""
        self.revisions: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def closed(self) -> bool:
        """True once it is committed, discarded or failed."""
        return bool(self._closed)

    # --- changes ------------------------------------------------------------------------------------------

    def put(self, key: str, value: V, *, headers: HeadersLike | None = None) -> None:
        """Store a value, regardless of the key's present value. `headers` are stored with it."""
        self._add(key, self._access.stored_value(value), entry_headers.to_store(headers))

    def create(
        self,
        key: str,
        value: V,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Store a value if the key has none. Otherwise `commit` raises KeyExists. `ttl`, `headers`: see
        KeyValue.create."""
        self._add(key, self._access.stored_value(value), entry_headers.to_store(headers), 0, ttl).creates = True

    def update(
        self,
        key: str,
        value: V,
        revision: int,
        *,
        ttl: float | dt.timedelta | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Store a value if the key is still at `revision`. Otherwise `commit` raises RevisionMismatch.
        `ttl`, `headers`: see KeyValue.update."""
        check_revision(revision)
        self._add(key, self._access.stored_value(value), entry_headers.to_store(headers), revision, ttl)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        """Store a delete marker. Earlier revisions stay. `revision`: only if the key is still at this one."""
        self._add(key, b"", _DELETE, revision)

    def purge(self, key: str, *, revision: int | None = None, ttl: float | dt.timedelta | None = None) -> None:
        """Remove all revisions and leave a marker. `revision`: only if the key is still at this one. `ttl` is the
        seconds after which the marker is removed. See KeyValue.purge."""
        self._add(key, b"", PURGE_HEADERS, revision, ttl)

    def _add(
        self,
        key: str,
        value: Payload,
        headers: HeadersLike | None = None,
        revision: int | None = None,
        ttl: float | dt.timedelta | None = None,
    ) -> Change:
        self._check_open()
        stored = self._access.stored_key(key)
        if revision is not None:
            check_revision(revision)
        if stored in self._keys:
            raise ConfigError(f"the batch already changes the key {key!r}: give each key once")
        if len(self._changes) >= MAX_MESSAGES:
            raise BatchTooLarge(f"a batch has at most {MAX_MESSAGES} keys")
        options: dict[str, Any] = {}
        if revision is not None:
            options["expected_last_subject_seq"] = revision
        if ttl is not None:
            options["ttl"] = ttl
        # The value is sent later, when its owner may have used the buffer for something else.
        value = payload_of(self._access.writer.codec, value)
        if not isinstance(value, (str, bytes, bytearray, memoryview)):
            raise ConfigError(f"a value is bytes or text, not {type(value).__name__}; `typed` stores other values")
        kept = value if isinstance(value, str) else bytes(value)
        self._keys.add(stored)
        change = self._changes[key] = Change(stored, kept, headers, options)
        return change

    # --- the end ------------------------------------------------------------------------------------------

    def commit(self, *, timeout: Timeout = DEFAULT) -> dict[str, int]:
        """Store all changes. Returns the new revision of each key. 15 seconds at most by default.

        KeyExists and RevisionMismatch name the key that differs. They, NotStored, NotSupported (a server before 2.12)
        and ConfigError (a bucket without `allow_atomic`) mean that nothing is stored. PublishUnknown means that all
        changes are stored or none. Read one of the keys to find out.
        """
        self._check_open()
        if not self._changes:
            raise ConfigError("the batch is empty: change a key first, or leave commit out")
        deadline = Deadline.of(timeout, self._timeout)
        self._closed = "has failed"
        ack = self._stored(deadline)
        self._closed = "was committed"
        # The server stores the messages of a batch next to each other.
        first = ack.seq - len(self._changes) + 1
        self.revisions = {key: first + place for place, key in enumerate(self._changes)}
        return self.revisions

    def discard(self) -> None:
        """Give the batch up without storing anything. Idempotent."""
        self._closed = self._closed or "was discarded"

    def _check_open(self) -> None:
        if self._closed:
            raise BatchClosed(f"the batch {self._closed}")

    def _stored(self, deadline: Deadline) -> PubAck:
        for _ in range(ATTEMPTS):
            try:
                return self._send(deadline)
            except WrongLastSequence as error:
                refusal = error
                self._follow_markers(error, deadline)
        raise NotStored(
            f"bucket {self._bucket!r} refused the batch {ATTEMPTS} times: others keep writing and deleting the keys "
            "that it creates. Nothing of it is stored. Make a new batch."
        ) from refusal

    def _send(self, deadline: Deadline) -> PubAck:
        access = self._access
        batch: AtomicBatch[Any] = AtomicBatch(access.writer)
        try:
            for change in self._changes.values():
                batch.add(
                    access.write_prefix + change.stored,
                    change.value,
                    headers=change.headers,
                    timeout=deadline,
                    **change.options,
                )
            return batch.commit(timeout=deadline)
        except NoStreamForSubject as error:
            raise missing.not_written(access.written_stream, error) from error
        except MessageTtlRefused as error:
            raise access.takes_no_ttl(error) from None
        except BatchRefused as error:
            if error.err_code != DISABLED:
                raise
            raise ConfigError(
                f"bucket {access.bucket!r} takes no batches. Nothing was stored. Give it allow_atomic=True "
                "(update_key_value, nats-server 2.12)."
            ) from error

    def _follow_markers(self, error: WrongLastSequence, deadline: Deadline) -> None:
        """Find the key that was in the way. Returns if only markers of deleted keys were, which are now expected."""
        followed = False
        for key, change in self._changes.items():
            if change.expected is None:
                continue
            last = self._last(change, error, deadline)
            found = 0 if last is None else last.seq
            if found == change.expected:
                continue
            if not change.creates:
                text = f"{key!r} in bucket {self._bucket!r} is at revision {found}, not {change.expected}"
                raise RevisionMismatch(f"key revision mismatch: {text}", self._bucket, key) from error
            if last is not None and operation_of(readable(last)) is Operation.PUT:
                raise KeyExists(f"key exists: {key!r} in bucket {self._bucket!r}", self._bucket, key) from error
            change.options["expected_last_subject_seq"] = found
            followed = True
        if not followed:
            self._passing(error)

    def _last(self, change: Change, error: WrongLastSequence, deadline: Deadline) -> RawStreamMsg | None:
        access = self._access
        try:
            return conditional.last_message(access, change.stored, deadline)
        except conditional.UNREAD as unread:
            raise NotStored(
                "a key of the batch is at another revision than the batch expects; the client could not read in time "
                f"which one ({unread}). Nothing of the batch is stored. Read the keys again."
            ) from error

    def _passing(self, error: WrongLastSequence) -> NoReturn:
        raise RevisionMismatch(
            f"the server refused the batch for bucket {self._bucket!r}, although each key has the revision that the "
            "batch expects: another write came before it and was not kept. Nothing was stored. Make a new batch.",
            self._bucket,
        ) from error

    def __enter__(self) -> KeyValueBatch[V]:
        return self

    def __exit__(self, kind: Any, *exc: object) -> None:
        if self._closed:
            return
        if kind is None and self._changes:
            self.commit()
        else:
            self.discard()

    def __repr__(self) -> str:
        return f"<KeyValueBatch of {self._bucket} keys={len(self._changes)} {self._closed or 'open'}>"

    def __reduce__(self) -> Any:
        return self._access.engine.refuse_pickle(self)
