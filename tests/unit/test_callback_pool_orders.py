"""The threads that callbacks share: every interleaving of who brings work and a worker whose idle time ends just then,
on the real code."""

from __future__ import annotations

import queue
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interleave import Steps, Thread, World, explore, stepwise

from jsclient import waiting
from jsclient._connection.callback_pool import CallbackPool

Stepwise: Any = stepwise(CallbackPool, "submit", "_wake", "_park")


class Ticket:
    """That of a worker which waits. Its time is up at any moment."""

    def __init__(self) -> None:
        self.items: list[None] = []

    def put(self, item: None) -> None:
        self.items.append(item)


def get(ticket: Ticket, timeout: float) -> None:
    if not ticket.items:
        raise queue.Empty
    ticket.items.pop()


class Pool(World):
    """Threads that bring work, and one worker."""

    def __init__(self, brought: int) -> None:
        engine: Any = SimpleNamespace(flush_outbox=lambda: None)
        self.pool: Any = Stepwise(engine)
        self.pool.workers = 1
        self.looks_later = False  # whether the clock was asked to look after the line
        self.pool._watch = self.pool._start = self.watch
        self.handled = 0
        self.brought = brought
        self.threads = [Thread(self.worker()), *(Thread(self.bring()) for _ in range(brought))]

    def watch(self, after: float) -> None:
        """Also in the place of `_start`: somebody sees to the line."""
        self.looks_later = True

    def bring(self) -> Steps:
        yield from self.pool.submit(object())

    def worker(self) -> Steps:
        """`_work`, as far as it concerns the line."""
        while True:
            yield
            try:
                self.pool._line.popleft()
            except IndexError:
                if not (yield from self.pool._park()):
                    break
                continue
            yield
            if self.pool._line and not self.pool._waking:
                yield from self.pool._wake()
            self.handled += 1
        self.pool.workers -= 1
        yield
        if self.pool._line:
            self.watch(0)

    def state(self) -> Hashable:
        pool = self.pool
        tickets = tuple(len(ticket.items) for ticket in pool._idle)
        return len(pool._line), tickets, pool._waking, pool.workers, self.looks_later, self.handled

    def check(self) -> None:
        assert not self.pool._waking, "nobody is woken any more: it is said that somebody just is"
        assert self.handled == self.brought or self.looks_later, "what was brought waits for ever"


@pytest.mark.parametrize("brought", [1, 2])
def test_a_worker_whose_time_is_up_as_it_is_woken_leaves_the_others_awake(
    brought: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes out of its wait between two steps of the thread that wakes it. If that says afterwards that somebody is
    being woken, nobody ever is again, and no callback of the connection is called."""
    monkeypatch.setattr(waiting, "Ticket", Ticket)
    monkeypatch.setattr(waiting, "get", get)
    assert explore(lambda: Pool(brought)) > 20
