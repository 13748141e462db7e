"""The right to read: every interleaving of the reader and two threads that borrow it, on the real code."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interleave import NOBODY, Numbered, Steps, Turn, World, explore, now, stepwise

from jsclient._connection import reading as module
from jsclient._connection.reading import Reading

Stepwise: Any = stepwise(Reading, "lend", "take_back", "recall", "borrow", "_read", "_return")


def free(turn: Turn) -> None:
    while turn._is_owned():
        turn.release()


class Parked:
    def __init__(self) -> None:
        self.called = False

    def put(self, item: None) -> None:
        self.called = True


class Stream:
    """Chunks that are there to be read; each belongs to a thread."""

    def __init__(self, chunks: str) -> None:
        self.chunks = deque(enumerate(chunks))

    def new_poller(self) -> Stream:
        return self

    def poll(self, timeout: float) -> bool:
        return bool(self.chunks)

    def take(self, permit: list[int]) -> Iterator[Any]:
        return map(lambda _, chunks: chunks.popleft(), permit, (self.chunks,))


class Until:
    """A time that is up after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def expired(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def at_most(self, seconds: float) -> float:
        return seconds


class Lent(World):
    """Two threads that want what is theirs, and the reader, which takes the right back at any moment."""

    def __init__(self, chunks: str, looks: int, interruptible: set[int], ends: str) -> None:
        now[0] = 2
        self.stream, self.ends = Stream(chunks), ends
        self.reading: Any = Stepwise(self.stream, None)
        self.reading.lock.acquire()
        self.reading._reader = 2
        self.order: list[int] = []  # the chunks, as somebody has used them
        self.wanted = chunks
        self.looks = looks
        self.untils: list[Until] = []
        self.interruptible, self.interrupts = interruptible, 1 if interruptible else 0
        self.threads = [Numbered(number, self.borrower(number)) for number in (0, 1)]
        self.threads.append(Numbered(2, self.reader()))

    def borrower(self, number: int) -> Steps:
        def take(turn: Any) -> Any:
            if turn.chunks[0][1] != str(number):
                return None
            found = turn.chunks.popleft()
            self.order.append(found[0])
            return found

        until = Until(self.looks)
        self.untils.append(until)
        yield lambda: self.reading.lent or self.reading.left or not self.stream.chunks or self.threads[2].done
        yield from self.reading.borrow(take, lambda: True, until)

    def reader(self) -> Steps:
        yield None
        yield from self.reading.lend()
        yield None
        yield from self.reading.take_back()
        if self.ends == "closed":
            return  # nobody reads any more
        while True:
            yield None
            if self.reading.left:
                self.order.append(self.reading.left.popleft()[0])
            elif self.stream.chunks:
                self.order.append(self.stream.chunks.popleft()[0])
            else:
                yield lambda: self.reading.left or all(thread.done for thread in self.threads[:2])
                if not self.reading.left:
                    return

    def state(self) -> Hashable:
        reading = self.reading
        return (
            *(reading.lent, tuple(reading.left), tuple(self.stream.chunks), tuple(self.order)),
            *(reading.lock.owner, reading.lock.depth, reading.seat.owner, reading.seat.depth),
            *(tuple(reading._turn.chunks), len(reading._turn.permit), reading._parked.called),
            tuple(until.looks for until in self.untils),
        )

    def check(self) -> None:
        stuck = [number for number, thread in enumerate(self.threads) if not thread.done]
        assert not stuck, f"{stuck} are stuck"
        if self.ends != "closed":
            assert self.order == list(range(len(self.wanted))), f"used as {self.order}"
        assert self.order == sorted(set(self.order)), "doubled, or out of order"
        assert self.reading.seat.owner == NOBODY, "the seat is left behind"
        assert self.reading.lock.owner == 2, "the right is not the reader's"


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"new_turn": Turn, "free": free, "Ticket": Parked, "holder": lambda turn: turn.owner}
    monkeypatch.setattr(module, "waiting", SimpleNamespace(**names, is_beneath=lambda thread, code: False))


SHORT: list[tuple[str, set[int], str]] = [("01", set(), "reads")]
SLOW = [
    (chunks, interrupted, ends)
    for chunks in ("0", "01", "10", "00")
    for interrupted in (set[int](), {0}, {0, 1})
    for ends in ("reads", "closed")
    if (chunks, interrupted, ends) not in SHORT
]


@pytest.mark.parametrize(
    ("chunks", "interrupted", "ends"),
    [*SHORT, *(pytest.param(*case, marks=[pytest.mark.slow, pytest.mark.timeout(600)]) for case in SLOW)],
)
def test_each_chunk_is_used_once_and_in_order(chunks: str, interrupted: set[int], ends: str) -> None:
    """With an exception at any point, with waits that are over, and with a reader that comes back at any moment to read
    on, or to end because the link is gone."""
    assert explore(lambda: Lent(chunks, 2, interrupted, ends)) > 100
