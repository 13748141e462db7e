"""The order in which a pool may handle its messages, and when it must wait. Pure: no thread, clock, socket or lock.

The server numbers the deliveries of a consumer. If each number follows the one before, all delivered messages are here,
in the order of the stream. A gap means that a delivery went elsewhere: to another process of the consumer, or down with
a connection. It may be an earlier message of a key of which a later one is here.

After a gap the pool starts no message (`holding`) until all unfinished deliveries that the server knows are here.

A member of a group has its consumer to itself, so every gap counts. Other pools may share their consumer (`shares`),
and then gaps are normal. They count only after an event that may have lost deliveries (`doubt`), such as the end of a
connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal

import msgspec

from jsclient.workers.keyed import KeyedQueue

DONE_KEPT: Final = 10_000
"""Finished messages that are remembered: if an ack was lost, its message is redelivered but not handled again."""

_ALONE: Final = object()
"""The one key of all messages while they are handled one by one."""

Arrival = Literal["new", "known", "done"]


class Tries(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about a message in addition to the server's count of deliveries. `failed` counts failed tries, and `alone`
    the processes that died while it was the only message. `begun` means that a process has begun it, alone. `stored` is
    the time of the message, because a re-created stream has another message of this sequence; 0 in records of an
    earlier version."""

    failed: int = 0
    alone: int = 0
    begun: bool = False
    stored: int = 0


class Item:
    """One message in the hands of a member. `sequence` and `stored` tell messages of one stream apart for good."""

    __slots__ = ("delivery", "held", "key", "lane", "message", "poison", "sequence", "stored", "tries", "until")

    def __init__(
        self, message: Any, sequence: int, delivery: int, stored: int = 0, key: Hashable = None, held: Any = None
    ) -> None:
        self.message: Any = message
        self.sequence: int = sequence
        self.delivery: int = delivery
        self.stored: int = stored
        self.key: Hashable = key
        self.lane: Hashable = None  # the key under which it waits or runs
        self.until: float = 0.0  # not to be tried again before
        self.held: Any = held
        self.tries: Tries = Tries()
        self.poison: str = ""  # why it must not be handled once more

    @classmethod
    def of(cls, message: Any, held: Any) -> Item:
        """A message that waits, with the numbers of its delivery."""
        meta = message.metadata
        return cls(message, meta.stream_seq, meta.consumer_seq, meta.timestamp_ns, held=held)

    def __repr__(self) -> str:
        return f"<Item {self.sequence} of key {self.key!r}>"


class Order:
    """The messages that a pool holds. `last` is the consumer's number of the last delivery, None: not known."""

    def __init__(
        self, last: int | None = 0, done: OrderedDict[tuple[int, int], None] | None = None, *, shares: bool = False
    ) -> None:
        self.last = last
        self.others: bool = False
        """True if gaps show that other processes get messages of the consumer (with `shares`)."""
        self._shares = shares
        self._doubt = False  # deliveries may have been lost since the last one that came
        self.items: dict[int, Item] = {}
        self.running: dict[int, Item] = {}
        self.done: OrderedDict[tuple[int, int], None] = OrderedDict() if done is None else done
        self._gap = False  # a delivery is missing
        self._settling = False  # what runs has to end before messages are handled one by one
        self._ready: deque[Item] = deque()
        self._queue = KeyedQueue()
        self._bag: list[Item] = []
        self._alone = 0

    @property
    def holding(self) -> bool:
        """True if no message may be started."""
        return self._gap or self._settling

    @property
    def missing(self) -> bool:
        """True if deliveries may be missing. Call `release` once none is."""
        return self._gap

    # --- what comes and goes ----------------------------------------------------------------------------

    def arrived(self, item: Item) -> Arrival:
        """Note a delivery. Returns "new" if it is kept, "known" if it was here, "done" if it must be acked again."""
        self.seen(item.delivery)
        if item.sequence in self.items:
            return "known"
        if (item.sequence, item.stored) in self.done:
            return "done"
        self.admit_again(item)
        return "new"

    def admit_again(self, item: Item) -> None:
        """Keep it, even if it was finished before."""
        self.items[item.sequence] = item
        self._admit(item)

    def seen(self, delivery: int) -> None:
        """Note the number of a delivery. `arrived` does this for the messages that it keeps."""
        last, self.last = self.last, delivery
        doubt, self._doubt = self._doubt, False
        if last is not None and delivery == last + 1:
            return
        if doubt or not self._shares:
            self.hold()
        elif last is not None:
            self.others = True

    def doubt(self) -> None:
        """Deliveries may have been lost. The number of the next one will show it."""
        self._doubt = True

    def next(self, now: float) -> Item | None:
        """A message that may be started now. It runs from here on."""
        if self.holding:
            return None
        while (due := self._queue.due(now)) is not None:
            self._ready.append(due[1])
        if not self._ready:
            return None
        item = self._ready.popleft()
        self.running[item.sequence] = item
        return item

    @property
    def startable(self) -> bool:
        """True if more messages may be started immediately."""
        return bool(self._ready) and not self.holding

    def next_due(self) -> float | None:
        """When a failed message may be tried again."""
        return None if self.holding else self._queue.next_due()

    def finished(self, item: Item, again: bool = False) -> None:
        """Acked, or given up for good. `again`: if it is redelivered, it is handled again, because it may not have been
        acked."""
        self.running.pop(item.sequence, None)
        self.items.pop(item.sequence, None)
        if not again:
            self.done[item.sequence, item.stored] = None
            while len(self.done) > DONE_KEPT:
                self.done.popitem(last=False)
        following = self._queue.done(item.lane)
        if following is not None:
            self._ready.append(following)
        if self._alone and item.lane is _ALONE:
            self._alone -= 1
            if not self._alone:
                self._start_over()
        self._settle()

    def failed(self, item: Item, until: float) -> None:
        """It stays first of its key and is tried again."""
        self.running.pop(item.sequence, None)
        item.until = until
        if self.holding:
            self._queue.done(item.lane)
            self._bag.append(item)
        else:
            self._queue.park(item.lane, item, until)
        self._settle()

    # --- waiting until everything is here ---------------------------------------------------------------

    def hold(self) -> None:
        """Start no message from here on. Running messages continue."""
        if not self.holding:
            self._bag = self._recall()
        self._gap = True

    def release(self) -> None:
        """Everything that was delivered before is here or done: go on in the order of the stream."""
        self._gap = False
        self._admit_bag()

    def _admit_bag(self) -> None:
        if self.holding:
            return
        bag, self._bag = self._bag, []
        for item in sorted(bag, key=lambda item: item.sequence):
            self._admit(item)

    def is_complete(self, unacked: int, delivered: int) -> bool:
        """True if all delivered and unacked messages are here; both numbers are from the server."""
        return unacked == len(self.items) and delivered == self.last

    def give_up(self) -> list[Item]:
        """Keep only running messages. Returns the rest."""
        self.hold()
        bag, self._bag = self._bag, []
        for item in bag:
            self.items.pop(item.sequence, None)
        return bag

    # --- one by one -------------------------------------------------------------------------------------

    def one_by_one(self, count: int) -> None:
        """Handle the next `count` messages one at a time. If one of them kills its process, this identifies it."""
        self._alone = max(count, 0)
        self._start_over()

    @property
    def alone(self) -> bool:
        return self._alone > 0

    def _start_over(self) -> None:
        """Sort the waiting messages again, once no message runs: a running one may have the key of a waiting one."""
        if not self.holding:
            self._bag = self._recall()
        self._settling = True
        self._settle()

    def _settle(self) -> None:
        if self._settling and not self.running:
            self._settling = False
            self._admit_bag()

    # --- helpers ----------------------------------------------------------------------------------------

    def _admit(self, item: Item) -> None:
        if self.holding:
            self._bag.append(item)
            return
        item.lane = _ALONE if self._alone else item.key
        if not self._queue.admit(item.lane, item):
            return
        if item.until:
            self._queue.park(item.lane, item, item.until)
        else:
            self._ready.append(item)

    def _recall(self) -> list[Item]:
        waiting: list[Item] = self._queue.recall()
        for item in self._ready:
            self._queue.done(item.lane)
        ready, self._ready = list(self._ready), deque()
        return ready + waiting

    @property
    def backlog(self) -> int:
        """Number of messages that are here and do not run."""
        return len(self.items) - len(self.running)

    def waiting(self) -> Iterable[Item]:
        return [item for item in list(self.items.values()) if item.sequence not in self.running]
