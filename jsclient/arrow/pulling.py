"""A range of a stream read as columns, through an ephemeral pull consumer and the pump of all pulls.

The consumer needs no acks, lives in the memory of one server and vanishes by itself when a task is killed. The end of
the range is decided by sequences and never by counts, because messages may be deleted and filters skip some. After any
failure (lost link, restarted server, vanished consumer, a hole in the deliveries) a new consumer continues after the
last message that was returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from jsclient import errors
from jsclient.arrow.access import PULL_BYTES, PULL_MESSAGES, StreamAccess, from_sequence
from jsclient.arrow.attempts import Interrupted, RangeReader
from jsclient.arrow.chunks import Chunk, Matching, chunk_of, split_statuses
from jsclient.arrow.gaps import Gaps
from jsclient.arrow.ranges import Range
from jsclient.connection import Connection, engine_of
from jsclient.jetstream.consuming.credit import Credit
from jsclient.jetstream.consuming.pull_inboxes import PullInbox
from jsclient.jetstream.consuming.pull_options import PullTerms
from jsclient.jetstream.consuming.pump import Notice, Pump
from jsclient.jetstream.consuming.sources import PullSource
from jsclient.message import Msg

PREFETCH: Final = 2  # pulls under way at a time
INACTIVE: Final = 60.0  # seconds after which the consumer of a killed task vanishes
TERMS: Final = PullTerms(expires=30.0, heartbeat=5.0)


class RangeSource(PullSource):
    """The destination of the pulls of one consumer. It ignores the cause of a failure, because a new consumer
    continues."""

    ack_none = True

    def __init__(self, nc: Connection, pull_subject: str, name: str) -> None:
        super().__init__(nc, pull_subject)
        self.name = name

    def __str__(self) -> str:
        return f"consumer {self.name}"


class RangeCredit(Credit):
    """Allows up to `prefetch` pulls at a time, but never for more messages than the range can still have. For one
    thread.

    The owner sets `count` and `taken_bytes` for received messages, and `left` and `expected` for messages still to
    come.
    """

    def __init__(self, size: int, prefetch: int, max_bytes: int, expected: int | None = None) -> None:
        super().__init__(max_bytes, numbers=PullInbox.numbers)
        self.count: int = 0
        self.left = 0  # sequences up to the end of the range
        self.expected = expected  # messages that a filtered range still has, and one that shows its end
        self.alone: bool = False  # the next message is larger than max_bytes, so it gets its own pull
        self._size = size
        self._most = size * prefetch

    def taken(self) -> int:
        return self.count

    def need(self, now: float = 0.0, round_trip: float = 0.0) -> tuple[int, int] | None:
        outstanding = self._under_way(self.count)
        if now < self.retry_at:
            return None
        if self.alone:
            return None if outstanding else (1, 0)
        left = self.left - outstanding
        if self.expected is not None:
            # Messages deleted or stored after the count make it wrong by a few; then pull one at a time.
            left = min(left, max(self.expected - outstanding, 0 if outstanding else 1))
        count = min(self._size, left, self._most - outstanding)
        # At the end of the range a pull takes the rest. Before that, a pull has at least half of the size.
        if count <= 0 or (count < left and count < self._size // 2):
            return None
        return count, self.max_bytes

    def opened(self, batch: int, nbytes: int) -> int:
        self.due: bool = True  # there may be room for another one
        return super().opened(batch, nbytes)

    def received(self, count: int, nbytes: int) -> None:
        self.count += count
        self.taken_bytes += nbytes
        if self.expected is not None:
            self.expected -= count
        # If a message is larger than the limit of a pull, the next one may be, too.
        self.alone, self.due = self.alone and nbytes > self.max_bytes, True

    def too_large(self) -> None:
        """The next message does not fit into any pull."""
        self.alone = self.due = True
        self.works()


class RangeConsumer(RangeReader):
    """Reads a range through a consumer."""

    def __init__(self, access: StreamAccess, part: Range, label: str, gaps: Gaps) -> None:
        super().__init__(access, part, gaps)
        self._engine = engine_of(access.nc)
        self._label = label
        self._filters = part.filters
        self._name = ""
        self._delivery = 1
        mark = part.end if part.mark is None else part.mark[0]
        self._exact_from = 0 if part.numbered else min(mark, part.end)  # the time at the mark is compared

    def _attempt(self) -> Iterator[Chunk]:
        access = self._access
        self._name = access.new_name(self._label)
        more = from_sequence(self.next, self._filters)
        if self._part.headers_only:
            more["headers_only"] = True
        try:
            info = access.create_consumer(self._name, more, INACTIVE)
        except errors.ConsumerFilterError:
            if self._local is not None:
                raise
            # Before 2.10 a filter must lie within the subjects of the stream: servers reject `a.>` for `a.*`.
            self._filters, self._local = (), Matching(self._filters)
            return
        if info.num_pending == 0:
            access.delete_consumer(self._name)
            self._nothing_left()
            return
        behind = self._count(info.num_pending)
        expected = None if behind is None else max(0, info.num_pending - behind) + 1
        credit = RangeCredit(PULL_MESSAGES, PREFETCH, PULL_BYTES, expected)
        subject = access.api.subject(f"CONSUMER.MSG.NEXT.{access.stream}.{self._name}")
        pump = Pump(RangeSource(access.nc, subject, self._name), TERMS, credit)
        self._delivery = 1
        try:
            yield from self._deliveries(pump)
        finally:
            pump.release()
            pump.settle(False)
            access.delete_consumer(self._name)

    def _count(self, pending: int) -> int | None:
        """The number of messages that match behind a filtered range; a pull must not include them."""
        filtered = bool(self._filters)
        if not self._counted:
            behind = self._gaps.begin(self.next, pending, filtered, self._behind_the_end)
            self._counted = True
            return behind if filtered else None
        return self._behind_the_end() if filtered else None

    def _behind_the_end(self) -> int:
        return self._access.glance(from_sequence(self._part.end, self._filters)).num_pending

    def _deliveries(self, pump: Pump[RangeCredit]) -> Iterator[Chunk]:
        while True:
            items = self._take(pump)
            try:
                messages, found, statuses = split_statuses(items, self._exact_from)
                event = None
            except AttributeError:
                place = next(place for place, item in enumerate(items) if not isinstance(item, Msg))
                messages, found, statuses = split_statuses(items[:place], self._exact_from)
                event = items[place]
            if found is not None:
                chunk = chunk_of(messages, found)
                last = self._account(chunk, pump.state)
                if self.next > chunk.sequences[0] or chunk.sequences[-1] >= self._part.end:
                    chunk = self._inside(chunk)
                if len(chunk):
                    self._gaps.read(self.next, chunk.sequences)
                    self._reached = chunk.sequences[-1] + 1
                    self.next: int = self._reached
                    yield chunk
                if last >= self._part.end - 1:
                    self.next = self._part.end
                    return
                if chunk.pending == 0:
                    self._nothing_left()
                    return
            for status in statuses:
                if pump.inbox.is_control(status):
                    self._on_notices(pump.status(status), pump.state)
            if event is not None:
                self._broken(event)

    def _take(self, pump: Pump[RangeCredit]) -> list[Any]:
        """The available items, in order. The list is empty if there was only a reason to check the consumer."""
        credit = pump.state
        credit.left = self._part.end - self.next
        while credit.due:
            pump.keep_pulling()
        items = pump.inbox.take_all()
        if items:
            return items
        item = pump.wait(self._access.deadline)
        if item is not None:
            return [item, *pump.inbox.take_all()]
        self._check_time()
        self._on_notices(pump.look(self._access.deadline), credit)
        return []

    def _on_notices(self, told: Sequence[Notice], credit: RangeCredit) -> None:
        """If a pull ends with an error, its consumer ends, too."""
        for kind, what in told:
            if isinstance(what, errors.MaxBytesExceeded):
                credit.too_large()
            elif kind != "event":
                raise Interrupted(f"{type(what).__name__}: {what}")

    def _broken(self, event: Any) -> None:
        if isinstance(event, BaseException):
            raise event  # no permission to pull
        self._engine.check_usable()
        raise Interrupted(f"the link was {event.value}")

    def _account(self, chunk: Chunk, credit: RangeCredit) -> int:
        """Check that no delivery is missing; returns the last stream sequence that was delivered."""
        count = len(chunk)
        if chunk.first_delivery != self._delivery or chunk.last_delivery != self._delivery + count - 1:
            raise Interrupted(
                f"deliveries {chunk.first_delivery} to {chunk.last_delivery} of {count} messages, "
                f"expected from {self._delivery}"
            )
        self._delivery += count
        credit.received(count, chunk.size)
        return chunk.sequences[-1]

    def _inside(self, chunk: Chunk) -> Chunk:
        """Only the messages that belong to the range and were not returned before."""
        first, end = self.next, self._part.end
        return chunk.keep([first <= sequence < end for sequence in chunk.sequences])
