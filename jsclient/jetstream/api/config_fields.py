"""The fields of configurations as keyword arguments, for type checkers: `create_stream(name=..., subjects=[...])`."""

from __future__ import annotations

from typing import TypedDict

from jsclient.jetstream.api.model_base import Delays, Seconds, Timestamp
from jsclient.jetstream.api.models_cluster import Placement
from jsclient.jetstream.api.models_consumer_words import AckWord, DeliverWord, PriorityWord, ReplayWord
from jsclient.jetstream.api.models_stream_parts import (
    CompressionWord,
    DiscardWord,
    PersistWord,
    Republish,
    RetentionWord,
    StorageWord,
    StreamConsumerLimits,
    StreamSource,
    SubjectTransform,
)


class StreamConfigDict(TypedDict, total=False):
    """The fields of StreamConfig.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `StreamConfig`.
    """

    name: str
    description: str | None
    subjects: list[str] | None
    retention: RetentionWord | None
    max_consumers: int | None
    max_msgs: int | None
    max_bytes: int | None
    max_msgs_per_subject: int | None
    max_msg_size: int | None
    max_age: Seconds | None
    discard: DiscardWord | None
    discard_new_per_subject: bool | None
    storage: StorageWord | None
    num_replicas: int | None
    no_ack: bool | None
    template_owner: str | None
    duplicate_window: Seconds | None
    placement: Placement | None
    mirror: StreamSource | None
    sources: list[StreamSource] | None
    sealed: bool | None
    deny_delete: bool | None
    deny_purge: bool | None
    allow_rollup_hdrs: bool | None
    allow_direct: bool | None
    mirror_direct: bool | None
    republish: Republish | None
    compression: CompressionWord | None
    first_seq: int | None
    subject_transform: SubjectTransform | None
    consumer_limits: StreamConsumerLimits | None
    metadata: dict[str, str] | None
    allow_msg_ttl: bool | None
    subject_delete_marker_ttl: Seconds | None
    allow_atomic: bool | None
    allow_msg_counter: bool | None
    allow_msg_schedules: bool | None
    persist_mode: PersistWord | None
    allow_batched: bool | None


class ConsumerConfigDict(TypedDict, total=False):
    """The fields of ConsumerConfig.

    A value of another type or out of range raises ConfigError before anything is sent.

    The fields are described in `ConsumerConfig`.
    """

    name: str | None
    durable_name: str | None
    description: str | None
    deliver_policy: DeliverWord | None
    opt_start_seq: int | None
    opt_start_time: Timestamp | None
    ack_policy: AckWord | None
    ack_wait: Seconds | None
    max_deliver: int | None
    backoff: Delays | None
    filter_subject: str | None
    filter_subjects: list[str] | None
    replay_policy: ReplayWord | None
    rate_limit_bps: int | None
    sample_freq: str | None
    max_waiting: int | None
    max_ack_pending: int | None
    flow_control: bool | None
    idle_heartbeat: Seconds | None
    headers_only: bool | None
    max_batch: int | None
    max_expires: Seconds | None
    max_bytes: int | None
    deliver_subject: str | None
    deliver_group: str | None
    inactive_threshold: Seconds | None
    num_replicas: int | None
    mem_storage: bool | None
    direct: bool | None
    sourcing: bool | None
    metadata: dict[str, str] | None
    pause_until: Timestamp | None
    priority_groups: list[str] | None
    priority_policy: PriorityWord | None
    priority_timeout: Seconds | None
