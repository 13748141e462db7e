"""JetStream for threads: streams, consumers and publishing over a jsclient Connection.

Names are loaded when first used, so a program that only publishes does not import the consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsclient.jetstream.api.models import (
    AccountInfo,
    AccountLimits,
    AckPolicy,
    ApiStats,
    ClusterInfo,
    Compression,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    DesiredClusterInfo,
    DesiredClusterInfoOrigin,
    DesiredClusterInfoStatus,
    DesiredPeerInfo,
    Discard,
    ExternalStream,
    LostStreamData,
    MigrationStatus,
    PauseState,
    PeerInfo,
    PersistMode,
    Placement,
    PriorityGroupState,
    PriorityPolicy,
    PubAck,
    RawStreamMsg,
    ReplayPolicy,
    Republish,
    Retention,
    SequenceInfo,
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
    Tier,
)
from jsclient.jetstream.context import JetStream
from jsclient.jetstream.publishing.future import PublishFuture, PubMsg
from jsclient.jetstream.publishing.schedules import Schedule
from jsclient.jetstream.stream import Stream

if TYPE_CHECKING:
    from jsclient.jetstream.advisories import Advisory, MaxDeliveries
    from jsclient.jetstream.api.config_fields import ConsumerConfigDict, StreamConfigDict
    from jsclient.jetstream.consumer import Consumer
    from jsclient.jetstream.consuming.consume import ConsumeContext
    from jsclient.jetstream.consuming.double_ack import double_ack_many
    from jsclient.jetstream.consuming.fetch import Batch, BatchEnd
    from jsclient.jetstream.consuming.messages import Messages
    from jsclient.jetstream.consuming.ordered import OrderedConsumer, OrderedRead
    from jsclient.jetstream.consuming.ordered_sequence import OrderedOptionsDict
    from jsclient.jetstream.consuming.pull_options import (
        FetchBatchesDict,
        FetchBytesDict,
        FetchDict,
        Paused,
        PullOptions,
        PullOptionsDict,
    )
    from jsclient.jetstream.consuming.push import OrderedPushConsumer, PushConsumer, PushOptionsDict
    from jsclient.jetstream.consuming.typed_message import TypedMsg
    from jsclient.jetstream.counters import CounterEntry, Counters, counter_sources, counter_value
    from jsclient.jetstream.message import JetStreamMsg, Metadata
    from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
    from jsclient.jetstream.publishing.atomic_batch import AtomicBatch
    from jsclient.jetstream.publishing.fast_batch import FastBatch
    from jsclient.jetstream.publishing.options import (
        AtomicBatchDict,
        FastBatchDict,
        JetStreamDict,
        PublishAsyncDict,
        PublishDict,
        PublishOptions,
        PublishWindowDict,
    )
    from jsclient.jetstream.tracing import trace

_LATER = {
    "Advisory": "advisories",
    "AsyncPublisher": "publishing.asynchronous",
    "AtomicBatch": "publishing.atomic_batch",
    "Batch": "consuming.fetch",
    "ConsumeContext": "consuming.consume",
    "Consumer": "consumer",
    "CounterEntry": "counters",
    "Counters": "counters",
    "counter_sources": "counters",
    "counter_value": "counters",
    "BatchEnd": "consuming.fetch",
    "FastBatch": "publishing.fast_batch",
    "OrderedRead": "consuming.ordered",
    "JetStreamMsg": "message",
    "MaxDeliveries": "advisories",
    "Messages": "consuming.messages",
    "Metadata": "message",
    "OrderedConsumer": "consuming.ordered",
    "OrderedPushConsumer": "consuming.push",
    "Paused": "consuming.pull_options",
    "PullOptions": "consuming.pull_options",
    "PushConsumer": "consuming.push",
    "TypedMsg": "consuming.typed_message",
    "double_ack_many": "consuming.double_ack",
    "trace": "tracing",
    "AtomicBatchDict": "publishing.options",
    "ConsumerConfigDict": "api.config_fields",
    "FastBatchDict": "publishing.options",
    "FetchBatchesDict": "consuming.pull_options",
    "FetchBytesDict": "consuming.pull_options",
    "FetchDict": "consuming.pull_options",
    "JetStreamDict": "publishing.options",
    "OrderedOptionsDict": "consuming.ordered_sequence",
    "PublishAsyncDict": "publishing.options",
    "PublishDict": "publishing.options",
    "PublishOptions": "publishing.options",
    "PublishWindowDict": "publishing.options",
    "PullOptionsDict": "consuming.pull_options",
    "PushOptionsDict": "consuming.push",
    "StreamConfigDict": "api.config_fields",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value  # found directly from now on, even if a submodule has the same name
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AccountInfo",
    "AccountLimits",
    "AckPolicy",
    "Advisory",
    "ApiStats",
    "AsyncPublisher",
    "AtomicBatch",
    "AtomicBatchDict",
    "Batch",
    "ClusterInfo",
    "DesiredClusterInfo",
    "DesiredClusterInfoOrigin",
    "DesiredClusterInfoStatus",
    "DesiredPeerInfo",
    "MigrationStatus",
    "Compression",
    "ConsumeContext",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConfigDict",
    "ConsumerInfo",
    "CounterEntry",
    "Counters",
    "DeliverPolicy",
    "Discard",
    "BatchEnd",
    "ExternalStream",
    "FastBatch",
    "FastBatchDict",
    "FetchBatchesDict",
    "FetchBytesDict",
    "FetchDict",
    "JetStream",
    "JetStreamDict",
    "JetStreamMsg",
    "LostStreamData",
    "MaxDeliveries",
    "Messages",
    "Metadata",
    "OrderedConsumer",
    "OrderedOptionsDict",
    "OrderedPushConsumer",
    "OrderedRead",
    "PauseState",
    "Paused",
    "PeerInfo",
    "PersistMode",
    "Placement",
    "PriorityGroupState",
    "PriorityPolicy",
    "PubAck",
    "PubMsg",
    "PublishAsyncDict",
    "PublishDict",
    "PublishFuture",
    "PublishOptions",
    "PublishWindowDict",
    "PullOptions",
    "PullOptionsDict",
    "PushConsumer",
    "PushOptionsDict",
    "RawStreamMsg",
    "ReplayPolicy",
    "Republish",
    "Retention",
    "Schedule",
    "SequenceInfo",
    "SourceConsumer",
    "SourceInfoError",
    "Storage",
    "Stream",
    "StreamAlternate",
    "StreamConfig",
    "StreamConfigDict",
    "StreamConsumerLimits",
    "StreamInfo",
    "StreamSource",
    "StreamSourceInfo",
    "StreamState",
    "SubjectTransform",
    "Tier",
    "TypedMsg",
    "counter_sources",
    "counter_value",
    "double_ack_many",
    "trace",
]
