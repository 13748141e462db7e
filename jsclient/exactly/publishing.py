"""The choice of the publisher for the rows of a task, and the checks of the streams that get them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from jsclient.durations import Deadline
from jsclient.exactly.fast_rows import FastRowPublisher
from jsclient.exactly.row_publisher import Row, RowPublisher, Totals
from jsclient.exactly.sending import ACK_TIMEOUT, fast_publisher, row_publisher
from jsclient.exactly.sink_streams import SinkStreams, deduplication

if TYPE_CHECKING:
    from types import TracebackType

    from jsclient.connection import Connection
    from jsclient.exactly.settings import WriteSettings


MOST_SENT: Final = 20_000
"""Keys that a task remembers before it waits for their acks."""


class TaskPublisher:
    """The publisher of one task, chosen by publishMode and by the features of the target stream."""

    def __init__(self, nc: Connection, options: WriteSettings, partition: int) -> None:
        self._nc = nc
        self._options = options
        self._partition = partition
        self._deadline = Deadline(options.task_timeout)
        self._patience = options.reconnect_timeout
        self.guard: Callable[[], None] | None = None  # as in RowPublisher; to be set before the first row
        self._started = time.monotonic()
        self._windows: dict[str, float | None] = {}  # Seconds in which a stream recognises an id; None if unknown.
        self.notes: list[str] = []  # Messages that the user has to see although nothing failed.
        self._window: RowPublisher | None = None
        self._fast: FastRowPublisher | None = None
        self.streams: SinkStreams = SinkStreams(nc, options)
        self._plain = options.publish_mode == "async" or options.compacted
        self._sent: set[bytes] = set()  # with `compacted`, subjects whose rows may be in flight

    def publish(self, rows: Iterable[Row]) -> None:
        if self._options.compacted:
            self._publish_in_order(list(rows))
        elif self._plain:
            self._windowed().publish(rows)
        else:
            self._fast_or_windowed(list(rows))
        self._check_streams()
        if self._deadline.expired():
            sent = sum(publisher.totals.rows for publisher in self._publishers())
            raise self._options.refuse(
                "JETSTREAM_TASK_TIMEOUT",
                f"partition {self._partition}: not at the end of its rows after {sent} of them and "
                f"{self._options.task_timeout:g} s; give taskTimeout more, or a task fewer rows",
            )

    def _publish_in_order(self, rows: list[Row]) -> None:
        """At most one row of a subject is in flight: a row that is sent again must not come after a newer one."""
        publisher, sent, begin = self._windowed(), self._sent, 0
        for at, row in enumerate(rows):
            if row[0] in sent or len(sent) >= MOST_SENT:
                publisher.publish(rows[begin:at])
                publisher.finish()
                sent.clear()
                begin = at
            sent.add(row[0])
        publisher.publish(rows[begin:])

    def restart_clock(self) -> None:
        """`taskTimeout` begins now: the time before was spent waiting for another attempt to end."""
        self._deadline = Deadline(self._options.task_timeout)

    def limit_patience(self, seconds: float) -> None:
        """Fail rather than send rows again later than this; call it before the first row."""
        self._patience = min(self._patience, max(seconds, ACK_TIMEOUT))

    def finish(self) -> Totals:
        """Wait for the rows that are not acknowledged yet."""
        totals = Totals()
        for publisher in self._publishers():
            totals.add(publisher.finish())
        self._check_streams()
        self._check_duration()
        return totals

    def settle(self, timeout: float) -> bool:
        """True if no row is in flight any more, at the latest after `timeout` seconds. For a task that fails."""
        deadline = Deadline(timeout)
        return all(each.settle(deadline.remaining()) for each in self._publishers())

    def _check_duration(self) -> None:
        """A retry of a task that takes longer than the window repeats rows that are no longer recognised."""
        took = time.monotonic() - self._started
        for stream, window in self._windows.items():
            if window is not None and took > window:
                self.notes.append(
                    f"stream {stream!r} recognises repeated messages for {window:g} s, and a task took longer: had it "
                    "been run again, rows would have been stored twice. Make the window longer, or the tasks smaller"
                )

    def _publishers(self) -> list[RowPublisher | FastRowPublisher]:
        return [each for each in (self._window, self._fast) if each is not None]

    def _windowed(self) -> RowPublisher:
        if self._window is None:
            self._window = row_publisher(self._nc, self._options, self.guard, self._patience)
        return self._window

    def _fast_or_windowed(self, rows: list[Row]) -> None:
        """Fast if all rows go to one stream that allows it; a batch cannot be spread over streams."""
        if not rows:
            return
        if self.streams.take_fast_batches({row[0] for row in rows}):
            if self._fast is None:
                self._fast = fast_publisher(self._nc, self._options, self.guard, self._patience)
            self._fast.publish(rows)
        else:
            self._windowed().publish(rows)

    def _check_streams(self) -> None:
        """Once per stream, as soon as its first ack is in: without a window ids are worthless."""
        if self._options.delivery_semantics == "at-least-once" or self._options.compacted:
            return
        for publisher in self._publishers():
            for stream in list(publisher.seen):
                if stream not in self._windows:
                    found = deduplication(self._nc, self._options, stream)
                    self._windows[stream] = found.window
                    self.notes += found.notes

    def __enter__(self) -> TaskPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._window is not None:
            self._window.close()
