"""The servers that hold a stream or consumer: those that do, those that shall, and what a change of them waits for."""

from __future__ import annotations

from typing import Final

from jsclient.jetstream.api.model_base import Duration, OpenWire, Timestamp
from protocol.described import described


class Placement(OpenWire, kw_only=True, frozen=True):
    """The servers on which a stream may have replicas."""

    cluster: str | None = None
    """Name of the cluster."""
    tags: list[str] | None = None
    """Tags that the servers must have."""
    preferred: str | None = None
    """Name of the server that shall lead (server 2.11)."""


class PeerInfo(OpenWire, kw_only=True, frozen=True):
    """A replica; `active` is seconds since it was heard of, `lag` how many operations it is behind."""

    name: str = ""
    """Name of the server."""
    current: bool = False
    """It has everything that the leader has."""
    offline: bool = False
    """The leader has not heard of it for a while."""
    observer: bool = False
    """It only observes and cannot lead."""
    active: Duration | None = None
    """Seconds since the leader heard of it."""
    lag: int = 0
    """Operations that it is behind."""
    peer: str = ""
    """Its id in the raft group."""
    pending: bool = False
    """The peer is assigned and not yet in the raft group, or is being removed from it (server 2.15)."""


class DesiredPeerInfo(OpenWire, kw_only=True, frozen=True):
    """A server that shall hold a stream or consumer (server 2.15)."""

    name: str = ""
    """Name of the server."""
    offline: bool = False
    """The leader has not heard of it for a while."""
    peer: str = ""
    """Its id in the raft group."""


class DesiredClusterInfoOrigin(OpenWire, kw_only=True, frozen=True):
    """The configuration before the change (server 2.15)."""

    replicas: int = 0
    """Number of replicas."""
    placement: Placement | None = None
    """Its placement; None if it had none."""
    retention: str = ""
    """The retention of the stream; "" if it stays the same."""


@described
class MigrationStatus:
    """The next step of a change of servers (server 2.15)."""

    META: Final = "meta"
    """The leader of the meta group must record the next step."""
    MEMBERSHIP: Final = "membership"
    """The raft group must agree to a new member, or to the loss of one."""
    SNAPSHOT: Final = "snapshot"
    """The state must be written down first."""
    CATCHUP: Final = "catchup"
    """New servers must receive what they lack."""
    QUORUM: Final = "quorum"
    """More servers must come online, or the raft group would lose its quorum."""
    BLOCKED: Final = "blocked"
    """A consumer of the stream, or the stream of the consumer, must move first."""
    UNAVAILABLE: Final = "unavailable"
    """The server shuts down, or the stream or consumer is gone."""


class DesiredClusterInfoStatus(OpenWire, kw_only=True, frozen=True):
    """The step of a change of servers that the leader works on (server 2.15)."""

    type: str = ""
    """One of the words of MigrationStatus."""
    description: str = ""
    """The server's text."""
    err: str = ""
    """The error that holds it up; "" if there is none."""


class DesiredClusterInfo(OpenWire, kw_only=True, frozen=True):
    """The servers that shall hold a stream or consumer, while a change of servers is under way (server 2.15)."""

    created: Timestamp | None = None
    """When the change was requested (UTC)."""
    name: str = ""
    """Name of the cluster."""
    replicas: list[DesiredPeerInfo] | None = None
    """The servers."""
    origin: DesiredClusterInfoOrigin | None = None
    """The configuration before the change."""
    status: DesiredClusterInfoStatus | None = None
    """The step that the leader works on; None before the first one."""


class ClusterInfo(OpenWire, kw_only=True, frozen=True):
    """The server that leads a stream or consumer, and those that follow."""

    name: str = ""
    """Name of the cluster."""
    raft_group: str = ""
    """Name of the raft group."""
    leader: str = ""
    """Name of the server that leads; "" while none does."""
    leader_since: Timestamp | None = None
    """Since when it leads (UTC)."""
    system_account: bool = False
    """Replication runs in the system account."""
    traffic_account: str = ""
    """The account in which replication runs."""
    replicas: list[PeerInfo] | None = None
    """The other servers that hold it."""
    desired: DesiredClusterInfo | None = None
    """The servers that shall hold it; None unless a change of servers is under way (server 2.15)."""
