"""The registry of takers: held weakly, handlers before iterators, nothing left half started."""

from __future__ import annotations

import gc

from jsclient import errors, waiting
from jsclient._connection.takers import Taker, Takers, wait_for
from jsclient.durations import Deadline


class Handler(Taker):
    def runs_here(self) -> bool:
        return True


class Iterator(Taker):
    application_driven = True


def test_handlers_come_before_iterators() -> None:
    takers = Takers()
    made = [Iterator(), Handler(), Iterator(), Handler()]
    for taker in made:
        takers.enter(taker)
    assert [type(taker) for taker in takers.all()] == [Handler, Handler, Iterator, Iterator]


def test_a_taker_may_stand_for_another() -> None:
    takers = Takers()
    inner, outer = Iterator(), Handler()
    takers.enter(inner)
    assert not takers.run_here()
    takers.enter(outer, instead_of=inner)
    assert takers.all() == [outer]
    assert takers.run_here()


def test_what_nobody_has_any_more_is_forgotten() -> None:
    takers = Takers()
    kept = Handler()
    takers.enter(kept)
    for _ in range(100):
        takers.enter(Iterator())
    gc.collect()
    assert takers.all() == [kept]
    assert len(takers._known) == 1


def test_the_steps_of_a_taker_that_does_nothing() -> None:
    taker = Taker()
    taker.begin_drain()
    taker.all_received()
    taker.finish_drain(Deadline(0))
    taker.end(errors.ConnectionClosed("over"))
    assert taker.hand_back() == []


def test_waiting_for_handlers_ends_with_the_connection() -> None:
    gate = waiting.Gate()
    assert not wait_for(gate, Deadline(None), lambda: True)
    assert not wait_for(gate, Deadline(0.01), lambda: False)
    gate.set()
    assert wait_for(gate, Deadline(0), lambda: True)
