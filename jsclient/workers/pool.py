"""WorkerPool: threads that handle the messages of one pull consumer, and see to acks, retries and the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from jsclient import kinds
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
    After `Retry(delay)` it is redelivered after that delay, up to `retries` times.

    After `Reject(reason)`, or a failure at delivery `attempts` or later, the pool gives the message up. It stores it
    under `dead_letter` with the reason, if that is set, and then terminates it.

    With `manual=True` the handler acks by itself. The pool still handles its exceptions if it has not acked. While a
    handler runs, the pool reports the message as in progress.

    With `key=function(message)` messages of one key are handled one at a time in stream order, within one pool. For
    several pools that share a consumer see GroupPool. With `batch=(size, seconds)` the handler gets lists. With
    `later="jobs.later"` messages with a long delay wait as schedules. With `consumer.typed(Order)` the handler gets
    messages with a `value`.

    `PoolOptions` describes each option. Raises ConfigError for a consumer that does not fit: its `max_deliver` must be
    -1 with `attempts`, its ack policy explicit.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.

    Further options:
        WorkerPool: see `PoolOptionsDict`.
    """

    def __init__(
        self,
        consumer: Consumer[T],
        handler: Callable[[T], Any] | Callable[[list[T]], Any],
        **options: Unpack[PoolOptionsDict],
    ) -> None:
        kinds.check(Consumer, consumer=consumer)
        super().__init__(PoolCore(consumer, handler, dict(options)))

    def __enter__(self) -> WorkerPool:
        return self


__all__ = ["MAX_PREFETCH", "PoolEvent", "StopReport", "WorkerPool"]
