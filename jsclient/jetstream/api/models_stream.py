"""Streams on the wire: configuration, info and state. All durations are float seconds (timedelta accepted)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jsclient.errors import ConfigError
from jsclient.jetstream.api import names
from jsclient.jetstream.api.model_base import Duration, OpenWire, Seconds, Timestamp, Wire, kinds
from jsclient.jetstream.api.models_cluster import ClusterInfo, Placement
from jsclient.jetstream.api.models_stream_parts import (
    CHOICES,
    CompressionWord,
    DiscardWord,
    ExternalStream,
    PersistWord,
    Republish,
    RetentionWord,
    StorageWord,
    StreamConsumerLimits,
    StreamSource,
    SubjectTransform,
)
from jsclient.kinds import FIELDS, TEXT_MAP, TEXTS, Kind, check, is_int, many

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.api.config_fields import StreamConfigDict


class StreamConfig(OpenWire, kw_only=True, frozen=True):
    """The configuration of a stream. Only `name` is required; if another field is None, the server chooses.

        config = StreamConfig(name="ORDERS", subjects=["ORDERS.*"], max_age=7 * 86400)
        stream = js.create_or_update_stream(config)
        stored = stream.info().config  # with what the server chose
        js.update_stream(stored.replace(max_msgs=1_000_000))

    The client refuses a setting of a newer server than the connected one with NotSupported, because the server would
    ignore it.

    A limit of -1 means that there is none. `max_age`, `duplicate_window` (server default 2 minutes, or max_age if that
    is smaller) and `subject_delete_marker_ttl` are seconds. `subjects` default to the stream's name.

    Attributes:
        name: Its name, without spaces, dots, wildcards and slashes.
        description: Text for people.
        subjects: The subjects that it stores. Wildcards are allowed. No other stream of the account may overlap.
        retention: Messages are removed at the limits, when all consumers have them (interest), or when one has
            (workqueue).
        max_consumers: The largest number of consumers.
        max_msgs: The largest number of messages.
        max_bytes: The largest number of bytes, with headers and the server's own overhead.
        max_msgs_per_subject: The largest number of messages of one subject. 1 keeps the last value of each.
        max_msg_size: The largest size of a message in bytes. The server refuses larger messages.
        max_age: Seconds after which a message is removed.
        discard: A full stream drops the oldest message (old), or refuses the new one (new).
        discard_new_per_subject: With discard new, also refuse if `max_msgs_per_subject` is reached.
        storage: file or memory.
        num_replicas: 1, 3 or 5. An ack means that a majority has the message.
        no_ack: If True, the stream does not acknowledge publishes, and nobody knows whether they were stored.
        template_owner: A field of very old servers, kept because infos may contain it.
        duplicate_window: Seconds for which the stream remembers message ids (server default 120, or `max_age` if
            smaller).
        placement: The servers on which the replicas live.
        mirror: Makes this stream a read copy of another one, without publishes and without `subjects`.
        sources: Other streams from which this one copies. This stream may take publishes, too.
        sealed: If True, no message can be added or removed any more. Only an update can set it. It is permanent.
        deny_delete: If True, single messages cannot be deleted. It is permanent.
        deny_purge: If True, the stream cannot be purged. It is permanent.
        allow_rollup_hdrs: A publish with `rollup=` may remove the messages before it.
        allow_direct: Any replica may answer reads of single messages.
        mirror_direct: This mirror may answer such reads for its origin.
        republish: Stored messages are also published on another subject.
        compression: s2 compresses the files (server 2.10).
        first_seq: The sequence of the first message (server 2.10).
        subject_transform: Stores messages under a different subject than they were published on (server 2.10).
        consumer_limits: Defaults and upper limits for consumers (server 2.10).
        metadata: Keys and values for people and tools (server 2.10). Keys that begin with `_nats.` are the server's.
        allow_msg_ttl: Messages may have their own time to live (`ttl=`, server 2.11).
        subject_delete_marker_ttl: Seconds for which a marker stays after the last message of a subject expired by age
            (server 2.11).
        allow_atomic: Allows `JetStream.atomic_batch` (server 2.12).
        allow_msg_counter: The stream's subjects are counters (server 2.12).
        allow_msg_schedules: Publishes may have a `schedule=` (server 2.12).
        persist_mode: async acknowledges before the message is written. It is for one replica only (server 2.12).
        allow_batched: Allows `JetStream.fast_batch` (server 2.14).

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str = ""
    description: str | None = None
    subjects: list[str] | None = None
    retention: RetentionWord | None = None
    max_consumers: int | None = None
    max_msgs: int | None = None
    max_bytes: int | None = None
    max_msgs_per_subject: int | None = None
    max_msg_size: int | None = None
    max_age: Seconds | None = None
    discard: DiscardWord | None = None
    discard_new_per_subject: bool | None = None
    storage: StorageWord | None = None
    num_replicas: int | None = None
    no_ack: bool | None = None
    template_owner: str | None = None
    duplicate_window: Seconds | None = None
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] | None = None
    sealed: bool | None = None
    deny_delete: bool | None = None
    deny_purge: bool | None = None
    allow_rollup_hdrs: bool | None = None
    allow_direct: bool | None = None
    mirror_direct: bool | None = None
    republish: Republish | None = None
    compression: CompressionWord | None = None
    first_seq: int | None = None
    subject_transform: SubjectTransform | None = None
    consumer_limits: StreamConsumerLimits | None = None
    metadata: dict[str, str] | None = None
    allow_msg_ttl: bool | None = None
    subject_delete_marker_ttl: Seconds | None = None
    allow_atomic: bool | None = None
    allow_msg_counter: bool | None = None
    allow_msg_schedules: bool | None = None
    persist_mode: PersistWord | None = None
    allow_batched: bool | None = None

    if TYPE_CHECKING:

        def replace(self, **changes: Unpack[StreamConfigDict]) -> StreamConfig: ...  # type: ignore[override]

    def check(self) -> None:
        """Refuse invalid settings before they reach the server. Raises ConfigError, InvalidName or InvalidSubject."""
        names.check_stream(self.name)
        names.check_filters(self.subjects, "subjects")
        check_choices(self, CHOICES)
        check_types(self)
        if self.first_seq is not None and self.first_seq < 0:
            raise ConfigError(f"first_seq must be 0 or more, got {self.first_seq}")
        if self.num_replicas is not None and not 0 <= self.num_replicas <= 5:
            raise ConfigError(f"num_replicas must be 1 to 5, not {self.num_replicas}")
        if self.mirror is not None and (self.subjects or self.sources):
            raise ConfigError("a mirror has neither subjects nor sources of its own")
        sources = [*(self.sources or ()), *([self.mirror] if self.mirror else [])]
        for source in sources:
            names.check_name(source.name, "source stream")
            if source.filter_subject:
                names.check_subject(source.filter_subject, "filter_subject of the source", wildcards=True)


def check_choices(config: Wire, choices: dict[str, tuple[str, ...]]) -> None:
    """Refuse a word to which the server would answer "invalid JSON"."""
    for name, allowed in choices.items():
        value = getattr(config, name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{name} must be one of {', '.join(allowed)}; not {value!r}")


_INT: Final = Kind("an int", lambda value: isinstance(value, int) and is_int(value))
"""JSON encodes no other class than int, such as the numbers of numpy."""

_KINDS: Final[dict[Any, Any]] = {
    str: str,
    str | None: str,
    int | None: _INT,
    bool | None: bool,
    list[str] | None: TEXTS,
    dict[str, str] | None: TEXT_MAP,
    dict[str, Any] | None: FIELDS,
}
"""The types of plain fields, for `check_types`. The constructors check times and durations."""


_fields = cache(msgspec.structs.fields)  # it evaluates the annotations, which takes most of a millisecond


def check_types(config: Wire) -> None:
    """Refuse values of another type and negative times, also within the parts.

    JSON could not hold them, or the server would answer with "invalid JSON", or would accept them.
    """
    parts = kinds(type(config))
    for field in _fields(type(config)):
        value = getattr(config, field.name)
        if value is None:
            continue
        if isinstance(value, float) and value < 0:
            raise ConfigError(f"{field.name} must not be negative, got {value!r} seconds")
        if field.type in _KINDS:
            check(_KINDS[field.type], **{field.name: value})
            continue
        how, part = parts.get(field.name, ("", None))
        if how == "wire":
            check(part, **{field.name: value})
            check_types(value)
        elif how == "wires":
            check(many(part), **{field.name: value})
            for item in value:
                check_types(item)


def user_metadata(metadata: dict[str, str] | None) -> dict[str, str] | None:
    """Metadata without the `_nats.*` entries that newer servers add (2.11)."""
    if metadata is None:
        return None
    return {key: value for key, value in metadata.items() if not key.startswith("_nats.")}


class LostStreamData(Wire, kw_only=True, frozen=True):
    """The messages that a stream has lost to damage on a disk.

    Attributes:
        msgs: Sequences of messages that the server lost to damage on its disk.
        bytes: Their bytes.
    """

    msgs: list[int] | None = None
    bytes: int = 0


class StreamState(OpenWire, kw_only=True, frozen=True):
    """The content of a stream. `info(deleted_details=True)` fills `deleted`, `info(subjects_filter=)` fills `subjects`.

    Attributes:
        messages: Messages that it holds.
        bytes: Their bytes, with subjects and headers.
        first_seq: Sequence of the oldest message.
        first_ts: When that message was stored (UTC).
        last_seq: The highest sequence so far. Its message may be gone.
        last_ts: When that message was stored (UTC).
        num_subjects: Different subjects among the messages.
        subjects: Messages per subject, only with info(subjects_filter=).
        num_deleted: Sequences between first and last that are gone.
        deleted: These sequences, only with info(deleted_details=True).
        lost: The messages lost to damage on the disk, or None.
        consumer_count: Consumers of the stream.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: Timestamp | None = None
    last_seq: int = 0
    last_ts: Timestamp | None = None
    num_subjects: int = 0
    subjects: dict[str, int] | None = None
    num_deleted: int = 0
    deleted: list[int] | None = None
    lost: LostStreamData | None = None
    consumer_count: int = 0


class SourceInfoError(Wire, kw_only=True, frozen=True):
    """The reason why a mirror or source copies nothing.

    Attributes:
        code: HTTP-like class of the error.
        err_code: The server's number of the error.
        description: The server's text.
    """

    code: int = 0
    err_code: int = 0
    description: str = ""


class StreamSourceInfo(OpenWire, kw_only=True, frozen=True):
    """Progress of a mirror or source. `active` is seconds since the last contact, None before the first one.

    Attributes:
        name: Name of the origin.
        lag: Messages that are not copied yet.
        seq: For sources, the sequence in the origin of the newest message that is stored here (server 2.15). It is 0
            for mirrors.
        active: Seconds since the last contact, or None before the first one.
        external: The way to the origin.
        filter_subject: Only messages of this subject are copied.
        subject_transforms: Rules that rewrite subjects on the way.
        error: The reason why nothing is copied at the moment.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str = ""
    lag: int = 0
    seq: int = 0
    active: Duration | None = None
    external: ExternalStream | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] | None = None
    error: SourceInfoError | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.active is not None and self.active < 0:
            msgspec.structs.force_setattr(self, "active", None)


class StreamAlternate(Wire, kw_only=True, frozen=True):
    """A stream that holds the same messages: this one, or a mirror of it.

    Attributes:
        name: Name of a stream with the same messages.
        domain: Its domain.
        cluster: Its cluster.
    """

    name: str = ""
    domain: str = ""
    cluster: str = ""


class StreamInfo(OpenWire, kw_only=True, frozen=True):
    """The configuration and state of a stream, as the server reports them at `ts` (server 2.10).

    Attributes:
        config: Its configuration.
        state: Its content.
        created: When it was created (UTC).
        ts: The server's clock at the answer (UTC, server 2.10).
        domain: Its JetStream domain, or "" without one.
        cluster: Its leader and replicas, or None on a single server.
        mirror: Its progress as a mirror.
        sources: Progress of its sources.
        alternates: Streams with the same messages (it and its mirrors), the nearest first. None if it has none.
        did_create: True if the call that returned this has created the stream.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    config: StreamConfig
    state: StreamState = StreamState()
    created: Timestamp | None = None
    ts: Timestamp | None = None
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: StreamSourceInfo | None = None
    sources: list[StreamSourceInfo] | None = None
    alternates: list[StreamAlternate] | None = None
    did_create: bool = False

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.config.name
