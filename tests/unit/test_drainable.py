"""The registry of drainables: held weakly, handlers before iterators, nothing left half started."""

from __future__ import annotations

import gc

from jsclient import errors, waiting
from jsclient._connection.drainable import Drainable, Drainables, wait_for
from jsclient.durations import Deadline


class Handler(Drainable):
    def runs_here(self) -> bool:
        return True


class Iterator(Drainable):
    application_driven = True


def test_handlers_come_before_iterators() -> None:
    drainables = Drainables()
    made = [Iterator(), Handler(), Iterator(), Handler()]
    for drainable in made:
        drainables.enter(drainable)
    assert [type(drainable) for drainable in drainables.all()] == [Handler, Handler, Iterator, Iterator]


def test_a_taker_may_stand_for_another() -> None:
    drainables = Drainables()
    inner, outer = Iterator(), Handler()
    drainables.enter(inner)
    assert not drainables.run_here()
    drainables.enter(outer, instead_of=inner)
    assert drainables.all() == [outer]
    assert drainables.run_here()


def test_what_nobody_has_any_more_is_forgotten() -> None:
    drainables = Drainables()
    kept = Handler()
    drainables.enter(kept)
    for _ in range(100):
        drainables.enter(Iterator())
    gc.collect()
    assert drainables.all() == [kept]
    assert len(drainables._known) == 1


def test_the_steps_of_a_taker_that_does_nothing() -> None:
    drainable = Drainable()
    drainable.begin_drain()
    drainable.all_received()
    drainable.finish_drain(Deadline(0))
    drainable.end(errors.ConnectionClosed("over"))
    assert drainable.hand_back() == []


def test_waiting_for_handlers_ends_with_the_connection() -> None:
    gate = waiting.Gate()
    assert not wait_for(gate, Deadline(None), lambda: True)
    assert not wait_for(gate, Deadline(0.01), lambda: False)
    gate.set()
    assert wait_for(gate, Deadline(0), lambda: True)
