"""In which order a pool may handle what it holds, and when it must wait. Pure: no thread, clock, socket or lock.

The server numbers the deliveries of a consumer. As long as each number follows the one before, everything that was
delivered is here, in the order of the stream. A gap means that a delivery went elsewhere: to another process that has,
or had, the consumer, or down with a connection. It may be an earlier message of a key of which a later one is here.
From then on nothing is started (`holding`) until the server knows of no unfinished delivery that is not here.

A member of a group has its consumer to itself: for it every gap counts. Other pools may share theirs (`shares`), and
then gaps are what is normal: they count only after something that may have lost deliveries (`doubt`), such as the end
of a connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal

import msgspec

from jsclient.workers.keyed import KeyedQueue

DONE_KEPT: Final = 10_000
"""Finished messages that are remembered: if its ack was lost, one comes again and is not handled again."""

_ALONE: Final = object()
"""The one key of all messages while they are handled one by one."""

Arrival = Literal["new", "known", "done"]


class Tries(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a message beside the server's count of deliveries: tries that `failed`, and how often a process
    died with which it was `alone`. `begun`: a process has begun it, alone. `stored`: the time of the message, because a
    re-created stream has another message of this sequence; 0 in records of an earlier version."""

    failed: int = 0
    alone: int = 0
    begun: bool = False
    stored: int = 0


class Item:
    """One message in the hands of a member. `sequence` and `stored` tell messages of one stream apart for good."""

    __slots__ = ("delivery", "held", "key", "lane", "message", "poison", "sequence", "stored", "tries", "until")

    def __init__(self, message: Any, sequence: int, delivery: int, stored: int = 0, key: Hashable = None) -> None:
        self.message: Any = message
        self.sequence: int = sequence
        self.delivery: int = delivery
        self.stored: int = stored
        self.key: Hashable = key
        self.lane: Hashable = None  # the key under which it waits or runs
        self.until: float = 0.0  # not to be tried again before
        self.held: Any = None
        self.tries: Tries = Tries()
        self.poison: str = ""  # why it must not be handled once more

    def __repr__(self) -> str:
        return f"<Item {self.sequence} of key {self.key!r}>"


class Order:
    """The messages that a pool holds. `last` is the consumer's number of the last delivery, None: not known."""

    def __init__(
        self, last: int | None = 0, done: OrderedDict[tuple[int, int], None] | None = None, *, shares: bool = False
    ) -> None:
        self.last = last
        self.others: bool = False
        """Whether others were seen to get messages of the consumer, as far as gaps tell it (with `shares`)."""
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
        """Whether nothing may be started."""
        return self._gap or self._settling

    @property
    def missing(self) -> bool:
        """Whether deliveries may be missing: `release` when it is known that none is."""
        return self._gap

    # --- what comes and goes ----------------------------------------------------------------------------

    def arrived(self, item: Item) -> Arrival:
        """A delivery. "new": it is kept; "known": it is here already; "done": it was finished here, ack it again."""
        self.seen(item.delivery)
        if item.sequence in self.items:
            return "known"
        if (item.sequence, item.stored) in self.done:
            return "done"
        self.admit_again(item)
        return "new"

    def admit_again(self, item: Item) -> None:
        """Keep it, whether it was finished before or not."""
        self.items[item.sequence] = item
        self._admit(item)

    def seen(self, delivery: int) -> None:
        """A delivery has this number; `arrived` says it for those that are kept."""
        last, self.last = self.last, delivery
        doubt, self._doubt = self._doubt, False
        if last is not None and delivery == last + 1:
            return
        if doubt or not self._shares:
            self.hold()
        elif last is not None:
            self.others = True

    def doubt(self) -> None:
        """Deliveries may have been lost: the number of the next one tells."""
        self._doubt = True

    def next(self, now: float) -> Item | None:
        """A message that may be started now; it runs from here on."""
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
        """Whether more is there that may be started at once."""
        return bool(self._ready) and not self.holding

    def next_due(self) -> float | None:
        """When a failed message may be tried again."""
        return None if self.holding else self._queue.next_due()

    def finished(self, item: Item, again: bool = False) -> None:
        """Acked, or given up for good. `again`: if it comes again it is to be handled again, as for all we know it
        was not acked."""
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
        """Start nothing from here on; what runs goes on."""
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
        """Whether all that the server has delivered and nobody has acked is here; both numbers are the server's."""
        return unacked == len(self.items) and delivered == self.last

    def give_up(self) -> list[Item]:
        """Keep only what runs; returns the rest."""
        self.hold()
        bag, self._bag = self._bag, []
        for item in bag:
            self.items.pop(item.sequence, None)
        return bag

    # --- one by one -------------------------------------------------------------------------------------

    def one_by_one(self, count: int) -> None:
        """Handle the next `count` messages one after another: if one of them kills its process, it is known which."""
        self._alone = max(count, 0)
        self._start_over()

    @property
    def alone(self) -> bool:
        return self._alone > 0

    def _start_over(self) -> None:
        """Sort what waits anew, once nothing runs: a message that runs may have the key of one that waits."""
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
        """What is here and does not run."""
        return len(self.items) - len(self.running)

    def waiting(self) -> Iterable[Item]:
        return [item for item in list(self.items.values()) if item.sequence not in self.running]
