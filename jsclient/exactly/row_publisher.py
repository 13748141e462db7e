"""Rows of a table as messages: many in flight, each acknowledged, and counted instead of looked at one by one.

It uses the window, inbox and recovery of `publish_async`, without a future per row and with one write per block of
rows. It stores only the frame of a row. The first row with an error as its outcome ends the publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient import waiting
from jsclient._connection import LinkFrame
from jsclient.connection import engine_of
from jsclient.errors import BufferFull, ConnectionLost, PayloadTooLarge
from jsclient.jetstream.publishing.in_flight import InFlight, Window
from jsclient.nuid import TOKEN_LENGTH, tokens
from jsclient.protocol.frames import header_size, hpub, pub_end, reply_of

if TYPE_CHECKING:
    from jsclient.jetstream.api.models import PubAck
    from jsclient.jetstream.context import JetStream
    from jsclient.jetstream.publishing.in_flight import FrameEntry
    from jsclient.jetstream.publishing.outcome import Rules

BLOCK: Final = 32 * 1024
"""Bytes of frames in one block."""

TICK: Final = 0.1
"""Seconds between two looks, while waiting, for rows to send again by hand."""

Row = tuple[bytes, bytes, bytes, "bytes | None"]
"""Subject, header lines ("Name: value" and CRLF each, checked; or empty), value, message id or None."""


@attrs.define
class Totals:
    """The published rows, bytes of their values, rows that were stored already, and sequences per stream."""

    rows: int = 0
    bytes: int = 0
    duplicates: int = 0
    streams: dict[str, tuple[int, int]] = attrs.field(factory=dict)  # stream -> (first, last sequence)

    def acked(self, stream: str, first: int, last: int) -> None:
        known = self.streams.get(stream)
        self.streams[stream] = (first, last) if known is None else (min(known[0], first), max(known[1], last))

    def add(self, other: Totals) -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        for stream, (first, last) in other.streams.items():
            self.acked(stream, first, last)


def header_block(lines: bytes, msg_id: bytes | None) -> bytes:
    """The headers of a row."""
    if msg_id is None:
        return b"NATS/1.0\r\n%b\r\n" % lines
    return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n%b\r\n" % (msg_id, lines)


ID_START: Final = header_block(b"", b"").removesuffix(b"\r\n\r\n")
ID_SIZE: Final = len(header_block(b"", b""))


def check_row(size: int, limit: int) -> None:
    """Raises PayloadTooLarge."""
    if size > limit:
        raise PayloadTooLarge(f"a row of {size} bytes; the server takes {limit} (max_payload)")


class RowPublisher:
    """Publishes rows; for one thread. Rows without an id may be stored twice if the rules allow copies.

    That thread calls `guard` before it sends rows again; `guard` raises if it must not.
    """

    wants_acks = True
    keeps_frames = True

    def __init__(
        self,
        js: JetStream,
        rules: Rules,
        *,
        max_pending: int,
        max_pending_bytes: int,
        guard: Callable[[], None] | None = None,
    ) -> None:
        self.totals: Totals = Totals()
        self.seen: dict[str, tuple[int, int]] = self.totals.streams
        self._engine = engine_of(js.nc)
        self._in_flight = InFlight(js, self, Window(max_pending, max_pending_bytes, parts=2), rules, js.publish_streams)
        self._recovery = self._in_flight.recovery
        self._guard = guard
        self._recovery.by_hand = guard is not None
        self._tokens = tokens()
        self._lock = waiting.new_lock()  # of the counts: an ack found by an inquiry comes on another thread
        self._counted = 0  # rows with an ack
        self._error: BaseException | None = None

    # --- the thread that publishes --------------------------------------------------------------------------------

    def publish(self, rows: Iterable[Row]) -> None:
        """Send rows; returns when the last one is on its way, before its ack."""
        in_flight = self._in_flight
        starts, small = in_flight.starts, in_flight.small
        takes_headers = self._engine.takes_headers
        window, pending = in_flight.window, in_flight.pending
        block: list[bytes] = []
        size = nbytes = 0
        room = self._room()
        for (subject, lines, value, msg_id), token in zip(rows, self._tokens, strict=False):
            start = starts.get(subject)
            if start is None:
                start = in_flight.start(subject)
            count = total = len(value)
            # Joined in line, because a call is a tenth of a row.
            if msg_id is not None:
                if not takes_headers:
                    self._engine.check_headers()
                length = ID_SIZE + len(msg_id) + len(lines)
                total += length
                frame = b"".join((
                    b"H", start, token, header_size(length), pub_end(total),
                    ID_START, msg_id, b"\r\n", lines, b"\r\n", value, b"\r\n",
                ))  # fmt: skip
            elif lines:
                if not takes_headers:
                    self._engine.check_headers()
                headers = header_block(lines, None)
                total += len(headers)
                frame = hpub(start + token, headers, value)
            else:
                frame = b"".join((start, token, pub_end(total), value, b"\r\n"))
            if total > small:
                check_row(total, in_flight.max_payload)
                self._send(block, nbytes)
                block, size, nbytes = [], 0, 0
                self._wait_for_room(total)
                in_flight.charge(token, total)
                room = self._room()
            pending[token] = frame
            block.append(frame)
            size += len(frame)
            nbytes += count
            if len(block) >= room:
                room = len(block) + window.limit - len(pending)  # acks came meanwhile, so the block continues
            if size >= BLOCK or len(block) >= room:
                self._send(block, nbytes)
                block, size, nbytes = [], 0, 0
                room = self._room()
        self._send(block, nbytes)

    def finish(self) -> Totals:
        """Wait until every row is acknowledged."""
        while not self._in_flight.window.wait_empty(TICK, self._all_counted):
            self._look()
        self._look()
        return self.totals

    def settle(self, timeout: float | None) -> bool:
        """True if all rows that were sent are acknowledged within `timeout` seconds; then none is in flight."""
        return self._in_flight.window.wait_empty(timeout, self._all_counted) and self._error is None

    def close(self) -> None:
        self._in_flight.close()

    def _all_counted(self) -> bool:
        # The frames must be gone, and the reader must have counted them, too.
        return self._counted == self.totals.rows or self._error is not None

    def _room(self) -> int:
        """The number of rows that may go out, at least one; waits until there is room."""
        self._look()
        window = self._in_flight.window
        room = window.limit - len(window.pending)
        if room <= 0:
            self._wait_for_room(0)
            room = window.limit - len(window.pending)
        return room

    def _wait_for_room(self, size: int) -> None:
        while not self._in_flight.make_room(size, TICK):
            self._look()
        self._look()

    def _look(self) -> None:
        """Raise the error of a row, and send rows again if this thread must do it."""
        if self._error is not None:
            raise self._error
        if self._recovery.due:
            if self._guard is not None:
                self._guard()
            self._recovery.resume()

    def _send(self, block: list[bytes], nbytes: int) -> None:
        """Rows count from now on, whatever the outcome of the block."""
        if not block:
            return
        self.totals.rows += len(block)
        self.totals.bytes += nbytes
        if not self._recovery.calm and self._recovery.admit(*self._entries(block)):
            return
        try:
            self._engine.enqueue_now(LinkFrame(b"".join(block)))
        except (ConnectionLost, BufferFull):
            self._recovery.hold(*self._entries(block))

    def _entries(self, block: list[bytes]) -> list[FrameEntry]:
        """The entries of the rows of a block that was not sent."""
        found = [self._in_flight.look_up(reply_of(frame)[-TOKEN_LENGTH:]) for frame in block]
        return [entry for entry in found if entry is not None]

    # --- what becomes of rows: mostly on the reader thread --------------------------------------------------------

    def frame(self, entry: FrameEntry) -> bytes:
        """The frame of a row that will be sent again."""
        return LinkFrame(entry.frame)

    def acked(self, acks: list[PubAck]) -> None:
        """Count a chunk of acks."""
        with self._lock:
            self._count(self.totals, acks)

    def _count(self, totals: Totals, acks: list[PubAck]) -> None:
        stream, first, last, duplicates = "", 0, 0, 0
        for ack in acks:
            seq = ack.seq
            duplicates += ack.duplicate
            if ack.stream != stream:
                if stream:
                    totals.acked(stream, first, last)
                stream, first, last = ack.stream, seq, seq
            elif seq > last:
                last = seq
            elif seq < first:
                first = seq
        totals.acked(stream, first, last)
        totals.duplicates += duplicates
        self._counted += len(acks)

    def wake(self, entry: Any) -> None:
        """No caller watches a row."""

    def failed(self, entry: FrameEntry, error: BaseException) -> None:
        """The first error ends the publisher, because no caller waits for the other rows."""
        self._error = self._error or error
        self._in_flight.drop(list(self._in_flight.pending))
