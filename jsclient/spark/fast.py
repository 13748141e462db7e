"""Fast ingest (nats-server 2.14, stream with allow_batched): an answer for hundreds of rows instead of one for each.

Every list of rows is one batch, ended by a commit: the server forgets a batch after 10 s without a message, and Spark
may take longer than that to bring the next rows. Message ids are honoured, so after any break (a gap, a lost link, a
restarted server) what is not confirmed is simply sent again in a new batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from jsclient import errors
from jsclient._engine import Unkept
from jsclient.arrow.chunks import ChunkQueue
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.nuid import next_nuid
from jsclient.spark.sending import BLOCK, MSG_ID, RETRY_PAUSE, AckError, Row, Totals, header_block, line_start
from jsclient.spark.sink_streams import SinkWindows, leader_may_come
from jsclient.states import LinkEvent
from protocol.errors import BAD_JSON
from protocol.frames import hpub, pub

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions

log = logging.getLogger("jsclient.spark")

FLOW: Final = 500  # rows per answer that we ask for; the server may lower it
FIRST_FLOW: Final = 100  # what we go by until the server has said something
OUTSTANDING: Final = 2  # answers that may be outstanding before we wait
PING_AFTER: Final = 1.0  # seconds without an answer after which we ask for one
START, APPEND, COMMIT_END, PING = 0, 1, 3, 4


class Answer(msgspec.Struct, gc=False):
    """What the server says on the reply subject: ack, gap, err, or the final ack with a count."""

    type: str = ""
    seq: int = 0
    msgs: int = 0
    last_seq: int = 0
    stream: str = ""
    count: int = 0
    error: AckError | None = None


decode_answer = msgspec.json.Decoder(Answer).decode


Message = tuple[bytes, bytes, bytes]
"""How its line begins (checked), its header block or b"", its value."""


class Broken(Exception):
    """The batch cannot go on; a new one takes over after the last confirmed row."""


class FastPublisher:
    """Publishes lists of rows to one stream. For one thread."""

    def __init__(self, nc: Connection, options: SparkOptions) -> None:
        self._nc = nc
        self._options = options
        self.totals = Totals()  # without duplicates: the server does not tell them here
        self.seen: set[str] = set()
        self.guard: Callable[[], None] | None = None  # called before rows are sent again; raises if they must not be
        self._starts: dict[bytes, bytes] = {}
        self._windows = SinkWindows(nc, options)
        engine_of(nc).check_headers()  # the message that ends a batch needs some

    def publish(self, rows: Sequence[Row]) -> None:
        """Send the rows and return when all of them are stored."""
        limit = self._nc.max_payload
        checked: list[Message] = []
        nbytes = 0
        for subject, lines, value, msg_id in rows:
            start = self._starts.get(subject) or self._start(subject)
            headers = b"" if msg_id is None and not lines else header_block(lines, msg_id)
            total = len(headers) + len(value)
            if total > limit:
                raise errors.PayloadTooLarge(f"a row of {total} bytes; the server takes {limit} (max_payload)")
            checked.append((start, headers, value))
            nbytes += len(value)
        if checked:
            self._until_stored(checked)
        self.totals.rows += len(checked)
        self.totals.bytes += nbytes

    def finish(self) -> Totals:
        return self.totals

    def close(self) -> None:
        """Nothing is left open between two lists."""

    def _start(self, subject: bytes) -> bytes:
        if len(self._starts) >= 10_000:
            self._starts.clear()
        start = self._starts[subject] = line_start(self._nc, subject, b"x")[:-1]
        return start

    def _until_stored(self, rows: list[Message]) -> None:
        done, attempts, began = 0, 0, time.monotonic()
        offline = Deadline(self._options.reconnect_timeout)
        while done < len(rows):
            batch = _Batch(self._nc, rows, done, self._options.ack_timeout)
            try:
                answer = batch.run()
                self.seen.add(answer.stream)
                if answer.seq:  # 0: every row of the batch was there already
                    self.totals.acked(answer.stream, answer.seq)
                return
            except (Broken, errors.ConnectionLost) as error:
                confirmed = done + batch.confirmed
                log.info("fast batch: %s; %d of %d rows are confirmed", error, confirmed, len(rows))
                attempts = 0 if confirmed > done else attempts + 1
                if confirmed > done:
                    offline = Deadline(self._options.reconnect_timeout)
                done = confirmed
                exhausted = attempts > self._options.publish_retries and self._nc.is_connected and not batch.link_lost
                subject = rows[-1][0].split(b" ", 2)[1]
                if exhausted and not leader_may_come(self._nc, self._options, subject):
                    raise errors.NoStreamResponse(f"{len(rows) - done} rows are not confirmed: {error}") from error
                self._wait_for_link(offline, len(rows) - done)
                if self.guard is not None:
                    self.guard()
                self._check_ages(rows[done:], time.monotonic() - began)
            finally:
                batch.close()

    def _check_ages(self, rows: list[Message], age: float) -> None:
        """Raise if the stream may have forgotten the id of a row; all go to one stream."""
        first = next((start for start, headers, _ in rows if MSG_ID in headers), None)
        if first is not None:
            self._windows.check(first.split(b" ", 2)[1], age, len(rows))

    def _wait_for_link(self, deadline: Deadline, left: int) -> None:
        time.sleep(RETRY_PAUSE)
        while not self._nc.is_connected:
            engine_of(self._nc).check_usable()
            if deadline.expired():
                raise errors.ConnectionLost(f"not connected for {self._options.reconnect_timeout:g} s, {left} unacked")
            time.sleep(deadline.at_most(0.05))
        if deadline.expired():
            raise errors.NoStreamResponse(f"{left} rows are not confirmed after {self._options.reconnect_timeout:g} s")


class _Batch:
    """One batch on the wire: rows `first` to the end of `rows`."""

    def __init__(self, nc: Connection, rows: list[Message], first: int, timeout: float) -> None:
        self._nc = nc
        self._engine = engine_of(self._nc)
        self._rows = rows
        self._first = first
        self._last = rows[-1][0]  # for what belongs to no row
        self._timeout = timeout
        self._flow = FIRST_FLOW
        self.confirmed = 0
        self.link_lost = False
        self._final: Answer | None = None
        self._number = 0  # the last row sent
        self._queue = ChunkQueue()
        # The last token of the inbox is the id of the batch.
        prefix = f"{nc.new_inbox()}.{next_nuid()}"
        self._asked = prefix.encode() + b".%d.fail." % FLOW
        self._subscription = engine_of(nc).open_sink(prefix + ".>", self._queue)

    def close(self) -> None:
        self._subscription.close()

    def run(self) -> Answer:
        """Send, obeying the server's flow control; the final ack."""
        asked = self._asked
        number, size = 0, 0
        block: list[bytes] = []
        operation = b".0.$FI"
        for start, headers, value in self._rows[self._first :] if self._first else self._rows:
            number += 1
            start = b"%b%b%d%b" % (start, asked, number, operation)
            frame = hpub(start, headers, value) if headers else pub(start, value)
            operation = b".1.$FI"
            block.append(frame)
            size += len(frame)
            full = self.confirmed + self._flow * OUTSTANDING <= number
            if full or size >= BLOCK:
                self._engine.post_now(Unkept(b"".join(block)))
                block, size = [], 0
                if full:
                    self._number = number
                    self._wait(final=False)
        block.append(self._control(number + 1, COMMIT_END))
        self._engine.post_now(Unkept(b"".join(block)))
        self._number = number + 1
        self._wait(final=True)
        assert self._final is not None
        if self._final.count != number:
            raise Broken(f"the server counted {self._final.count} of {number} rows")
        return self._final

    def _wait(self, final: bool) -> None:
        """Until there is room for more rows, or until the final ack.

        The room is computed anew after every answer: the server begins with small numbers and doubles them.
        """
        deadline = Deadline(self._timeout)
        while self._final is None and (final or self.confirmed + self._flow * OUTSTANDING <= self._number):
            item = self._queue.next(deadline.at_most(PING_AFTER))
            if item is None:
                if deadline.expired():
                    raise Broken(f"no answer for {self._timeout:g} s")
                self._ping()
                continue
            deadline = Deadline(self._timeout)
            if isinstance(item, LinkEvent):
                self._engine.check_usable()
                self.link_lost = True
                raise Broken(f"the link was {item.value}")
            for message in item:
                status = message.status
                if status is not None:
                    raise Broken(f"nobody takes the rows ({status.code})")
                self._take(message.payload)

    def _ping(self) -> None:
        """Ask for an answer that may have been lost."""
        self._engine.post_now(Unkept(self._control(self._number, PING)))

    def _control(self, number: int, operation: int) -> bytes:
        """A message that is no row: it has headers, though no lines, and no payload."""
        return hpub(b"%b%b%d.%d.$FI" % (self._last, self._asked, number, operation), header_block(b"", None), b"")

    def _take(self, payload: bytes) -> None:
        try:
            answer = decode_answer(payload)
        except BAD_JSON:
            raise errors.InvalidPubAck(f"not an answer of a stream: {payload[:80]!r}") from None
        if answer.error is not None:
            error = errors.api_error(answer.error.code, answer.error.err_code, answer.error.description)
            if isinstance(error, (errors.JetStreamTemporarilyUnavailable, errors.TooManyRequests)) or (
                error.err_code in BATCH_GONE
            ):
                raise Broken(errors.brief(error))
            raise error
        if answer.type == "ack":
            self.confirmed = max(self.confirmed, answer.seq)
            self._flow = answer.msgs or self._flow
        elif answer.type == "gap":
            raise Broken(f"rows {answer.last_seq} to {answer.seq - 1} were lost on their way")
        else:
            self.confirmed = max(self.confirmed, answer.count)
            self._final = answer


BATCH_GONE: Final = frozenset({10158, 10208, 10211})  # id in process, batch unknown (forgotten), too many under way
