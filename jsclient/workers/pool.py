"""WorkerPool: threads that handle the messages of one pull consumer, and see to acks, retries and the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jsclient.declared import arguments
from jsclient.hints import Unpack
from jsclient.jetstream import Consumer, JetStreamMsg
from jsclient.workers.core import PoolCore
from jsclient.workers.host import Pool
from jsclient.workers.options import MAX_PREFETCH, PoolOptionsDict
from jsclient.workers.parts import PoolEvent, StopReport

T = TypeVar("T", bound=JetStreamMsg)


class WorkerPool(Pool):
    """Handle the messages of a pull consumer in `threads` threads. Starts at once; use it in a `with` block.

    The outcome of `handler(message)` decides the ack: it returns: ack (`confirm=True`: wait for the server's
    confirmation); it raises: delivered again after the pool's `backoff`, the consumer's, or 1 s; it raises
    `Retry(delay)`: after that delay, up to `retries` times; `Reject(reason)`: never again. With `attempts=N` a message
    that fails at its N-th delivery or later is given up (deliveries that ended in Retry are left out). Given up means
    stored under `dead_letter` with its reason, if that is set, then terminated; while it cannot be stored, it is tried
    again. Deliveries that no handler saw (given back by a stop, prefetched by a killed process) count, but a message
    is only given up unseen after five more than `attempts`: it seems to kill its workers. `manual=True`: the handler
    acks by itself; what it raises is still dealt with unless it has.

    While a handler runs, the server is told so after a third of `ack_wait` (or of the consumer's back-off entry in
    force), for at most `progress_limit` seconds (an hour). `key=function(message)` keeps order: messages of one key
    are handled one after another in stream order, a failed one is tried again in this process before the next; that
    holds within one pool, not between pools that share a consumer (see GroupPool). After a lost link it starts nothing
    until the server knows of no unfinished delivery that is not here: for `ack_wait` if some were lost.
    `batch=(size, seconds)`: the handler gets a list of up to `size` messages, at the latest `seconds` after the
    first; it may return an outcome per message or raise BatchFailed.

    `later="jobs.later"`: a message to be tried again after `later_from` seconds (60) or more waits as a schedule
    under that subject of its own stream, a work queue with `allow_msg_schedules` (server 2.12), and holds no place of
    `max_ack_pending`; it comes back as a new message. Where the server or the stream has no schedules it is naked.

    Fast handlers prefetch up to `max_prefetch` messages, slow ones hold none beyond those being handled; if all of
    them block, what was prefetched goes back after a third of `ack_wait`.

    `WorkerPool(consumer.typed(Order), handler)`: the handler gets messages with a `value` of that type. A message that
    cannot be decoded does not reach it. With `on_bad="raise"` it counts as one whose handler raised DecodeFailed. With
    "skip" the pool terminates it, with "reject" it stores it under `dead_letter` first.

    `group` is the priority group to take part in, for a consumer that has some (server 2.11).
    `on_event` gets PoolEvents in the worker threads. Raises ConfigError for a consumer that does not fit: its
    `max_deliver` must be -1 with `attempts`, its ack policy explicit.

    Options of several methods:
        timeout: Seconds for the whole call; by default 5 for what a server answers. None waits indefinitely, 0 takes
            only what is there, and a negative number raises ConfigError. At the end the call raises a TimeoutError,
            or returns what has arrived if its text says that.

    Further options:
        WorkerPool: see `PoolOptionsDict`.
    """

    @arguments
    def __init__(
        self,
        consumer: Consumer[T],
        handler: Callable[[T], Any] | Callable[[list[T]], Any],
        **options: Unpack[PoolOptionsDict],
    ) -> None:
        super().__init__(PoolCore(consumer, handler, dict(options)))

    def __enter__(self) -> WorkerPool:
        return self


__all__ = ["MAX_PREFETCH", "PoolEvent", "StopReport", "WorkerPool"]
