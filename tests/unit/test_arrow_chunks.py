"""Chunks of columns: filtered by thousands of subjects, and put together of several readers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")

from jsclient.arrow.chunks import MERGED, Chunk, Matching, in_order, iterate_rows
from jsclient.arrow.reading import MOST_FILTERS, groups_of


def chunk(sequences: list[int], headers: bool = False) -> Chunk:
    return Chunk(
        [b"s.%d" % n for n in sequences],
        sequences,
        [n * 10 for n in sequences],
        [b"%d" % n for n in sequences],
        [b"NATS/1.0\r\nN: %d\r\n\r\n" % n if n % 2 else None for n in sequences] if headers else None,
        1,
        len(sequences),
        0,
    )


@pytest.mark.parametrize("headers", [False, True])
def test_several_readers_are_put_in_order(headers: bool) -> None:
    chance = random.Random(7)
    owners: list[list[int]] = [[], [], [], []]
    for sequence in range(1, MERGED * 2 + 500):
        chance.choice(owners[:3]).append(sequence)  # the last one has nothing

    def read(sequences: list[int]) -> Iterator[Chunk]:
        while sequences:
            count = chance.randrange(1, 300)
            yield chunk(sequences[:count], headers)
            sequences = sequences[count:]

    found = list(in_order([read(each) for each in owners]))
    everything = chunk(list(range(1, MERGED * 2 + 500)), headers)
    assert [row for each in found for row in iterate_rows(each)] == list(iterate_rows(everything))
    assert len(found) == 3


def test_filters_of_both_kinds() -> None:
    matching = Matching(["s.3", "s.5.*", "s.7.>"])
    subjects = [b"s.3", b"s.4", b"s.5", b"s.5.x", b"s.5.x.y", b"s.7.x.y", b"s.\xff"]
    assert [matching.one(subject) for subject in subjects] == [True, False, False, True, False, True, False]
    assert matching.of(chunk([2, 3, 4])).sequences == [3]


def test_only_plain_subjects_are_divided() -> None:
    plain = tuple(f"s.{n}" for n in range(MOST_FILTERS * 2 + 1))
    groups = groups_of(plain)
    assert sorted(map(len, groups)) == [667, 667, 667]
    assert sorted(sum(groups, ())) == sorted(plain)
    for kept in ((), plain[:5], (*plain, "t.*")):
        assert groups_of(kept) == [kept]
