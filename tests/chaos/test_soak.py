"""The short form of `make soak`: work at a fixed rate over a bad link; nothing is lost, and nothing grows.

Ten minutes of it in the full tier: the first file that `make test-full` begins (tests/conftest.py), beside others."""

from __future__ import annotations

import pytest

from tests.chaos.soak import Soak


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1000)
def test_nothing_grows_and_nothing_is_lost(full: bool) -> None:
    result = Soak(seconds=600 if full else 75, rate=100, seed=3)()
    print(result)
    assert result.problems == [], str(result)
