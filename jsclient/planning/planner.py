"""The sequences that a query reads, their partitions, and the end of one trigger. Pure arithmetic."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence

import attrs

from jsclient.arrow.ranges import StreamState, head_moved
from jsclient.arrow.settings import Settings


@attrs.frozen
class Load:
    """The unread part of one stream: a span of sequences, and estimates of its content."""

    span: int
    messages: int
    nbytes: int


@attrs.frozen
class Limits:
    """The limits that decide the number of partitions."""

    records_per_partition: int
    min_partitions: int
    max_partitions: int = 10_000
    bytes_per_partition: int = 128 << 20

    def count(self, load: Load) -> int:
        return self.spread([load])[0]

    def spread(self, loads: Sequence[Load]) -> list[int]:
        """The partitions of each stream, at most as many as its sequences; 0 if no message is left to read.

        Their sum keeps to the limits, but every stream has at least one.
        """
        sizes = [
            max(load.messages / self.records_per_partition, load.nbytes / self.bytes_per_partition) for load in loads
        ]
        wanted = [min(max(1, math.ceil(size)), load.span) for size, load in zip(sizes, loads, strict=True)]
        total = max(self.min_partitions, min(sum(wanted), self.max_partitions))
        if total == sum(wanted):
            return wanted
        # Add partitions one by one where a partition has most to read.
        parts = [min(1, load.span) for load in loads]
        heap = [(-size, at) for at, size in enumerate(sizes) if loads[at].span > 1]
        heapq.heapify(heap)
        for _ in range(total - sum(parts)):
            if not heap:
                break
            at = heap[0][1]
            parts[at] += 1
            if parts[at] < loads[at].span:
                heapq.heapreplace(heap, (-sizes[at] / parts[at], at))
            else:
                heapq.heappop(heap)
        return parts


def cut(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """[start, end) in at most `parts` contiguous ranges of nearly the same span, in order; none is empty."""
    span = end - start
    if span <= 0:
        return []
    parts = min(parts, span)
    edges = [start + span * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def check_head(state: StreamState, start: int, end: int, options: Settings) -> tuple[int, str]:
    """Compare where a range starts with the head of the stream.

    Returns the sequence to start at and a warning ("" if no message is lost). Raises JETSTREAM_DATA_LOSS if the head
    was truncated past `start` and `fail_on_data_loss` is set. Holes inside the stream are normal and not looked for.
    """
    if start >= end or state.first <= start or state.compacted:
        return start, ""
    gone = min(state.first, end) - start
    text = head_moved(state, start, start + gone, gone, start, end)
    if options.fail_on_data_loss:
        raise options.refuse("JETSTREAM_DATA_LOSS", f"{text}; keep messages longer, or {options.accept_loss}")
    return min(state.first, end), text


def share(wanted: Sequence[int], most: int | None) -> list[int | None]:
    """The shares of several streams in a limit: streams that want little get it all, the others the same each.

    None stands for all of it. If there is less than one for each stream, the first streams get one.
    """
    if most is None or sum(wanted) <= most:
        return [None] * len(wanted)
    given: list[int | None] = [0] * len(wanted)
    left = most
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    if most < len(wanted):
        for at in range(most):
            given[at] = 1
        return given
    for done, at in enumerate(order):
        given[at] = min(wanted[at], left // (len(order) - done))
        left -= given[at] or 0
    return given
