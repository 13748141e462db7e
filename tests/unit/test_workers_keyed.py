"""Order by key without threads: which message may run next."""

from __future__ import annotations

from jsclient.workers.keyed import KeyedQueue


def test_a_free_key_runs_at_once_and_a_busy_one_queues() -> None:
    queue = KeyedQueue()
    assert queue.admit("a", 1)
    assert not queue.admit("a", 2)
    assert queue.admit("b", 3)
    assert queue.done("a") == 2
    assert queue.done("a") is None
    assert queue.admit("a", 4)


def test_a_parked_message_stays_first_in_line() -> None:
    queue = KeyedQueue()
    assert queue.admit("a", 1)
    assert not queue.admit("a", 2)
    queue.park("a", 1, until=10.0)
    assert queue.next_due() == 10.0
    assert queue.due(9.9) is None
    assert not queue.admit("a", 3)
    assert queue.due(10.0) == ("a", 1)
    assert [queue.done("a"), queue.done("a"), queue.done("a")] == [2, 3, None]


def test_recall_takes_back_everything_that_waits() -> None:
    queue = KeyedQueue()
    queue.admit("a", 1)
    queue.admit("a", 2)
    queue.admit("b", 3)
    queue.admit("b", 4)
    queue.park("b", 3, until=1.0)
    assert sorted(queue.recall()) == [2, 3, 4]
    assert queue.next_due() is None
    assert queue.done("a") is None, "it stayed busy"
    assert queue.admit("b", 5), "it was parked, and is free"
