"""One revision of a key, and how it is read from the messages that carry it."""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic
from typing import TypeVar as _TypeVar

import msgspec

from jsclient import codecs
from jsclient.durations import to_seconds
from jsclient.jetstream.api import headers as names
from jsclient.jetstream.api import stored_messages
from jsclient.jetstream.api.model_base import format_time, parse_time
from jsclient.keyvalue import headers
from jsclient.protocol import Headers, MalformedHeaders

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from jsclient.jetstream import RawStreamMsg
    from jsclient.protocol import Msg

    V = TypeVar("V", default=bytes)
else:
    V = _TypeVar("V")

OPERATION_HEADER: Final = "KV-Operation"
PURGE_HEADERS: Final = {OPERATION_HEADER: "PURGE", names.ROLLUP: names.ROLLUP_SUBJECT}

OPERATION_BYTES: Final = OPERATION_HEADER.encode()
MARKER_BYTES: Final = names.MARKER_REASON.encode()
SEQUENCE: Final = names.SEQUENCE.encode()

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Operation(str, enum.Enum):
    """The operation that made a revision. Expiry and limits of the server count as PURGE, its message deletes as
    DELETE.

    Values:
        PUT: A value was stored.
        DELETE: The key was deleted; older revisions stay.
        PURGE: The key was purged with its older revisions, or its time was over.
    """

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"

    def __str__(self) -> str:
        return self.value


class KeyValueEntry(msgspec.Struct, Generic[V]):
    """One revision of a key.

    `revision` is the sequence in the bucket's stream, unique over all keys. `delta` is the number of matching messages
    that came after it when the server sent it (0 for `get`).

    Attributes:
        bucket: The bucket.
        key: The key.
        data: The bytes as they are stored; empty for markers and with `meta_only`.
        revision: Its sequence in the bucket's stream, unique over all keys.
        operation: The operation that made this revision.
        delta: Messages that matched and came after it when the server sent it; 0 for `get`.
        stamp: The time at which it was stored, as the server sent it: nanoseconds or text. See `created`.
        raw_headers: The header block of its message; see `headers`.
    """

    bucket: str
    key: str
    data: bytes
    revision: int
    operation: Operation = Operation.PUT
    delta: int = 0
    stamp: bytes | int = 0
    raw_headers: bytes | None = None
    _read: Callable[[KeyValueEntry[V]], V] | None = None
    _value: Any = msgspec.UNSET

    @property
    def value(self) -> V:
        """The value: bytes, empty for markers and with `meta_only`. A bucket from `typed` or `encoded` decodes it when
        it is read first.

        Raises DecodeFailed if it cannot be decoded. In a typed bucket a marker raises KeyDeleted.
        """
        if self._value is msgspec.UNSET:
            self._value = self.data if self._read is None else self._read(self)
        return self._value  # type: ignore[no-any-return]

    def json(self) -> Any:
        """The value as JSON: dict, list, str, number ...; raises DecodeFailed. In a typed bucket, the stored bytes."""
        value: Any = self.value if self._read is not None and self.is_put else self.data
        return codecs.from_json(value if isinstance(value, bytes) else self.data, self.key, self.revision)

    @property
    def headers(self) -> Headers:
        """The headers stored with the value. Headers that NATS uses (`Nats-...`, `KV-Operation`) are left out."""
        return headers.of_block(self.raw_headers)

    @property
    def created(self) -> dt.datetime:
        """When the revision was stored, by the server's clock (UTC, cut to microseconds)."""
        if isinstance(self.stamp, int):
            return _EPOCH + dt.timedelta(microseconds=self.stamp // 1000)
        return parse_time(self.stamp.decode())

    @property
    def is_put(self) -> bool:
        """True for a value, False for a delete or purge marker."""
        return self.operation is Operation.PUT

    def __eq__(self, other: object) -> bool:
        """True for the same revision with the same bytes, however they are decoded."""
        return isinstance(other, KeyValueEntry) and self._stored() == other._stored()

    def _stored(self) -> tuple[Any, ...]:
        return (
            self.bucket,
            self.key,
            self.data,
            self.revision,
            self.operation,
            self.delta,
            self.stamp,
            self.raw_headers,
        )

    def __reduce__(self) -> Any:
        """Without the codecs, which may hold keys or locks: the other process has the decoded value."""
        if self._read is not None and self.is_put:
            self.value  # noqa: B018
        return _unpickled, (*self._stored(), self._value)

    def __repr__(self) -> str:
        return f"<KeyValueEntry {self}>"

    def __str__(self) -> str:
        return f"{self.key} @ {self.revision} -> {self.data!r}"


def _unpickled(*fields: Any) -> KeyValueEntry[Any]:
    *stored, value = fields
    entry: KeyValueEntry[Any] = KeyValueEntry(*stored)
    entry._value = value
    return entry


_OPERATIONS: Final = {
    "DEL": Operation.DELETE,
    "PURGE": Operation.PURGE,
    # markers of the server (2.11): why it removed the last value
    "MaxAge": Operation.PURGE,
    "Purge": Operation.PURGE,
    "Remove": Operation.DELETE,
}


def operation_of(stored: Any) -> Operation:
    """The operation in the headers of a stored message: first of the client's headers, then of a server's marker."""
    if not stored:
        return Operation.PUT
    word = stored.get(OPERATION_HEADER) or stored.get(names.MARKER_REASON) or ""
    return _OPERATIONS.get(word, Operation.PUT)


def entry_of(bucket: str, key: str, message: RawStreamMsg) -> KeyValueEntry[Any]:
    """The entry in a message that was read from the stream."""
    stamp = b"" if message.time is None else format_time(message.time).encode()
    operation = operation_of(names.readable(message))
    return KeyValueEntry(bucket, key, message.data, message.seq, operation, 0, stamp, message.raw_headers)


def operation_of_block(block: bytes | None) -> Operation:
    """The same from a raw header block; almost all messages have none of the two headers, so look before parsing."""
    if block is None or (OPERATION_BYTES not in block and MARKER_BYTES not in block):
        return Operation.PUT
    try:
        return operation_of(Headers.decode(block))
    except MalformedHeaders:  # the server itself looks for the name in the bytes
        word = _field(block, OPERATION_BYTES) or _field(block, MARKER_BYTES)
        return _OPERATIONS.get(word.decode("latin-1"), Operation.PUT)


def _field(block: bytes, name: bytes) -> bytes:
    """The value of the last header of that name. Returns b"" if there is none."""
    _, found, rest = block.rpartition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else b""


_PLAIN: Final = re.compile(
    rb"NATS/1\.0\r\nNats-Stream: [^\r\n]*\r\nNats-Subject: ([^\r\n]*)\r\nNats-Sequence: (\d+)\r\n"
    rb"Nats-Time-Stamp: ([^\r\n]*)\r\n\r\n"
).fullmatch


def direct_fields(block: bytes, message: Msg) -> tuple[bytes, int, bytes, Operation, bytes | None]:
    """Subject, sequence, time stamp, operation and stored header block of a direct get. Raises BadResponse."""
    plain = _PLAIN(block)  # the message was stored without headers: 1.0 µs instead of 2.9
    if plain is not None:
        subject, sequence, stamp = plain.groups()
        return subject, int(sequence), stamp, Operation.PUT, None
    parts = stored_messages.taken_apart(message)
    return parts.subject, parts.sequence, parts.time, operation_of_block(parts.headers), parts.headers


def age(entry: KeyValueEntry[Any], now: dt.datetime) -> float:
    """Seconds since the entry was stored."""
    if isinstance(entry.stamp, int):
        return now.timestamp() - to_seconds(entry.stamp)
    return (now - entry.created).total_seconds()
