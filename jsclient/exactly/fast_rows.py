"""Rows of a table through fast batches (nats-server 2.14): one answer for hundreds of rows instead of one for each.

Every list of rows is one batch, which ends with a commit. The next rows may take longer than the 10 s after which the
server forgets a batch without messages. The server honours message ids. So after any break (a gap, a lost link, a
restarted server) the unconfirmed rows go into a new batch, by the rules of `publish`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from jsclient._connection import LinkFrame
from jsclient.connection import engine_of
from jsclient.durations import Deadline, elapsed
from jsclient.errors import (
    ApiError,
    BatchGap,
    BufferFull,
    ConnectionLost,
    JetStreamTemporarilyUnavailable,
    NoResponders,
    PublishUnknown,
    TooManyRequests,
    brief,
)
from jsclient.exactly.row_publisher import BLOCK, ID_SIZE, ID_START, Row, Totals, check_row, header_block
from jsclient.jetstream.publishing.fast_batch import APPEND, START, FastBatch
from jsclient.jetstream.publishing.in_flight import MAX_CACHED
from jsclient.jetstream.publishing.outcome import has_id, in_doubt, passes
from jsclient.jetstream.publishing.synchronous import PublishAttempts
from jsclient.protocol.frames import header_size, pub_end

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import PubAck
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.publishing.outcome import Rules

log: logging.Logger = logging.getLogger("jsclient.jetstream")

FLOW: Final = 500
"""Rows per answer that the client asks for; the server may lower it."""

FIRST_FLOW: Final = 100
"""Rows per answer that the client assumes until the server has answered."""

BATCH_GONE: Final = frozenset({10158, 10208, 10211})
"""Errors after which another batch may do: id in process, batch unknown (forgotten), too many under way."""

KNOWN_STEPS: Final = 10_000
"""Rows of a batch for which the end of the reply subject is cached: as many as Arrow gives Spark in one batch."""

Message = tuple[bytes, bool, bytes]
"""The checked beginning of its line, True if it has an id, and the part of its frame behind the reply subject."""


class FastRowPublisher:
    """Publishes lists of rows to one stream; for one thread. `guard` as in RowPublisher."""

    def __init__(self, js: JetStream, rules: Rules, guard: Callable[[], None] | None = None) -> None:
        self.totals: Totals = Totals()  # without duplicates, which the server does not report here
        self.seen: set[str] = set()
        self._js = js
        self._rules = rules
        self._guard = guard
        self._engine = engine_of(js.nc)
        self._starts: dict[bytes, bytes] = {}
        self._under_way = False
        self._engine.check_headers()  # for ids and the headers of rows

    def publish(self, rows: Sequence[Row]) -> None:
        """Send the rows and return when all of them are stored."""
        limit, starts = self._js.nc.max_payload, self._starts
        checked: list[Message] = []
        nbytes = 0
        for subject, lines, value, msg_id in rows:
            start = starts.get(subject) or self._start(subject)
            total = len(value)
            nbytes += total
            named = msg_id is not None
            if msg_id is not None:
                size = ID_SIZE + len(msg_id) + len(lines)
                total += size
                start = b"H" + start
                rest = b"".join((
                    header_size(size), pub_end(total), ID_START, msg_id, b"\r\n", lines, b"\r\n", value, b"\r\n",
                ))  # fmt: skip
            elif lines:
                headers = header_block(lines, None)
                size = len(headers)
                total += size
                named = has_id(headers)
                start = b"H" + start
                rest = b"".join((header_size(size), pub_end(total), headers, value, b"\r\n"))
            else:
                rest = b"".join((pub_end(total), value, b"\r\n"))
            if total > limit:
                check_row(total, limit)
            checked.append((start, named, rest))
        if checked:
            last = rows[-1][0].decode("utf-8", "surrogateescape")
            self._under_way = True
            ack = _Rows(self._js, self._rules, checked, last, self._guard).store()
            self._under_way = False
            self.seen.add(ack.stream)
            if ack.seq:  # 0: every row of the batch was there already
                self.totals.acked(ack.stream, ack.seq, ack.seq)
        self.totals.rows += len(rows)
        self.totals.bytes += nbytes

    def finish(self) -> Totals:
        return self.totals

    def settle(self, timeout: float | None) -> bool:
        """True if no row is in flight: each list was stored or raised. It needs none of the `timeout` seconds."""
        return not self._under_way

    def close(self) -> None:
        """Between two lists there is nothing to close."""

    def _start(self, subject: bytes) -> bytes:
        if len(self._starts) >= MAX_CACHED:
            self._starts.clear()
        start = self._engine.pub_start(subject.decode("utf-8", "surrogateescape"), b"x")[:-1]
        self._starts[subject] = start
        return start


class _Rows(PublishAttempts):
    """The life of one list of rows: batch after batch, until all rows are stored."""

    def __init__(
        self,
        js: JetStream,
        rules: Rules,
        rows: list[Message],
        subject: str,
        guard: Callable[[], None] | None,
    ) -> None:
        self._patience = rules.ack_timeout
        super().__init__(js, subject, b"", None, Deadline(self._patience), rules, elapsed())
        self._timeout = rules.resend_after
        self._rows = rows
        self._guard = guard

    def store(self) -> PubAck:
        """Store the rows; raises the error that ends it."""
        while True:
            batch = _Batch(self.js, flow=FLOW, timeout=self._timeout)
            try:
                return batch.store(self._rows)
            except (PublishUnknown, BatchGap, NoResponders, ConnectionLost, ApiError) as error:
                self._take_over(batch.acked, error)
            finally:
                batch.discard()

    def _take_over(self, confirmed: int, error: Exception) -> None:
        """Return when the unconfirmed rows may be sent again."""
        ended = error.__cause__ if isinstance(error, PublishUnknown) else None
        if isinstance(ended, ApiError) and not may_follow(ended):
            raise error  # the stream has refused a row, for example by its fence; another batch would end the same way
        log.info("fast batch: %s; %d of %d rows are confirmed", error, confirmed, len(self._rows))
        # Only the end of a batch shows that it is complete, and where: the last row goes out with another batch.
        confirmed = min(confirmed, len(self._rows) - 1)
        if confirmed:
            del self._rows[:confirmed]
            self.deadline, self.losses = Deadline(self._patience), 0
            self._sends, self._no_responders = 1, 0
        ids = [named for _, named, _ in self._rows]
        self.repeatable = self.rules.copies_allowed or all(ids)
        if isinstance(error, ApiError):
            if not may_follow(error):
                raise error
            self._pause(error, None)
        else:
            self.judge(error)
        if self._guard is not None:
            self._guard()
        if in_doubt(self) and any(ids):
            self._check_window(error)
        self._sends += 1

    def _unknown(self, error: Exception) -> PublishUnknown:
        return PublishUnknown(
            f"{len(self._rows)} rows, of which the last goes to {self.subject!r}, are not confirmed after "
            f"{self._sends} attempts (last: {brief(error)})"
        )


def may_follow(error: ApiError) -> bool:
    """True if another batch may succeed where this one failed."""
    return (
        passes(error)
        or error.err_code in BATCH_GONE
        or isinstance(error, (JetStreamTemporarilyUnavailable, TooManyRequests))
    )


@functools.cache
def _first_steps() -> list[bytes]:
    return [b"1.%d.$FI" % START, *[b"%d.%d.$FI" % (number, APPEND) for number in range(2, KNOWN_STEPS + 1)]]


def _steps(count: int) -> Iterable[bytes]:
    """The ends of the reply subjects of a batch's rows. Formatting the numbers was a tenth of a row."""
    known = _first_steps()
    if count <= len(known):
        return known
    return chain(known, (b"%d.%d.$FI" % (number, APPEND) for number in range(len(known) + 1, count + 1)))


class _Batch(FastBatch):
    """A batch of rows that are ready, written in blocks."""

    def store(self, rows: list[Message]) -> PubAck:
        """Send all rows, obeying the server's flow control, and end the batch."""
        self._open(Deadline(self._timeout))
        self._subject = rows[-1][0].split(b" ", 2)[1].decode("utf-8", "surrogateescape")
        prefix, line = self._start, len(self._start) + 20
        self._flow = FIRST_FLOW
        most = FIRST_FLOW * self._outstanding
        number, size = 0, 0
        block: list[bytes] = []
        for (start, _, rest), step in zip(rows, _steps(len(rows)), strict=False):
            number += 1
            block += (start, prefix, step, rest)
            size += line + len(rest)
            if number >= most:
                self._send_block(block, number)
                block, size = [], 0
                most = self._wait_for_flow()
            elif size >= BLOCK:
                self._send_block(block, number)
                block, size = [], 0
        self._send_block(block, number)
        return self.commit()

    def _wait_for_flow(self) -> int:
        """Wait until the server wants more rows; returns the number of rows that it wants in all."""
        self._wait_until(lambda: self.acked + self._flow * self._outstanding > self._size, None)
        return self.acked + self._flow * self._outstanding

    def _send_block(self, block: list[bytes], number: int) -> None:
        sent, self._size = self._size, number
        try:
            self._engine.enqueue_now(LinkFrame(b"".join(block)))
        except (ConnectionLost, BufferFull) as error:
            nothing = isinstance(error, BufferFull) or not error.sent
            if nothing and self.acked >= sent:
                raise ConnectionLost(brief(error), sent=False) from error  # no row is in doubt
            raise self._lost(brief(error)) from error
