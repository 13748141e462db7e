"""How far a batch goes and how many partitions it has: arithmetic. No server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient.arrow.options import ReadOptions
from jsclient.arrow.ranges import StreamState
from jsclient.arrow.settings import Refused
from jsclient.planning.planner import Limits, Load, check_head, cut, share

STRICT, LAX = (ReadOptions(stream="S", fail_on_data_loss=fail) for fail in (True, False))


def state(first: int = 1, last: int = 100, **more: object) -> StreamState:
    fields: dict[str, object] = {"name": "S", "created": "c", "messages": last - first + 1, "bytes": 0, **more}
    return StreamState(first=first, last=last, **fields)  # type: ignore[arg-type]


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(1, 300))
def test_cut_covers_the_span_without_holes(start: int, span: int, parts: int) -> None:
    ranges = cut(start, start + span, parts)
    assert len(ranges) == min(parts, span)
    assert all(a < b for a, b in ranges)
    assert [b for _, b in ranges[:-1]] == [a for a, _ in ranges[1:]]
    if ranges:
        assert (ranges[0][0], ranges[-1][1]) == (start, start + span)
        sizes = [b - a for a, b in ranges]
        assert max(sizes) - min(sizes) <= 1


def test_no_range_is_empty() -> None:
    assert cut(5, 8, 10) == [(5, 6), (6, 7), (7, 8)]
    assert cut(5, 5, 10) == []


@pytest.mark.parametrize(("span", "expected"), [(0, 0), (1, 1), (100_000, 2), (250_000, 3), (10**9, 200)])
def test_number_of_partitions(span: int, expected: int) -> None:
    assert Limits(100_000, 2, 200).count(Load(span, span, 0)) == expected


def loads(*spans: int, nbytes: int = 0) -> list[Load]:
    return [Load(span, span, nbytes) for span in spans]


def test_partitions_of_many_streams() -> None:
    limits = Limits(100, 1, 10)
    assert limits.spread(loads(250, 0, 100, 1)) == [3, 0, 1, 1]
    assert limits.spread([]) == []
    # more than maxPartitions: where a partition has most to read; but every stream has one
    assert limits.spread(loads(1000, 2000, 10)) == [3, 6, 1]
    assert limits.spread(loads(*[1000] * 12)) == [1] * 12
    # fewer than minPartitions
    assert Limits(100, 8, 10).spread(loads(90, 30, 2)) == [5, 2, 1]
    assert Limits(100, 8, 10).spread(loads(2, 1)) == [2, 1]
    # by bytes
    assert Limits(100, 1, 10, 1000).spread(loads(50, 50, nbytes=3500)) == [4, 4]


@given(st.lists(st.integers(0, 10**7), max_size=20), st.integers(1, 300), st.integers(1, 300))
def test_partitions_of_many_streams_keep_to_the_bounds(spans: list[int], least: int, most: int) -> None:
    least, most = min(least, most), max(least, most)
    parts = Limits(1000, least, most).spread(loads(*spans))
    busy = sum(1 for span in spans if span)
    assert all((count > 0) == (span > 0) and count <= span for count, span in zip(parts, spans, strict=True))
    assert sum(parts) <= max(most, busy)
    assert sum(parts) >= min(least, sum(spans))


def test_a_limit_is_shared() -> None:
    assert share([5, 100, 1], None) == [None, None, None]
    assert share([5, 100, 1], 106) == [None, None, None]
    assert share([5, 100, 1], 50) == [5, 44, 1]
    assert share([100, 100, 100], 50) == [16, 17, 17]
    assert share([7, 7, 7], 2) == [1, 1, 0]
    assert share([], 2) == []


def test_lost_heads_are_named_with_their_range() -> None:
    assert check_head(state(first=5), 5, 10, STRICT) == (5, "")
    assert check_head(state(first=50), 10, 10, STRICT) == (10, "")
    with pytest.raises(
        Refused, match=r"'S'.*10 to 49 \(40 of the range \[10, 80\)\).*; keep messages longer"
    ) as caught:
        check_head(state(first=50), 10, 80, STRICT)
    assert caught.value.token == "JETSTREAM_DATA_LOSS"
    start, warning = check_head(state(first=50), 10, 80, LAX)
    assert start == 50
    assert "10 to 49" in warning
    start, warning = check_head(state(first=500), 10, 80, LAX)
    assert start == 80
    assert "10 to 79 (70 of the range" in warning
