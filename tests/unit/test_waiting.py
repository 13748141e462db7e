"""The Gate: an Event without a lock, so that Ctrl-C cannot leave one behind."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
import timeit
from collections import deque
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from jsclient import waiting
from jsclient.testing import wait_until
from jsclient.waiting import Gate, get


def test_it_behaves_like_an_event() -> None:
    gate = Gate()
    assert not gate.is_set()
    assert not gate.wait(0.01)
    assert not gate.wait(0)
    gate.set()
    assert gate.wait(0)
    assert gate.wait(1)
    gate.clear()
    assert not gate.is_set()
    assert not gate._tickets


def test_set_wakes_everybody() -> None:
    gate = Gate()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(gate.wait(10)), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(gate._tickets) == 8)
    gate.set()
    for thread in threads:
        thread.join(5)
    assert woken == [True] * 8


def test_no_wake_up_is_lost() -> None:
    there, back = Gate(), Gate()
    rounds = 2000

    def answer() -> None:
        for _ in range(rounds):
            assert there.wait(10)
            there.clear()
            back.set()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for _ in range(rounds):
        there.set()
        assert back.wait(10)
        back.clear()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize("timeout", [0, 1e-9, 1e-7, 1e-6, 5e-6])
def test_a_timeout_near_zero_ends(timeout: float) -> None:
    """SimpleQueue.get itself waits for ever now and then, before Python 3.13."""
    for _ in range(2000):
        with pytest.raises(queue.Empty):
            get(queue.SimpleQueue(), timeout)


def test_a_signal_handler_that_outlives_the_timeout_does_not_make_the_wait_endless() -> None:
    ticket: waiting.Ticket[None] = waiting.Ticket()

    def slow(number: int, frame: object) -> None:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass

    previous = signal.signal(signal.SIGALRM, slow)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(queue.Empty):
            waiting.get(ticket, 0.2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_a_ticket_keeps_the_order_and_wakes_its_taker() -> None:
    ticket: waiting.Ticket[int] = waiting.Ticket()
    for number in range(3):
        ticket.put(number)
    assert [waiting.get(ticket, 1) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(queue.Empty):
        waiting.get(ticket, 0)
    with pytest.raises(queue.Empty):
        waiting.get(ticket, 0.01)

    def give() -> None:
        for number in range(1000):
            ticket.put(number)

    giver = threading.Thread(target=give)
    giver.start()
    assert [waiting.get(ticket, 5) for _ in range(1000)] == list(range(1000))
    giver.join()


def test_a_gate_whose_set_is_interrupted_forgets_nobody() -> None:
    gate, ticket = Gate(), Mock()
    ticket.put.side_effect = [KeyboardInterrupt, None]
    gate._tickets.append(ticket)
    with pytest.raises(KeyboardInterrupt):
        gate.set()
    gate.set()
    assert ticket.put.call_count == 2
    assert not gate._tickets


def test_a_gate_takes_every_number_for_a_timeout() -> None:
    gate = Gate()
    assert not gate.wait(-1)
    assert repr(gate) == "<Gate, closed>"
    waiter = threading.Thread(target=gate.wait, args=(1e12,))
    waiter.start()
    gate.set()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_copy_of_a_deque_costs_about_as_much_as_a_list() -> None:
    """Without the interpreter lock `deque.copy` took a thousand times as long."""
    shared = deque(object() for _ in range(5_000))

    def best(call: Callable[[Any], object]) -> float:
        return min(timeit.repeat(lambda: call(shared), number=1, repeat=5))

    assert list(waiting.copy_of(shared)) == list(shared)
    assert best(waiting.copy_of) < 50 * best(list)


def test_no_exception_of_a_signal_handler_is_lost_while_locks_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of four was printed and dropped, because it struck in the Python callback of a WeakSet."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    def make_locks(end: float) -> None:  # a function, because of `test_interrupted_loops`
        while time.monotonic() < end and not lost:
            waiting.new_lock()
            waiting.new_turn()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(60):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.001 + number / 50_000)
                make_locks(time.monotonic() + 5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert lost == []
