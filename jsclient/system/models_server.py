"""A server as a whole, typed: its settings and counters."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from jsclient.jetstream.api.model_base import Duration
from jsclient.system.models import JetStreamPart


class Traffic(msgspec.Struct, kw_only=True, frozen=True):
    """Messages in one direction since the server started, in total and by the kind of link.

    Attributes:
        msgs: Messages.
        bytes: Their payloads and headers.
        gateways: Messages on links to other clusters; None if it has no such link.
        routes: Messages on links within the cluster; None if it has no such link.
        leafs: Messages on links of leaf nodes; None if it has no such link.
    """

    msgs: int = 0
    bytes: int = 0
    gateways: Traffic | None = None
    routes: Traffic | None = None
    leafs: Traffic | None = None


class LinkCounts(msgspec.Struct, kw_only=True, frozen=True):
    """Links that a server has closed since it started, by the kind of the other end.

    Attributes:
        clients: Clients.
        routes: Servers of its cluster.
        gateways: Servers of other clusters.
        leafs: Leaf nodes.
    """

    clients: int = 0
    routes: int = 0
    gateways: int = 0
    leafs: int = 0


class Route(msgspec.Struct, kw_only=True, frozen=True):
    """A link of a server to another one of its cluster.

    Attributes:
        rid: Its number on this server.
        name: Name of the other server.
        sent: Messages to it.
        received: Messages from it.
        pending: Bytes that wait for it.
    """

    rid: int = 0
    name: str = ""
    sent: Traffic = Traffic()
    received: Traffic = Traffic()
    pending: int = 0


class Gateway(msgspec.Struct, kw_only=True, frozen=True):
    """The link of a server to another cluster.

    Attributes:
        gwid: Its number on this server.
        name: Name of the other cluster.
        sent: Messages to it.
        received: Messages from it.
        inbound_connections: Links from there.
    """

    gwid: int = 0
    name: str = ""
    sent: Traffic = Traffic()
    received: Traffic = Traffic()
    inbound_connections: int = 0


class DiskWaits(msgspec.Struct, kw_only=True, frozen=True):
    """Threads of a server that wait for their turn at the disk.

    Attributes:
        waiters: Threads that wait at the moment.
        waits: Number of waits so far.
        wait_time: Seconds of all waits together.
        max_wait_time: Seconds of the longest wait.
    """

    waiters: int = 0
    waits: int = 0
    wait_time: Duration = 0.0
    max_wait_time: Duration = 0.0


class ServerStats(msgspec.Struct, kw_only=True, frozen=True):
    """A server and how busy it is (STATSZ).

    Attributes:
        start: When it started.
        mem: Bytes of memory.
        cores: Cores of the machine.
        cpu: Per cent of a core.
        connections: Clients that are connected.
        total_connections: Clients since it started.
        active_accounts: Accounts with clients.
        subscriptions: Subscriptions, also of other servers.
        sent: Messages to clients.
        received: Messages from clients.
        slow_consumers: Clients that it has cut off since it started because they read too slowly.
        active_servers: Servers that it knows of, itself among them.
        jetstream: JetStream; None if it is off.
        sent_to_clients: The part of `sent` that went to clients.
        received_from_clients: The part of `received` that came from clients.
        routes: Its links to other servers of its cluster.
        gateways: Its links to other clusters.
        slow_consumer_stats: Links that it has cut off because the other end read too slowly.
        stale_connections: Links that it has closed because the other end did not answer.
        stale_connection_stats: The same by the other end.
        stalled_clients: Number of times that it slowed down a client that published too fast.
        gomemlimit: Bytes of memory at which Go collects harder; 0: no limit.
        gomaxprocs: Cores that it uses.
    """

    start: dt.datetime | None = None
    mem: int = 0
    cores: int = 0
    cpu: float = 0.0
    connections: int = 0
    total_connections: int = 0
    active_accounts: int = 0
    subscriptions: int = 0
    sent: Traffic = Traffic()
    received: Traffic = Traffic()
    slow_consumers: int = 0
    active_servers: int = 1
    jetstream: JetStreamPart | None = None
    sent_to_clients: Traffic = Traffic()
    received_from_clients: Traffic = Traffic()
    routes: list[Route] | None = None
    gateways: list[Gateway] | None = None
    slow_consumer_stats: LinkCounts | None = None
    stale_connections: int = 0
    stale_connection_stats: LinkCounts | None = None
    stalled_clients: int = 0
    gomemlimit: int = 0
    gomaxprocs: int = 0


class Variables(msgspec.Struct, kw_only=True, frozen=True):
    """Settings and statistics of a server (VARZ).

    Attributes:
        server_id: Its id.
        server_name: Its name.
        version: Its version.
        go: The Go that it was built with.
        host: Address on which it listens for clients.
        port: Port on which it does.
        max_connections: The most clients that it accepts.
        max_payload: Bytes of the largest message.
        max_pending: Bytes that may wait for one client before it is cut off.
        start: When it started.
        now: Its clock.
        config_load_time: When it last read its configuration.
        uptime: Time since its start, such as 3h2m1s.
        mem: Bytes of memory.
        cores: Cores of the machine.
        cpu: Per cent of a core.
        connections: Clients that are connected.
        total_connections: Clients since it started.
        routes: Links to servers of its cluster.
        remotes: Servers of its cluster that it is linked with.
        leafnodes: Leaf nodes.
        in_msgs: Messages that clients have sent to it.
        out_msgs: Messages that it has sent to clients.
        in_bytes: Bytes that clients have sent.
        out_bytes: Bytes that it has sent.
        slow_consumers: Clients that it has cut off because they read too slowly.
        subscriptions: Subscriptions.
        jetstream: JetStream.
        proto: Version of the protocol.
        git_commit: The revision that it was built from.
        auth_required: Clients must authenticate.
        tls_required: Clients must use TLS.
        tls_verify: Clients must show a certificate.
        tls_ocsp_peer_verify: It checks by OCSP whether certificates of clients were revoked.
        ip: Address on which it listens, if it is not `host`.
        connect_urls: URLs that it gives to clients.
        ws_connect_urls: The same for websockets.
        max_subscriptions: Subscriptions of one client; 0: no limit.
        ping_interval: Seconds between two PING to a quiet client.
        ping_max: PINGs without an answer after which it closes a link.
        http_host: Address of its monitoring pages.
        http_port: Their port; 0: none.
        http_base_path: Path before each page.
        https_port: Their port with TLS; 0: none.
        auth_timeout: Seconds that a client has to authenticate.
        max_control_line: Bytes of the longest line of the protocol.
        cluster: Settings of the cluster, with the server's names.
        gateway: Settings of links to other clusters, with the server's names.
        leaf: Settings of leaf nodes, with the server's names.
        mqtt: Settings of MQTT, with the server's names.
        websocket: Settings of websockets, with the server's names.
        tls_timeout: Seconds that a TLS handshake may take.
        write_deadline: Seconds that a write to a client may take.
        write_timeout: The word for what the server does then.
        in_client_msgs: The part of `in_msgs` that came from clients.
        in_client_bytes: Bytes of that part.
        out_client_msgs: The part of `out_msgs` that went to clients.
        out_client_bytes: Bytes of that part.
        http_req_stats: Requests of each monitoring page.
        config_digest: A hash of its configuration.
        tags: Its tags.
        metadata: Its metadata.
        feature_flags: Its feature flags.
        trusted_operators_jwt: JWTs of the operators that it trusts.
        trusted_operators_claim: The same, decoded.
        system_account: The system account.
        pinned_account_fails: Logins that it has refused because their account is not pinned.
        ocsp_peer_cache: Use of the OCSP cache, with the server's names.
        disk_io_wait_stats: Waits for the disk.
        tls_cert_not_after: When its certificate expires (UTC); None without TLS.
        proxies: Proxies that it trusts, with the server's names.
        slow_consumer_stats: Links that it has cut off because the other end read too slowly.
        stale_connections: Links that it has closed because the other end did not answer.
        stale_connection_stats: The same by the other end.
        stalled_clients: Number of times that it slowed down a client that published too fast.
        gomemlimit: Bytes of memory at which Go collects harder; 0: no limit.
        gomaxprocs: Cores that it uses.
    """

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    max_connections: int = 0
    max_payload: int = 0
    max_pending: int = 0
    start: dt.datetime | None = None
    now: dt.datetime | None = None
    config_load_time: dt.datetime | None = None
    uptime: str = ""
    mem: int = 0
    cores: int = 0
    cpu: float = 0.0
    connections: int = 0
    total_connections: int = 0
    routes: int = 0
    remotes: int = 0
    leafnodes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0
    subscriptions: int = 0
    jetstream: JetStreamPart | None = None
    proto: int = 0
    git_commit: str = ""
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_ocsp_peer_verify: bool = False
    ip: str = ""
    connect_urls: list[str] | None = None
    ws_connect_urls: list[str] | None = None
    max_subscriptions: int = 0
    ping_interval: Duration = 0.0
    ping_max: int = 0
    http_host: str = ""
    http_port: int = 0
    http_base_path: str = ""
    https_port: int = 0
    auth_timeout: float = 0.0
    max_control_line: int = 0
    cluster: dict[str, Any] | None = None
    gateway: dict[str, Any] | None = None
    leaf: dict[str, Any] | None = None
    mqtt: dict[str, Any] | None = None
    websocket: dict[str, Any] | None = None
    tls_timeout: float = 0.0
    write_deadline: Duration = 0.0
    write_timeout: str = ""
    in_client_msgs: int = 0
    in_client_bytes: int = 0
    out_client_msgs: int = 0
    out_client_bytes: int = 0
    http_req_stats: dict[str, int] | None = None
    config_digest: str = ""
    tags: list[str] | None = None
    metadata: dict[str, str] | None = None
    feature_flags: dict[str, bool] | None = None
    trusted_operators_jwt: list[str] | None = None
    trusted_operators_claim: list[dict[str, Any]] | None = None
    system_account: str = ""
    pinned_account_fails: int = 0
    ocsp_peer_cache: dict[str, Any] | None = None
    disk_io_wait_stats: DiskWaits | None = None
    tls_cert_not_after: dt.datetime | None = None
    proxies: dict[str, Any] | None = None
    slow_consumer_stats: LinkCounts | None = None
    stale_connections: int = 0
    stale_connection_stats: LinkCounts | None = None
    stalled_clients: int = 0
    gomemlimit: int = 0
    gomaxprocs: int = 0
