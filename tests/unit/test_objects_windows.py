"""The window of an object's chunks follows the line: its round trip, and what it has taken so far."""

from __future__ import annotations

import pytest

from jsclient.objectstore.windows import chunks_in, grown, most_bytes

MIB = 1 << 20


@pytest.mark.parametrize(("round_trip", "times"), [(0.0, 1), (0.02, 1), (0.1, 5), (0.16, 8), (3.0, 8)])
def test_a_long_line_may_hold_more(round_trip: float, times: int) -> None:
    assert most_bytes(8 * MIB, round_trip) == times * 8 * MIB


@pytest.mark.parametrize(
    ("chunk_size", "chunks"), [(128 << 10, 64), (None, 64), (0, 64), (8 * MIB, 4), (64 * MIB, 4), (1, 4_000)]
)
def test_chunks_of_every_size(chunk_size: int | None, chunks: int) -> None:
    assert chunks_in(8 * MIB, chunk_size, 4) == chunks


def test_it_grows_as_fast_as_the_line_takes_it() -> None:
    assert grown(32, 256, 0, 0.0, 0.3) == 32
    assert grown(32, 256, 32, 0.3, 0.3) == 256
    assert grown(32, 256, 10, 1.0, 0.3) == 32, "80 KiB/s: no more than on a near server"
    assert grown(32, 256, 50, 1.0, 0.1) == 40
