"""What servers say of themselves, typed: the fields that stand in every version from 2.9 on, or have a default.

What a server says beside them stands in `Answer.data`.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from protocol.described import described

_UNLIMITED: Final = 1 << 63
"""Servers before 2.11 write 2 to the power of 64, less one, where nothing is reserved."""


@described
class Traffic(msgspec.Struct, kw_only=True, frozen=True):
    """Messages in one direction since the server started."""

    msgs: int = 0
    """Messages."""
    bytes: int = 0
    """Their payloads and headers."""


@described
class ApiCounts(msgspec.Struct, kw_only=True, frozen=True):
    """Requests to the JetStream API of a server since it started."""

    level: int = 0
    """Level of the API; 0 before server 2.12."""
    total: int = 0
    """Requests."""
    errors: int = 0
    """Those that were answered with an error."""
    inflight: int = 0
    """Those that it works on."""


@described
class JetStreamUse(msgspec.Struct, kw_only=True):
    """What JetStream takes of a server."""

    memory: int = 0
    """Bytes of streams in memory."""
    storage: int = 0
    """Bytes of streams on disk."""
    reserved_memory: int | None = 0
    """Bytes of memory that streams and accounts have reserved; None: without limit."""
    reserved_storage: int | None = 0
    """Bytes on disk that they have reserved; None: without limit."""
    accounts: int = 0
    """Accounts with JetStream."""
    ha_assets: int = 0
    """Streams and consumers with replicas."""
    api: ApiCounts = msgspec.field(default_factory=ApiCounts)
    """Its API."""

    def __post_init__(self) -> None:
        if self.reserved_memory is not None and self.reserved_memory >= _UNLIMITED:
            self.reserved_memory = None
        if self.reserved_storage is not None and self.reserved_storage >= _UNLIMITED:
            self.reserved_storage = None


@described
class JetStreamLimits(msgspec.Struct, kw_only=True, frozen=True):
    """What JetStream may take of a server."""

    max_memory: int = 0
    """Bytes of memory."""
    max_storage: int = 0
    """Bytes on disk."""
    store_dir: str = ""
    """Folder of the streams."""
    domain: str = ""
    """JetStream domain; "" without."""


@described
class MetaGroup(msgspec.Struct, kw_only=True, frozen=True):
    """The group of servers that knows where everything is."""

    name: str = ""
    """Name of the cluster."""
    leader: str = ""
    """Name of the server that leads it; "" while there is none."""
    cluster_size: int = 0
    """Servers in it."""
    pending: int = 0
    """Changes that wait."""


@described
class JetStreamPart(msgspec.Struct, kw_only=True, frozen=True):
    """JetStream within the figures of a server."""

    config: JetStreamLimits | None = None
    """What it may take."""
    stats: JetStreamUse | None = None
    """What it takes."""
    meta: MetaGroup | None = None
    """The meta group; None outside of a cluster."""


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
    """Subscriptions, those of other servers among them."""
    sent: Traffic = Traffic()
    """What it has sent to clients."""
    received: Traffic = Traffic()
    """What clients have sent to it."""
    slow_consumers: int = 0
    """Clients that it has cut off since it started because they read too slowly."""
    active_servers: int = 1
    """Servers that it knows of, itself among them."""
    jetstream: JetStreamPart | None = None
    """JetStream; None where it is off."""


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
    """How long it has run, such as 3h2m1s."""
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


@described
class ClientConnection(msgspec.Struct, kw_only=True, frozen=True):
    """One client of a server."""

    cid: int
    """Its number on this server: what `kick` takes."""
    kind: str = ""
    """Client, or what else."""
    type: str = ""
    """nats, mqtt or websocket."""
    ip: str = ""
    """Its address."""
    port: int = 0
    """Its port."""
    start: dt.datetime | None = None
    """When it connected."""
    last_activity: dt.datetime | None = None
    """When it was last heard of, or sent to."""
    stop: dt.datetime | None = None
    """When it was closed; None while it is open."""
    reason: str = ""
    """Why it was closed."""
    rtt: str = ""
    """Round trip, such as 210µs; "" when it was not measured yet."""
    uptime: str = ""
    """How long it was connected, such as 3h2m1s."""
    idle: str = ""
    """How long nothing has happened."""
    pending_bytes: int = 0
    """Bytes that wait for it."""
    in_msgs: int = 0
    """Messages that it has sent."""
    out_msgs: int = 0
    """Messages that it was sent."""
    in_bytes: int = 0
    """Bytes of what it has sent."""
    out_bytes: int = 0
    """Bytes of what it was sent."""
    subscriptions: int = 0
    """Its subscriptions."""
    name: str = ""
    """The name that it gave itself."""
    lang: str = ""
    """Its client library."""
    version: str = ""
    """Version of that."""
    account: str = ""
    """Its account; asked for with `auth=True`."""
    authorized_user: str = ""
    """Its user; asked for with `auth=True`."""
    tls_version: str = ""
    """TLS of its link; "" without."""


@described
class Connections(msgspec.Struct, kw_only=True, frozen=True):
    """Clients of a server (CONNZ)."""

    connections: list[ClientConnection] = []
    """Some of them, from `offset` on, `limit` at the most."""
    num_connections: int = 0
    """How many stand here."""
    total: int = 0
    """How many there are."""
    offset: int = 0
    """How many were left out before these."""
    limit: int = 0
    """How many one answer has at the most."""


@described
class JetStreamState(JetStreamUse, kw_only=True):
    """JetStream of a server (JSZ)."""

    disabled: bool = False
    """It is off."""
    config: JetStreamLimits | None = None
    """What it may take."""
    streams: int = 0
    """Streams with a copy here."""
    consumers: int = 0
    """Consumers with a copy here."""
    messages: int = 0
    """Messages of those streams."""
    bytes: int = 0
    """Bytes of those messages."""
    meta_cluster: MetaGroup | None = None
    """The meta group; None outside of a cluster."""
    account_details: list[dict[str, Any]] = []
    """With `accounts=True`: the server's JSON of each account, its streams and consumers as they were asked for."""


@described
class Health(msgspec.Struct, kw_only=True, frozen=True):
    """Whether a server works (HEALTHZ)."""

    status: str = ""
    """ "ok", or what is wrong."""
    status_code: int = 200
    """200, or an HTTP-like number of what is wrong."""
    error: str = ""
    """What is wrong, in words."""
