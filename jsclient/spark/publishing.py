"""Which way the rows of a task go to their streams, and what is checked about these streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jsclient.spark.access import StreamAccess
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.sending import Row, Totals, WindowPublisher

if TYPE_CHECKING:
    from types import TracebackType

    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions

log = logging.getLogger("jsclient.spark")


class TaskPublisher:
    """The publisher of one task: chosen by publishMode and by what the target stream allows."""

    def __init__(self, nc: Connection, options: SparkOptions, job: str, batch: int, partition: int) -> None:
        self._nc = nc
        self._options = options
        self._publisher: Any = WindowPublisher(nc, options)
        self._checked: set[str] = set()

    def publish(self, rows: Iterable[Row]) -> None:
        self._publisher.publish(rows)
        self._check_streams()

    def finish(self) -> Totals:
        totals: Totals = self._publisher.finish()
        self._check_streams()
        return totals

    def _check_streams(self) -> None:
        """Once per stream, as soon as its first ack is in: ids are worth nothing without a window."""
        if self._options.delivery_semantics != "exactly-once":
            return
        for stream in list(self._publisher.totals.streams):
            if stream not in self._checked:
                self._checked.add(stream)
                check_window(StreamAccess(self._nc, self._options, stream))

    def __enter__(self) -> TaskPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._publisher.close()


def check_window(access: StreamAccess) -> None:
    """The time in which a stream recognises a message id: 0 is an error, a short one a warning."""
    window = float(access.info().config.duplicate_window or 0)
    if window <= 0:
        raise JetStreamSparkError(
            "JETSTREAM_DEDUP_WINDOW",
            f"stream {access.stream!r} does not deduplicate (duplicate_window 0); set it to the longest restart you "
            "expect, or use deliverySemantics=at-least-once",
        )
    if window < access.options.min_dedup_window:
        log.warning(
            "stream %r recognises repeated messages for %g s only (minDedupWindow %g s): a batch that is replayed "
            "later is stored twice",
            *(access.stream, window, access.options.min_dedup_window),
        )
