"""Consumers on the wire: configuration, info and state. All durations are float seconds (timedelta accepted)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jsclient.errors import ConfigError, InvalidName
from jsclient.jetstream.api import names
from jsclient.jetstream.api.model_base import Delays, Duration, OpenWire, Seconds, Timestamp
from jsclient.jetstream.api.models_cluster import ClusterInfo
from jsclient.jetstream.api.models_consumer_words import (
    CHOICES,
    AckPolicy,
    AckWord,
    DeliverWord,
    PriorityWord,
    ReplayWord,
)
from jsclient.jetstream.api.models_stream import check_choices, check_types

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from jsclient.jetstream.api.config_fields import ConsumerConfigDict


class ConsumerConfig(OpenWire, kw_only=True, frozen=True):
    """The configuration of a consumer. If a field is None, the server chooses, except for `ack_policy`.

        config = ConsumerConfig(durable_name="CONS", filter_subject="ORDERS.new", ack_wait=60)
        consumer = js.create_or_update_consumer("ORDERS", config)

    `ack_policy` is "explicit" unless set (the server's own default would be "none"). `ack_wait` (server default
    30 s), `backoff`, `inactive_threshold` (server default for ephemeral ones 5 s), `max_expires`, `idle_heartbeat`
    and `priority_timeout` are seconds. `deliver_subject`, `deliver_group`, `flow_control`, `idle_heartbeat` and
    `rate_limit_bps` are for push consumers only. The client refuses a setting of a newer server than the connected one
    with NotSupported, because the server would ignore it.

    Attributes:
        name: Its name. Without a `name` and a `durable_name`, the client generates one.
        durable_name: Its name, and the consumer stays when nobody uses it.
        description: Text for people.
        deliver_policy: The position where it begins, which is one of all, last, new, last_per_subject,
            by_start_sequence and by_start_time.
        opt_start_seq: The first sequence, with by_start_sequence.
        opt_start_time: The first point in time, with by_start_time. It needs a time zone.
        ack_policy: With explicit, every message needs an ack. With all, an ack covers all messages before it, too.
            With none, nobody acknowledges. flow_control is for push consumers (server 2.14).
        ack_wait: Seconds without an ack after which a message is delivered again (server default 30).
        max_deliver: Deliveries after which a message is given up, or -1 without a limit.
        backoff: Seconds before each further delivery, instead of `ack_wait`.
        filter_subject: Only messages of this subject. Wildcards are allowed.
        filter_subjects: The same for several subjects (server 2.10).
        replay_policy: instant, or original to deliver at the pace at which the messages were stored.
        rate_limit_bps: The largest number of bits per second, for push consumers.
        sample_freq: Share of acks about which the server publishes an advisory, for example "10%".
        max_waiting: The largest number of pulls that wait at the same time, for pull consumers (server default 512).
        max_ack_pending: The largest number of messages without an ack. Then delivery pauses (server default 1000).
        flow_control: For push consumers, the server waits for the client to keep up.
        idle_heartbeat: Seconds of silence after which the server sends a sign of life, for push consumers.
        headers_only: Deliver headers and the payload's size, without the payload.
        max_batch: The largest batch of one pull, for pull consumers.
        max_expires: The longest life of one pull in seconds, for pull consumers.
        max_bytes: The most bytes of one pull, for pull consumers.
        deliver_subject: The subject on which the server delivers, for push consumers.
        deliver_group: The queue group, for push consumers. Its members share the messages.
        inactive_threshold: Seconds without a reader after which the consumer is removed (server default for ephemeral
            ones 5).
        num_replicas: Replicas of its state. With 0 or None it has as many as the stream.
        mem_storage: Keep its state in memory.
        direct: Used by the server itself for mirrors and sources.
        sourcing: Used by newer servers for mirrors and sources, in place of `direct` (server 2.14).
        metadata: Keys and values for people and tools (server 2.10). Keys that begin with `_nats.` are the server's.
        pause_until: Deliver nothing before this point in time (server 2.11).
        priority_groups: Names of its priority groups (server 2.11). Today there can be one.
        priority_policy: The way in which readers of a group share the messages, which is overflow, pinned_client
            (server 2.11) or prioritized (server 2.12).
        priority_timeout: Seconds of silence after which a pinned reader loses its place (server 2.11).

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str | None = None
    durable_name: str | None = None
    description: str | None = None
    deliver_policy: DeliverWord | None = None
    opt_start_seq: int | None = None
    opt_start_time: Timestamp | None = None
    ack_policy: AckWord | None = None
    ack_wait: Seconds | None = None
    max_deliver: int | None = None
    backoff: Delays | None = None
    filter_subject: str | None = None
    filter_subjects: list[str] | None = None
    replay_policy: ReplayWord | None = None
    rate_limit_bps: int | None = None
    sample_freq: str | None = None
    max_waiting: int | None = None
    max_ack_pending: int | None = None
    flow_control: bool | None = None
    idle_heartbeat: Seconds | None = None
    headers_only: bool | None = None
    max_batch: int | None = None
    max_expires: Seconds | None = None
    max_bytes: int | None = None
    deliver_subject: str | None = None
    deliver_group: str | None = None
    inactive_threshold: Seconds | None = None
    num_replicas: int | None = None
    mem_storage: bool | None = None
    direct: bool | None = None
    sourcing: bool | None = None
    metadata: dict[str, str] | None = None
    pause_until: Timestamp | None = None
    priority_groups: list[str] | None = None
    priority_policy: PriorityWord | None = None
    priority_timeout: Seconds | None = None

    if TYPE_CHECKING:

        def replace(self, **changes: Unpack[ConsumerConfigDict]) -> ConsumerConfig: ...  # type: ignore[override]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ack_policy is None:
            msgspec.structs.force_setattr(self, "ack_policy", AckPolicy.EXPLICIT)

    @property
    def effective_name(self) -> str | None:
        """The name under which the server knows the consumer; None if it is still to be generated."""
        return self.name or self.durable_name or None

    @property
    def is_push(self) -> bool:
        """True with a deliver subject."""
        return bool(self.deliver_subject)

    def check(self) -> None:
        """Refuse invalid settings before they reach the server. Raises ConfigError, InvalidName or InvalidSubject."""
        for name in (self.name, self.durable_name):
            if name is not None:
                names.check_consumer(name)
        if self.name and self.durable_name and self.name != self.durable_name:
            raise InvalidName(
                f"name {self.name!r} and durable_name {self.durable_name!r} must be equal, or set one only"
            )
        if self.filter_subject:
            names.check_subject(self.filter_subject, "filter_subject", wildcards=True)
        names.check_filters(self.filter_subjects, "filter_subjects")
        if self.filter_subject and self.filter_subjects:
            raise ConfigError("filter_subject and filter_subjects exclude each other: put all into filter_subjects")
        check_choices(self, CHOICES)
        check_types(self)
        for name in ("opt_start_seq", "max_waiting", "max_batch", "max_bytes", "rate_limit_bps", "num_replicas"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        self._check_start()
        if self.backoff and self.max_deliver is not None and 0 <= self.max_deliver <= len(self.backoff):
            raise ConfigError(f"max_deliver must be larger than the {len(self.backoff)} entries of backoff, or -1")
        if self.deliver_subject:
            names.check_subject(self.deliver_subject, "deliver_subject")

    def _check_start(self) -> None:
        for field, policy in (("opt_start_seq", "by_start_sequence"), ("opt_start_time", "by_start_time")):
            given, wanted = bool(getattr(self, field)), self.deliver_policy == policy
            if given and not wanted:
                raise ConfigError(f"{field} needs deliver_policy={policy!r}")
            if wanted and not given:
                raise ConfigError(f"deliver_policy={policy!r} needs {field}")

    def check_pull(self) -> None:
        """Refuse settings that only push consumers have."""
        push_only = ("deliver_subject", "deliver_group", "flow_control", "idle_heartbeat", "rate_limit_bps")
        if given := [name for name in push_only if getattr(self, name)]:
            raise ConfigError(f"{', '.join(given)}: only for push consumers; use create_push_consumer, or leave it out")

    def check_push(self) -> None:
        """Refuse settings that only pull consumers have, and a missing deliver_subject."""
        if not self.deliver_subject:
            raise ConfigError("a push consumer needs deliver_subject, such as nc.new_inbox()")
        pull_only = ("max_waiting", "max_batch", "max_expires", "max_bytes", "priority_groups")
        if given := [name for name in pull_only if getattr(self, name)]:
            raise ConfigError(f"{', '.join(given)}: only for pull consumers; use create_consumer, or leave it out")
        if self.flow_control and not self.idle_heartbeat:
            raise ConfigError("flow_control needs idle_heartbeat, such as 5.0 seconds")


class SequenceInfo(OpenWire, kw_only=True, frozen=True):
    """A position: the consumer's own count and the sequence in the stream.

    Attributes:
        consumer_seq: Number of the delivery, counted by the consumer.
        stream_seq: Sequence of the message in the stream.
        last_active: When it changed last (UTC), or None if it never did.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: Timestamp | None = None


class PriorityGroupState(OpenWire, kw_only=True, frozen=True):
    """A priority group of a consumer, and the client that is pinned there.

    Attributes:
        group: Name of the group.
        pinned_client_id: Id of the pinned client, or "" if there is none.
        pinned_ts: Since when it is pinned (UTC).

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    group: str = ""
    pinned_client_id: str = ""
    pinned_ts: Timestamp | None = None


class ConsumerInfo(OpenWire, kw_only=True, frozen=True):
    """The state of a consumer, as the server reports it.

    `num_pending` counts the matching messages that are still to be delivered. `num_ack_pending` counts the delivered
    messages without an ack, `num_waiting` the pulls that wait. `pause_remaining` is seconds.

    Attributes:
        stream_name: The stream that it reads.
        name: Its name.
        config: Its configuration.
        created: When it was made (UTC).
        delivered: The newest delivery.
        ack_floor: Up to here every message is acknowledged.
        num_ack_pending: Messages that were delivered and are not acknowledged.
        num_redelivered: Of these, messages that were delivered more than once.
        num_waiting: Pulls that wait for messages.
        num_pending: Messages that match and were not delivered yet.
        cluster: Its leader and replicas, or None on a single server.
        push_bound: True if a client is subscribed to the deliver subject of a push consumer.
        paused: True if it is paused and delivers nothing (server 2.11).
        pause_remaining: Seconds until it continues.
        priority_groups: Its priority groups and the clients pinned there (server 2.11).
        ts: The server's clock at the answer (UTC, server 2.10).
        reset_seq: The stream sequence to which a reset has set it, or None.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    stream_name: str
    name: str
    config: ConsumerConfig
    created: Timestamp | None = None
    delivered: SequenceInfo = SequenceInfo()
    ack_floor: SequenceInfo = SequenceInfo()
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Duration | None = None
    priority_groups: list[PriorityGroupState] | None = None
    ts: Timestamp | None = None
    reset_seq: int | None = None


class PauseState(OpenWire, kw_only=True, frozen=True):
    """The answer to pause and resume; `pause_remaining` is seconds.

    Attributes:
        paused: True if it is paused.
        pause_until: The end of the pause (UTC).
        pause_remaining: Seconds until then.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    paused: bool = False
    pause_until: Timestamp | None = None
    pause_remaining: Duration | None = None
