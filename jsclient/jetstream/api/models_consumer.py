"""Consumers on the wire: configuration, info and state. All durations are float seconds (timedelta accepted)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from jsclient.errors import ConfigError, InvalidName
from jsclient.jetstream.api import names
from jsclient.jetstream.api.model_base import Delays, Duration, OpenWire, Seconds, Timestamp
from jsclient.jetstream.api.models_cluster import ClusterInfo
from jsclient.jetstream.api.models_stream import (
    check_choices,
    check_metadata,
    check_numbers,
    check_types,
)
from protocol.described import described

if TYPE_CHECKING:
    from jsclient.hints import Unpack
    from jsclient.jetstream.api.config_fields import ConsumerConfigDict

# The type checker knows the words of today; at run time they are any text, so that a newer server's words decode.
if TYPE_CHECKING:
    DeliverWord = Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]
    AckWord = Literal["explicit", "all", "none", "flow_control"]
    ReplayWord = Literal["instant", "original"]
    PriorityWord = Literal["none", "overflow", "pinned_client", "prioritized"]
else:
    DeliverWord = AckWord = ReplayWord = PriorityWord = str


@described
class DeliverPolicy:
    """Where a consumer begins."""

    ALL: Final = "all"
    """With the first message that the stream holds."""
    LAST: Final = "last"
    """With the last message of the stream."""
    NEW: Final = "new"
    """With what is stored from now on."""
    BY_START_SEQUENCE: Final = "by_start_sequence"
    """At `opt_start_seq`."""
    BY_START_TIME: Final = "by_start_time"
    """At `opt_start_time`."""
    LAST_PER_SUBJECT: Final = "last_per_subject"
    """With the last message of each subject."""


@described
class AckPolicy:
    """explicit: every message; all: an ack covers all before it; none: no acks; flow_control: server 2.14, push."""

    EXPLICIT: Final = "explicit"
    """Every message is acknowledged by itself."""
    ALL: Final = "all"
    """An ack covers all messages before it, too."""
    NONE: Final = "none"
    """Messages count as handled when they are sent."""
    FLOW_CONTROL: Final = "flow_control"
    """Push: the answer to flow control acknowledges (server 2.14)."""


@described
class ReplayPolicy:
    """As fast as possible, or in the rhythm in which the messages came in."""

    INSTANT: Final = "instant"
    """As fast as the reader takes them."""
    ORIGINAL: Final = "original"
    """At the pace at which they were stored."""


@described
class PriorityPolicy:
    """How pulls of a priority group are served (server 2.11; prioritized 2.12)."""

    NONE: Final = "none"
    """All pulls are equal."""
    OVERFLOW: Final = "overflow"
    """Pulls with min_pending or min_ack_pending are served only above that."""
    PINNED_CLIENT: Final = "pinned_client"
    """One client is served until it goes."""
    PRIORITIZED: Final = "prioritized"
    """Pulls with the lowest `priority` are served first (server 2.12)."""


CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "deliver_policy": ("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"),
    "ack_policy": ("explicit", "all", "none", "flow_control"),
    "replay_policy": ("instant", "original"),
    "priority_policy": ("none", "overflow", "pinned_client", "prioritized"),
}


class ConsumerConfig(OpenWire, kw_only=True, frozen=True):
    """The configuration of a consumer; what is None is left to the server, except `ack_policy`.

    `ack_policy` is "explicit" unless set (the server's own default would be "none"). `ack_wait` (server default
    30 s), `backoff`, `inactive_threshold` (server default for ephemeral ones 5 s), `max_expires`, `idle_heartbeat`
    and `priority_timeout` are seconds. `deliver_subject`, `deliver_group`, `flow_control`, `idle_heartbeat` and
    `rate_limit_bps` are for push consumers only. A setting of a newer server than the connected one is refused with
    NotSupported, because it would be ignored there.
    """

    name: str | None = None
    """Its name; without one, and without `durable_name`, the server makes one up."""
    durable_name: str | None = None
    """Its name, and it stays when nobody uses it."""
    description: str | None = None
    """Text for people."""
    deliver_policy: DeliverWord | None = None
    """Where it begins: all, last, new, last_per_subject, by_start_sequence, by_start_time."""
    opt_start_seq: int | None = None
    """The first sequence, with by_start_sequence."""
    opt_start_time: Timestamp | None = None
    """The first point in time, with by_start_time; with a zone."""
    ack_policy: AckWord | None = None
    """explicit: every message; all: an ack covers all before it; none: no acks; flow_control: push (server 2.14)."""
    ack_wait: Seconds | None = None
    """Seconds without an ack after which a message is delivered again (server default 30)."""
    max_deliver: int | None = None
    """Deliveries after which a message is given up; -1 without limit."""
    backoff: Delays | None = None
    """Seconds before each further delivery, instead of `ack_wait`."""
    filter_subject: str | None = None
    """Only messages of this subject; wildcards are allowed."""
    filter_subjects: list[str] | None = None
    """The same for several subjects (server 2.10)."""
    replay_policy: ReplayWord | None = None
    """instant, or original: at the pace at which the messages were stored."""
    rate_limit_bps: int | None = None
    """Push: at most so many bits per second."""
    sample_freq: str | None = None
    """Share of acks about which the server publishes an advisory, for example "10%"."""
    max_waiting: int | None = None
    """Pull: at most so many pulls wait at the same time (server default 512)."""
    max_ack_pending: int | None = None
    """At most so many messages without an ack; then delivery pauses (server default 1000)."""
    flow_control: bool | None = None
    """Push: the server waits for the client to keep up."""
    idle_heartbeat: Seconds | None = None
    """Push: seconds of silence after which the server sends a sign of life."""
    headers_only: bool | None = None
    """Deliver headers and the payload's size, without the payload."""
    max_batch: int | None = None
    """Pull: the largest batch that one pull may ask for."""
    max_expires: Seconds | None = None
    """Pull: the longest life of one pull, in seconds."""
    max_bytes: int | None = None
    """Pull: the most bytes that one pull may ask for."""
    deliver_subject: str | None = None
    """Push: where the server delivers."""
    deliver_group: str | None = None
    """Push: the queue group; its members share the messages."""
    inactive_threshold: Seconds | None = None
    """Seconds without a reader after which the consumer is removed (server default for ephemeral ones 5)."""
    num_replicas: int | None = None
    """Replicas of its state; 0 or None: as the stream."""
    mem_storage: bool | None = None
    """Keep its state in memory."""
    direct: bool | None = None
    """Used by the server itself for mirrors and sources."""
    sourcing: bool | None = None
    """Used by newer servers for mirrors and sources, in place of `direct` (server 2.14)."""
    metadata: dict[str, str] | None = None
    """Keys and values for people and tools (server 2.10); those that begin with `_nats.` are the server's."""
    pause_until: Timestamp | None = None
    """Deliver nothing before this point in time (server 2.11)."""
    priority_groups: list[str] | None = None
    """Names of its priority groups (server 2.11; one, today)."""
    priority_policy: PriorityWord | None = None
    """overflow, pinned_client (server 2.11) or prioritized (server 2.12): how readers of a group share the messages."""
    priority_timeout: Seconds | None = None
    """Seconds of silence after which a pinned reader loses its place (server 2.11)."""

    if TYPE_CHECKING:

        def replace(self, **changes: Unpack[ConsumerConfigDict]) -> ConsumerConfig: ...  # type: ignore[override]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ack_policy is None:
            msgspec.structs.force_setattr(self, "ack_policy", AckPolicy.EXPLICIT)

    @property
    def effective_name(self) -> str | None:
        """The name under which the server knows the consumer; None when it is to be generated."""
        return self.name or self.durable_name or None

    @property
    def is_push(self) -> bool:
        """True with a deliver subject."""
        return bool(self.deliver_subject)

    def check(self) -> None:
        """Refuse what must not or need not reach the server; raises ConfigError, InvalidName or InvalidSubject."""
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
        check_numbers(self)
        check_types(self)
        for name in ("opt_start_seq", "max_waiting", "max_batch", "max_bytes", "rate_limit_bps", "num_replicas"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        check_metadata(self.metadata)
        if isinstance(self.priority_groups, str):
            raise ConfigError(f"priority_groups must be a list: write [{self.priority_groups!r}]")
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
        """Refuse what only push consumers have."""
        push_only = ("deliver_subject", "deliver_group", "flow_control", "idle_heartbeat", "rate_limit_bps")
        if given := [name for name in push_only if getattr(self, name)]:
            raise ConfigError(f"{', '.join(given)}: only for push consumers; use create_push_consumer, or leave it out")

    def check_push(self) -> None:
        """Refuse what only pull consumers have, and a missing deliver_subject."""
        if not self.deliver_subject:
            raise ConfigError("a push consumer needs deliver_subject, such as nc.new_inbox()")
        pull_only = ("max_waiting", "max_batch", "max_expires", "max_bytes", "priority_groups")
        if given := [name for name in pull_only if getattr(self, name)]:
            raise ConfigError(f"{', '.join(given)}: only for pull consumers; use create_consumer, or leave it out")
        if self.flow_control and not self.idle_heartbeat:
            raise ConfigError("flow_control needs idle_heartbeat, such as 5.0 seconds")


class SequenceInfo(OpenWire, kw_only=True, frozen=True):
    """A position: the consumer's own count and the sequence in the stream."""

    consumer_seq: int = 0
    """Number of the delivery, counted by the consumer."""
    stream_seq: int = 0
    """Sequence of the message in the stream."""
    last_active: Timestamp | None = None
    """When it changed last (UTC); None when it never did."""


class PriorityGroupState(OpenWire, kw_only=True, frozen=True):
    """A priority group of a consumer, and the client that is pinned there."""

    group: str = ""
    """Name of the group."""
    pinned_client_id: str = ""
    """Id of the client that is served; "" when there is none."""
    pinned_ts: Timestamp | None = None
    """Since when it is (UTC)."""


class ConsumerInfo(OpenWire, kw_only=True, frozen=True):
    """What the server says about a consumer.

    `num_pending` messages match and were not delivered yet; `num_ack_pending` were delivered and not acknowledged;
    `num_waiting` pulls wait. `pause_remaining` is seconds.
    """

    stream_name: str
    """The stream that it reads."""
    name: str
    """Its name."""
    config: ConsumerConfig
    """Its configuration."""
    created: Timestamp | None = None
    """When it was made (UTC)."""
    delivered: SequenceInfo = SequenceInfo()
    """The newest delivery."""
    ack_floor: SequenceInfo = SequenceInfo()
    """Up to here every message is acknowledged."""
    num_ack_pending: int = 0
    """Messages that were delivered and are not acknowledged."""
    num_redelivered: int = 0
    """Of these, messages that were delivered more than once."""
    num_waiting: int = 0
    """Pulls that wait for messages."""
    num_pending: int = 0
    """Messages that match and were not delivered yet."""
    cluster: ClusterInfo | None = None
    """Its leader and replicas; None on a single server."""
    push_bound: bool = False
    """Push: somebody is subscribed to its deliver subject."""
    paused: bool = False
    """It is paused: nothing is delivered (server 2.11)."""
    pause_remaining: Duration | None = None
    """Seconds until it goes on."""
    priority_groups: list[PriorityGroupState] | None = None
    """Its priority groups and the clients pinned there (server 2.11)."""
    ts: Timestamp | None = None
    """The server's clock at the answer (UTC; server 2.10)."""
    reset_seq: int | None = None
    """The stream sequence to which a reset has set it; None otherwise."""


class PauseState(OpenWire, kw_only=True, frozen=True):
    """The answer to pause and resume; `pause_remaining` is seconds."""

    paused: bool = False
    """It is paused."""
    pause_until: Timestamp | None = None
    """Until when (UTC)."""
    pause_remaining: Duration | None = None
    """Seconds until then."""
