"""What servers say of themselves, typed: the fields that stand in every version from 2.9 on, or have a default.

What a server says beside them stands in `Answer.data`.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from jsclient.jetstream.api.model_base import Duration, Timestamp, Wire
from jsclient.jetstream.api.models_cluster import PeerInfo
from protocol.described import described

_UNLIMITED: Final = 1 << 63
"""Servers before 2.11 write 2 to the power of 64, less one, where nothing is reserved."""


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
    sync_interval: Duration = 0.0
    """Seconds between two fsync."""
    sync_always: bool = False
    """It calls fsync after every write."""
    compress_ok: bool = False
    """Streams may be compressed."""
    unique_tag: str = ""
    """Prefix of tags of which the replicas of a stream must have different ones."""
    strict: bool = False
    """It refuses requests with unknown fields."""


class MetaSnapshot(Wire, kw_only=True, frozen=True):
    """Snapshots of the meta group."""

    pending_entries: int = 0
    """Entries of the log since the last one."""
    pending_size: int = 0
    """Bytes of those entries."""
    last_time: Timestamp | None = None
    """When the last one was written (UTC)."""
    last_duration: Duration = 0.0
    """Seconds that it took."""


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
    peer: str = ""
    """Id of the leader in the raft group."""
    replicas: list[PeerInfo] | None = None
    """The other servers in it; older servers list them only on the leader."""
    quorum_needed: int = 0
    """Servers that must agree."""
    rescue: bool = False
    """An administrator has lowered that number for a rescue."""
    pending_requests: int = 0
    """Requests that wait."""
    pending_infos: int = 0
    """Questions that wait."""
    snapshot: MetaSnapshot | None = None
    """Its snapshots."""


@described
class JetStreamPart(msgspec.Struct, kw_only=True, frozen=True):
    """JetStream within the figures of a server."""

    config: JetStreamLimits | None = None
    """What it may take."""
    stats: JetStreamUse | None = None
    """What it takes."""
    meta: MetaGroup | None = None
    """The meta group; None outside of a cluster."""
    limits: dict[str, Any] | None = None
    """Limits of requests, with the server's names."""


@described
class PeerCertificate(msgspec.Struct, kw_only=True, frozen=True):
    """A certificate that a client has shown."""

    subject: str = ""
    """Its subject."""
    spki_sha256: str = ""
    """SHA-256 of its public key, in hexadecimal."""
    cert_sha256: str = ""
    """SHA-256 of the certificate, in hexadecimal."""


@described
class SubscriptionDetail(msgspec.Struct, kw_only=True, frozen=True):
    """A subscription of a client."""

    subject: str = ""
    """Its subject."""
    qgroup: str = ""
    """Its queue group; "" if it has none."""
    sid: str = ""
    """Its number on the link."""
    msgs: int = 0
    """Messages so far."""
    max: int = 0
    """Messages after which it ends; 0: no limit."""
    cid: int = 0
    """Number of the client."""
    account: str = ""
    """Its account."""
    account_tag: str = ""
    """The account's name in its JWT."""


@described
class ClientConnection(msgspec.Struct, kw_only=True, frozen=True):
    """One client of a server. Its JWT, which may be a password by itself, stands only in `Answer.data`."""

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
    stalls: int = 0
    """How often the server has slowed it down because it published too fast."""
    tls_cipher_suite: str = ""
    """Cipher of its link; "" without TLS."""
    tls_peer_certs: list[PeerCertificate] | None = None
    """Certificates that it has shown; asked for with `auth=True`."""
    tls_first: bool = False
    """TLS began before INFO."""
    subscriptions_list: list[str] | None = None
    """Subjects of its subscriptions; asked for with `subscriptions=True`."""
    subscriptions_list_detail: list[SubscriptionDetail] | None = None
    """The same with more; asked for with `subscriptions_detail=True`."""
    issuer_key: str = ""
    """Public key that has signed its JWT; asked for with `auth=True`."""
    name_tag: str = ""
    """The name in its JWT; asked for with `auth=True`."""
    tags: list[str] | None = None
    """Tags of its JWT; asked for with `auth=True`."""
    mqtt_client: str = ""
    """Its MQTT client id."""
    proxy: dict[str, str] | None = None
    """The proxy between it and the server, with the server's names."""


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
    now: dt.datetime | None = None
    """The server's clock."""
    limits: dict[str, Any] | None = None
    """Limits of requests, with the server's names."""
    streams_leader: int = 0
    """Streams that this server leads."""
    consumers_leader: int = 0
    """Consumers that this server leads."""
    total: int = 0
    """Accounts, of which `account_details` has a part."""
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
    errors: list[dict[str, Any]] | None = None
    """Each fault, with the server's names; asked for with `details=True`."""
