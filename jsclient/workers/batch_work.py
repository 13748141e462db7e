"""The work of a pool that hands lists of messages to its handler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.workers.outcomes import call_batch

if TYPE_CHECKING:
    from jsclient.jetstream import JetStreamMsg
    from jsclient.workers.core import PoolCore
    from jsclient.workers.parts import Worker


class BatchWork:
    """Gathers messages for one worker of such a pool and has them handled.

    `batch` is the most messages of a batch, and the seconds to wait after the first one.
    """

    def __init__(self, pool: PoolCore, batch: tuple[int, float]) -> None:
        self._pool = pool
        self._size, self._seconds = batch

    def work(self, worker: Worker) -> None:
        """Until the pool stops."""
        pool = self._pool
        while not pool.stopping:
            message = pool.messages.take(None) if pool.prefetch.size else pool.take_one(worker)
            if message is None:
                continue
            batch: list[JetStreamMsg] = []
            worker.held = ()
            try:
                self._add_to(worker, batch, message)
                self._gather(worker, batch, Deadline(self._seconds))
            except errors.JsClientError:
                pass  # stopped, closed or deleted: handle the messages in this batch, the next take raises again
            if batch and pool.connection.closed:
                pool.messages.not_started(batch)
            elif batch:
                self._handle(worker, batch)

    def _gather(self, worker: Worker, batch: list[JetStreamMsg], deadline: Deadline) -> None:
        while len(batch) < self._size and not self._pool.stopping:
            message = self._pool.messages.take(deadline.remaining())
            if message is not None:
                self._add_to(worker, batch, message)
            elif deadline.expired():
                return

    def _add_to(self, worker: Worker, batch: list[JetStreamMsg], message: JetStreamMsg) -> None:
        pool = self._pool
        deliveries = pool.count_of(message)
        if pool.settler.is_spent(message, deliveries):
            pool.settler.exhausted(worker, message, deliveries)
            return
        worker.held = (*worker.held, pool.hold(message))
        batch.append(message)

    def _handle(self, worker: Worker, batch: list[JetStreamMsg]) -> None:
        pool = self._pool
        started = time.monotonic()
        outcomes = call_batch(pool.handler, batch)
        seconds = time.monotonic() - started
        pool.count(worker, seconds / len(batch), batch[-1])
        pool.settler.settle_batch(worker, batch, outcomes, seconds, pool.deliveries)
        worker.held = ()
