"""Chunks of columns, filtered by thousands of subjects."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from jsclient.arrow.chunks import Chunk, Matching


def chunk(sequences: list[int]) -> Chunk:
    return Chunk(
        [b"s.%d" % n for n in sequences],
        sequences,
        [n * 10 for n in sequences],
        [b"%d" % n for n in sequences],
        None,
        1,
        len(sequences),
        0,
    )


def test_filters_of_both_kinds() -> None:
    matching = Matching(["s.3", "s.5.*", "s.7.>"])
    subjects = [b"s.3", b"s.4", b"s.5", b"s.5.x", b"s.5.x.y", b"s.7.x.y", b"s.\xff"]
    assert [matching.one(subject) for subject in subjects] == [True, False, False, True, False, True, False]
    assert matching.of(chunk([2, 3, 4])).sequences == [3]
