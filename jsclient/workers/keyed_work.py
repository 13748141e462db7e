"""The work of a pool that keeps order by key: which worker takes, which message is next, what waits behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jsclient import errors, waiting
from jsclient.workers.keyed import KeyedQueue
from jsclient.workers.progress import Held

if TYPE_CHECKING:
    from jsclient.jetstream import JetStreamMsg
    from jsclient.workers.parts import Worker
    from jsclient.workers.pool import WorkerPool


class KeyedWork:
    """What the workers of a pool share where order is kept by key; nothing is in it where it is not."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._queue = KeyedQueue()
        self._held: dict[int, Held] = {}  # by sequence in the stream
        self._hung: set[Any] = set()  # keys whose handler has run too long
        self._taking = False
        self._ready = waiting.new_condition()

    @property
    def backlog(self) -> int:
        """Messages that wait behind others of their key, or for their next try."""
        return self._queue.backlog

    def wake(self) -> None:
        """Something has changed that workers wait for, such as the end."""
        with self._ready:
            self._ready.notify_all()

    def held(self) -> Iterator[Held]:
        """Everything in hand, handled or waiting."""
        if not self._held:
            return iter(())
        with self._ready:
            return iter(list(self._held.values()))

    def clear(self) -> list[JetStreamMsg]:
        """Give up everything that waits; returns it."""
        with self._ready:
            rest = self._queue.clear()
            for message in rest:
                self._held.pop(sequence_of(message), None)
            self._ready.notify_all()
        return rest

    def hung(self, key: Any) -> None:
        """A handler has run too long: others may have its message, and what waits behind it, too."""
        with self._ready:
            self._hung.add(key)
            for message in self._queue.behind(key):
                self._held[sequence_of(message)].interval = float("inf")

    # --- one worker -------------------------------------------------------------------------------------

    def work(self, worker: Worker) -> None:
        """One worker at a time takes from the server, so that a key's messages are queued in stream order."""
        pool = self._pool
        while not pool.stopping:
            found = self._next(worker)
            while found is not None:
                key, message = found
                if pool.stopping:
                    worker.held = ()
                    pool.not_started(message)
                    return
                found = self._handle(worker, key, message)

    def _next(self, worker: Worker) -> tuple[Any, JetStreamMsg] | None:
        pool = self._pool
        with self._ready:
            now = time.monotonic()
            due = self._queue.due(now)
            if due is not None:
                worker.held = self._held_of(due[1])
                return due
            next_due = self._queue.next_due()
            timeout = None if next_due is None else max(next_due - now, 0.0)
            full = self._queue.backlog >= pool.options.max_prefetch + pool.options.threads
            if self._taking or full:
                self._ready.wait(timeout)
                return None
            self._taking = True
        try:
            return self._take(worker, timeout)
        finally:
            with self._ready:
                self._taking = False
                self._ready.notify()

    def _take(self, worker: Worker, timeout: float | None) -> tuple[Any, JetStreamMsg] | None:
        pool = self._pool
        message = pool.take_for(worker, timeout)
        if message is None:
            return None
        assert pool.options.key is not None
        held = pool.hold(message)
        held.waiting = True
        try:
            key = pool.options.key(message)
            hash(key)
        except BaseException as error:
            pool.settler.failed(worker, message, error, pool.count_of(message), 0.0)
            return None
        with self._ready:
            sequence = sequence_of(message)
            if sequence in self._held:
                # Its ack_wait ran out while it waits (or runs) here, after an outage: in hand already, and in order.
                return None
            self._held[sequence] = held
            held.key = key
            if key in self._hung:
                held.interval = float("inf")
            if self._queue.admit(key, message):
                worker.held = (held,)
                return key, message
            return None

    def _held_of(self, message: JetStreamMsg) -> tuple[Held, ...]:
        held = self._held.get(sequence_of(message))
        return () if held is None else (held,)

    def _handle(self, worker: Worker, key: Any, message: JetStreamMsg) -> tuple[Any, JetStreamMsg] | None:
        """Handle one message; returns the next one of the same key, if any."""
        pool = self._pool
        (held,) = worker.held or (pool.hold(message),)
        deliveries = pool.deliveries(worker, message)
        held.started = time.monotonic()
        held.waiting = False
        delay = pool.settler.run_keyed(worker, message, deliveries, held.retries)
        with self._ready:
            held.waiting, held.hung = True, None
            worker.held = ()
            self._hung.discard(key)
            if delay is not None and not pool.stopping:
                held.retries += 1
                self._queue.park(key, message, time.monotonic() + delay)
                self._ready.notify_all()
                return None
            self._held.pop(sequence_of(message), None)
            following = self._queue.done(key)
            if following is not None:
                worker.held = self._held_of(following)
            self._ready.notify()
        if delay is not None:
            pool.settler.give_back(message)
        return None if following is None else (key, following)


def sequence_of(message: JetStreamMsg) -> int:
    """What tells messages of one stream apart."""
    try:
        return message.stream_seq
    except errors.NotJetStreamMessage:
        return -id(message)
