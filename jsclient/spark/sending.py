"""Publishing the rows of a task: many under way at once, every one acknowledged before the task returns.

Not `publish_async`: that makes a future per message, which nobody would look at here. Frames are kept by number
until their ack comes, so what is overdue, refused for the moment or lost with its link is sent again with the same
message id.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from jsclient import errors, waiting
from jsclient._engine import Unkept
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.publishing.copies import Copies
from jsclient.jetstream.publishing.verdict import passes
from jsclient.nuid import new_token
from jsclient.spark.access import SparkAccess
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.sink_streams import SinkWindows, leader_may_come
from jsclient.states import LinkEvent
from protocol.errors import BAD_JSON
from protocol.frames import hpub, pub

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions
    from protocol import Msg

log = logging.getLogger("jsclient.spark")

BLOCK: Final = 32 * 1024  # bytes of frames that are handed over at once
UNACKED_BYTES: Final = 16 << 20  # with large rows this ends the window before maxInFlight does
RETRY_PAUSE: Final = 0.25  # seconds before a row is sent again that found no responder or a busy stream
MSG_ID: Final = b"\r\nNats-Msg-Id: "
TICK: Final = 0.5  # seconds between two looks at overdue acks while waiting

# subject, header lines ("Name: value\r\n" each, or empty), value, message id or None
Row = tuple[bytes, bytes, bytes, bytes | None]


class AckError(msgspec.Struct, gc=False):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, gc=False):
    """A PubAck, as far as it is of interest here."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    count: int = 0
    error: AckError | None = None


decode_ack = msgspec.json.Decoder(Ack).decode


@attrs.define
class Totals:
    """What one task has published; part of its commit message."""

    rows: int = 0
    bytes: int = 0
    duplicates: int = 0
    streams: dict[str, tuple[int, int]] = attrs.field(factory=dict)  # stream -> (first, last sequence)

    def acked(self, stream: str, seq: int) -> None:
        known = self.streams.get(stream)
        self.streams[stream] = (seq, seq) if known is None else (min(known[0], seq), max(known[1], seq))

    def add(self, other: Totals) -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        for stream, (first, last) in other.streams.items():
            self.acked(stream, first)
            self.acked(stream, last)


def line_start(nc: Connection, subject: bytes, reply: bytes) -> bytes:
    """How the line of a row begins, checked; the error names the subject."""
    return engine_of(nc).pub_start(subject.decode("utf-8", "surrogateescape"), reply)


def header_block(lines: bytes, msg_id: bytes | None) -> bytes:
    if msg_id is None:
        return b"NATS/1.0\r\n%b\r\n" % lines
    return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n%b\r\n" % (msg_id, lines)


class WindowPublisher:
    """Publishes rows with at most `maxInFlight` unacknowledged. One thread; acks arrive on the reader thread."""

    def __init__(self, nc: Connection, options: SparkOptions) -> None:
        self._nc = nc
        self._engine = engine_of(self._nc)
        self._options = options
        self.guard: Callable[[], None] | None = None  # called before rows are sent again; raises if they must not be
        self._api = SparkAccess(nc, options, "(sink)").api.prefix
        self.totals = Totals()
        self.seen = self.totals.streams
        self._pending: dict[bytes, bytes] = {}  # token -> frame without an ack, oldest first
        self._again: list[bytes] = []
        self._sent = 0  # bytes, counted by the task's thread
        self._freed = 0  # bytes, counted by the reader thread
        self._starts: dict[bytes, bytes] = {}
        self._inbox = nc.new_inbox().encode() + b"."
        self._skip = len(self._inbox)
        self._error: BaseException | None = None
        self._wake_at = 0  # the reader thread wakes us when no more than so many are under way
        self._parked = False
        self._ticket: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._acks = 0
        self._reconnected = False
        self._copies = Copies(time.monotonic())
        self._windows = SinkWindows(nc, options)
        self._subscription = engine_of(nc).open_sink((self._inbox + b"*").decode(), self)
        engine_of(nc).add_violation_listener(self.failed)

    # --- the reader thread ------------------------------------------------------------------------------

    def deliver(self, messages: list[Msg], nbytes: int) -> None:
        pending, skip, totals = self._pending, self._skip, self.totals
        stream, first, last, duplicates, freed = "", 0, 0, 0, 0
        for message in messages:
            token = message.raw_subject[skip:]
            try:
                ack = decode_ack(message.payload)
            except BAD_JSON:
                ack = None
            if ack is None or ack.error is not None or not ack.seq:
                self._refused(token, message, ack)
                continue
            frame = pending.pop(token, None)
            if frame is None:
                continue  # a late answer to what was sent twice, or one that nobody asked for
            freed += len(frame)
            duplicates += ack.duplicate
            if ack.stream != stream:
                if stream:
                    totals.acked(stream, first)
                    totals.acked(stream, last)
                stream, first, last = ack.stream, ack.seq, ack.seq
            elif ack.seq > last:
                last = ack.seq
            elif ack.seq < first:
                first = ack.seq
        if stream:
            totals.acked(stream, first)
            totals.acked(stream, last)
        totals.duplicates += duplicates
        self._freed += freed
        self._acks += len(messages)
        if self._parked and (len(pending) <= self._wake_at or self._error or self._again):
            self._wake()

    def _refused(self, token: bytes, message: Msg, ack: Ack | None) -> None:
        """Not an ack: nobody there or busy (sent again by the other thread), or an error that ends the task."""
        if token not in self._pending:
            return  # answered before, or nobody asked
        status = message.status
        if status is not None and status.code == 503:
            self._again.append(token)
        elif ack is not None and ack.error is not None:
            error = errors.api_error(ack.error.code, ack.error.err_code, ack.error.description)
            temporary = (errors.JetStreamTemporarilyUnavailable, errors.TooManyRequests)
            if passes(error) or isinstance(error, temporary):
                self._again.append(token)
            else:
                self._error = self._error or error
        else:
            self._error = self._error or errors.InvalidPubAck(f"not an ack of a stream: {message.payload[:80]!r}")

    def under_way(self) -> list[bytes]:
        """The tokens of rows without an ack."""
        return list(self._pending)

    def link_event(self, event: LinkEvent) -> None:
        if event is LinkEvent.RECONNECTED:
            self._reconnected = True
        elif event is LinkEvent.CLOSED and self._error is None:
            self._error = errors.ConnectionClosed("the connection was closed while rows were being published")
        self._wake()

    def failed(self, error: BaseException) -> None:
        if isinstance(error, errors.PermissionViolation) and error.subject.startswith(self._api):
            return  # a question about a stream that this user may not ask; the caller that asked is told
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._parked:
            self._parked = False
            self._ticket.put(None)

    # --- the task's thread ------------------------------------------------------------------------------

    def publish(self, rows: Iterable[Row]) -> None:
        """Send rows; returns when the last one is on its way, not when it is acknowledged."""
        pending, starts = self._pending, self._starts
        window, limit = self._options.max_in_flight, self._nc.max_payload
        block: list[bytes] = []
        size = count = nbytes = 0
        for subject, lines, value, msg_id in rows:
            start = starts.get(subject)
            if start is None:
                start = starts[subject] = self._start(subject)
            token = new_token()
            count += 1
            total = len(value)
            if msg_id is None and not lines:
                frame = pub(start + token, value)
            elif not self._engine.takes_headers:
                return self._engine.check_headers()
            else:
                headers = header_block(lines, msg_id)
                total += len(headers)
                frame = hpub(start + token, headers, value)
            if total > limit:
                raise errors.PayloadTooLarge(f"a row of {total} bytes; the server takes {limit} (max_payload)")
            pending[token] = frame
            block.append(frame)
            size += len(frame)
            nbytes += len(value)
            if size >= BLOCK:
                self._send(block, size)
                block, size = [], 0
                if len(pending) >= window or self._sent - self._freed >= UNACKED_BYTES:
                    self._wait(window // 2)
            elif len(pending) >= window:
                self._send(block, size)
                block, size = [], 0
                self._wait(window // 2)
        if block:
            self._send(block, size)
        self.totals.rows += count
        self.totals.bytes += nbytes

    def finish(self) -> Totals:
        """Wait until everything is acknowledged."""
        self._wait(0)
        self._raise()
        return self.totals

    def close(self) -> None:
        self._engine.remove_violation_listener(self.failed)
        self._subscription.close()

    def _start(self, subject: bytes) -> bytes:
        if len(self._starts) >= 10_000:
            self._starts.clear()
        return line_start(self._nc, subject, self._inbox[:-1]) + b"."

    def _send(self, block: list[bytes], size: int) -> None:
        self._sent += size
        now = time.monotonic()
        if self._copies.due(now):
            self._copies.look(list(self._pending)[: -len(block)], now)
        self._post(b"".join(block))

    def _post(self, data: bytes) -> None:
        try:
            self._engine.post_now(Unkept(data))
        except (errors.ConnectionLost, errors.BufferFull):
            # Offline, or nothing is taken: everything pending is sent again when the link is back.
            self._reconnected = self._reconnected or self._nc.is_connected

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _wait(self, most: int) -> None:
        """Until at most `most` rows are under way; sends again what needs it."""
        pending, options = self._pending, self._options
        attempts, seen = 0, self._acks
        overdue, offline = Deadline(options.ack_timeout), Deadline(options.reconnect_timeout)
        patience = Deadline(options.reconnect_timeout)
        while True:
            self._raise()
            # At the end not only the frames are gone: the reader thread has counted them, too.
            if len(pending) <= most and self._sent - self._freed < (UNACKED_BYTES if most else 1):
                return
            if self._acks != seen:
                seen = self._acks
                if not self._again:
                    attempts, patience = 0, Deadline(options.reconnect_timeout)
                overdue = Deadline(options.ack_timeout)
            connected = self._nc.is_connected
            if connected:
                offline = Deadline(options.reconnect_timeout)
            elif offline.expired():
                raise errors.ConnectionLost(
                    f"not connected for {options.reconnect_timeout:g} s, {len(pending)} unacked"
                )
            if self._reconnected and connected:
                self._reconnected = False
                overdue = Deadline(options.ack_timeout)
                refused, self._again = self._again, []
                self._send_again(list(pending), refused)
            elif self._again or (overdue.expired() and connected):
                attempts += 1
                self._check_attempts(attempts, patience)
                self._pause_and_repeat(overdue.expired())
                overdue = Deadline(options.ack_timeout)
            self._park(most)

    def _check_attempts(self, attempts: int, patience: Deadline) -> None:
        if attempts <= self._options.publish_retries:
            return
        subject = next(iter(self._pending.values())).split(b" ", 2)[1]
        if patience.expired() or not leader_may_come(self._nc, self._options, subject):
            raise errors.NoStreamResponse(
                f"{len(self._pending)} rows are not acknowledged after {attempts - 1} repeats: no stream takes "
                f"{subject.decode('utf-8', 'replace')!r}, or its leader is away"
            )

    def _pause_and_repeat(self, everything: bool) -> None:
        if everything:
            refused, self._again = self._again, []
            self._send_again(list(self._pending), refused)
            return
        try:
            # Nothing is expected from the queue but a reason to hurry; the pause keeps a busy stream from worse.
            waiting.get(queue.SimpleQueue(), RETRY_PAUSE)
        except queue.Empty:
            pass
        again, self._again = self._again, []
        self._send_again(again, again)

    def _send_again(self, tokens: list[bytes], refused: list[bytes]) -> None:
        """Send rows again; of those that were `refused`, the latest copy is not stored."""
        if self.guard is not None:
            self.guard()
        now = time.monotonic()
        self._copies.look(list(self._pending), now)
        self._copies.refused(refused, now)
        self._check_ages(tokens, now)
        self._copies.unanswered(set(tokens).difference(refused))
        frames = [frame for frame in map(self._pending.get, tokens) if frame is not None]
        log.info("publishing %d rows again", len(frames))
        for i in range(0, len(frames), 100):
            self._post(b"".join(frames[i : i + 100]))

    def _check_ages(self, tokens: list[bytes], now: float) -> None:
        """Raise if a stream may have forgotten the id of a row. Rows without an id may be stored twice."""
        oldest: dict[bytes, float] = {}
        for token in tokens:
            frame, age = self._pending.get(token), self._copies.age(token, now)
            if frame is not None and age > 0 and MSG_ID in frame:
                subject = frame.split(b" ", 2)[1]
                oldest[subject] = max(oldest.get(subject, 0.0), age)
        for subject, age in oldest.items():
            self._windows.check(subject, age, len(self._pending))

    def _park(self, most: int) -> None:
        self._wake_at = most
        self._parked = True
        # Looked at again after parking, so that an ack in between is not missed.
        if len(self._pending) > most or self._sent - self._freed >= UNACKED_BYTES:
            self._engine.flush_outbox()
            try:
                waiting.get(self._ticket, TICK)
            except queue.Empty:
                pass
        self._parked = False


def publish_failed(options: SparkOptions, where: str, error: BaseException) -> JetStreamSparkError:
    """What a task raises; the text says whether a retry makes sense."""
    text = options.hide(f"{type(error).__name__}: {errors.brief(error)}")
    lasting = isinstance(error, (errors.ConfigError, errors.PermissionViolation, errors.ApiError))
    advice = "; a retry cannot cure it" if lasting else ""
    return JetStreamSparkError("JETSTREAM_PUBLISH_FAILED", f"{where}: {text}{advice}")
