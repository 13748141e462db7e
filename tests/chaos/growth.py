"""Does a series of figures grow? The test of Mann and Kendall, and the slope of Theil and Sen with its lower bound."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

import attrs

#: Standard deviations beyond which a trend is believed: one of 30,000 series without a trend is called growing.
BELIEVED = 4.0
#: More points than this are joined into medians first: neighbours in time are not independent.
POINTS = 120


@attrs.frozen
class Trend:
    """`z` standard deviations of Kendall's S; slope and its lower bound for each second."""

    z: float
    slope: float
    at_least: float

    def grows(self, seconds: float, tolerance: float) -> bool:
        """True if it surely grows, and by more than `tolerance` in so many seconds."""
        return self.z > BELIEVED and self.at_least * seconds > tolerance


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Of a series of pairs; without a trend when there are fewer than five."""
    points = _joined(list(zip(times, values, strict=True)))
    count = len(points)
    if count < 5:
        return Trend(0.0, 0.0, 0.0)
    pairs = list(itertools.combinations(points, 2))
    sign = sum((after[1] > before[1]) - (after[1] < before[1]) for before, after in pairs)
    ties = sum(size * (size - 1) * (2 * size + 5) for size in Counter(value for _, value in points).values())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    z = (sign - math.copysign(1, sign)) / math.sqrt(variance) if variance > 0 and sign else 0.0
    slopes = sorted((after[1] - before[1]) / (after[0] - before[0]) for before, after in pairs)
    wide = BELIEVED * math.sqrt(max(variance, 0.0))
    low = slopes[max(0, int((len(slopes) - wide) / 2))]
    return Trend(z, statistics.median(slopes), low)


def _joined(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= POINTS:
        return points
    bounds = [number * len(points) // POINTS for number in range(POINTS + 1)]
    parts = [points[first:last] for first, last in itertools.pairwise(bounds)]
    return [(statistics.median(t for t, _ in part), statistics.median(v for _, v in part)) for part in parts]
