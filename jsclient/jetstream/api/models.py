"""The wire models of JetStream: configurations, infos, acks. Streams and consumers have separate modules."""

from __future__ import annotations

import datetime as dt

import msgspec

from jsclient.jetstream.api.model_base import OpenWire, Wire
from jsclient.jetstream.api.models_cluster import (
    ClusterInfo,
    DesiredClusterInfo,
    DesiredClusterInfoOrigin,
    DesiredClusterInfoStatus,
    DesiredPeerInfo,
    MigrationStatus,
    PeerInfo,
    Placement,
)
from jsclient.jetstream.api.models_consumer import (
    ConsumerConfig,
    ConsumerInfo,
    PauseState,
    PriorityGroupState,
    SequenceInfo,
)
from jsclient.jetstream.api.models_consumer_words import AckPolicy, DeliverPolicy, PriorityPolicy, ReplayPolicy
from jsclient.jetstream.api.models_stream import (
    LostStreamData,
    SourceInfoError,
    StreamAlternate,
    StreamConfig,
    StreamInfo,
    StreamSourceInfo,
    StreamState,
)
from jsclient.jetstream.api.models_stream_parts import (
    Compression,
    Discard,
    ExternalStream,
    PersistMode,
    Republish,
    Retention,
    SourceConsumer,
    Storage,
    StreamConsumerLimits,
    StreamSource,
    SubjectTransform,
)
from jsclient.message import headers_of
from jsclient.protocol import Headers

__all__ = [
    "AccountInfo",
    "AccountLimits",
    "AckPolicy",
    "ApiStats",
    "ClusterInfo",
    "Compression",
    "ConsumerConfig",
    "ConsumerInfo",
    "DeliverPolicy",
    "DesiredClusterInfo",
    "DesiredClusterInfoOrigin",
    "DesiredClusterInfoStatus",
    "DesiredPeerInfo",
    "Discard",
    "ExternalStream",
    "LostStreamData",
    "MessageResponse",
    "MigrationStatus",
    "PauseState",
    "PeerInfo",
    "PersistMode",
    "Placement",
    "PriorityGroupState",
    "PriorityPolicy",
    "PubAck",
    "Purged",
    "RawStreamMsg",
    "ReplayPolicy",
    "Republish",
    "Retention",
    "SequenceInfo",
    "SourceConsumer",
    "SourceInfoError",
    "Storage",
    "StoredMessage",
    "StreamAlternate",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamInfo",
    "StreamSource",
    "StreamSourceInfo",
    "StreamState",
    "SubjectTransform",
    "Success",
    "Tier",
]


class PubAck(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """The stream's answer to a publish.

        ack = js.publish("ORDERS.new", b"hello", msg_id="order-7")
        print(ack.stream, ack.seq, ack.duplicate)

    If `duplicate` is True, the stream had this message id already, and `seq` is the sequence of the first copy. `val`
    is the new value of a counter. `batch` and `count` are the id and size of a committed batch.

    Attributes:
        stream: The stream that has stored it.
        seq: Its sequence there.
        duplicate: True if the stream had this message id already. Nothing new was stored, and `seq` is the sequence of
            the first copy.
        domain: The JetStream domain of the stream, or "" without one.
        val: The new value of a counter, as text of any length.
        batch: Id of the batch that this ack ends.
        count: Messages in that batch.
    """

    stream: str
    seq: int = 0
    duplicate: bool = False
    domain: str = ""
    val: str = ""
    batch: str = ""
    count: int = 0


class RawStreamMsg(msgspec.Struct, kw_only=True, frozen=True):
    """A message as it is stored. You get it from methods such as `Stream.get_msg`, not from a consumer.

    Attributes:
        subject: The subject under which it is stored.
        seq: Its sequence in the stream.
        data: The payload.
        time: When it was stored, by the server's clock (UTC). None if the server does not send it.
        raw_headers: Its header block as bytes, or None without headers.
        stream: The stream that holds it.
    """

    subject: str
    seq: int
    data: bytes
    time: dt.datetime | None
    raw_headers: bytes | None = None
    stream: str = ""

    @property
    def headers(self) -> Headers:
        """Its headers, empty if it has none; raises MalformedHeaders as `Msg.headers` does."""
        return headers_of(self.raw_headers)


class AccountLimits(OpenWire, kw_only=True, frozen=True):
    """Limits of an account, or of one of its replica tiers. A limit of -1 means that there is none.

    Attributes:
        max_memory: Bytes of memory for all streams, or -1 without a limit.
        max_storage: Bytes on disk for all streams, or -1 without a limit.
        max_streams: Number of streams, or -1 without a limit.
        max_consumers: Number of consumers, or -1 without a limit.
        max_ack_pending: The largest max_ack_pending of a consumer, or -1 without a limit.
        memory_max_stream_bytes: The largest stream in memory, in bytes, or -1 without a limit.
        storage_max_stream_bytes: The largest stream on disk, in bytes, or -1 without a limit.
        max_bytes_required: Every stream must state max_bytes.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    max_memory: int = 0
    max_storage: int = 0
    max_streams: int = 0
    max_consumers: int = 0
    max_ack_pending: int = 0
    memory_max_stream_bytes: int = 0
    storage_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class Tier(OpenWire, kw_only=True, frozen=True):
    """Use and limits of an account for one replica count.

    Attributes:
        memory: Bytes of memory in use.
        storage: Bytes on disk in use.
        reserved_memory: Bytes of memory that streams have reserved by max_bytes.
        reserved_storage: Bytes on disk that streams have reserved by max_bytes.
        streams: Number of streams.
        consumers: Number of consumers.
        limits: The limits of this tier.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = AccountLimits()


class ApiStats(OpenWire, kw_only=True, frozen=True):
    """Use of the API by the account; `level` is the API level of the JetStream side (0 for a server before 2.11).

    Attributes:
        level: API level of the servers, or 0 before 2.11.
        total: Requests so far.
        errors: Requests that were answered with an error.
        inflight: Requests in progress.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0


class AccountInfo(OpenWire, kw_only=True, frozen=True):
    """Use and limits of the account. If limits are tiered, `tiers` has an entry per replica count ("R1", "R3").

    Attributes:
        memory: Bytes of memory in use.
        storage: Bytes on disk in use.
        reserved_memory: Bytes of memory that streams have reserved by max_bytes.
        reserved_storage: Bytes on disk that streams have reserved by max_bytes.
        streams: Number of streams.
        consumers: Number of consumers.
        limits: The limits of the account.
        domain: The JetStream domain, or "" without one.
        api: Use of the JetStream API.
        tiers: Use and limits by replica count ("R1", "R3"), if limits are tiered.

    `extra` has the fields of a newer server by their names on the wire; None when there are none.
    """

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = AccountLimits()
    domain: str = ""
    api: ApiStats = ApiStats()
    tiers: dict[str, Tier] | None = None


# --- answers and requests that users do not see ----------------------------------------------------------------


class Success(Wire, kw_only=True, frozen=True):
    success: bool = False


class Purged(Wire, kw_only=True, frozen=True):
    success: bool = False
    purged: int = 0


class StoredMessage(Wire, kw_only=True, frozen=True):
    subject: str = ""
    seq: int = 0
    hdrs: bytes | None = None
    data: bytes = b""
    time: str = ""


class MessageResponse(Wire, kw_only=True, frozen=True):
    message: StoredMessage
