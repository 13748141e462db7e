"""Rows of a table in an atomic batch, beside a server that is played by the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.delivery_rig import Line, stream

from jsclient import errors
from jsclient.exactly.atomic_rows import AtomicRows


def rows_of(*answers: Any) -> AtomicRows:
    return AtomicRows(stream(*answers), 5.0)


def line(batch: AtomicRows) -> Line:
    found: Any = batch._nc
    return found  # type: ignore[no-any-return]


def some(count: int, size: int = 1) -> list[Any]:
    return [(b"s.r", b"", b"x" * size, b"%d" % number if number % 2 else None) for number in range(count)]


def test_rows_leave_in_blocks_behind_the_first_message() -> None:
    batch = rows_of(b"")
    batch.add("s.m", b"marker")
    batch.add_rows(some(3))
    assert len(batch) == 4
    (block,) = line(batch).sent
    assert block.count(b"Nats-Batch-Sequence: ") == 2
    assert block.count(b"Nats-Msg-Id: ") == 1
    batch.commit()


def test_large_rows_leave_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsclient.exactly.atomic_rows.AT_ONCE", 100)
    batch = rows_of(b"")
    batch.add("s.m")
    batch.add_rows(some(4))
    assert len(line(batch).sent) > 1


def too_many(batch: AtomicRows) -> None:
    batch.add_rows(some(1000))


def too_large(batch: AtomicRows) -> None:
    batch.add_rows(some(2, 2 << 20))


def full(batch: AtomicRows) -> None:
    line(batch).full = True
    batch.add_rows(some(2))


@pytest.mark.parametrize(
    ("call", "error"),
    [(too_many, errors.BatchTooLarge), (too_large, errors.PayloadTooLarge), (full, errors.NotStored)],
)
def test_rows_that_cannot_be_sent(call: Callable[[AtomicRows], None], error: type[Exception]) -> None:
    batch = rows_of(b"")
    batch.add("s.m")
    with pytest.raises(error):
        call(batch)
