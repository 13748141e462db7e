"""The meta information of an object: the JSON of ADR-20, and the names and subjects around it."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

import attrs
import msgspec

from jsclient import kinds
from jsclient.durations import MAX_SECONDS, seconds_of, to_ns, to_seconds
from jsclient.errors import BadObjectMeta, ConfigError, InvalidName, ObjectLinkError
from jsclient.jetstream.api import names
from jsclient.jetstream.api.models import Placement, StreamConfig, StreamInfo
from jsclient.jetstream.api.models_stream_parts import StorageWord
from jsclient.keyvalue.keys import LINE_OVERHEAD, MAX_LINE, check_bucket
from jsclient.protocol.errors import BAD_JSON

STREAM_PREFIX: Final = "OBJ_"
SUBJECT_ROOT: Final = "$O."
CHUNK_SIZE: Final = 128 * 1024
"""Bytes of a chunk unless the object has another size. All clients agree on it."""

ZERO_TIME: Final = "0001-01-01T00:00:00Z"  # the server's time of the message counts, so none is stored


def stream_name(bucket: str) -> str:
    return STREAM_PREFIX + check_bucket(bucket, "object store")


def chunk_subject(bucket: str, nuid: str) -> str:
    """The subject of an object's chunks. The nuid is stored data: `>` would make it the chunks of all objects."""
    try:
        return f"{SUBJECT_ROOT}{bucket}.C.{names.check_name(nuid, 'chunk')}"
    except InvalidName as error:
        raise BadObjectMeta(f"an object in bucket {bucket!r} has an unusable nuid: {error}", bucket) from None


def meta_subject(bucket: str, name: str) -> str:
    """The subject of an object's meta information. Raises InvalidName for a name that cannot have one.

    Any string is a valid name, because it is sent as base64. Only the empty string and names that are too long for a
    protocol line raise an error.
    """
    if not isinstance(name, str):
        raise InvalidName(f"an object name must be a str, not {type(name).__name__}")
    if not name:
        raise InvalidName("an object name must not be empty")
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(f"the object name {name[:80]!r} is not valid text: {error}") from None
    # The longest line that carries it: a direct get, in the API of a domain.
    room = (MAX_LINE - LINE_OVERHEAD - 3 * len(bucket) - 64) * 3 // 4
    if len(raw) > room:
        raise InvalidName(f"the object name of {len(raw)} bytes is longer than the {room} that fit on a protocol line")
    return f"{SUBJECT_ROOT}{bucket}.M.{base64.urlsafe_b64encode(raw).decode()}"


# --- about one object ---------------------------------------------------------------------------------------


class ObjectLink(msgspec.Struct, frozen=True):
    """The target of a link: an object of a bucket, or (without a name) the whole bucket.

    Attributes:
        bucket: The bucket it points into.
        name: The object there; None: the whole bucket.
    """

    bucket: str
    name: str | None = None


Headers = Mapping[str, "str | Iterable[str]"]


def _headers(value: Headers | None) -> dict[str, list[str]] | None:
    if value is None:
        return None
    try:
        return {key: [text] if isinstance(text, str) else list(text) for key, text in value.items()}
    except (AttributeError, TypeError):
        raise ConfigError(f"headers must be a mapping of names to one text or several, not {value!r:.80}") from None


@attrs.frozen(kw_only=True)
class ObjectMeta:
    """The part of an object's information that you set. `chunk_size` is the number of bytes in a stored message
    (128 KiB).

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        name: Name of the object.
        description: Text for people.
        headers: Headers of yours: name to values.
        metadata: Texts of yours: name to value.
        chunk_size: Bytes of the object that one stored message holds.
    """

    name: str
    description: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    headers: dict[str, list[str]] | None = attrs.field(default=None, converter=_headers)
    metadata: Mapping[str, str] | None = attrs.field(default=None, validator=kinds.field(kinds.TEXT_MAP, None))
    chunk_size: int = CHUNK_SIZE

    def __attrs_post_init__(self) -> None:
        for texts in (self.headers or {}).values():
            if not all(isinstance(text, str) for text in texts):
                raise ConfigError(
                    f"headers must be a mapping of names to one text or several, not {self.headers!r:.80}"
                )
        if isinstance(self.chunk_size, bool) or not isinstance(self.chunk_size, int) or self.chunk_size < 1:
            raise ConfigError(f"chunk_size must be a positive number of bytes, not {self.chunk_size!r}")


@attrs.frozen(kw_only=True)
class ObjectInfo:
    """The store's information about an object. `mtime` is the server's time of the last change, `revision` its
    sequence.

    `size` is in bytes, `nuid` names the chunks, and `digest` is `SHA-256=` and base64url. A link has no data.

    Attributes:
        name: Name of the object.
        bucket: The bucket that holds it.
        nuid: Unique name of its chunks.
        size: Bytes of the object.
        chunks: Messages that hold it.
        digest: `SHA-256=` and the digest in base64url.
        deleted: True if it was deleted; only this note is left.
        description: Text for people.
        headers: Headers of yours: name to values.
        metadata: Texts of yours: name to value.
        link: Its target, if it is a link.
        chunk_size: Bytes that one stored message holds; None if the writer did not set it.
        mtime: Time of the last change, by the server's clock (UTC).
        revision: Sequence of this information in the bucket's stream.
        other_name: The old or new name of its last rename. If an object of that name has the same `nuid`, the rename
            was interrupted; repeat it, or delete either of the two.
    """

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    description: str | None = None
    headers: dict[str, list[str]] | None = None
    metadata: Mapping[str, str] | None = None
    link: ObjectLink | None = None
    chunk_size: int | None = None
    mtime: dt.datetime | None = None
    revision: int = 0
    other_name: str | None = None

    @property
    def is_link(self) -> bool:
        """True when it points to another object or bucket."""
        return self.link is not None

    def changed(self, **changes: Any) -> ObjectInfo:
        """A copy with these fields changed."""
        return attrs.evolve(self, **changes)

    def to_json(self) -> bytes:
        """The stored form, in the order and with the omissions of nats.go."""
        plain: dict[str, Any] = {"name": self.name}
        for name in ("description", "headers", "metadata"):
            value = getattr(self, name)
            if value:
                plain[name] = dict(value) if isinstance(value, Mapping) else value
        options: dict[str, Any] = {}
        if self.link is not None:
            options["link"] = {"bucket": self.link.bucket, **({"name": self.link.name} if self.link.name else {})}
        if self.chunk_size:
            options["max_chunk_size"] = self.chunk_size
        if options:
            plain["options"] = options
        plain.update(bucket=self.bucket, nuid=self.nuid, size=self.size, mtime=ZERO_TIME, chunks=self.chunks)
        if self.digest:
            plain["digest"] = self.digest
        if self.deleted:
            plain["deleted"] = True
        if self.other_name:
            plain["other_name"] = self.other_name  # clients that do not know it ignore it
        return msgspec.json.encode(plain)


class _Options(msgspec.Struct):
    link: ObjectLink | None = None
    max_chunk_size: int | None = None


class _Stored(msgspec.Struct):
    """The JSON as other clients write it: numbers may be missing, and a header may be a string instead of a list."""

    name: str
    bucket: str = ""
    nuid: str = ""
    size: int | None = 0
    chunks: int | None = 0
    digest: str | None = ""
    deleted: bool | None = False
    description: str | None = None
    headers: dict[str, list[str] | str] | None = None
    metadata: dict[str, str] | None = None
    options: _Options | None = None
    other_name: str | None = None


_decoder: Final = msgspec.json.Decoder(_Stored)


def decode_info(raw: bytes, bucket: str, mtime: dt.datetime | None, revision: int) -> ObjectInfo:
    """An ObjectInfo from the stored JSON. Raises BadObjectMeta for anything else."""
    try:
        stored = _decoder.decode(raw)
    except BAD_JSON as error:
        raise BadObjectMeta(f"object meta information in bucket {bucket!r} cannot be read: {error}", bucket) from error
    options = stored.options or _Options()
    if (stored.size or 0) < 0 or (stored.chunks or 0) < 0:
        raise BadObjectMeta(f"object {stored.name!r} in bucket {bucket!r} has a negative size", bucket)
    return ObjectInfo(
        name=stored.name,
        bucket=stored.bucket or bucket,
        nuid=stored.nuid,
        size=stored.size or 0,
        chunks=stored.chunks or 0,
        digest=stored.digest or "",
        deleted=bool(stored.deleted),
        description=stored.description,
        headers=_headers(stored.headers),
        metadata=stored.metadata,
        link=options.link,
        chunk_size=options.max_chunk_size,
        mtime=mtime,
        revision=revision,
        other_name=stored.other_name,
    )


def check_link_target(target: ObjectInfo) -> ObjectLink:
    """A link to an object. Raises ObjectLinkError if it is deleted or a link, ConfigError if not an ObjectInfo."""
    if not isinstance(target, ObjectInfo):
        raise ConfigError(f"target must be an ObjectInfo, not {type(target).__name__}")
    if target.deleted:
        raise ObjectLinkError(f"object {target.name!r} is deleted: no link can point there", target.bucket)
    if target.is_link:
        raise ObjectLinkError(f"object {target.name!r} is a link: no link can point to a link", target.bucket)
    bucket = check_bucket(target.bucket, "object store")
    meta_subject(bucket, target.name)  # without a name it would link to the whole bucket
    return ObjectLink(bucket, target.name)


# --- about the store ----------------------------------------------------------------------------------------


def _seconds(value: float | dt.timedelta | None) -> float | None:
    kinds.check(float, dt.timedelta, None, ttl=value)
    if isinstance(value, dt.timedelta):
        value = to_seconds(to_ns(value))
    if value is not None and not value >= 0:
        raise ConfigError(f"ttl must be 0 or more seconds, got {value!r}")
    if value and not (value < MAX_SECONDS and to_ns(value)):
        raise ConfigError(f"ttl must be from a nanosecond to 292 years, got {value!r}")
    return value or None


@attrs.frozen(kw_only=True)
class ObjectStoreConfig:
    """An object store. Only `bucket` is required.

        config = ObjectStoreConfig(bucket="files", ttl=7 * 86400)
        store = objectstore.create_or_update_object_store(js, config)

    `ttl` is seconds or a timedelta and lets every object expire.

    `compression` and `metadata` need nats-server 2.10.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        bucket: Name of the store: letters, digits, `-` and `_`.
        description: Text for people.
        ttl: Seconds after which an object expires.
        max_bytes: Largest size of the store in bytes.
        storage: file or memory.
        replicas: 1, 3 or 5.
        placement: Placement of the replicas.
        compression: Compress the files (server 2.10).
        metadata: Keys and values for people and tools (server 2.10).
    """

    bucket: str = attrs.field(validator=kinds.field(str))
    description: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    ttl: float | None = attrs.field(default=None, converter=_seconds)
    max_bytes: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    storage: StorageWord | None = attrs.field(default=None, validator=kinds.field(str, None))
    replicas: int = attrs.field(default=1, validator=kinds.field(int))
    placement: Placement | None = attrs.field(default=None, validator=kinds.field(Placement, None))
    compression: bool = attrs.field(default=False, validator=kinds.field(bool))
    metadata: Mapping[str, str] | None = attrs.field(default=None, validator=kinds.field(kinds.TEXT_MAP, None))

    def __attrs_post_init__(self) -> None:
        check_bucket(self.bucket, "object store")

    def to_stream(self) -> StreamConfig:
        """For layers: the configuration of the stream."""
        settings: dict[str, Any] = {}
        if self.compression:
            settings["compression"] = "s2"
        if self.metadata is not None:
            settings["metadata"] = dict(self.metadata)
        return StreamConfig(
            name=stream_name(self.bucket),
            description=self.description,
            subjects=[f"{SUBJECT_ROOT}{self.bucket}.C.>", f"{SUBJECT_ROOT}{self.bucket}.M.>"],
            max_age=self.ttl,
            max_bytes=self.max_bytes or -1,
            storage=self.storage or "file",
            num_replicas=self.replicas,
            placement=self.placement,
            discard="new",
            allow_rollup_hdrs=True,
            allow_direct=True,
            **settings,
        )

    def changed(self, stream: StreamConfig) -> StreamConfig:
        """For layers: this stream with the settings of the store; all others stay."""
        wanted = self.to_stream()
        changes = {name: getattr(wanted, name) for name in _SETTINGS}
        if stream.duplicate_window and self.ttl is not None:
            changes["duplicate_window"] = min(stream.duplicate_window, self.ttl)
        return stream.replace(**changes)


_SETTINGS: Final = (
    *("description", "max_age", "max_bytes", "storage", "num_replicas", "placement", "compression", "metadata"),
    "allow_rollup_hdrs",
)
"""Settings that ObjectStoreConfig decides, or that every store needs."""


class ObjectStoreConfigDict(TypedDict, total=False):
    """The fields of ObjectStoreConfig, as keyword arguments.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `ObjectStoreConfig`.
    """

    bucket: str
    description: str | None
    ttl: float | dt.timedelta | None
    max_bytes: int | None
    storage: StorageWord | None
    replicas: int
    placement: Placement | None
    compression: bool
    metadata: Mapping[str, str] | None


class ObjectStoreStatus:
    """An object store's configuration and state at one moment. `repaired` counts the removals of `status(repair=True)`.

    Attributes:
        stream_info: The server's information about the stream behind it.
        repaired: Number of unfinished uploads and deleted objects from which the repair removed chunks.
    """

    def __init__(self, info: StreamInfo, repaired: int = 0) -> None:
        self.stream_info = info
        self.repaired = repaired

    @property
    def bucket(self) -> str:
        """Name of the store."""
        return self.stream_info.config.name[len(STREAM_PREFIX) :]

    @property
    def description(self) -> str:
        """Text for people; "" without one."""
        return self.stream_info.config.description or ""

    @property
    def ttl(self) -> float | None:
        """Seconds until an object expires; None: never."""
        return seconds_of(self.stream_info.config.max_age or 0) or None

    @property
    def storage(self) -> str:
        """ "file" or "memory"."""
        return self.stream_info.config.storage or "file"

    @property
    def replicas(self) -> int:
        """Servers that hold it."""
        return self.stream_info.config.num_replicas or 1

    @property
    def sealed(self) -> bool:
        """True once `seal` was called: nothing can be changed any more."""
        return bool(self.stream_info.config.sealed)

    @property
    def size(self) -> int:
        """Bytes of everything in the store, meta information included."""
        return self.stream_info.state.bytes

    @property
    def backing_store(self) -> str:
        """The storage system behind it: always "JetStream"."""
        return "JetStream"

    @property
    def is_compressed(self) -> bool:
        """True when its files are compressed."""
        return self.stream_info.config.compression not in (None, "", "none")

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata that was given, without the server's additions."""
        given = self.stream_info.config.metadata or {}
        return {key: value for key, value in given.items() if not key.startswith("_nats.")}

    def __repr__(self) -> str:
        return f"<ObjectStoreStatus {self.bucket}: {self.size} bytes{' sealed' if self.sealed else ''}>"
