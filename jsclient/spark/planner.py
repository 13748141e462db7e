"""Which sequences a query reads, in which partitions, and how far one trigger goes. Pure arithmetic."""

from __future__ import annotations

import itertools
import math

import attrs

from jsclient.arrow.ranges import StreamState, head_moved
from jsclient.spark.errors import JetStreamSparkError


@attrs.frozen
class Limits:
    """How many partitions a span of sequences is cut into."""

    records_per_partition: int
    min_partitions: int
    max_partitions: int

    def count(self, span: int) -> int:
        """clamp(ceil(span / records_per_partition), min_partitions, max_partitions), and never more than span."""
        wanted = max(self.min_partitions, math.ceil(span / self.records_per_partition))
        return max(1, min(wanted, self.max_partitions, span))


def cut(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """[start, end) in at most `parts` contiguous ranges of nearly the same span, in order; none is empty."""
    span = end - start
    if span <= 0:
        return []
    parts = min(parts, span)
    edges = [start + span * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def check_head(state: StreamState, start: int, end: int, fail: bool) -> tuple[int, str]:
    """Compare where a range starts with the head of the stream.

    Returns the sequence to start at and a warning ("" when nothing is lost). JETSTREAM_DATA_LOSS when the head
    was truncated past `start` and `fail` is set. Holes inside the stream are normal and not looked for.
    """
    if start >= end or state.first <= start or state.compacted:
        return start, ""
    gone = min(state.first, end) - start
    text = head_moved(state, start, start + gone, gone, start, end)
    if fail:
        raise JetStreamSparkError(
            "JETSTREAM_DATA_LOSS", f"{text}; keep messages longer, or accept the loss with failOnDataLoss=false"
        )
    return min(state.first, end), text


def admit(start: int, available: int, state: StreamState, max_records: int | None, max_bytes: int | None) -> int:
    """The end of the next micro-batch: `available` cut down by the limits; at least one sequence of progress."""
    end = available
    if max_records is not None:
        end = min(end, start + max_records)
    if max_bytes is not None:
        end = min(end, start + max(1, int(max_bytes / state.mean_size())))
    return max(start, end)
