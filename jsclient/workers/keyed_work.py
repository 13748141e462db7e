"""The work of a pool that keeps order by key: the receiving worker, the next message, and those waiting behind it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors, handlers, waiting
from jsclient.jetstream.dead_letters import deliveries_of
from jsclient.workers.order import Item, Order
from jsclient.workers.progress import Held
from jsclient.workers.settle import BY_HANDLER

if TYPE_CHECKING:
    from jsclient.jetstream import JetStreamMsg
    from jsclient.workers.core import PoolCore
    from jsclient.workers.parts import Worker

log: logging.Logger = logging.getLogger("jsclient.workers")

LOOK: Final = 0.25
"""Seconds between two questions whether everything is here, while the pool holds."""
LOOK_TIMEOUT: Final = 2.0

LONGEST_HOLD: Final = 60.0
"""Seconds that a hold waits for a late entry of the consumer's back-off. For the first it waits as long as it takes."""
HOLD_MARGIN: Final = 2.0


class KeyedWork:
    """State that the workers of a pool share to keep order by key. Without such an order it stays empty.

    `ack_waits` has, per delivery, the seconds after which the server redelivers an unacked message.
    """

    def __init__(self, pool: PoolCore, ack_waits: Sequence[float]) -> None:
        self._pool = pool
        self._order = Order(None, shares=True)
        self._hung: set[Any] = set()  # keys with a handler that has run too long
        self._taking = False
        self._ready = waiting.new_condition()
        self._again = max(ack_waits[0], min(max(ack_waits), LONGEST_HOLD))  # by then a lost delivery was redelivered
        self._interruptions = 0
        self._held_since = 0.0
        self._next_look = 0.0
        self._room = 0  # how many may wait here while the pool holds

    @property
    def backlog(self) -> int:
        """Messages that wait behind others of their key, or for their next try."""
        return self._order.backlog

    def wake(self) -> None:
        """Something has changed that workers wait for, such as the end."""
        with self._ready:
            self._ready.notify_all()

    def held(self) -> Iterator[Held]:
        """All messages that the pool holds, running or waiting."""
        if not self._order.items:
            return iter(())
        with self._ready:
            return iter([item.held for item in self._order.items.values()])

    def clear(self) -> list[JetStreamMsg]:
        """Give up everything that waits. Returns it."""
        with self._ready:
            rest = self._order.give_up()
            self._ready.notify_all()
        return [item.message for item in sorted(rest, key=lambda item: item.sequence)]

    def hung(self, key: Any) -> None:
        """A handler has run too long: other processes may have its message, and the messages that wait behind it."""
        with self._ready:
            self._hung.add(key)
            for item in self._order.waiting():
                if item.key == key:
                    item.held.interval = float("inf")

    # --- one worker -------------------------------------------------------------------------------------

    def work(self, worker: Worker) -> None:
        """One worker at a time takes messages from the server, to queue a key's messages in stream order."""
        pool = self._pool
        while not pool.stopping:
            item = self._next(worker)
            while item is not None:
                if pool.stopping:
                    worker.held = ()
                    self._drop(item)
                    pool.not_started(item.message)
                    return
                item = self._handle(worker, item)

    def _next(self, worker: Worker) -> Item | None:
        with self._ready:
            now = time.monotonic()
            item = self._begin(worker, now)
            if item is not None:
                return item
            next_due = self._order.next_due()
            timeout = None if next_due is None else max(next_due - now, 0.0)
            full = self._order.backlog >= self._limit()
            if self._taking or (full and not self._order.missing):
                self._ready.wait(timeout)
                return None
            self._taking = True
        try:
            if self._order.missing:
                timeout = self._look_in_time()
            if full:
                with self._ready:
                    self._ready.wait(timeout)
            else:
                self._take(worker, timeout)
        finally:
            with self._ready:
                self._taking = False
                self._ready.notify()
        return None

    def _begin(self, worker: Worker, now: float) -> Item | None:
        """A message that may be started, assigned to this worker. The caller has the lock."""
        item = self._order.next(now)
        if item is None:
            return None
        worker.held = (item.held,)
        if self._order.startable:
            self._ready.notify()
        return item

    def _limit(self) -> int:
        options = self._pool.options
        return self._room if self._order.missing else options.max_prefetch + options.threads

    def _take(self, worker: Worker, timeout: float | None) -> None:
        pool = self._pool
        message = pool.take_for(worker, timeout)
        if message is None:
            return
        assert pool.options.key is not None
        item = self._item_of(message)
        interruptions = pool.interruptions
        if interruptions != self._interruptions:
            self._interruptions = interruptions
            self._order.doubt()
        try:
            item.key = item.held.key = handlers.ran(pool.options.key(message))
            hash(item.key)
        except BaseException as error:
            with self._ready:
                self._order.seen(item.delivery)
            pool.settler.failed(worker, message, error, pool.count_of(message), 0.0)
            return
        with self._ready:
            arrival = self._order.arrived(item)
            if item.key in self._hung:
                item.held.interval = float("inf")
            if self._order.missing and not self._held_since:
                self._begin_hold()
        if arrival == "done":
            self._done_before(item)

    def _item_of(self, message: JetStreamMsg) -> Item:
        held = self._pool.hold(message)
        held.waiting = True
        try:
            return Item.of(message, held)
        except errors.NotJetStreamMessage:
            # An account import rewrote the ack subject. Only the object identifies the message, and the pool notices no
            # gaps.
            return Item(message, -id(message), (self._order.last or 0) + 1, held=held)

    def _done_before(self, item: Item) -> None:
        """It was handled here. If the server counts its deliveries from 1 again, the consumer was reset on purpose."""
        if deliveries_of(item.message) == 1:
            with self._ready:
                self._order.admit_again(item)
        else:
            self._pool.settler.ack_again(item.message)

    def _drop(self, item: Item) -> None:
        with self._ready:
            self._order.finished(item, again=True)

    def _handle(self, worker: Worker, item: Item) -> Item | None:
        """Handle one message. Returns the next one, if any may be started."""
        pool, held = self._pool, item.held
        deliveries = pool.deliveries(worker, item.message)
        held.started = time.monotonic()
        held.waiting = False
        delay = pool.settler.run_keyed(worker, item.message, deliveries, held)
        finished = delay is None or delay == BY_HANDLER
        with self._ready:
            held.waiting, held.hung = True, None
            worker.held = ()
            self._hung.discard(item.key)
            if not finished and not pool.stopping:
                assert delay is not None
                self._order.failed(item, time.monotonic() + delay)
                self._ready.notify_all()
                return None
            self._order.finished(item, again=delay is not None)
            following = self._begin(worker, time.monotonic())
            if following is None:
                self._ready.notify()
        if not finished:
            pool.settler.give_back(item.message)
        return following

    # --- waiting until everything is here ---------------------------------------------------------------

    def _begin_hold(self) -> None:
        self._held_since = self._next_look = time.monotonic()
        # Take no more than usual. Messages that stay on the server leave room for its redeliveries.
        self._room = self._order.backlog + self._pool.options.threads

    def _look_in_time(self) -> float:
        """Ask the server, if it is time, whether deliveries are missing. Returns the seconds until the next look."""
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look - now
        unacked, delivered = self._state()
        with self._ready:
            order = self._order
            complete = unacked >= 0 and order.is_complete(unacked, delivered)
            since = now - self._held_since
            if complete or order.others or since > self._again + HOLD_MARGIN:
                self._end_hold(complete, since)
                return 0.0
            if since > self._again and unacked > len(order.items):
                self._room = order.backlog + unacked - len(order.items)  # they come before anything new
            self._next_look = time.monotonic() + LOOK
        return LOOK

    def _state(self) -> tuple[int, int]:
        """(unacked deliveries, number of the last one); -1 for both if the server cannot be queried."""
        try:
            info = self._pool.consumer.info(timeout=LOOK_TIMEOUT)
        except errors.JsClientError as error:
            log.info("%s: not known whether deliveries are missing: %s", self._pool.consumer, error)
            return -1, -1
        return info.num_ack_pending, info.delivered.consumer_seq

    def _end_hold(self, complete: bool, since: float) -> None:
        self._held_since = 0.0
        order, consumer = self._order, self._pool.consumer
        if complete:
            order.others = False
            log.info("%s: everything delivered is here after %.2f s", consumer, since)
        elif not order.others:
            log.warning(
                "%s: after %.1f s the server still knows of deliveries that are not here: other processes have them, "
                "or the order of their keys is lost",
                consumer,
                since,
            )
        order.release()
        self._ready.notify_all()
