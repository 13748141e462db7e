"""Events about streams and consumers, as typed values; `jsclient.jetstream.advisories` subscribes to them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from jsclient.jetstream.api.model_base import Duration, Timestamp, Wire

__all__ = [
    "AckSample",
    "Advisory",
    "ApiLimitReached",
    "BatchAbandoned",
    "ConsumerAction",
    "ConsumerLeader",
    "ConsumerPaused",
    "ConsumerPinned",
    "ConsumerUnpinned",
    "MaxDeliveries",
    "MessageNaked",
    "MessageTerminated",
    "OfConsumer",
    "OfStream",
    "Peer",
    "StreamAction",
    "StreamLeader",
]

ADVISORIES: Final = "$JS.EVENT.ADVISORY"
METRICS: Final = "$JS.EVENT.METRIC"


class Advisory(Wire, kw_only=True, frozen=True):
    """Base of all events; kinds without their own class arrive as this, with everything in `raw`.

    Attributes:
        type: The kind of event, in the server's words.
        id: Unique id of the event.
        timestamp: When it happened, by the server's clock (UTC).
        account: The account that it concerns; "" if the server does not name it.
        domain: The JetStream domain; "" if there is none.
        raw: Everything the server sent, as plain values.
    """

    type: str = ""
    id: str = ""
    timestamp: Timestamp | None = None
    account: str = ""
    domain: str = ""
    raw: dict[str, Any] = {}

    subject: ClassVar[str] = f"{ADVISORIES}.>"
    _events: ClassVar[tuple[str, ...]] = ()


class OfStream(Advisory, kw_only=True, frozen=True):
    """Base of events about a stream.

    Attributes:
        stream: Name of the stream.

    It also has the fields of `Advisory`.
    """

    stream: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.STREAM.*.{{stream}}"


class OfConsumer(Advisory, kw_only=True, frozen=True):
    """Base of events about a consumer.

    Attributes:
        stream: Name of the stream.
        consumer: Name of the consumer.

    It also has the fields of `Advisory`.
    """

    stream: str = ""
    consumer: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.*.{{stream}}.{{consumer}}"


class MaxDeliveries(OfConsumer, kw_only=True, frozen=True):
    """A message was delivered max_deliver times without an ack, so the consumer will not deliver it again.

    Attributes:
        stream_seq: Sequence of the message in the stream.
        deliveries: Number of times that the message was delivered.

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    stream_seq: int = 0
    deliveries: int = 0
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.MAX_DELIVERIES.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.max_deliver",)


class MessageNaked(OfConsumer, kw_only=True, frozen=True):
    """A client returned a message with nak.

    Attributes:
        stream_seq: Sequence of the message in the stream.
        consumer_seq: Number of the delivery, counted by the consumer.
        deliveries: Number of times that the message was delivered.

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    stream_seq: int = 0
    consumer_seq: int = 0
    deliveries: int = 0
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.MSG_NAKED.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.nak",)


class MessageTerminated(OfConsumer, kw_only=True, frozen=True):
    """A message was given up with term; `reason` since server 2.10.4.

    Attributes:
        stream_seq: Sequence of the message in the stream.
        consumer_seq: Number of the delivery, counted by the consumer.
        deliveries: Number of times that the message was delivered.
        reason: The reason given to `term`; "" without one.

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    stream_seq: int = 0
    consumer_seq: int = 0
    deliveries: int = 0
    reason: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.MSG_TERMINATED.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.terminated",)


class ConsumerPaused(OfConsumer, kw_only=True, frozen=True):
    """A consumer was paused (until `pause_until`), or resumed (`paused` is False). Server 2.11.

    Attributes:
        paused: True if it was paused; False if it was resumed.
        pause_until: The end of the pause (UTC).

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    paused: bool = False
    pause_until: Timestamp | None = None
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.PAUSE.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.consumer_pause",)


class ConsumerAction(OfConsumer, kw_only=True, frozen=True):
    """A consumer was created or deleted; `action` is "create" or "delete".

    Attributes:
        action: "create" or "delete".

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    action: str = ""
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.consumer_action",)


class ConsumerPinned(OfConsumer, kw_only=True, frozen=True):
    """A client was pinned on a priority group. Server 2.11.

    Attributes:
        group: The priority group.
        pinned_id: Id of the client that receives the messages now.

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    group: str = ""
    pinned_id: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.PINNED.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.consumer_group_pinned",)


class ConsumerUnpinned(OfConsumer, kw_only=True, frozen=True):
    """The pinned client of a priority group lost its pin; `reason` is "admin" or "timeout". Server 2.11.

    Attributes:
        group: The priority group.
        reason: "admin" or "timeout".

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    group: str = ""
    reason: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.CONSUMER.UNPINNED.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.consumer_group_unpinned",)


class Peer(Wire, kw_only=True, frozen=True):
    """A replica, as leader events list them; `active` is seconds.

    Attributes:
        name: Name of the server.
        current: It has everything that the leader has.
        offline: The leader considers it to be gone.
        active: Seconds since the leader heard of it.
        lag: Number of operations that it is behind.
    """

    name: str = ""
    current: bool = False
    offline: bool = False
    active: Duration | None = None
    lag: int = 0


class ConsumerLeader(OfConsumer, kw_only=True, frozen=True):
    """A consumer has a new leader, or lost its quorum (`leader` is "").

    Attributes:
        leader: Name of the server that leads it now; "" when the quorum was lost.
        replicas: The other servers that hold it.

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    leader: str = ""
    replicas: list[Peer] | None = None
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.consumer_leader_elected", "advisory.v1.consumer_quorum_lost")


class StreamLeader(OfStream, kw_only=True, frozen=True):
    """A stream has a new leader, or lost its quorum (`leader` is "").

    Attributes:
        leader: Name of the server that leads it now; "" when the quorum was lost.
        replicas: The other servers that hold it.

    It also has `stream` and the fields of `Advisory`.
    """

    leader: str = ""
    replicas: list[Peer] | None = None
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.stream_leader_elected", "advisory.v1.stream_quorum_lost")


class StreamAction(OfStream, kw_only=True, frozen=True):
    """A stream was created, changed or deleted; `action` is "create", "modify" or "delete".

    Attributes:
        action: "create", "modify" or "delete".
        template: The template it was made from; only of old servers.

    It also has `stream` and the fields of `Advisory`.
    """

    action: str = ""
    template: str = ""
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.stream_action",)


class BatchAbandoned(OfStream, kw_only=True, frozen=True):
    """The server gave up an atomic batch; nothing of it is stored. Server 2.12.

    Attributes:
        batch: Id of the batch.
        reason: Why, in the server's words.

    It also has `stream` and the fields of `Advisory`.
    """

    batch: str = ""
    reason: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.STREAM.BATCH_ABANDONED.{{stream}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.stream_batch_abandoned",)


class ApiLimitReached(Advisory, kw_only=True, frozen=True):
    """The server dropped `dropped` API requests without an answer; their callers time out.

    Attributes:
        server: Name of the server.
        dropped: Requests that were dropped.

    It also has the fields of `Advisory`.
    """

    server: str = ""
    dropped: int = 0
    subject: ClassVar[str] = f"{ADVISORIES}.API.LIMIT_REACHED"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.api_limit_reached",)


class AckSample(OfConsumer, kw_only=True, frozen=True):
    """A sampled ack (the consumer's sample_freq); `ack_time` is seconds from delivery to ack.

    Attributes:
        stream_seq: Sequence of the message in the stream.
        consumer_seq: Number of the delivery, counted by the consumer.
        deliveries: Number of times that the message was delivered.
        ack_time: Seconds from the delivery to the ack.

    It also has `stream`, `consumer` and the fields of `Advisory`.
    """

    stream_seq: int = 0
    consumer_seq: int = 0
    deliveries: int = 0
    ack_time: Duration | None = None
    subject: ClassVar[str] = f"{METRICS}.CONSUMER.ACK.{{stream}}.{{consumer}}"
    _events: ClassVar[tuple[str, ...]] = ("metric.v1.consumer_ack",)
