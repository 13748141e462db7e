"""Rows of a table as part of an atomic batch: they are ready, so they are sent in blocks and not looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from jsclient._connection import LinkFrame
from jsclient.durations import Deadline
from jsclient.errors import BatchTooLarge, BufferFull, ConnectionLost
from jsclient.exactly.row_publisher import Row, check_row, header_block
from jsclient.jetstream.publishing.atomic_batch import AtomicBatch
from jsclient.protocol import Headers
from jsclient.protocol.frames import hpub

if TYPE_CHECKING:
    from jsclient.jetstream.context import JetStream

AT_ONCE: Final = 512 * 1024
"""Bytes of frames in one block, which is sent without a wait in between."""


class AtomicRows(AtomicBatch[Any]):
    """An atomic batch that begins with an ordinary message and continues with rows. A lost row fails the commit."""

    def __init__(self, js: JetStream[Any], timeout: float) -> None:
        super().__init__(js, timeout=timeout, ack_every=0)
        self._starts: dict[bytes, bytes] = {}

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Send all but the last row, which is held back for the commit. At least one row; once, after the first
        message."""
        self._check_open()
        if self._size + len(rows) > self._max:
            raise BatchTooLarge(f"a batch has at most {self._max} messages")
        limit = self._nc.max_payload
        self._send_held(Deadline(self._timeout), False)
        begin = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: " % self.id.encode()
        starts = self._starts
        block: list[bytes] = []
        size = 0
        for number, (subject, lines, value, msg_id) in enumerate(rows[:-1], self._size + 1):
            start = starts.get(subject) or self._start(subject)
            if msg_id is not None:
                lines = b"Nats-Msg-Id: %b\r\n%b" % (msg_id, lines)
            headers = b"%b%d\r\n%b\r\n" % (begin, number, lines)
            total = len(headers) + len(value)
            if total > limit:
                check_row(total, limit)
            frame = hpub(start, headers, value)
            block.append(frame)
            size += len(frame)
            if size >= AT_ONCE:
                self._send_block(block)
                block, size = [], 0
        self._send_block(block)
        subject, lines, value, msg_id = rows[-1]
        self._held = subject.decode("utf-8", "surrogateescape"), value, Headers.decode(header_block(lines, msg_id))
        self._size += len(rows)

    def _start(self, subject: bytes) -> bytes:
        start = self._starts[subject] = self._engine.pub_start(subject.decode("utf-8", "surrogateescape"))
        return start

    def _send_block(self, block: list[bytes]) -> None:
        closed, self._closed = self._closed, "has failed"
        try:
            self._engine.post_now(LinkFrame(b"".join(block)))
        except (ConnectionLost, BufferFull) as error:
            raise self._not_stored(error) from error
        self._closed = closed
