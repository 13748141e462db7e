"""The proof that a range was read completely: every single message that was lost is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from jsclient.arrow.gaps import Gaps
from jsclient.arrow.ranges import Range, StreamState
from jsclient.durations import Deadline


class Lost(Exception):
    pass


class Access:
    """The stream as its leader knows it; a test moves its head."""

    stream = "S"
    nc = None
    deadline = Deadline(None)

    def __init__(self, last: int, fail: bool = True) -> None:
        self.last, self.first, self.held = last, 1, last
        self.notes: list[str] = []
        self.options: Any = SimpleNamespace(
            compacted=False,
            reconnect_timeout=0.0,
            fail_on_data_loss=fail,
            accept_loss="accept it",
            refuse=lambda name, text: Lost(f"{name}: {text}"),
            note=self.notes.append,
        )

    def state(self) -> StreamState:
        return StreamState("S", "today", self.first, self.last, self.held, 100)


def reading(access: Access, read: list[int], first: int) -> Gaps:
    """Begin with ten messages there, read some of them; then the head of the stream moves to `first`."""
    gaps = Gaps(access, Range(0, 1, 11, created="today"))  # type: ignore[arg-type]
    gaps.begin(1, 10, False, lambda: 0)
    expected = 1
    for sequence in read:
        gaps.read(expected, [sequence])
        expected = sequence + 1
    access.first = first
    return gaps


@pytest.mark.parametrize("missing", [1, 2, 5, 9])
def test_one_message_that_the_head_has_passed_is_a_loss(missing: int) -> None:
    gaps = reading(Access(10), [number for number in range(1, 11) if number != missing], 10)
    with pytest.raises(Lost, match=r"JETSTREAM_DATA_LOSS.*\(1 of the range"):
        gaps.finish(11)


def test_the_last_message_of_a_range_may_be_the_lost_one() -> None:
    gaps = reading(Access(10), list(range(1, 10)), 11)
    with pytest.raises(Lost, match=r"\(1 of the range"):
        gaps.finish(10)


def test_an_accepted_loss_is_told() -> None:
    access = Access(10, fail=False)
    reading(access, [1, 2, 4, 5, 6, 7, 8, 9, 10], 10).finish(11)
    (note,) = access.notes
    assert "sequences 3 to 4 (1 of the range [1, 11))" in note


def test_what_was_read_may_go() -> None:
    reading(Access(10), list(range(1, 11)), 11).finish(11)


def test_a_hole_that_was_there_from_the_start_is_no_loss() -> None:
    access = Access(10)
    access.held = 9
    gaps = Gaps(access, Range(0, 1, 11, created="today"))  # type: ignore[arg-type]
    gaps.begin(1, 9, False, lambda: 0)
    gaps.read(1, [1, 2, 3])
    gaps.read(4, [5, 6, 7, 8, 9, 10])
    access.first = 11
    gaps.finish(11)


def test_a_stream_that_ends_one_message_early_was_set_back() -> None:
    access = Access(10)
    gaps = reading(access, list(range(1, 10)), 1)
    access.last = 9
    with pytest.raises(Lost, match="1 more sequences"):
        gaps.finish(10)


def test_another_stream_of_the_same_name_is_refused() -> None:
    access = Access(10)
    gaps = reading(access, list(range(1, 11)), 1)
    access.state = lambda: StreamState("S", "tomorrow", 1, 10, 10, 100)  # type: ignore[method-assign]
    with pytest.raises(Lost, match="JETSTREAM_STREAM_RECREATED"):
        gaps.finish(11)


@pytest.mark.parametrize(("soft", "lost"), [(True, False), (False, True)])
def test_a_range_from_the_earliest_message_promises_nothing_before_its_first_row(soft: bool, lost: bool) -> None:
    access = Access(10)
    gaps = Gaps(access, Range(0, 1, 11, created="today", soft=soft))  # type: ignore[arg-type]
    gaps.begin(1, 10, False, lambda: 0)
    access.first = 4  # the first three expired between the question and the first row
    gaps.read(1, [4, 5, 6, 7, 8, 9, 10])
    if lost:
        with pytest.raises(Lost, match=r"\(3 of the range"):
            gaps.finish(11)
    else:
        gaps.finish(11)
