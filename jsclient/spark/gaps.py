"""Holes between the messages of a range, and the end of a range that came early.

Deleted messages and those that filters skip are normal. A head of the stream that has moved past the reader is a loss,
and a replica that lags behind the leader is not the end: the leader has the last word.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jsclient.spark.access import StreamAccess
    from jsclient.spark.planner import Range

EVERY: Final = 1.0  # seconds between two looks at the head: filters leave holes everywhere


class Gaps:
    """Watches the sequences of one range. For one thread."""

    def __init__(self, access: StreamAccess, part: Range) -> None:
        self._access = access
        self._part = part
        self._missing: int | None = None  # the first sequence that did not come, since the last look at the head
        self._look_at = 0.0

    def check(self, start: int, sequences: list[int]) -> None:
        """`sequences` came where `start` was to be next; JETSTREAM_DATA_LOSS when the head has overtaken it."""
        if self._missing is None:
            if sequences[-1] - start + 1 == len(sequences):
                return
            expected = range(start, start + len(sequences))
            self._missing = next(e for e, got in zip(expected, sequences, strict=True) if e != got)
        if time.monotonic() >= self._look_at:
            self._look(min(self._part.end, sequences[-1]))

    def ahead(self, start: int) -> int | None:
        """The first sequence of the range from `start` on that the leader has; None when nothing is left."""
        found = self._access.next_on_leader(start, self._part.filters)
        return found if found is not None and found < self._part.end else None

    def finish(self, start: int) -> None:
        """Nothing of the range is left from `start` on."""
        if self._missing is None and start < self._part.end:
            self._missing = start
        if self._missing is not None:
            self._look(self._part.end)

    def _look(self, end: int) -> None:
        assert self._missing is not None
        self._access.check_loss(self._missing, end, self._part.created)
        self._missing, self._look_at = None, time.monotonic() + EVERY
