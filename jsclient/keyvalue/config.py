"""The configuration of a bucket, the stream it becomes, and the status that is read back from it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import attrs

from jsclient import kinds
from jsclient.durations import MAX_SECONDS, seconds_of, to_ns, to_seconds
from jsclient.errors import ConfigError
from jsclient.jetstream.api.models import Placement, Republish, StreamConfig, StreamInfo, StreamSource, SubjectTransform
from jsclient.jetstream.api.models_stream_parts import StorageWord
from jsclient.keyvalue.keys import STREAM_PREFIX, SUBJECT_ROOT, check_bucket, stream_name

MAX_HISTORY: Final = 64
DUPLICATE_WINDOW: Final = 120.0  # seconds; the server's default, and its upper limit for a bucket

_TTL: Final = "a time to live (ttl, limit_marker_ttl)"
_SOURCES: Final = kinds.many(StreamSource)


def _seconds(value: float | dt.timedelta | None) -> float | None:
    kinds.check(float, dt.timedelta, None, **{_TTL: value})
    if isinstance(value, dt.timedelta):
        value = to_seconds(to_ns(value))
    if value is not None and not value >= 0:
        raise ConfigError(f"{_TTL} must be 0 or more seconds, got {value!r}")
    if value and not (value < MAX_SECONDS and to_ns(value)):
        raise ConfigError(f"{_TTL} must be from a nanosecond to 292 years, got {value!r}")
    return value or None


@attrs.frozen(kw_only=True)
class KeyValueConfig:
    """A key-value bucket. Only `bucket` is required.

        config = KeyValueConfig(bucket="settings", history=5)
        kv = keyvalue.create_or_update_key_value(js, config)

    `history` is the number of revisions that the bucket keeps of a key (1 to 64). `ttl` (seconds or timedelta) lets
    every value expire. With `limit_marker_ttl`, the server keeps a marker for that time when it removes a key, and
    watchers see it. It also allows `create(ttl=)` and `purge(ttl=)`, and needs nats-server 2.11. `compression` and
    `metadata` need 2.10. A `mirror` is a read copy whose writes go to the origin. `sources` copy other buckets into
    this one.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        bucket: Name of the bucket: letters, digits, `-` and `_`.
        description: Text for people.
        max_value_size: Largest size of a value in bytes; larger values are rejected.
        history: Revisions kept of each key, 1 to 64.
        ttl: Seconds after which a value expires.
        max_bytes: Largest size of the bucket in bytes.
        storage: file or memory.
        replicas: 1, 3 or 5.
        placement: Placement of the replicas.
        republish: Changes are also published on another subject.
        mirror: Makes the bucket a read copy of another.
        sources: Other buckets that are copied into this one.
        compression: Compress the files (server 2.10).
        limit_marker_ttl: Seconds for which a marker shows that the server removed a key (server 2.11).
        allow_msg_ttl: Single values and markers may have a TTL (server 2.11). `limit_marker_ttl` includes it. A
            mirror needs it to let them expire as its origin does. The server never switches it off again.
        allow_atomic: Allows `KeyValue.batch` (server 2.12). An update never switches it off.
        metadata: Keys and values for people and tools (server 2.10).
    """

    bucket: str = attrs.field(validator=kinds.field(str))
    description: str | None = attrs.field(default=None, validator=kinds.field(str, None))
    max_value_size: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    history: int = attrs.field(default=1, validator=kinds.field(int))
    ttl: float | None = attrs.field(default=None, converter=_seconds)
    max_bytes: int | None = attrs.field(default=None, validator=kinds.field(int, None))
    storage: StorageWord | None = attrs.field(default=None, validator=kinds.field(str, None))
    replicas: int = attrs.field(default=1, validator=kinds.field(int))
    placement: Placement | None = attrs.field(default=None, validator=kinds.field(Placement, None))
    republish: Republish | None = attrs.field(default=None, validator=kinds.field(Republish, None))
    mirror: StreamSource | None = attrs.field(default=None, validator=kinds.field(StreamSource, None))
    sources: Sequence[StreamSource] = attrs.field(default=(), validator=kinds.field(_SOURCES))
    compression: bool = attrs.field(default=False, validator=kinds.field(bool))
    limit_marker_ttl: float | None = attrs.field(default=None, converter=_seconds)
    allow_msg_ttl: bool = attrs.field(default=False, validator=kinds.field(bool))
    allow_atomic: bool = attrs.field(default=False, validator=kinds.field(bool))
    metadata: Mapping[str, str] | None = attrs.field(default=None, validator=kinds.field(kinds.TEXT_MAP, None))

    def __attrs_post_init__(self) -> None:
        check_bucket(self.bucket)
        if not 1 <= self.history <= MAX_HISTORY:
            raise ConfigError(f"history must be 1 to {MAX_HISTORY} revisions per key, not {self.history}")
        if self.mirror is not None and self.sources:
            raise ConfigError("a bucket is a mirror or has sources, not both")
        if self.mirror is not None and self.limit_marker_ttl is not None:
            raise ConfigError(
                "a mirror cannot have limit_marker_ttl: it stores the markers of its origin, and "
                "allow_msg_ttl=True lets them expire there, too"
            )
        if self.limit_marker_ttl is not None and self.limit_marker_ttl < 1:
            raise ConfigError(f"limit_marker_ttl must be at least 1 second, not {self.limit_marker_ttl}")

    def to_stream(self) -> StreamConfig:
        """The stream of this bucket. Every value is explicit, so equal buckets compare as equal."""
        settings: dict[str, Any] = {}
        if self.mirror is not None:
            settings["mirror"] = _mirror(self.mirror)
            settings["mirror_direct"] = True
        else:
            settings["subjects"] = [subjects(self.bucket)]
        if self.sources:
            settings["sources"] = [_source(source, self.bucket) for source in self.sources]
        if self.compression:
            settings["compression"] = "s2"
        if self.allow_msg_ttl or self.limit_marker_ttl is not None:
            settings["allow_msg_ttl"] = True
        if self.allow_atomic:
            settings["allow_atomic"] = True
        if self.limit_marker_ttl is not None:
            settings["subject_delete_marker_ttl"] = self.limit_marker_ttl
        if self.metadata is not None:
            settings["metadata"] = dict(self.metadata)
        window = DUPLICATE_WINDOW if self.ttl is None else min(self.ttl, DUPLICATE_WINDOW)
        return StreamConfig(
            name=stream_name(self.bucket),
            description=self.description,
            max_msgs_per_subject=self.history,
            max_bytes=self.max_bytes or -1,
            max_age=self.ttl,
            max_msg_size=self.max_value_size or -1,
            storage=self.storage or "file",
            num_replicas=self.replicas,
            placement=self.placement,
            allow_rollup_hdrs=True,
            deny_delete=True,
            duplicate_window=window,
            max_msgs=-1,
            max_consumers=-1,
            allow_direct=True,
            republish=self.republish,
            discard="new",
            **settings,
        )

    def changed(self, stream: StreamConfig) -> StreamConfig:
        """For layers: this stream with the settings of the bucket; all others stay."""
        wanted = self.to_stream()
        changes = {name: getattr(wanted, name) for name in _SETTINGS}
        if stream.allow_msg_ttl:
            changes["allow_msg_ttl"] = True  # for good, says the server
        if self.allow_atomic:
            changes["allow_atomic"] = True
        window = stream.duplicate_window or DUPLICATE_WINDOW
        changes["duplicate_window"] = window if self.ttl is None else min(window, self.ttl)
        return stream.replace(**changes)


_SETTINGS: Final = (
    *("description", "subjects", "mirror", "mirror_direct", "sources", "max_msgs_per_subject", "max_bytes", "max_age"),
    *("max_msg_size", "storage", "num_replicas", "placement", "republish", "compression", "allow_msg_ttl"),
    *("subject_delete_marker_ttl", "metadata", "allow_rollup_hdrs"),
)
"""Settings that KeyValueConfig decides, or that every bucket needs."""


class KeyValueConfigDict(TypedDict, total=False):
    """The fields of KeyValueConfig, as keyword arguments.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `KeyValueConfig`.
    """

    bucket: str
    description: str | None
    max_value_size: int | None
    history: int
    ttl: float | dt.timedelta | None
    max_bytes: int | None
    storage: StorageWord | None
    replicas: int
    placement: Placement | None
    republish: Republish | None
    mirror: StreamSource | None
    sources: Sequence[StreamSource]
    compression: bool
    limit_marker_ttl: float | dt.timedelta | None
    allow_msg_ttl: bool
    allow_atomic: bool
    metadata: Mapping[str, str] | None


def subjects(bucket: str) -> str:
    return f"{SUBJECT_ROOT}{bucket}.>"


def _mirror(source: StreamSource) -> StreamSource:
    if source.name.startswith(STREAM_PREFIX):
        return source
    return source.replace(name=STREAM_PREFIX + source.name)


def _source(source: StreamSource, bucket: str) -> StreamSource:
    """A source bucket with its keys mapped to this one. A source that already has transforms is used unchanged."""
    if source.subject_transforms:
        return source
    origin = source.name[len(STREAM_PREFIX) :] if source.name.startswith(STREAM_PREFIX) else source.name
    changes: dict[str, Any] = {"name": STREAM_PREFIX + origin}
    if source.external is None or origin != bucket:
        changes["subject_transforms"] = [_transform(source.filter_subject, origin, bucket)]
        changes["filter_subject"] = None  # the server takes one of the two; the source of a transform filters, too
    return source.replace(**changes)


def _transform(wanted: str | None, origin: str, bucket: str) -> SubjectTransform:
    """From the keys of the origin (only keys that match the filter `wanted`) to the same keys of the bucket."""
    source, root = wanted or subjects(origin), f"{SUBJECT_ROOT}{origin}."
    if not source.startswith(root):
        raise ConfigError(f"filter_subject of a source must begin with {root!r}, the keys of bucket {origin!r}")
    key, numbers = source[len(root) :], itertools.count(1)
    tokens = [f"{{{{wildcard({next(numbers)})}}}}" if token == "*" else token for token in key.split(".")]
    return SubjectTransform(src=source, dest=f"{SUBJECT_ROOT}{bucket}.{'.'.join(tokens)}")


class KeyValueStatus:
    """A bucket's configuration and state at one moment. `stream_info` is the complete answer of the server."""

    def __init__(self, info: StreamInfo) -> None:
        self.stream_info = info

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self.stream_info.config.name[len(STREAM_PREFIX) :]

    @property
    def values(self) -> int:
        """Number of revisions in it, including markers."""
        return self.stream_info.state.messages

    @property
    def bytes(self) -> int:
        """Size of all revisions in bytes, with subjects and headers."""
        return self.stream_info.state.bytes

    @property
    def history(self) -> int:
        """Number of revisions that the bucket keeps of a key."""
        return self.stream_info.config.max_msgs_per_subject or 0

    @property
    def ttl(self) -> float | None:
        """Seconds until a value expires; None: never."""
        return seconds_of(self.stream_info.config.max_age or 0) or None

    @property
    def limit_marker_ttl(self) -> float | None:
        """Seconds for which the server keeps markers of expired keys; None: there are no markers."""
        return seconds_of(self.stream_info.config.subject_delete_marker_ttl or 0) or None

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

    @property
    def config(self) -> KeyValueConfig:
        """The configuration, as it could be given to `create_key_value`."""
        stream = self.stream_info.config
        return KeyValueConfig(
            bucket=self.bucket,
            description=stream.description,
            max_value_size=_limit(stream.max_msg_size),
            history=max(1, min(self.history, MAX_HISTORY)),
            ttl=self.ttl,
            max_bytes=_limit(stream.max_bytes),
            storage=stream.storage,
            replicas=stream.num_replicas or 1,
            placement=stream.placement,
            republish=stream.republish,
            mirror=stream.mirror,
            sources=tuple(stream.sources or ()),
            compression=self.is_compressed,
            limit_marker_ttl=self.limit_marker_ttl,
            allow_msg_ttl=bool(stream.allow_msg_ttl) and self.limit_marker_ttl is None,
            allow_atomic=bool(stream.allow_atomic),
            metadata=self.metadata or None,
        )

    def __repr__(self) -> str:
        return f"<KeyValueStatus {self.bucket}: {self.values} values, {self.bytes} bytes, history {self.history}>"


def _limit(value: int | None) -> int | None:
    return None if value is None or value <= 0 else value
