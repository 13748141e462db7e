"""Small parts of a pool: one worker's state, what the pool tells, and its iterator."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import attrs

from jsclient.jetstream.messages import Messages
from jsclient.workers import stats

if TYPE_CHECKING:
    from jsclient.jetstream import Consumer, JetStreamMsg
    from jsclient.message import Msg
    from jsclient.workers.progress import Held


@attrs.frozen
class PoolEvent:
    """Something worth knowing: `kind` is "handled", "failed", "retried", "rejected", "dead", "hung" or "cut off"."""

    kind: str
    message: Any
    error: BaseException | None = None
    seconds: float = 0.0


@attrs.frozen
class StopReport:
    """How a stop went. `cut_off` are the messages whose handlers were still running (the server delivers them
    again after ack_wait); `given_back` counts those that were received, not started, and are with others now."""

    finished: bool
    cut_off: tuple[JetStreamMsg, ...]
    given_back: int

    def __bool__(self) -> bool:
        return self.finished


class Worker:
    """One thread of the pool: what it holds and what it counted."""

    __slots__ = ("calls", "counters", "held", "spent", "thread")

    def __init__(self) -> None:
        self.held: tuple[Held, ...] = ()
        self.counters = stats.Counters()
        self.calls = 0
        self.spent = 0.0
        self.thread: threading.Thread | None = None


@attrs.frozen
class Waits:
    """How long the server waits for an ack, per delivery, the consumer's own back-off, its limit of one pull."""

    ack: tuple[float, ...]
    backoff: tuple[float, ...]
    max_batch: int = 0


class PoolMessages(Messages):
    """The pool's iterator: it counts what it gives back."""

    given_back = 0

    def __init__(self, consumer: Consumer, **options: Any) -> None:
        super().__init__(consumer, consumer._pull_options(options))  # type: ignore[arg-type]

    def _give_back(self, messages: list[Msg]) -> None:
        self.given_back += len(messages)
        super()._give_back(messages)
