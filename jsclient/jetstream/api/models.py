"""The wire models of JetStream: configurations, infos, acks. Streams and consumers have modules of their own."""

from __future__ import annotations

import datetime as dt

import msgspec

from jsclient.jetstream.api.model_base import OpenWire, Wire
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
    ClusterInfo,
    Compression,
    Discard,
    ExternalStream,
    LostStreamData,
    PeerInfo,
    PersistMode,
    Placement,
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
from protocol import Headers

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
    "Discard",
    "ExternalStream",
    "LostStreamData",
    "MessageResponse",
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

    `duplicate`: the message id was known, and `seq` is that of the first copy. `val`: the new value of a counter.
    `batch` and `count`: id and size of a committed batch.
    """

    stream: str
    seq: int = 0
    duplicate: bool = False
    domain: str = ""
    val: str = ""
    batch: str = ""
    count: int = 0


class RawStreamMsg(msgspec.Struct, kw_only=True, frozen=True):
    """A message as it is stored: read by get_msg and its kin, not delivered by a consumer."""

    subject: str
    seq: int
    data: bytes
    time: dt.datetime | None
    headers: Headers = msgspec.field(default_factory=Headers)
    stream: str = ""


class AccountLimits(OpenWire, kw_only=True, frozen=True):
    """Limits of an account (-1: none), or of one replica tier of it."""

    max_memory: int = 0
    max_storage: int = 0
    max_streams: int = 0
    max_consumers: int = 0
    max_ack_pending: int = 0
    memory_max_stream_bytes: int = 0
    storage_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class Tier(OpenWire, kw_only=True, frozen=True):
    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = AccountLimits()


class ApiStats(OpenWire, kw_only=True, frozen=True):
    """Use of the API by the account; `level` is the API level of the JetStream side (0: server before 2.11)."""

    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0


class AccountInfo(OpenWire, kw_only=True, frozen=True):
    """Use and limits of the account; `tiers` has one entry per replica count ("R1", "R3") where limits are tiered."""

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
