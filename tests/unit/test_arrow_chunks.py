"""Chunks of columns: filtered by thousands of subjects, and the numbers of deliveries."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from jsclient.arrow.chunks import Chunk, Matching, deliveries_of, split_statuses
from jsclient.message import Msg
from jsclient.protocol.errors import ProtocolError


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


def replies(*numbers: tuple[int, int]) -> list[bytes | None]:
    """Reply subjects of deliveries with these sequences of the stream and of the consumer."""
    return [b"$JS.ACK.S.c.1.%d.%d.17%d.%d" % (seq, delivery, seq, 90 - delivery) for seq, delivery in numbers]


def test_numbers_between_the_first_and_the_last_are_known_without_reading_them() -> None:
    found = deliveries_of(replies((5, 1), (6, 2), (7, 3)), exact_from=8)
    assert found is not None
    assert (list(found.sequences), list(found.consumer_sequences), found.timestamps) == ([5, 6, 7], [1, 2, 3], [])
    assert found.pending[-1] == 87
    assert found.size == len(b"".join(filter(None, replies((5, 1), (6, 2), (7, 3)))))


@pytest.mark.parametrize(
    ("numbers", "exact_from"),
    [
        pytest.param([(5, 1), (7, 2), (8, 3)], 9, id="a hole"),
        pytest.param([(5, 1), (6, 3), (7, 4)], 9, id="a lost delivery"),
        pytest.param([(5, 1), (6, 2), (7, 3)], 7, id="the message at the mark"),
        pytest.param([(5, 1), (6, 2), (7, 3)], 0, id="numbers are wanted"),
    ],
)
def test_numbers_are_read_if_they_are_wanted_or_not_known(numbers: list[tuple[int, int]], exact_from: int) -> None:
    found = deliveries_of(replies(*numbers), exact_from)
    assert found is not None
    assert list(zip(found.sequences, found.consumer_sequences, strict=True)) == numbers
    assert found.timestamps == [int(f"17{seq}") for seq, _ in numbers]


@pytest.mark.parametrize("exact_from", [0, 9])
def test_other_frames_among_deliveries_are_seen(exact_from: int) -> None:
    plain = replies((5, 1), (6, 2))
    assert deliveries_of([plain[0], None, plain[1]], exact_from) is None
    with pytest.raises(ProtocolError):
        split_statuses([Msg(b"s", b"1", reply, b"") for reply in (plain[0], b"x.y", plain[1])], exact_from)
