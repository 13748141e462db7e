"""JetStream for threads: streams, consumers and publishing over a jsclient Connection.

Names are loaded when first used, so that a program that only publishes does not import the consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsclient.jetstream.context import JetStream
from jsclient.jetstream.models import (
    AccountInfo,
    AckPolicy,
    Compression,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    Discard,
    ExternalStream,
    PauseState,
    PersistMode,
    Placement,
    PriorityPolicy,
    PubAck,
    RawStreamMsg,
    ReplayPolicy,
    Republish,
    Retention,
    SequenceInfo,
    SourceConsumer,
    Storage,
    StreamConfig,
    StreamConsumerLimits,
    StreamInfo,
    StreamSource,
    StreamState,
    SubjectTransform,
)
from jsclient.jetstream.publish_future import PublishFuture, PubMsg
from jsclient.jetstream.schedules import Schedule
from jsclient.jetstream.stream import Stream

if TYPE_CHECKING:
    from jsclient.jetstream.atomic_batch import AtomicBatch
    from jsclient.jetstream.consumer import Consumer
    from jsclient.jetstream.fast_batch import FastBatch
    from jsclient.jetstream.message import JetStreamMsg
    from jsclient.jetstream.ordered import OrderedConsumer
    from jsclient.jetstream.publish_async import AsyncPublisher
    from jsclient.jetstream.push import PushConsumer

_LATER = {
    "AsyncPublisher": "publish_async",
    "AtomicBatch": "atomic_batch",
    "FastBatch": "fast_batch",
    "Consumer": "consumer",
    "JetStreamMsg": "message",
    "OrderedConsumer": "ordered",
    "PushConsumer": "push",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


__all__ = [
    "AccountInfo",
    "AckPolicy",
    "AsyncPublisher",
    "AtomicBatch",
    "Compression",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "DeliverPolicy",
    "Discard",
    "ExternalStream",
    "FastBatch",
    "JetStream",
    "JetStreamMsg",
    "OrderedConsumer",
    "PauseState",
    "PersistMode",
    "Placement",
    "PriorityPolicy",
    "PubAck",
    "PubMsg",
    "PublishFuture",
    "PushConsumer",
    "RawStreamMsg",
    "ReplayPolicy",
    "Republish",
    "Retention",
    "Schedule",
    "SequenceInfo",
    "SourceConsumer",
    "Storage",
    "Stream",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamInfo",
    "StreamSource",
    "StreamState",
    "SubjectTransform",
]
