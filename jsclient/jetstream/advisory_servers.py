"""Events that name a client or a server: audits, snapshots, the meta group, events of the system account."""

from __future__ import annotations

from typing import ClassVar

from jsclient.jetstream.advisory_models import ADVISORIES, Advisory, OfStream, Peer
from jsclient.jetstream.api.model_base import Duration, Timestamp, Wire

__all__ = [
    "AccountConnections",
    "ApiAudit",
    "ClientConnected",
    "ClientDisconnected",
    "DomainLeader",
    "EventClient",
    "EventServer",
    "MetaRescue",
    "PeerLinkInvalid",
    "PeerRejected",
    "RestoreCompleted",
    "RestoreCreated",
    "ServerOutOfSpace",
    "ServerRemoved",
    "ServiceLatency",
    "SnapshotCompleted",
    "SnapshotCreated",
]


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
