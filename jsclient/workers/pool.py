"""WorkerPool: threads that handle the messages of one pull consumer, and see to acks, retries and the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from jsclient.declared import arguments
from jsclient.jetstream import Consumer, JetStreamMsg
from jsclient.workers.core import PoolCore
from jsclient.workers.host import Pool
from jsclient.workers.options import MAX_PREFETCH, PoolOptionsDict
from jsclient.workers.parts import PoolEvent, StopReport

if TYPE_CHECKING:
    from typing_extensions import Unpack


T = TypeVar("T", bound=JetStreamMsg)


class WorkerPool(Pool):
    """Handle the messages of a pull consumer in `threads` threads. Starts immediately. Use it in a `with` block.

        def handle(msg):
            resize(msg.data)  # returning acks; raising retries

        with WorkerPool(consumer, handle, threads=8, attempts=5, dead_letter="dead.jobs") as pool:
            pool.run_until_signal()  # SIGTERM lets running handlers finish

    The outcome of `handler(message)` decides the ack. If it returns, the pool acks (`confirm=True` waits for the
    server's confirmation). If it raises, the message is redelivered after the pool's `backoff`, the consumer's, or 1 s.
    After `Retry(delay)` it is redelivered after that delay, up to `retries` times, and after `Reject(reason)` never.
    With `manual=True` the handler acks by itself. The pool still handles its exceptions if it has not acked.

    With `attempts=N` the pool gives up a message that fails at its N-th delivery or later. Deliveries that ended in
    Retry are left out. To give up, the pool stores the message under `dead_letter` with its reason, if that is set, and
    then terminates it. While the message cannot be stored, it is tried again.

    Deliveries that no handler saw (given back by a stop, prefetched by a killed process) count. But the pool gives up
    an unseen message only after five more than `attempts`, because it seems to kill its workers.

    While a handler runs, the pool reports the message as in progress after every third of `ack_wait` (or of the current
    entry of the consumer's back-off). It stops after `progress_limit` seconds (an hour).

    `key=function(message)` keeps order. Messages of one key are handled one at a time in stream order, and a failed
    message is retried in this process before the next. The order holds within one pool. For several pools that share a
    consumer see GroupPool. After a lost connection the pool starts no message until all unfinished deliveries that the
    server knows are here. If some were lost, this takes `ack_wait`.

    With `batch=(size, seconds)` the handler gets a list of up to `size` messages, at the latest `seconds` after the
    first. It may return an outcome per message or raise BatchFailed.

    With `later="jobs.later"`, a message to be tried again after `later_from` seconds (60) or more waits as a schedule
    under that subject of its stream. It then takes no place of `max_ack_pending`, and is delivered as a new message.
    The stream must be a work queue with `allow_msg_schedules` (server 2.12). If the server or the stream does not
    support schedules, the message is nak'd.

    With fast handlers the pool prefetches up to `max_prefetch` messages. With slow ones it holds only messages that are
    being handled. If all handlers block, prefetched messages go back after a third of `ack_wait`.

    With `WorkerPool(consumer.typed(Order), handler)` the handler gets messages with a `value` of that type. A message
    that cannot be decoded does not reach it. With `on_bad="raise"` it counts as one whose handler raised DecodeFailed.
    With "skip" the pool terminates it, with "reject" it stores it under `dead_letter` first.

    `group` is the priority group to take part in, for a consumer that has some (server 2.11).
    `on_event` gets PoolEvents in the worker threads. Raises ConfigError for a consumer that does not fit: its
    `max_deliver` must be -1 with `attempts`, its ack policy explicit.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.

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
