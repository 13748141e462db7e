"""The test for growth of the soak: what grows is found, noise, steps at the start and saw teeth are not."""

from __future__ import annotations

import random

import pytest
from tests.chaos.growth import trend

TIMES = [float(second) for second in range(600)]


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_grow(seed: int) -> None:
    chance = random.Random(seed)
    assert not trend(TIMES, [chance.gauss(100, 10) for _ in TIMES]).grows(600, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_under_noise_is_found(seed: int) -> None:
    chance = random.Random(seed)
    found = trend(TIMES, [100 + 0.05 * time + chance.gauss(0, 5) for time in TIMES])
    assert found.grows(600, 10)
    assert not found.grows(600, 40)
    assert found.slope == pytest.approx(0.05, abs=0.01)


def test_what_stands_still_or_swings_does_not_grow() -> None:
    assert trend(TIMES, [5.0] * 600).z == 0
    assert not trend(TIMES, [time % 60 for time in TIMES]).grows(600, 10)
    assert not trend(TIMES, [-time for time in TIMES]).grows(600, 0)
    assert not trend(TIMES[:3], [1.0, 2.0, 3.0]).grows(600, 0)


def test_rare_steps_of_an_allocator_are_no_leak_within_the_tolerance() -> None:
    steps = [100.0 + 2 * (time // 200) for time in TIMES]
    assert not trend(TIMES, steps).grows(600, 8)
