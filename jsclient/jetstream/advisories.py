"""Advisories: the server's reports about streams and consumers, as typed events.

    with js.advisories(MaxDeliveries, stream="ORDERS") as events:
        for event in events:
            bury(event.stream, event.stream_seq)

Advisories are core messages: the server does not keep them for an absent client. If you must not miss any, create a
stream on `$JS.EVENT.ADVISORY.>` and decode its messages with `parse_advisory`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from jsclient import handlers
from jsclient.durations import DEFAULT, Timeout
from jsclient.errors import BadResponse, ConfigError, brief
from jsclient.jetstream.advisory_models import (
    AckSample,
    Advisory,
    ApiLimitReached,
    BatchAbandoned,
    ConsumerAction,
    ConsumerLeader,
    ConsumerPaused,
    ConsumerPinned,
    ConsumerUnpinned,
    MaxDeliveries,
    MessageNaked,
    MessageTerminated,
    OfConsumer,
    OfStream,
    Peer,
    StreamAction,
    StreamLeader,
)
from jsclient.jetstream.advisory_servers import (
    AccountConnections,
    ApiAudit,
    ClientConnected,
    ClientDisconnected,
    DomainLeader,
    EventClient,
    EventServer,
    MetaRescue,
    PeerLinkInvalid,
    PeerRejected,
    RestoreCompleted,
    RestoreCreated,
    ServerOutOfSpace,
    ServerRemoved,
    ServiceLatency,
    SnapshotCompleted,
    SnapshotCreated,
)
from jsclient.jetstream.api import model_base, names

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.message import Msg
    from jsclient.subscription import Subscription

__all__ = [
    "AccountConnections",
    "AckSample",
    "Advisories",
    "Advisory",
    "ApiAudit",
    "ApiLimitReached",
    "BatchAbandoned",
    "ClientConnected",
    "ClientDisconnected",
    "ConsumerAction",
    "ConsumerLeader",
    "ConsumerPaused",
    "ConsumerPinned",
    "ConsumerUnpinned",
    "DomainLeader",
    "EventClient",
    "EventServer",
    "MaxDeliveries",
    "MessageNaked",
    "MessageTerminated",
    "MetaRescue",
    "OfConsumer",
    "OfStream",
    "Peer",
    "PeerLinkInvalid",
    "PeerRejected",
    "RestoreCompleted",
    "RestoreCreated",
    "ServerOutOfSpace",
    "ServerRemoved",
    "ServiceLatency",
    "SnapshotCompleted",
    "SnapshotCreated",
    "StreamAction",
    "StreamLeader",
    "event_subject",
    "parse_advisory",
]

log: logging.Logger = logging.getLogger("jsclient.jetstream")

_TYPE: Final = "io.nats.jetstream."

_CLASSES: Final[tuple[type[Advisory], ...]] = (
    *(MaxDeliveries, MessageNaked, MessageTerminated, ConsumerPaused, ConsumerAction, ConsumerPinned),
    *(ConsumerUnpinned, ConsumerLeader, StreamLeader, StreamAction, BatchAbandoned, ApiLimitReached, AckSample),
    *(ApiAudit, SnapshotCreated, SnapshotCompleted, RestoreCreated, RestoreCompleted),
    *(DomainLeader, ServerOutOfSpace, ServerRemoved, MetaRescue, ClientConnected),
    *(ClientDisconnected, AccountConnections, PeerRejected, PeerLinkInvalid, ServiceLatency),
)
KINDS: Final = {kind if kind.startswith("io.") else _TYPE + kind: cls for cls in _CLASSES for kind in cls._events}
"""Kind of event, in the server's words, -> its class."""

E = TypeVar("E", bound=Advisory)


def parse_advisory(data: bytes) -> Advisory:
    """The event in the payload of an advisory; unknown kinds become `Advisory`. Raises BadResponse."""
    plain = model_base.decode_json(data)
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise BadResponse(f"not an advisory: {data[:80]!r}", data)
    cls = KINDS.get(plain["type"], Advisory)
    fields = {**plain, "raw": plain}
    if cls is ApiAudit:  # `subject` is where a kind of event is published
        fields["api_subject"] = fields.pop("subject", "")
    return model_base.from_wire(fields, cls)


class Advisories(Generic[E]):
    """A subscription to events: iterate, or `next(timeout)`; close it, or leave its `with` block. Thread-safe.

    You get one from `js.advisories()`. With a callback, a worker thread passes the events to it instead.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self,
        nc: Connection,
        kind: type[E],
        *,
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[E], Any] | None = None,
    ) -> None:
        self._kind = kind
        self._stream = stream
        self._consumer = consumer
        handlers.check(callback, "callback")
        self._callback = callback
        subject = event_subject(kind, stream, consumer)
        self._subscription: Subscription = nc.subscribe(subject, self._handle if callback is not None else None)

    def _handle(self, message: Msg) -> None:
        event = self._wanted(message)
        if event is not None and self._callback is not None:
            handlers.ran(self._callback(event))

    def _wanted(self, message: Msg) -> E | None:
        """The event, if it is of the requested kind: some kinds share their subjects with others."""
        try:
            event = parse_advisory(message.data)
        except BadResponse as error:  # others may publish there, too
            log.warning("%s on %s", brief(error), message.subject)
            return None
        return event if isinstance(event, self._kind) else None

    def next(self, timeout: Timeout = DEFAULT) -> E:
        """The next event; raises TimedOut if none came in time."""
        while True:
            event = self._wanted(self._subscription.next(timeout))
            if event is not None:
                return event

    def __iter__(self) -> Advisories[E]:
        return self

    def __next__(self) -> E:
        while True:
            event = self._wanted(next(self._subscription))
            if event is not None:
                return event

    def close(self) -> None:
        """Unsubscribe; iterations end."""
        self._subscription.close()

    def __enter__(self) -> Advisories[E]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def event_subject(kind: type[Advisory], stream: str | None = None, consumer: str | None = None) -> str:
    """The subject of a kind of event, for one stream and consumer or for all."""
    if not (isinstance(kind, type) and issubclass(kind, Advisory)):
        raise ConfigError(f"kind must be a class of events such as MaxDeliveries, not {kind!r}")
    if (stream is not None and "{stream}" not in kind.subject) or (
        consumer is not None and "{consumer}" not in kind.subject
    ):
        raise ConfigError(f"{kind.__name__} events are not told apart by stream or consumer: leave these out")
    return kind.subject.format(
        stream="*" if stream is None else names.check_stream(stream),
        consumer="*" if consumer is None else names.check_consumer(consumer),
    )
