"""How far a batch goes and where its partitions are cut, by the messages that are there. No JVM, no server."""

from __future__ import annotations

import itertools
from bisect import bisect_left

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsclient.planning.survey import PROBES, Survey


class Model:
    """Messages at these sequences; counts the probes."""

    def __init__(self, messages: list[int]) -> None:
        self.messages = messages
        self.probes = 0

    def __call__(self, seq: int) -> tuple[int, int | None]:
        self.probes += 1
        at = bisect_left(self.messages, seq)
        left = len(self.messages) - at
        return left, self.messages[at] if left else None

    def between(self, low: int, high: int) -> int:
        return bisect_left(self.messages, high) - bisect_left(self.messages, low)

    def survey(self, end: int | None = None) -> Survey:
        end = end or self.messages[-1] + 1
        return Survey(self.messages[0], end, self, self.between(end, 1 << 62))


def test_what_is_dense_is_not_asked_for() -> None:
    survey = Survey(11, 1011)
    assert (survey.messages, survey.reach(100), survey.reach(5000), survey.passed(61)) == (1000, 111, 1011, 50)
    assert survey.cuts(1011, 8) == ()


def test_a_hole_costs_one_probe() -> None:
    model = Model([*range(1, 1001), *range(101_001, 102_001)])
    survey = model.survey()
    before = model.probes
    assert (survey.messages, survey.reach(500)) == (2000, 501)
    assert model.probes - before == 1
    # 20 before the hole and 80 behind it
    model = Model(model.messages[980:])
    survey = model.survey()
    before = model.probes
    end = survey.reach(100)
    assert 95 <= model.between(981, end) <= 100
    assert model.probes - before <= 2


@pytest.mark.parametrize("step", [2, 10, 1000])
def test_an_even_filter_is_met_within_five_percent(step: int) -> None:
    model = Model(list(range(7, 4_000_000, step)))
    survey = model.survey()
    before, most = model.probes, 1000
    assert 0.95 * most <= model.between(0, survey.reach(most)) <= most
    assert model.probes - before <= 3
    assert survey.cuts(survey.end, 16) == (), "even parts do as well"


MESSAGES = st.lists(st.tuples(st.integers(1, 400), st.sampled_from([1, 1, 2, 9, 5000])), min_size=1, max_size=12).map(
    lambda runs: [
        seq
        for start, (count, step) in zip(range(1, 10_000_000, 60_000), runs, strict=False)
        for seq in range(start, start + min(count * step, 59_000), step)
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES, st.integers(1, 3000), st.integers(1, 40))
def test_any_stream(messages: list[int], most: int, parts: int) -> None:
    model = Model(messages)
    survey = model.survey()
    begun = model.probes
    end = survey.reach(most)
    assert 1 <= model.between(0, end) <= most
    assert messages[0] < end <= survey.end
    assert model.probes - begun <= PROBES
    begun = model.probes
    parts = min(parts, end - messages[0])
    edges = [messages[0], *survey.cuts(end, parts), end]
    assert len(edges) in (2, parts + 1)
    assert edges == sorted(set(edges))
    assert model.probes - begun <= PROBES


def test_partitions_lie_where_the_messages_are() -> None:
    model = Model([*range(1, 1001), *range(900_001, 907_001)])
    survey = model.survey()
    edges = [1, *survey.cuts(survey.end, 8), survey.end]
    sizes = [model.between(low, high) for low, high in itertools.pairwise(edges)]
    assert sum(sizes) == 8000
    assert max(sizes) <= 2000, sizes


def test_what_is_stored_meanwhile_does_no_harm() -> None:
    messages = list(range(1, 100_000, 5))
    model = Model(messages)
    survey = model.survey()
    model.messages = messages + list(range(100_000, 140_000))
    assert 1 < survey.reach(700) <= survey.end
    assert survey.cuts(survey.end, 5) == () or len(survey.cuts(survey.end, 5)) == 4
    gone = Model(messages)
    survey = gone.survey()
    gone.messages = messages[15_000:]
    assert 1 < survey.reach(700) <= survey.end
    edges = [1, *survey.cuts(survey.end, 7), survey.end]
    assert edges == sorted(set(edges))


@pytest.mark.parametrize(("behind", "messages"), [(0, 100), (60, 40), (100, 1)])
def test_messages_behind_the_range_do_not_count(behind: int, messages: int) -> None:
    assert Survey(1, 301, lambda seq: (100, None), behind).messages == messages
