"""One term of a member: from the creation of its consumer until the member gives the consumer up, or loses it.

A separate thread receives messages all the time, even if no worker is free: a client that has not pulled for
`priority_timeout` counts as gone. The consumer's `max_ack_pending` bounds the messages that wait here.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jsclient import errors, handlers
from jsclient.durations import Deadline, doubled, elapsed
from jsclient.groups.config import PRIORITY_GROUP
from jsclient.groups.message import GroupMessage, of_member
from jsclient.jetstream.consuming.sources import source_of
from jsclient.threads import Thread, start_all
from jsclient.waiting import Gate
from jsclient.workers.order import Item, Order, Tries
from jsclient.workers.parts import PoolMessages
from jsclient.workers.progress import PART, Held

if TYPE_CHECKING:
    from jsclient.groups.member_state import MemberState
    from jsclient.jetstream import Consumer, ConsumerInfo

log: logging.Logger = logging.getLogger("jsclient.groups")

LEASE_PART: Final = 0.6
"""A handler is started only within this part of `priority_timeout` after the server has confirmed our pin."""

LOOK_PART: Final = 0.2
HOLD_LOOK: Final = 0.25
FIRST_LOOKS: Final = 0.03

ACKS_TIMEOUT: Final = 2.0


class Term:
    """A member's work with one consumer. The order is guarded by `pool.ready`. `look` is the control thread's."""

    def __init__(self, pool: MemberState, consumer: Consumer, partitions: list[int], epoch: int) -> None:
        info = consumer.cached_info
        assert info is not None
        self.pool = pool
        self.consumer = consumer
        self.partitions = partitions
        self.epoch = epoch
        self.order: Order = Order(0 if not info.delivered.consumer_seq else None, pool.done)
        self.consumer_filters: list[str] = []
        self.suspects: set[int] = set()  # partitions of an owner that died: the first message of them is looked at
        self.tries: dict[int, Tries] = {}
        self.error: BaseException | None = None
        self.over: bool = False  # no further messages are received
        self.handing_over: bool = False
        self.pin: str = ""
        self.valid_until: float = 0.0
        self._held_since = 0.0
        self._looked_at = 0.0
        self._looks = 0
        terms = pool.terms
        self._messages = PoolMessages(
            consumer,
            max_messages=terms.max_ack_pending + 1,  # one more than can come: a pull is always open
            max_bytes=0,
            expires=max(1.0, terms.priority_timeout / 3),
            group=PRIORITY_GROUP,
            leave_buffered=True,
            on_error=pool.reported,
        )
        self._messages.for_handlers()
        self._thread = Thread(f"jsclient-group-{pool.member}-take", self._take)

    def start(self) -> None:
        self.pool.engine.drainables.enter(self.pool, instead_of=self._messages)
        try:
            start_all([self._thread], f"the member {self.pool.member!r}")
        except errors.NoThread as error:
            self.error, self.over = error, True
            raise

    # --- taking -------------------------------------------------------------------------------------------

    def _take(self) -> None:
        try:
            for message in self._messages:
                self._arrived(of_member(message, self.epoch, self.pool.values))
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self.pool.wake()

    def _arrived(self, message: GroupMessage) -> None:
        pool = self.pool
        self.pin = source_of(self.consumer).pins.get(PRIORITY_GROUP, "")
        item = Item.of(message, Held(message, pool.terms.ack_wait / PART, waiting=True))
        tries = self.tries.pop(item.sequence, item.tries)
        if tries.stored in (0, item.stored):
            item.tries = tries
        item.held.retries = item.tries.failed
        alone = self._suspected(item, message)
        try:
            assert pool.options.key is not None
            item.key = handlers.ran(pool.options.key(message))
            hash(item.key)
        except Exception as error:
            log.warning("the key of %r cannot be told: %s", message, errors.brief(error), exc_info=error)
            item.key, item.poison = ("no key", item.sequence), f"its key cannot be told: {errors.brief(error)}"
        with pool.ready:
            verdict = self.order.arrived(item)
            if alone:
                self.order.one_by_one(pool.terms.max_ack_pending)
            held = self.order.missing
            pool.ready.notify()
        if verdict == "done":
            pool.settler.ack_again(message)
        if held:
            pool.wake()

    def _suspected(self, item: Item, message: GroupMessage) -> bool:
        """Look at the first message of a partition after its owner died; True: handle the next ones one by one."""
        if message.partition not in self.suspects:
            return False
        self.suspects = set()
        if item.tries.begun:
            item.tries = Tries(failed=item.tries.failed, alone=item.tries.alone + 1)
        attempts = self.pool.options.attempts
        if attempts is not None and item.tries.alone >= attempts:
            item.poison = f"its process died {item.tries.alone} times while it was handled alone"
        self.note(item)
        try:
            return self.pool.records.crash_before()
        except errors.JsClientError as error:
            log.warning("it is not noted that the process of %r died: %s", message, error, exc_info=error)
            return True

    def begin_alone(self, item: Item) -> None:
        """Note the message: if the process dies now, the note names it."""
        item.tries = Tries(failed=item.tries.failed, alone=item.tries.alone, begun=True)
        self.note(item)

    def note(self, item: Item) -> None:
        """For the member that has the message next."""
        try:
            self.pool.records.note(item.sequence, msgspec.structs.replace(item.tries, stored=item.stored))
        except errors.JsClientError as error:
            log.info("the tries of %r are not noted: %s", item.message, error)

    # --- looking ------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """True if a handler may be started: a recent answer of the server has confirmed that the consumer is pinned to
        us.
        """
        return not self.handing_over and elapsed() < self.valid_until

    def next_look(self) -> float:
        """When to ask the server again; on the monotonic clock."""
        pause = self.pool.terms.priority_timeout * LOOK_PART
        if self.order.missing:
            pause = min(pause, doubled(FIRST_LOOKS, self._looks, HOLD_LOOK))
        return self._looked_at + pause

    def look(self) -> None:
        """Read the pinned client and the unfinished messages from the server. The control thread calls it in time."""
        sent, asked = time.monotonic(), elapsed()
        self._looked_at = sent
        pin = self.pin
        self._looks = self._looks + 1 if self.order.missing else 0
        try:
            info = self.consumer.info(timeout=max(1.0, self.pool.terms.priority_timeout / 2))
        except errors.ConsumerNotFound as error:
            self.error = self.error or error
            self.over = True
            return
        except errors.JsClientError as error:
            log.info("%s: not known whether it is still ours: %s", self.consumer, error)
            return
        pinned = pin_of(info)
        if pin and pinned != pin:
            if self.pin == pin:
                self._lost_pin(pinned)
            return
        self.valid_until = asked + self.pool.terms.priority_timeout * LEASE_PART
        with self.pool.ready:
            if self.order.missing:
                self._look_at_hold(info, pinned, sent)
            self.pool.ready.notify_all()

    def _look_at_hold(self, info: ConsumerInfo, pinned: str, now: float) -> None:
        self._held_since = self._held_since or now
        complete = self.order.is_complete(info.num_ack_pending, info.delivered.consumer_seq)
        # Messages that were purged or expired are here, but the server does not have them. A message that is neither
        # acked nor here would have been redelivered by now.
        late = now > self._held_since + self.pool.terms.ack_wait + self.pool.terms.priority_timeout
        fewer = late and info.num_ack_pending <= len(self.order.items)
        if pinned == self.pin and (complete or fewer):
            log.info("%s: everything delivered is here after %.2f s", self.consumer, now - self._held_since)
            self._held_since = 0.0
            self.order.release()

    @property
    def waits_for_others(self) -> bool:
        """True if unfinished messages are missing that a dead process may have held."""
        info = self.consumer.cached_info
        return self.order.missing and info is not None and info.num_ack_pending > len(self.order.items)

    def _lost_pin(self, pinned: str) -> None:
        """The consumer is pinned elsewhere, or may be. Messages that were not started go to the process that has the
        pin.
        """
        self.valid_until = 0.0
        self.pin = ""
        with self.pool.ready:
            given = self.order.give_up()
        log.info("%s is pinned to %s: %d messages go back", self.consumer, pinned or "nobody", len(given))
        self.pool.event("lost pin", None)
        self._give_back(given)

    def _give_back(self, items: list[Item]) -> None:
        for item in items:
            self.pool.settler.give_back(item.message)
        if not self.pool.connection.closed:
            self.pool.engine.flush_outbox()

    # --- the end ------------------------------------------------------------------------------------------

    def stop_starting(self) -> None:
        self.handing_over = True

    def end_taking(self) -> None:
        self.over = True
        self._messages.stop()
        self._messages.close()
        if self._thread.began and threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def finish(self, delete: bool) -> None:
        """Nothing runs any more: confirm the acks, then give the consumer up (`delete`), or what it has delivered."""
        self.end_taking()
        with self.pool.ready:
            rest = self.order.give_up()
        if self.pool.connection.closed or isinstance(self.error, (errors.ConsumerDeleted, errors.ConsumerNotFound)):
            return
        self._note_failures(rest)
        if not delete:
            self._give_back(rest)
            return
        try:
            if self._confirm_acks(len(rest)) in ("", self.pin):
                self.pool.group.js.delete_consumer(self.consumer.stream_name, self.consumer.name, timeout=ACKS_TIMEOUT)
        except errors.JsClientError as error:
            log.info("%s was not deleted, it ends by itself: %s", self.consumer, error)

    def _note_failures(self, rest: list[Item]) -> None:
        """This member counts the tries. The member that handles the message next continues the count."""
        for item in rest:
            if item.held.retries:
                item.tries = Tries(failed=item.held.retries, alone=item.tries.alone)
                self.note(item)

    def _confirm_acks(self, unstarted: int) -> str:
        """Wait until the server has worked through our acks. Returns the id of the pinned client."""
        patience, pause = Deadline(ACKS_TIMEOUT / 4), Gate()
        self.pool.connection.flush(ACKS_TIMEOUT)
        while True:
            info = self.consumer.info(timeout=ACKS_TIMEOUT)
            if info.num_ack_pending <= unstarted or patience.expired():
                return pin_of(info)
            pause.wait(0.02)

    def messages_do(self, step: str, *arguments: Any) -> Any:
        """For the end of the connection: see Drainable."""
        return getattr(self._messages, step)(*arguments)


def pin_of(info: ConsumerInfo) -> str:
    """The id of the client that the server serves at the moment. It is empty if there is none."""
    for group in info.priority_groups or []:
        if group.group == PRIORITY_GROUP:
            return group.pinned_client_id
    return ""
