"""The servers that hold a stream or consumer, those that should hold it, and the steps of a change between them."""

from __future__ import annotations

from typing import Final

from jsclient.jetstream.api.model_base import Duration, OpenWire, Timestamp


class Placement(OpenWire, kw_only=True, frozen=True):
    """The servers on which a stream may have replicas.

    Attributes:
        cluster: Name of the cluster.
        tags: Tags that the servers must have.
        preferred: Name of the server that should lead (server 2.11).

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    cluster: str | None = None
    tags: list[str] | None = None
    preferred: str | None = None


class PeerInfo(OpenWire, kw_only=True, frozen=True):
    """A replica. `active` is the seconds since its last contact, `lag` the number of operations that it is behind.

    Attributes:
        name: Name of the server.
        current: It has everything that the leader has.
        offline: The leader has not heard of it for a while.
        observer: It only observes and cannot lead.
        active: Seconds since the leader heard of it.
        lag: Operations that it is behind.
        peer: Its id in the raft group.
        pending: The peer is assigned and not yet in the raft group, or is being removed from it (server 2.15).

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str = ""
    current: bool = False
    offline: bool = False
    observer: bool = False
    active: Duration | None = None
    lag: int = 0
    peer: str = ""
    pending: bool = False


class DesiredPeerInfo(OpenWire, kw_only=True, frozen=True):
    """A server that should hold a stream or consumer (server 2.15).

    Attributes:
        name: Name of the server.
        offline: The leader has not heard of it for a while.
        peer: Its id in the raft group.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str = ""
    offline: bool = False
    peer: str = ""


class DesiredClusterInfoOrigin(OpenWire, kw_only=True, frozen=True):
    """The configuration before the change (server 2.15).

    Attributes:
        replicas: Number of replicas.
        placement: Its placement, or None if it had none.
        retention: The retention of the stream, or "" if it stays the same.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    replicas: int = 0
    placement: Placement | None = None
    retention: str = ""


class MigrationStatus:
    """The next step of a change of servers (server 2.15).

    Values:
        META: The leader of the meta group must record the next step.
        MEMBERSHIP: The raft group must agree to a new member, or to the loss of one.
        SNAPSHOT: The state must be written to a snapshot first.
        CATCHUP: New servers must receive what they lack.
        QUORUM: More servers must come online, or the raft group would lose its quorum.
        BLOCKED: A consumer of the stream, or the stream of the consumer, must move first.
        UNAVAILABLE: The server shuts down, or the stream or consumer is gone.
    """

    META: Final = "meta"
    MEMBERSHIP: Final = "membership"
    SNAPSHOT: Final = "snapshot"
    CATCHUP: Final = "catchup"
    QUORUM: Final = "quorum"
    BLOCKED: Final = "blocked"
    UNAVAILABLE: Final = "unavailable"


class DesiredClusterInfoStatus(OpenWire, kw_only=True, frozen=True):
    """The step of a change of servers that the leader works on (server 2.15).

    Attributes:
        type: One of the words of MigrationStatus.
        description: The server's text.
        err: The error that holds it up, or "" if there is none.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    type: str = ""
    description: str = ""
    err: str = ""


class DesiredClusterInfo(OpenWire, kw_only=True, frozen=True):
    """The servers that should hold a stream or consumer, while a change of servers is in progress (server 2.15).

    Attributes:
        created: When the change was requested (UTC).
        name: Name of the cluster.
        replicas: The servers.
        origin: The configuration before the change.
        status: The step that the leader works on, or None before the first one.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    created: Timestamp | None = None
    name: str = ""
    replicas: list[DesiredPeerInfo] | None = None
    origin: DesiredClusterInfoOrigin | None = None
    status: DesiredClusterInfoStatus | None = None


class ClusterInfo(OpenWire, kw_only=True, frozen=True):
    """The server that leads a stream or consumer, and those that follow.

    Attributes:
        name: Name of the cluster.
        raft_group: Name of the raft group.
        leader: Name of the server that leads, or "" while there is no leader.
        leader_since: Since when it leads (UTC).
        system_account: Replication runs in the system account.
        traffic_account: The account in which replication runs.
        replicas: The other servers that hold it.
        desired: The servers that should hold it. None unless a change of servers is in progress (server 2.15).

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: Timestamp | None = None
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[PeerInfo] | None = None
    desired: DesiredClusterInfo | None = None
