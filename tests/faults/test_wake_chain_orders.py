"""The chain of wake-ups in every order of three threads and the reader; see tests/unit/test_wake_chain.py."""

from __future__ import annotations

import pytest
from tests.interleave import explore
from tests.unit.test_wake_chain import Chain, Ended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("chunks", "timeouts"),
    [
        ([[0, 1, 2]], set()),
        ([[0, 1], [2]], set()),
        ([[0], [1, 2]], set()),
        ([[0], [1], [2]], set()),
        ([[0, 1, 2]], {1}),
        ([[0, 1], [2]], {0}),
    ],
)
def test_all_are_woken_and_everything_is_sent(chunks: list[list[int]], timeouts: set[int]) -> None:
    """Without any help of the flusher, unless a reply comes at the very end of its time."""
    assert explore(lambda: Chain(chunks, timeouts, set(), rescue=bool(timeouts))) > 100


@pytest.mark.parametrize("chunks", [[[0, 1]], [[0, 1, 2]], [[0, 1], [2]]])
def test_an_exception_anywhere_is_made_good_within_two_ticks(chunks: list[list[int]]) -> None:
    assert explore(lambda: Chain(chunks, set(), {0, 1}, rescue=True)) > 100


@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["closed", "lost"])
@pytest.mark.parametrize(("chunk", "interrupted"), [([0], None), ([0], 0), ([0], 1), ([0, 1], 0)])
def test_a_link_that_ends_leaves_nobody_waiting(chunk: list[int], interrupted: int | None, end: str) -> None:
    """Two threads that ask, the reader, and what closes: with an exception at any point, up to 440,000 states."""
    assert explore(lambda: Ended(chunk, 2, end, set() if interrupted is None else {interrupted})) > 100
