"""The wire models of JetStream: configurations, infos, acks. Streams and consumers have modules of their own."""

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
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    PauseState,
    PriorityGroupState,
    PriorityPolicy,
    ReplayPolicy,
    SequenceInfo,
)
from jsclient.jetstream.api.models_stream import (
    Compression,
    Discard,
    ExternalStream,
    LostStreamData,
    PersistMode,
    Republish,
    Retention,
    SourceConsumer,
    SourceInfoError,
    Storage,
    StreamAlternate,
    StreamConfig,
    StreamConsumerLimits,
    StreamInfo,
    StreamSource,
    StreamSourceInfo,
    StreamState,
    SubjectTransform,
)
from jsclient.message import headers_of
from protocol import Headers
from protocol.described import described

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


@described
class PubAck(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """The stream's answer to a publish.

    `duplicate`: the message id was known, and `seq` is that of the first copy. `val`: the new value of a counter.
    `batch` and `count`: id and size of a committed batch.
    """

    stream: str
    """The stream that has stored it."""
    seq: int = 0
    """Its sequence there."""
    duplicate: bool = False
    """True: the message id was known, nothing new was stored, and `seq` is that of the first copy."""
    domain: str = ""
    """The JetStream domain of the stream; "" when it has none."""
    val: str = ""
    """The new value of a counter, as text of any length."""
    batch: str = ""
    """Id of the batch that this ack ends."""
    count: int = 0
    """Messages in that batch."""


@described
class RawStreamMsg(msgspec.Struct, kw_only=True, frozen=True):
    """A message as it is stored: read by get_msg and its kin, not delivered by a consumer."""

    subject: str
    """The subject under which it is stored."""
    seq: int
    """Its sequence in the stream."""
    data: bytes
    """The payload."""
    time: dt.datetime | None
    """When it was stored, by the server's clock (UTC); None where the server does not say it."""
    raw_headers: bytes | None = None
    """Its header block as bytes; None when it has none."""
    stream: str = ""
    """The stream that holds it."""

    @property
    def headers(self) -> Headers:
        """Its headers, empty when it has none; raises MalformedHeaders as `Msg.headers` does."""
        return headers_of(self.raw_headers)


class AccountLimits(OpenWire, kw_only=True, frozen=True):
    """Limits of an account (-1: none), or of one replica tier of it."""

    max_memory: int = 0
    """Bytes of memory for all streams; -1: no limit."""
    max_storage: int = 0
    """Bytes on disk for all streams; -1: no limit."""
    max_streams: int = 0
    """Number of streams; -1: no limit."""
    max_consumers: int = 0
    """Number of consumers; -1: no limit."""
    max_ack_pending: int = 0
    """The largest max_ack_pending of a consumer; -1: no limit."""
    memory_max_stream_bytes: int = 0
    """The largest stream in memory, in bytes; -1: no limit."""
    storage_max_stream_bytes: int = 0
    """The largest stream on disk, in bytes; -1: no limit."""
    max_bytes_required: bool = False
    """Every stream must state max_bytes."""


class Tier(OpenWire, kw_only=True, frozen=True):
    """Use and limits of an account for one replica count."""

    memory: int = 0
    """Bytes of memory in use."""
    storage: int = 0
    """Bytes on disk in use."""
    reserved_memory: int = 0
    """Bytes of memory that streams have reserved by max_bytes."""
    reserved_storage: int = 0
    """Bytes on disk that streams have reserved by max_bytes."""
    streams: int = 0
    """Number of streams."""
    consumers: int = 0
    """Number of consumers."""
    limits: AccountLimits = AccountLimits()
    """What is allowed in this tier."""


class ApiStats(OpenWire, kw_only=True, frozen=True):
    """Use of the API by the account; `level` is the API level of the JetStream side (0: server before 2.11)."""

    level: int = 0
    """API level of the servers; 0: older than 2.11."""
    total: int = 0
    """Requests so far."""
    errors: int = 0
    """Requests that were answered with an error."""
    inflight: int = 0
    """Requests that are being served."""


class AccountInfo(OpenWire, kw_only=True, frozen=True):
    """Use and limits of the account; `tiers` has one entry per replica count ("R1", "R3") where limits are tiered."""

    memory: int = 0
    """Bytes of memory in use."""
    storage: int = 0
    """Bytes on disk in use."""
    reserved_memory: int = 0
    """Bytes of memory that streams have reserved by max_bytes."""
    reserved_storage: int = 0
    """Bytes on disk that streams have reserved by max_bytes."""
    streams: int = 0
    """Number of streams."""
    consumers: int = 0
    """Number of consumers."""
    limits: AccountLimits = AccountLimits()
    """What is allowed."""
    domain: str = ""
    """The JetStream domain; "" when there is none."""
    api: ApiStats = ApiStats()
    """Use of the JetStream API."""
    tiers: dict[str, Tier] | None = None
    """Use and limits by replica count ("R1", "R3"), where limits are tiered."""


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
