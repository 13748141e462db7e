"""A server as a whole, typed: its settings and what it counts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from jsclient.jetstream.api.model_base import Duration
from jsclient.system.models import JetStreamPart
from protocol.described import described


@described
class Traffic(msgspec.Struct, kw_only=True, frozen=True):
    """Messages in one direction since the server started, in total and by the kind of link."""

    msgs: int = 0
    """Messages."""
    bytes: int = 0
    """Their payloads and headers."""
    gateways: Traffic | None = None
    """Messages on links to other clusters; None if it has no such link."""
    routes: Traffic | None = None
    """Messages on links within the cluster; None if it has no such link."""
    leafs: Traffic | None = None
    """Messages on links of leaf nodes; None if it has no such link."""


@described
class LinkCounts(msgspec.Struct, kw_only=True, frozen=True):
    """Links that a server has closed since it started, by what was at the other end."""

    clients: int = 0
    """Clients."""
    routes: int = 0
    """Servers of its cluster."""
    gateways: int = 0
    """Servers of other clusters."""
    leafs: int = 0
    """Leaf nodes."""


@described
class Route(msgspec.Struct, kw_only=True, frozen=True):
    """A link of a server to another one of its cluster."""

    rid: int = 0
    """Its number on this server."""
    name: str = ""
    """Name of the other server."""
    sent: Traffic = Traffic()
    """Messages to it."""
    received: Traffic = Traffic()
    """Messages from it."""
    pending: int = 0
    """Bytes that wait for it."""


@described
class Gateway(msgspec.Struct, kw_only=True, frozen=True):
    """The link of a server to another cluster."""

    gwid: int = 0
    """Its number on this server."""
    name: str = ""
    """Name of the other cluster."""
    sent: Traffic = Traffic()
    """Messages to it."""
    received: Traffic = Traffic()
    """Messages from it."""
    inbound_connections: int = 0
    """Links from there."""


@described
class DiskWaits(msgspec.Struct, kw_only=True, frozen=True):
    """Threads of a server that wait for their turn at the disk."""

    waiters: int = 0
    """Threads that wait at the moment."""
    waits: int = 0
    """Number of waits so far."""
    wait_time: Duration = 0.0
    """Seconds of all waits together."""
    max_wait_time: Duration = 0.0
    """Seconds of the longest wait."""


@described
class ServerStats(msgspec.Struct, kw_only=True, frozen=True):
    """A server and how busy it is (STATSZ)."""

    start: dt.datetime | None = None
    """When it started."""
    mem: int = 0
    """Bytes of memory."""
    cores: int = 0
    """Cores of the machine."""
    cpu: float = 0.0
    """Per cent of a core."""
    connections: int = 0
    """Clients that are connected."""
    total_connections: int = 0
    """Clients since it started."""
    active_accounts: int = 0
    """Accounts with clients."""
    subscriptions: int = 0
    """Subscriptions, also of other servers."""
    sent: Traffic = Traffic()
    """Messages to clients."""
    received: Traffic = Traffic()
    """Messages from clients."""
    slow_consumers: int = 0
    """Clients that it has cut off since it started because they read too slowly."""
    active_servers: int = 1
    """Servers that it knows of, itself among them."""
    jetstream: JetStreamPart | None = None
    """JetStream; None where it is off."""
    sent_to_clients: Traffic = Traffic()
    """The part of `sent` that went to clients."""
    received_from_clients: Traffic = Traffic()
    """The part of `received` that came from clients."""
    routes: list[Route] | None = None
    """Its links to other servers of its cluster."""
    gateways: list[Gateway] | None = None
    """Its links to other clusters."""
    slow_consumer_stats: LinkCounts | None = None
    """Links that it has cut off because the other end read too slowly."""
    stale_connections: int = 0
    """Links that it has closed because the other end did not answer."""
    stale_connection_stats: LinkCounts | None = None
    """The same by the other end."""
    stalled_clients: int = 0
    """Number of times that it slowed down a client that published too fast."""
    gomemlimit: int = 0
    """Bytes of memory at which Go collects harder; 0: no limit."""
    gomaxprocs: int = 0
    """Cores that it uses."""


@described
class Variables(msgspec.Struct, kw_only=True, frozen=True):
    """Settings and figures of a server (VARZ)."""

    server_id: str = ""
    """Its id."""
    server_name: str = ""
    """Its name."""
    version: str = ""
    """Its version."""
    go: str = ""
    """The Go that it was built with."""
    host: str = ""
    """Address on which it listens for clients."""
    port: int = 0
    """Port on which it does."""
    max_connections: int = 0
    """Clients that it takes."""
    max_payload: int = 0
    """Bytes of the largest message."""
    max_pending: int = 0
    """Bytes that may wait for one client before it is cut off."""
    start: dt.datetime | None = None
    """When it started."""
    now: dt.datetime | None = None
    """Its clock."""
    config_load_time: dt.datetime | None = None
    """When it last read its configuration."""
    uptime: str = ""
    """Time since its start, such as 3h2m1s."""
    mem: int = 0
    """Bytes of memory."""
    cores: int = 0
    """Cores of the machine."""
    cpu: float = 0.0
    """Per cent of a core."""
    connections: int = 0
    """Clients that are connected."""
    total_connections: int = 0
    """Clients since it started."""
    routes: int = 0
    """Links to servers of its cluster."""
    remotes: int = 0
    """Servers of its cluster that it is linked with."""
    leafnodes: int = 0
    """Leaf nodes."""
    in_msgs: int = 0
    """Messages that clients have sent to it."""
    out_msgs: int = 0
    """Messages that it has sent to clients."""
    in_bytes: int = 0
    """Bytes of what clients have sent."""
    out_bytes: int = 0
    """Bytes of what it has sent."""
    slow_consumers: int = 0
    """Clients that it has cut off because they read too slowly."""
    subscriptions: int = 0
    """Subscriptions."""
    jetstream: JetStreamPart | None = None
    """JetStream."""
    proto: int = 0
    """Version of the protocol."""
    git_commit: str = ""
    """The revision that it was built from."""
    auth_required: bool = False
    """Clients must authenticate."""
    tls_required: bool = False
    """Clients must use TLS."""
    tls_verify: bool = False
    """Clients must show a certificate."""
    tls_ocsp_peer_verify: bool = False
    """It checks by OCSP whether certificates of clients were revoked."""
    ip: str = ""
    """Address on which it listens, if it is not `host`."""
    connect_urls: list[str] | None = None
    """URLs that it gives to clients."""
    ws_connect_urls: list[str] | None = None
    """The same for websockets."""
    max_subscriptions: int = 0
    """Subscriptions of one client; 0: no limit."""
    ping_interval: Duration = 0.0
    """Seconds between two PING to a quiet client."""
    ping_max: int = 0
    """PINGs without an answer after which it closes a link."""
    http_host: str = ""
    """Address of its monitoring pages."""
    http_port: int = 0
    """Their port; 0: none."""
    http_base_path: str = ""
    """Path before each page."""
    https_port: int = 0
    """Their port with TLS; 0: none."""
    auth_timeout: float = 0.0
    """Seconds that a client has to authenticate."""
    max_control_line: int = 0
    """Bytes of the longest line of the protocol."""
    cluster: dict[str, Any] | None = None
    """Settings of the cluster, with the server's names."""
    gateway: dict[str, Any] | None = None
    """Settings of links to other clusters, with the server's names."""
    leaf: dict[str, Any] | None = None
    """Settings of leaf nodes, with the server's names."""
    mqtt: dict[str, Any] | None = None
    """Settings of MQTT, with the server's names."""
    websocket: dict[str, Any] | None = None
    """Settings of websockets, with the server's names."""
    tls_timeout: float = 0.0
    """Seconds that a TLS handshake may take."""
    write_deadline: Duration = 0.0
    """Seconds that a write to a client may take."""
    write_timeout: str = ""
    """The word for what the server does then."""
    in_client_msgs: int = 0
    """The part of `in_msgs` that came from clients."""
    in_client_bytes: int = 0
    """Bytes of that part."""
    out_client_msgs: int = 0
    """The part of `out_msgs` that went to clients."""
    out_client_bytes: int = 0
    """Bytes of that part."""
    http_req_stats: dict[str, int] | None = None
    """Requests of each monitoring page."""
    config_digest: str = ""
    """A hash of its configuration."""
    tags: list[str] | None = None
    """Its tags."""
    metadata: dict[str, str] | None = None
    """Its metadata."""
    feature_flags: dict[str, bool] | None = None
    """Its feature flags."""
    trusted_operators_jwt: list[str] | None = None
    """JWTs of the operators that it trusts."""
    trusted_operators_claim: list[dict[str, Any]] | None = None
    """The same, decoded."""
    system_account: str = ""
    """The system account."""
    pinned_account_fails: int = 0
    """Logins that it has refused because their account is not pinned."""
    ocsp_peer_cache: dict[str, Any] | None = None
    """Use of the OCSP cache, with the server's names."""
    disk_io_wait_stats: DiskWaits | None = None
    """Waits for the disk."""
    tls_cert_not_after: dt.datetime | None = None
    """When its certificate expires (UTC); None without TLS."""
    proxies: dict[str, Any] | None = None
    """Proxies that it trusts, with the server's names."""
    slow_consumer_stats: LinkCounts | None = None
    """Links that it has cut off because the other end read too slowly."""
    stale_connections: int = 0
    """Links that it has closed because the other end did not answer."""
    stale_connection_stats: LinkCounts | None = None
    """The same by the other end."""
    stalled_clients: int = 0
    """Number of times that it slowed down a client that published too fast."""
    gomemlimit: int = 0
    """Bytes of memory at which Go collects harder; 0: no limit."""
    gomaxprocs: int = 0
    """Cores that it uses."""
