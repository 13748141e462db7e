"""Typed answers of servers: the fields that exist in every version from 2.9 on, or have a default.

All other fields of an answer are in `Answer.data`.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from jsclient.jetstream.api.model_base import Duration, Timestamp, Wire
from jsclient.jetstream.api.models_cluster import PeerInfo

_UNLIMITED: Final = 1 << 63
"""Servers before 2.11 write 2 to the power of 64, less one, if nothing is reserved."""


class ApiCounts(msgspec.Struct, kw_only=True, frozen=True):
    """Requests to the JetStream API of a server since it started.

    Attributes:
        level: Level of the API; 0 before server 2.12.
        total: Requests.
        errors: Those that were answered with an error.
        inflight: Those that it works on.
    """

    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0


class JetStreamUse(msgspec.Struct, kw_only=True):
    """The resources of a server that JetStream uses.

    Attributes:
        memory: Bytes of streams in memory.
        storage: Bytes of streams on disk.
        reserved_memory: Bytes of memory that streams and accounts have reserved; None means without limit.
        reserved_storage: Bytes on disk that they have reserved; None means without limit.
        accounts: Accounts with JetStream.
        ha_assets: Streams and consumers with replicas.
        api: Its API.
    """

    memory: int = 0
    storage: int = 0
    reserved_memory: int | None = 0
    reserved_storage: int | None = 0
    accounts: int = 0
    ha_assets: int = 0
    api: ApiCounts = msgspec.field(default_factory=ApiCounts)

    def __post_init__(self) -> None:
        if self.reserved_memory is not None and self.reserved_memory >= _UNLIMITED:
            self.reserved_memory = None
        if self.reserved_storage is not None and self.reserved_storage >= _UNLIMITED:
            self.reserved_storage = None


class JetStreamLimits(msgspec.Struct, kw_only=True, frozen=True):
    """The resources of a server that JetStream may use.

    Attributes:
        max_memory: Bytes of memory.
        max_storage: Bytes on disk.
        store_dir: Folder of the streams.
        domain: JetStream domain; "" without.
        sync_interval: Seconds between two fsync.
        sync_always: True if it calls fsync after every write.
        compress_ok: Streams may be compressed.
        unique_tag: Prefix of tags; the replicas of a stream must have different tags with it.
        strict: True if it rejects requests with unknown fields.
    """

    max_memory: int = 0
    max_storage: int = 0
    store_dir: str = ""
    domain: str = ""
    sync_interval: Duration = 0.0
    sync_always: bool = False
    compress_ok: bool = False
    unique_tag: str = ""
    strict: bool = False


class MetaSnapshot(Wire, kw_only=True, frozen=True):
    """Snapshots of the meta group.

    Attributes:
        pending_entries: Entries of the log since the last one.
        pending_size: Bytes of those entries.
        last_time: When the last one was written (UTC).
        last_duration: Seconds that it took.
    """

    pending_entries: int = 0
    pending_size: int = 0
    last_time: Timestamp | None = None
    last_duration: Duration = 0.0


class MetaGroup(msgspec.Struct, kw_only=True, frozen=True):
    """The group of servers that assigns all streams and consumers.

    Attributes:
        name: Name of the cluster.
        leader: Name of the server that leads it; "" while there is none.
        cluster_size: Servers in it.
        pending: Changes that wait.
        peer: Id of the leader in the raft group.
        replicas: The other servers in it; older servers list them only on the leader.
        quorum_needed: Servers that must agree.
        rescue: An administrator has lowered that number for a rescue.
        pending_requests: Requests that wait.
        pending_infos: Questions that wait.
        snapshot: Its snapshots.
    """

    name: str = ""
    leader: str = ""
    cluster_size: int = 0
    pending: int = 0
    peer: str = ""
    replicas: list[PeerInfo] | None = None
    quorum_needed: int = 0
    rescue: bool = False
    pending_requests: int = 0
    pending_infos: int = 0
    snapshot: MetaSnapshot | None = None


class JetStreamPart(msgspec.Struct, kw_only=True, frozen=True):
    """JetStream within the statistics of a server.

    Attributes:
        config: The resources that it may use.
        stats: The resources that it uses.
        meta: The meta group; None outside of a cluster.
        limits: Limits of requests, with the server's names.
    """

    config: JetStreamLimits | None = None
    stats: JetStreamUse | None = None
    meta: MetaGroup | None = None
    limits: dict[str, Any] | None = None


class PeerCertificate(msgspec.Struct, kw_only=True, frozen=True):
    """A certificate that a client has shown.

    Attributes:
        subject: Its subject.
        spki_sha256: SHA-256 of its public key, in hexadecimal.
        cert_sha256: SHA-256 of the certificate, in hexadecimal.
    """

    subject: str = ""
    spki_sha256: str = ""
    cert_sha256: str = ""


class SubscriptionDetail(msgspec.Struct, kw_only=True, frozen=True):
    """A subscription of a client.

    Attributes:
        subject: Its subject.
        qgroup: Its queue group; "" if it has none.
        sid: Its number on the link.
        msgs: Messages so far.
        max: Messages after which it ends; 0: no limit.
        cid: Number of the client.
        account: Its account.
        account_tag: The account's name in its JWT.
    """

    subject: str = ""
    qgroup: str = ""
    sid: str = ""
    msgs: int = 0
    max: int = 0
    cid: int = 0
    account: str = ""
    account_tag: str = ""


class ClientConnection(msgspec.Struct, kw_only=True, frozen=True):
    """One client of a server. Its JWT, which may serve as a password, is only in `Answer.data`.

    Attributes:
        cid: Its number on this server; pass it to `kick`.
        kind: Client, or another kind of connection.
        type: nats, mqtt or websocket.
        ip: Its address.
        port: Its port.
        start: Time at which it connected.
        last_activity: Time at which it was last heard of, or sent to.
        stop: Time at which it was closed; None while it is open.
        reason: The reason for which it was closed.
        rtt: Round trip, such as 210µs; "" when it was not measured yet.
        uptime: Time for which it was connected, such as 3h2m1s.
        idle: Time without any activity.
        pending_bytes: Bytes that wait for it.
        in_msgs: Messages that it has sent.
        out_msgs: Messages that it was sent.
        in_bytes: Bytes that it has sent.
        out_bytes: Bytes that it was sent.
        subscriptions: Its subscriptions.
        name: The name that it gave itself.
        lang: Its client library.
        version: Version of the client library.
        account: Its account; asked for with `auth=True`.
        authorized_user: Its user; asked for with `auth=True`.
        tls_version: TLS of its link; "" without.
        stalls: Number of times that the server has slowed it down because it published too fast.
        tls_cipher_suite: Cipher of its link; "" without TLS.
        tls_peer_certs: Certificates that it has shown; asked for with `auth=True`.
        tls_first: True if TLS began before INFO.
        subscriptions_list: Subjects of its subscriptions; asked for with `subscriptions=True`.
        subscriptions_list_detail: The same with more; asked for with `subscriptions_detail=True`.
        issuer_key: Public key that has signed its JWT; asked for with `auth=True`.
        name_tag: The name in its JWT; asked for with `auth=True`.
        tags: Tags of its JWT; asked for with `auth=True`.
        mqtt_client: Its MQTT client id.
        proxy: The proxy between it and the server, with the server's names.
    """

    cid: int
    kind: str = ""
    type: str = ""
    ip: str = ""
    port: int = 0
    start: dt.datetime | None = None
    last_activity: dt.datetime | None = None
    stop: dt.datetime | None = None
    reason: str = ""
    rtt: str = ""
    uptime: str = ""
    idle: str = ""
    pending_bytes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    account: str = ""
    authorized_user: str = ""
    tls_version: str = ""
    stalls: int = 0
    tls_cipher_suite: str = ""
    tls_peer_certs: list[PeerCertificate] | None = None
    tls_first: bool = False
    subscriptions_list: list[str] | None = None
    subscriptions_list_detail: list[SubscriptionDetail] | None = None
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] | None = None
    mqtt_client: str = ""
    proxy: dict[str, str] | None = None


class Connections(msgspec.Struct, kw_only=True, frozen=True):
    """Clients of a server (CONNZ).

    Attributes:
        connections: Some of them, from `offset` on, at most `limit`.
        num_connections: Number of connections in this answer.
        total: Number of connections in all.
        offset: Number of connections that were skipped before these.
        limit: Largest number of connections in one answer.
    """

    connections: list[ClientConnection] = []
    num_connections: int = 0
    total: int = 0
    offset: int = 0
    limit: int = 0


class JetStreamState(JetStreamUse, kw_only=True):
    """JetStream of a server (JSZ).

    Attributes:
        disabled: True if it is off.
        config: The resources that it may use.
        streams: Streams with a copy here.
        consumers: Consumers with a copy here.
        messages: Messages of those streams.
        bytes: Bytes of those messages.
        meta_cluster: The meta group; None outside of a cluster.
        now: The server's clock.
        limits: Limits of requests, with the server's names.
        streams_leader: Streams that this server leads.
        consumers_leader: Consumers that this server leads.
        total: Accounts, of which `account_details` has a part.
        account_details: With `accounts=True`, the server's JSON of each account, with the requested streams and
            consumers.

    It also has the fields of `JetStreamUse`.
    """

    disabled: bool = False
    config: JetStreamLimits | None = None
    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0
    meta_cluster: MetaGroup | None = None
    now: dt.datetime | None = None
    limits: dict[str, Any] | None = None
    streams_leader: int = 0
    consumers_leader: int = 0
    total: int = 0
    account_details: list[dict[str, Any]] = []


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """The health of a server (HEALTHZ).

    Attributes:
        status: "ok", or the fault.
        status_code: 200, or an HTTP-like number of the fault.
        error: The fault in words.
        errors: Each fault, with the server's names; asked for with `details=True`.
    """

    status: str = ""
    status_code: int = 200
    error: str = ""
    errors: list[dict[str, Any]] | None = None
