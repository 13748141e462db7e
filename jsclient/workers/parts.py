"""Small parts of a pool: one worker's state, the pool's events and reports, and its iterator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from jsclient import handlers
from jsclient.jetstream import JetStreamMsg
from jsclient.jetstream.consuming.pull_messages import PullMessages
from jsclient.jetstream.consuming.pump import COMPLETED
from jsclient.jetstream.consuming.sources import source_of
from jsclient.states import LinkEvent
from jsclient.threads import Thread
from jsclient.workers import stats

if TYPE_CHECKING:
    from jsclient.jetstream import Consumer
    from jsclient.message import Msg
    from jsclient.workers.progress import Held

log: logging.Logger = logging.getLogger("jsclient.workers")

_REFUSED = (b"NATS/1.0 409", b"NATS/1.0 503")
"""The first bytes of a status that ends pulls: the server that led the consumer gives up, or is gone."""


@attrs.frozen
class PoolEvent:
    """Something worth knowing: `kind` is "handled", "failed", "retried", "rejected", "dead", "hung" or "cut off".

    Attributes:
        kind: "handled", "failed", "retried", "rejected", "dead", "hung" or "cut off".
        message: The message that it is about; None if it is about the pool.
        error: The exception of the handler.
        seconds: Seconds that the handler took.
    """

    kind: str
    message: Any
    error: BaseException | None = None
    seconds: float = 0.0


def tell(observer: Callable[[PoolEvent], Any], event: PoolEvent) -> None:
    """Call `on_event` and log its exceptions."""
    try:
        handlers.ran(observer(event))
    except BaseException:  # also SystemExit: an observer must not end a worker
        log.exception("on_event failed")


@attrs.frozen
class StopReport:
    """The result of a stop. `cut_off` has the messages that handlers were still working on. The server delivers them
    again after ack_wait. `given_back` counts messages that were received but not started, and that others get now.

    Attributes:
        finished: True if every handler has ended.
        cut_off: Messages that handlers were still working on; the server redelivers them.
        given_back: Messages that were received but not started; the server redelivers them immediately.
    """

    finished: bool
    cut_off: tuple[JetStreamMsg, ...]
    given_back: int

    def __bool__(self) -> bool:
        return self.finished


class Worker:
    """One thread of the pool: its messages and its counters."""

    __slots__ = ("calls", "counters", "held", "spent", "thread")

    def __init__(self) -> None:
        self.held: tuple[Held, ...] = ()
        self.counters: stats.Counters = stats.Counters()
        self.calls: int = 0
        self.spent: float = 0.0
        self.thread: Thread | None = None


class PoolMessages(PullMessages[JetStreamMsg]):
    """The pool's iterator: it also returns, and counts, messages that the pool had taken and not started."""

    given_back: int = 0
    interruptions: int = 0
    """Number of events after which deliveries may be missing: links that ended, and pulls that the server ended early.
    See also `missed_heartbeats`."""

    def __init__(self, consumer: Consumer[Any], **options: Any) -> None:
        source = source_of(consumer)
        super().__init__(source, source.pull_options(options))  # type: ignore[arg-type]

    def take(self, timeout: float | None) -> JetStreamMsg | None:
        """The next message, None after the timeout or at the end."""
        return self._get(timeout)

    def _handle(self, item: Any) -> JetStreamMsg | None:
        if isinstance(item, LinkEvent):
            self.interruptions += 1
        elif (raw := getattr(item, "raw_headers", None)) is not None and raw.startswith(_REFUSED):
            self.interruptions += not raw.startswith(COMPLETED)
        return super()._handle(item)

    @property
    def pulls_outstanding(self) -> int:
        return len(self._state.open)

    def not_started(self, messages: Iterable[JetStreamMsg]) -> None:
        """The end has come: they go back with the rest, once the server has forgotten the pull."""
        for message in messages:
            self._return(message.msg)

    def _give_back(self, messages: list[Msg]) -> None:
        self._settled = True  # first, as in the method that this one adds to
        messages += self._take_returned()
        self.given_back += len(messages)
        super()._give_back(messages)
