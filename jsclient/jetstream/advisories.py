"""Advisories: the server's reports about streams and consumers, as typed events.

    with js.advisories(MaxDeliveries, stream="ORDERS") as events:
        for event in events:
            bury(event.stream, event.stream_seq)

Advisories are core messages: the server does not keep them for an absent client. If you must not miss any, create a
stream on `$JS.EVENT.ADVISORY.>` and decode its messages with `parse_advisory`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from jsclient import handlers
from jsclient.durations import DEFAULT, Timeout
from jsclient.errors import BadResponse, ConfigError, brief
from jsclient.jetstream.api import model_base, names
from jsclient.jetstream.api.model_base import Duration, Timestamp, Wire

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.message import Msg
    from jsclient.subscription import Subscription

log: logging.Logger = logging.getLogger("jsclient.jetstream")

ADVISORIES: Final = "$JS.EVENT.ADVISORY"
METRICS: Final = "$JS.EVENT.METRIC"
_TYPE: Final = "io.nats.jetstream."


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


class EventClient(Wire, kw_only=True, frozen=True):
    """A client, as events name it.

    Attributes:
        id: Its number on the server.
        name: The name that it gave itself.
        acc: Its account.
        user: Its user.
        host: Its address.
        server: Name of the server.
        cluster: Cluster of the server.
        lang: Its client library.
        ver: Version of the client library.
        kind: Client, or another word of the server.
        client_type: nats, mqtt or websocket.
        rtt: Seconds of a round trip.
        start: When it connected (UTC).
        stop: When it disconnected (UTC).
    """

    id: int = 0
    name: str = ""
    acc: str = ""
    user: str = ""
    host: str = ""
    server: str = ""
    cluster: str = ""
    lang: str = ""
    ver: str = ""
    kind: str = ""
    client_type: str = ""
    rtt: Duration | None = None
    start: Timestamp | None = None
    stop: Timestamp | None = None


class EventServer(Wire, kw_only=True, frozen=True):
    """A server, as events name it.

    Attributes:
        name: Its name.
        id: Its id.
        host: Its host.
        cluster: Its cluster.
        domain: Its JetStream domain.
        ver: Its version.
    """

    name: str = ""
    id: str = ""
    host: str = ""
    cluster: str = ""
    domain: str = ""
    ver: str = ""


class ApiAudit(Advisory, kw_only=True, frozen=True):
    """A client used the JetStream API.

    Attributes:
        server: Name of the server.
        client: The client that asked for it.
        api_subject: The subject of the request.
        request: The request, as JSON.
        response: The answer, as JSON.

    It also has the fields of `Advisory`.
    """

    server: str = ""
    client: EventClient = EventClient()
    api_subject: str = ""
    request: str = ""
    response: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.API"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.api_audit",)


class SnapshotCreated(OfStream, kw_only=True, frozen=True):
    """A snapshot of a stream began.

    Attributes:
        client: The client that asked for it.

    It also has `stream` and the fields of `Advisory`.
    """

    client: EventClient = EventClient()
    subject: ClassVar[str] = f"{ADVISORIES}.STREAM.SNAPSHOT_CREATE.{{stream}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.snapshot_create",)


class SnapshotCompleted(OfStream, kw_only=True, frozen=True):
    """A snapshot of a stream ended.

    Attributes:
        client: The client that asked for it.
        start: When it began (UTC).
        end: When it ended (UTC).
        error: The reason of a failure; "" if it is complete.

    It also has `stream` and the fields of `Advisory`.
    """

    client: EventClient = EventClient()
    start: Timestamp | None = None
    end: Timestamp | None = None
    error: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.STREAM.SNAPSHOT_COMPLETE.{{stream}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.snapshot_complete",)


class RestoreCreated(OfStream, kw_only=True, frozen=True):
    """The restore of a stream began.

    Attributes:
        client: The client that asked for it.

    It also has `stream` and the fields of `Advisory`.
    """

    client: EventClient = EventClient()
    subject: ClassVar[str] = f"{ADVISORIES}.STREAM.RESTORE_CREATE.{{stream}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.restore_create",)


class RestoreCompleted(OfStream, kw_only=True, frozen=True):
    """The restore of a stream ended.

    Attributes:
        client: The client that asked for it.
        start: When it began (UTC).
        end: When it ended (UTC).
        bytes: Bytes of the snapshot.

    It also has `stream` and the fields of `Advisory`.
    """

    client: EventClient = EventClient()
    start: Timestamp | None = None
    end: Timestamp | None = None
    bytes: int = 0
    subject: ClassVar[str] = f"{ADVISORIES}.STREAM.RESTORE_COMPLETE.{{stream}}"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.restore_complete",)


class DomainLeader(Advisory, kw_only=True, frozen=True):
    """The meta group of a domain has a new leader.

    Attributes:
        leader: Name of the server.
        replicas: The other servers.
        cluster: Its cluster.

    It also has the fields of `Advisory`.
    """

    leader: str = ""
    replicas: list[Peer] | None = None
    cluster: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.DOMAIN.LEADER_ELECTED"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.domain_leader_elected",)


class ServerOutOfSpace(Advisory, kw_only=True, frozen=True):
    """JetStream of a server has no space left.

    Attributes:
        server: Name of the server.
        server_id: Its id.
        stream: The stream that needed space.
        cluster: Its cluster.

    It also has the fields of `Advisory`.
    """

    server: str = ""
    server_id: str = ""
    stream: str = ""
    cluster: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.SERVER.OUT_OF_STORAGE"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.server_out_of_space",)


class ServerRemoved(Advisory, kw_only=True, frozen=True):
    """An administrator removed a server from the meta group.

    Attributes:
        server: Name of the server.
        server_id: Its id.
        cluster: Its cluster.

    It also has the fields of `Advisory`.
    """

    server: str = ""
    server_id: str = ""
    cluster: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.SERVER.REMOVED"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.server_removed",)


class MetaRescue(Advisory, kw_only=True, frozen=True):
    """An administrator lowered the quorum of the meta group for a rescue.

    Attributes:
        server: Name of the server.
        server_id: Its id.
        prev_quorum: The quorum before.
        new_quorum: The quorum now.
        cluster: Its cluster.

    It also has the fields of `Advisory`.
    """

    server: str = ""
    server_id: str = ""
    prev_quorum: int = 0
    new_quorum: int = 0
    cluster: str = ""
    subject: ClassVar[str] = f"{ADVISORIES}.SERVER.META_RESCUE"
    _events: ClassVar[tuple[str, ...]] = ("advisory.v1.meta_rescue",)


class ClientConnected(Advisory, kw_only=True, frozen=True):
    """A client connected; only the system account receives it.

    Attributes:
        server: The server.
        client: The client.

    It also has the fields of `Advisory`.
    """

    server: EventServer = EventServer()
    client: EventClient = EventClient()
    subject: ClassVar[str] = "$SYS.ACCOUNT.*.CONNECT"
    _events: ClassVar[tuple[str, ...]] = ("io.nats.server.advisory.v1.client_connect",)


class ClientDisconnected(Advisory, kw_only=True, frozen=True):
    """A client disconnected; only the system account receives it.

    Attributes:
        server: The server.
        client: The client.
        reason: The reason, in the server's words.

    It also has the fields of `Advisory`.
    """

    server: EventServer = EventServer()
    client: EventClient = EventClient()
    reason: str = ""
    subject: ClassVar[str] = "$SYS.ACCOUNT.*.DISCONNECT"
    _events: ClassVar[tuple[str, ...]] = ("io.nats.server.advisory.v1.client_disconnect",)


class AccountConnections(Advisory, kw_only=True, frozen=True):
    """The clients of an account on one server; only the system account receives it.

    Attributes:
        server: The server.
        acc: The account.
        conns: Clients that are connected.
        leafnodes: Leaf nodes that are connected.
        total_conns: Clients and leaf nodes.

    It also has the fields of `Advisory`.
    """

    server: EventServer = EventServer()
    acc: str = ""
    conns: int = 0
    leafnodes: int = 0
    total_conns: int = 0
    subject: ClassVar[str] = "$SYS.ACCOUNT.*.SERVER.CONNS"
    _events: ClassVar[tuple[str, ...]] = ("io.nats.server.advisory.v1.account_connections",)


class PeerRejected(Advisory, kw_only=True, frozen=True):
    """OCSP led to the end of a TLS handshake; only the system account receives it.

    Attributes:
        server: The server.
        kind: Client, or another word of the server.
        peer: The certificate of the peer.
        reason: The reason, in the server's words.

    It also has the fields of `Advisory`.
    """

    server: EventServer = EventServer()
    kind: str = ""
    peer: dict[str, str] = {}
    reason: str = ""
    subject: ClassVar[str] = "$SYS.SERVER.*.OCSP.PEER.CONN.REJECT"
    _events: ClassVar[tuple[str, ...]] = ("io.nats.server.advisory.v1.ocsp_peer_reject",)


class PeerLinkInvalid(Advisory, kw_only=True, frozen=True):
    """OCSP found a revoked certificate in a chain; only the system account receives it.

    Attributes:
        server: The server.
        link: The certificate that was revoked.
        peer: The certificate of the peer.
        reason: The reason, in the server's words.

    It also has the fields of `Advisory`.
    """

    server: EventServer = EventServer()
    link: dict[str, str] = {}
    peer: dict[str, str] = {}
    reason: str = ""
    subject: ClassVar[str] = "$SYS.SERVER.*.OCSP.PEER.LINK.INVALID"
    _events: ClassVar[tuple[str, ...]] = ("io.nats.server.advisory.v1.ocsp_peer_link_invalid",)


class ServiceLatency(Advisory, kw_only=True, frozen=True):
    """A measurement of an exported service, on the subject that the account names; parse it with `parse_advisory`.

    Attributes:
        status: HTTP-like number; 200 if the service answered.
        description: The error; empty without one.
        requestor: The client that asked.
        responder: The client that answered.
        start: When the request began (UTC).
        service: Seconds in the service.
        system: Seconds within the servers.
        total: Seconds in total.

    It also has the fields of `Advisory`.
    """

    status: int = 0
    description: str = ""
    requestor: EventClient | None = None
    responder: EventClient | None = None
    start: Timestamp | None = None
    service: Duration | None = None
    system: Duration | None = None
    total: Duration | None = None
    subject: ClassVar[str] = ""
    _events: ClassVar[tuple[str, ...]] = ("io.nats.server.metric.v1.service_latency",)


_CLASSES: Final[tuple[type[Advisory], ...]] = (
    *(MaxDeliveries, MessageNaked, MessageTerminated, ConsumerPaused, ConsumerAction, ConsumerPinned),
    *(ConsumerUnpinned, ConsumerLeader, StreamLeader, StreamAction, BatchAbandoned, ApiLimitReached, AckSample),
    *(ApiAudit, SnapshotCreated, SnapshotCompleted, RestoreCreated, RestoreCompleted),
    *(DomainLeader, ServerOutOfSpace, ServerRemoved, MetaRescue, ClientConnected),
    *(ClientDisconnected, AccountConnections, PeerRejected, PeerLinkInvalid, ServiceLatency),
)
KINDS: Final = {kind if kind.startswith("io.") else _TYPE + kind: cls for cls in _CLASSES for kind in cls._events}
"""Kind of event, in the server's words, -> its class."""

E = TypeVar("E", bound=Advisory)


def parse_advisory(data: bytes) -> Advisory:
    """The event in the payload of an advisory; unknown kinds become `Advisory`. Raises BadResponse."""
    plain = model_base.decode_json(data)
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise BadResponse(f"not an advisory: {data[:80]!r}", data)
    cls = KINDS.get(plain["type"], Advisory)
    fields = {**plain, "raw": plain}
    if cls is ApiAudit:  # `subject` is where a kind of event is published
        fields["api_subject"] = fields.pop("subject", "")
    return model_base.from_wire(fields, cls)


class Advisories(Generic[E]):
    """A subscription to events: iterate, or `next(timeout)`; close it, or leave its `with` block. Thread-safe.

    You get one from `js.advisories()`. With a callback, a worker thread passes the events to it instead.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self,
        nc: Connection,
        kind: type[E],
        *,
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[E], Any] | None = None,
    ) -> None:
        self._kind = kind
        self._stream = stream
        self._consumer = consumer
        handlers.check(callback, "callback")
        self._callback = callback
        subject = event_subject(kind, stream, consumer)
        self._subscription: Subscription = nc.subscribe(subject, self._handle if callback is not None else None)

    def _handle(self, message: Msg) -> None:
        event = self._wanted(message)
        if event is not None and self._callback is not None:
            handlers.ran(self._callback(event))

    def _wanted(self, message: Msg) -> E | None:
        """The event, if it is of the requested kind: some kinds share their subjects with others."""
        try:
            event = parse_advisory(message.data)
        except BadResponse as error:  # others may publish there, too
            log.warning("%s on %s", brief(error), message.subject)
            return None
        return event if isinstance(event, self._kind) else None

    def next(self, timeout: Timeout = DEFAULT) -> E:
        """The next event; raises TimedOut if none came in time."""
        while True:
            event = self._wanted(self._subscription.next(timeout))
            if event is not None:
                return event

    def __iter__(self) -> Advisories[E]:
        return self

    def __next__(self) -> E:
        while True:
            event = self._wanted(next(self._subscription))
            if event is not None:
                return event

    def close(self) -> None:
        """Unsubscribe; iterations end."""
        self._subscription.close()

    def __enter__(self) -> Advisories[E]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def event_subject(kind: type[Advisory], stream: str | None = None, consumer: str | None = None) -> str:
    """The subject of a kind of event, for one stream and consumer or for all."""
    if not (isinstance(kind, type) and issubclass(kind, Advisory)):
        raise ConfigError(f"kind must be a class of events such as MaxDeliveries, not {kind!r}")
    if (stream is not None and "{stream}" not in kind.subject) or (
        consumer is not None and "{consumer}" not in kind.subject
    ):
        raise ConfigError(f"{kind.__name__} events are not told apart by stream or consumer: leave these out")
    return kind.subject.format(
        stream="*" if stream is None else names.check_stream(stream),
        consumer="*" if consumer is None else names.check_consumer(consumer),
    )
