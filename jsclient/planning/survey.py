"""The number of wanted messages in each part of a stream, from which batches and partitions are planned.

The server gives the number of matching messages from a sequence on (`pending_from`). Each such request
is a probe. Probes decide how much is read at a time and by which task, but never which messages are read. If messages
come or go meanwhile, a plan becomes uneven, not wrong.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from jsclient.arrow.access import from_sequence
from jsclient.errors import ConsumerFilterError, JsClientError

if TYPE_CHECKING:
    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.ranges import StreamState

PROBES: Final = 6  # For the end of a batch, and another 6 for the partitions.
CLOSE_ENOUGH: Final = 0.95  # Of the limit of a trigger.
AIM: Final = 0.98  # Of the way to it, because overshooting costs another probe.
UNEVEN: Final = 0.2  # If one half of a part has so much more or less than the other, messages lie unevenly.

Passed = Callable[[int], tuple[int, "int | None"]]
"""seq -> (the number of matching messages from there on, the sequence of the first of them)."""


def survey_of(access: StreamAccess, state: StreamState, first: int, end: int, worth: int) -> Survey:
    """The messages in [first, end), counted if holes or filters make them fewer than the sequences.

    Up to `worth` sequences it makes no probe, because one task would read all of them in one go.
    """
    filters = access.options.subjects
    dense = state.messages == state.end - state.first and not filters
    if dense or end - first <= worth or not _can_count(access, state):
        return Survey(first, end)

    def pending(seq: int) -> tuple[int, int | None]:
        return pending_from(access, seq, filters, state)

    try:
        return Survey(first, end, pending, 0 if end >= state.end else pending(end)[0])
    except ConsumerFilterError:
        return Survey(first, end)  # before 2.10 a filter that is wider than the stream: the task finds another way


def pending_from(
    access: StreamAccess, seq: int, filters: tuple[str, ...], state: StreamState
) -> tuple[int, int | None]:
    """The number of matching messages from `seq` on, and the sequence of the first one.

    One direct get answers both. Without it the leader gives the sequence, and a consumer, which is never read from,
    gives the number. A replica that lags behind gives too small a number, so this is for planning only.
    """
    if len(filters) <= 1 and _by_direct_get(access, state):
        with suppress(JsClientError):
            found = access.direct_get({"seq": max(1, seq), "next_by_subj": filters[0] if filters else ">"})
            return (0, None) if found is None else ((found.pending or 0) + 1, found.sequence)
    following = access.next_on_leader(seq, filters)
    if following is None or access.options.read_method == "direct" or state.retention != "limits":
        return (0, None) if following is None else (state.end - following, following)
    return access.glance(from_sequence(seq, filters)).num_pending, following


def _can_count(access: StreamAccess, state: StreamState) -> bool:
    """True if `pending_from` works: a stream that is consumed by reading must not get a consumer for that."""
    return _by_direct_get(access, state) or (access.options.read_method != "direct" and state.retention == "limits")


def _by_direct_get(access: StreamAccess, state: StreamState) -> bool:
    return access.options.read_method != "consumer" and access.direct_works(state)


class Survey:
    """The messages of [first, end), known at some points. `first` is a message itself.

    Without `pending` every sequence counts as a message. This is right without holes and filters, and good enough if
    asking would not pay.
    """

    def __init__(self, first: int, end: int, pending: Passed | None = None, behind: int = 0) -> None:
        """`behind` is the number of matching messages from `end` on."""
        self.first = first
        self._pending = pending
        self._from_first = 0
        count = end - first
        if pending is not None and end > first:
            self._from_first = pending(first)[0]
            count = min(max(1, self._from_first - behind), end - first)
        self._points = [(first, 0), (end, count)]

    @property
    def messages(self) -> int:
        return self._points[-1][1]

    @property
    def end(self) -> int:
        return self._points[-1][0]

    def _probe(self, seq: int) -> tuple[int, int | None]:
        """(messages in [first, seq), the next one at or after seq); remembered as points."""
        assert self._pending is not None
        left, following = self._pending(seq)
        at = bisect_left(self._points, (seq,))
        lowest, highest = self._points[at - 1][1], self._points[at][1]
        passed = min(max(self._from_first - left, lowest), highest)
        self._add(seq, passed)
        if following is not None and seq < following < self.end:
            self._add(following, passed)
        return passed, following

    def _add(self, seq: int, passed: int) -> None:
        at = bisect_left(self._points, (seq,))
        if self._points[at][0] != seq:
            insort(self._points, (seq, passed))

    def reach(self, most: int) -> int:
        """The end of a batch of at most `most` messages, and not much fewer; one message at least."""
        if self.messages <= most:
            return self.end
        if self._pending is None or self.messages == self.end - self.first:
            return self.first + max(1, most)
        guess = best = self.first + max(1, most)  # never more messages than that
        low, high = (self.first, 0), self._points[-1]
        for _ in range(PROBES):
            passed, following = self._probe(guess)
            if passed > most:
                high = (guess, passed)
            else:
                best, low = guess, (following or guess, passed)
            missing = most - low[1]
            if low[1] >= CLOSE_ENOUGH * most or high[0] - low[0] <= 1:
                break
            share = AIM * missing / max(1, high[1] - low[1])
            guess = max(low[0] + missing, low[0] + int((high[0] - low[0]) * share))
            if guess >= high[0]:
                guess = (low[0] + high[0]) // 2  # the known points are older than the present messages
            if guess <= best:
                break
        return best

    def passed(self, end: int) -> int:
        """The number of messages before `end`, estimated from the known points."""
        at = bisect_right(self._points, (end, self._points[-1][1]))
        if at >= len(self._points):
            return self.messages
        (low, before), (high, after) = self._points[at - 1], self._points[at]
        return before + (after - before) * (end - low) // max(1, high - low)

    def cuts(self, end: int, parts: int) -> tuple[int, ...]:
        """The inner boundaries of `parts` partitions of [first, end) with about the same number of messages.

        Empty if cutting evenly by sequences does as well.
        """
        total = self.passed(end)
        if parts < 2 or self._pending is None or total >= end - self.first:
            return ()
        self._look_within(end, total / parts)
        if len([seq for seq, _ in self._points if seq < end]) == 1 or self._is_even(end, total):
            return ()
        found: list[int] = []
        for number in range(1, parts):
            seq = self._where(total * number // parts)
            found.append(max(seq, (found[-1] if found else self.first) + 1))
        # There are no fewer sequences than parts, so the last boundaries can give way.
        for at in range(parts - 2, -1, -1):
            found[at] = min(found[at], end - (parts - 1 - at))
        return tuple(found)

    def _look_within(self, end: int, enough: float) -> None:
        """Probe in the middle of the parts with most messages, as long as they lie unevenly."""
        even: set[int] = set()
        for _ in range(PROBES):
            points = [point for point in self._points if point[0] < end] + [(end, self.passed(end))]
            parts = [
                (after - before, low, high)
                for (low, before), (high, after) in itertools.pairwise(points)
                if low not in even and after - before > enough and after - before < high - low > 1
            ]
            if not parts:
                return
            count, low, high = max(parts)
            middle = (low + high) // 2
            first_half = self._probe(middle)[0] - self.passed(low)
            if abs(first_half - count / 2) <= UNEVEN * count / 2:
                even |= {low, middle}

    def _is_even(self, end: int, total: int) -> bool:
        """True if every point is close to its place for evenly distributed messages."""
        span = end - self.first
        return all(
            abs(passed - total * (seq - self.first) / span) <= UNEVEN * total / 2
            for seq, passed in self._points
            if seq < end
        )

    def _where(self, passed: int) -> int:
        """The sequence with about `passed` messages before it."""
        at = bisect_left([count for _, count in self._points], passed)
        (high, after), (low, before) = self._points[at], self._points[max(0, at - 1)]
        return high if after == before else low + -(-(high - low) * (passed - before) // (after - before))
