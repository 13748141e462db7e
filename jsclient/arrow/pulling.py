"""A range of a stream read through an ephemeral pull consumer.

The consumer acknowledges nothing, lives in the memory of one server and vanishes by itself when a task is killed.
Sequences decide where the range ends, never counts: messages may be deleted, and filters skip some. Whatever goes
wrong on the way (lost link, restarted server, vanished consumer, a hole in the deliveries) ends in the same place:
a new consumer after the last message that was handed out.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any, Final

from jsclient import errors
from jsclient._engine import Unkept
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.chunks import Chunk, ChunkQueue, chunk_of, split_statuses
from jsclient.arrow.gaps import Gaps
from jsclient.arrow.ranges import Range
from jsclient.connection import engine_of
from jsclient.durations import Deadline, to_ns
from jsclient.jetstream.api.headers import PENDING_MESSAGES
from jsclient.jetstream.consuming.pull_statuses import row_of
from jsclient.states import LinkEvent
from protocol import Msg, matches

log = logging.getLogger("jsclient.arrow")

PULL_EXPIRES: Final = 30.0
HEARTBEAT: Final = 5.0
SILENCE: Final = 2 * HEARTBEAT  # no frame for so long: the pull, the consumer or the link is gone
PAUSE: Final = 0.05  # seconds before the first new consumer; grows with each one that brings nothing
RESTARTS: Final = 50  # new consumers without one message of progress in between, before the task gives up


class Interrupted(Exception):
    """The consumer cannot be read on; a new one continues after the last message."""


class RangeConsumer:
    """Reads one range; `chunks()` is to be iterated once, and closed (the generator) when no more is wanted."""

    def __init__(self, access: StreamAccess, part: Range, label: str, gaps: Gaps) -> None:
        self._access = access
        self._nc = access.nc
        self._engine = engine_of(self._nc)
        self._options = access.options
        self._part = part
        self._label = label
        self._gaps = gaps
        self._filters = part.filters
        self._local: tuple[str, ...] = ()  # filters that the server does not take, matched on this side
        self.next = part.start  # the first sequence that was not handed out yet
        self._name = ""
        self._outstanding = 0
        self._expected: int | None = None  # messages that a filtered range still has, and one that shows its end
        self._delivery = 1
        self._too_large_at = 0  # the delivery at which a message did not fit into pullBytes
        self._alone = False  # the next message is larger than pullBytes: it is asked for by itself

    def chunks(self) -> Iterator[Chunk]:
        restarts = 0
        deadline = Deadline(self._options.reconnect_timeout)
        while self.next < self._part.end:
            before = self.next
            self._check_time()
            try:
                yield from self._one_consumer()
                return
            except (Interrupted, errors.ConnectionLost, errors.RequestTimeout, errors.NoResponders) as error:
                log.info("stream %r at %d: %s; making a new consumer", self._access.stream, self.next, error)
                if self.next > before:
                    restarts, deadline = 0, Deadline(self._options.reconnect_timeout)
                restarts += 1
                if restarts > RESTARTS or deadline.expired():
                    raise self._access.failed(f"reading [{self.next}, {self._part.end})", error) from error
                self._wait_for_link(deadline, restarts)
            except errors.ConsumerFilterError:
                if self._local:
                    raise
                # Before 2.10 a filter must lie within the subjects of the stream: `a.>` is refused for `a.*`.
                self._filters, self._local = (), self._filters

    def _check_time(self) -> None:
        if self._access.deadline.expired():
            raise self._access.timed_out(f"reading [{self._part.start}, {self._part.end}), at {self.next},")

    def _wait_for_link(self, deadline: Deadline, restarts: int) -> None:
        """Until the connection is back; the pause also keeps a refused pull from being repeated in a tight loop."""
        time.sleep(deadline.at_most(PAUSE * min(restarts, 20)))
        while not self._nc.is_connected and not deadline.expired():
            self._engine.check_usable()
            time.sleep(deadline.at_most(0.05))

    # --- one consumer -----------------------------------------------------------------------------------

    def _one_consumer(self) -> Iterator[Chunk]:
        access = self._access
        self._name = access.new_name(self._label)
        more: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, self.next)}
        behind = None
        if self._part.headers_only:
            more["headers_only"] = True
        if self._filters:
            more["filter_subjects"] = list(self._filters)
            behind = self._behind_the_end()
        info = access.create_consumer(self._name, more, self._options.consumer_inactive_threshold)
        self._expected = None if behind is None else max(0, info.num_pending - behind) + 1
        if info.num_pending == 0:
            access.delete_consumer(self._name)
            self._nothing_left()
            return
        inbox = self._nc.new_inbox()
        queue = ChunkQueue()
        subscription = self._engine.open_sink(inbox, queue)
        self._outstanding, self._delivery, self._too_large_at, self._alone = 0, 1, 0, False
        try:
            yield from self._deliveries(queue, inbox)
        finally:
            subscription.close()
            access.delete_consumer(self._name)

    def _behind_the_end(self) -> int:
        """How many messages match behind the range: a pull that asked for them, too, would bring rows of others."""
        name = self._access.new_name("count")
        begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._part.end}
        info = self._access.create_consumer(name, {**begin, "filter_subjects": list(self._filters)}, 5.0)
        self._access.delete_consumer(name)
        return info.num_pending

    def _deliveries(self, queue: ChunkQueue, inbox: str) -> Iterator[Chunk]:
        while True:
            self._refill(inbox)
            item = queue.next(self._access.deadline.at_most(SILENCE))
            if item is None:
                self._check_time()
                raise Interrupted(f"consumer {self._name} has been silent for {SILENCE:g} s")
            if isinstance(item, LinkEvent):
                self._engine.check_usable()
                raise Interrupted(f"the link was {item.value}")
            messages, statuses = split_statuses(item)
            if messages:
                chunk = chunk_of(messages)
                last = self._account(chunk)
                self._gaps.check(self.next, chunk.sequences)
                if self.next > chunk.sequences[0] or chunk.sequences[-1] >= self._part.end:
                    chunk = self._inside(chunk)
                if len(chunk):
                    self.next = chunk.sequences[-1] + 1
                    yield from self._matching(chunk)
                if last >= self._part.end - 1:
                    self._gaps.finish(self.next)
                    return
                if chunk.pending == 0:
                    self._nothing_left()
                    return
            for status in statuses:
                self._status(status)

    def _nothing_left(self) -> None:
        """The consumer has no more: the tail of the range was deleted or does not match, or its replica lags behind."""
        ahead = self._gaps.ahead(self.next)
        if ahead is not None:
            raise Interrupted(f"the replica of consumer {self._name} lags behind the leader, which has {ahead}")
        self._gaps.finish(self.next)

    def _matching(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._local:
            subjects = [subject.decode("utf-8", "surrogateescape") for subject in chunk.subjects]
            chunk = chunk.keep([any(matches(f, subject) for f in self._local) for subject in subjects])
        if len(chunk):
            yield chunk

    def _account(self, chunk: Chunk) -> int:
        """Check that no delivery is missing; returns the last stream sequence that was delivered."""
        count = len(chunk)
        if chunk.first_delivery != self._delivery or chunk.last_delivery != self._delivery + count - 1:
            raise Interrupted(
                f"deliveries {chunk.first_delivery} to {chunk.last_delivery} of {count} messages, "
                f"expected from {self._delivery}"
            )
        self._delivery += count
        self._outstanding -= count
        if self._expected is not None:
            self._expected -= count
        self._alone = False
        return chunk.sequences[-1]

    def _inside(self, chunk: Chunk) -> Chunk:
        """Only what belongs to the range and was not handed out before."""
        first, end = self.next, self._part.end
        return chunk.keep([first <= sequence < end for sequence in chunk.sequences])

    # --- pulls ------------------------------------------------------------------------------------------

    def _refill(self, inbox: str) -> None:
        """Keep up to `prefetch` pulls under way, but never ask for more messages than the range can still have."""
        if self._alone:
            if self._outstanding == 0:
                self._pull(inbox, 1)
            return
        size = self._options.pull_records
        most = size * self._options.prefetch
        while True:
            left = self._part.end - self.next - self._outstanding
            if self._expected is not None:
                # What was deleted or stored since it was counted makes it wrong by a few: then one by one.
                left = min(left, max(self._expected - self._outstanding, 0 if self._outstanding else 1))
            count = min(size, left, most - self._outstanding)
            # At the end of the range whatever is left is asked for; before it, only pulls of half a size and more.
            if count <= 0 or (count < left and count < size // 2):
                return
            self._pull(inbox, count)

    def _pull(self, inbox: str, count: int) -> None:
        body: dict[str, Any] = {"batch": count, "expires": to_ns(PULL_EXPIRES), "idle_heartbeat": to_ns(HEARTBEAT)}
        if not self._alone:
            body["max_bytes"] = self._options.pull_bytes
        subject = self._access.api.subject(f"CONSUMER.MSG.NEXT.{self._access.stream}.{self._name}")
        self._outstanding += count
        self._engine.post_now(Unkept(self._engine.encode(subject, json.dumps(body).encode(), reply=inbox)))

    def _status(self, message: Msg) -> None:
        """A pull has ended without bringing all it was to bring, or the consumer cannot be read on."""
        status = message.status
        if status is None or status.code == 100:
            return
        row = row_of(status.code, status.description)
        if row.kind == "quiet" and row.reason != "max bytes":
            self._give_back(message)
        elif row.reason == "max bytes":
            self._give_back(message)
            # Twice at the same place without a message in between: the next one does not fit into any pull.
            self._alone = self._too_large_at == self._delivery
            self._too_large_at = self._delivery
        else:
            raise Interrupted(f"pull on {self._name} ended with {status.code} {status.description}")

    def _give_back(self, message: Msg) -> None:
        pending = message.headers.get(PENDING_MESSAGES)
        if pending is None:
            raise Interrupted("a pull ended without saying what it left")
        self._outstanding = max(0, self._outstanding - int(pending))
