"""The window of asynchronous publishes: its account of messages and bytes, and who is woken."""

from __future__ import annotations

import threading
from typing import Any

from jsclient.jetstream.publishing.window import Window
from jsclient.testing import wait_until


def fill(window: Window, count: int, start: int = 0) -> None:
    pending: dict[bytes, Any] = window.pending
    for number in range(start, start + count):
        pending[b"%d" % number] = object()


def test_small_messages_are_bounded_by_number() -> None:
    window = Window(10, 1000)
    assert window.share == 100
    fill(window, 9)
    assert window.has_room()
    fill(window, 1, 9)
    assert not window.has_room()
    assert not window.wait_for_room(0, 0)
    window.pending.popitem()
    assert window.wait_for_room(0, 0)


def test_large_messages_lower_the_limit_and_give_it_back() -> None:
    window = Window(10, 1000)
    window.charge(b"L", 600)
    window.pending[b"L"] = object()  # type: ignore[assignment]
    assert window.limit == 5  # 500 beyond its share: 5 shares less
    assert window.has_room(400)
    assert not window.has_room(401)
    fill(window, 4)
    assert not window.has_room()
    window.pending.pop(b"L")
    window.release(b"L")
    assert window.limit == 10
    window.release(b"L")
    assert window.limit == 10


def test_a_message_larger_than_the_window_goes_out_alone() -> None:
    window = Window(10, 1000)
    assert window.has_room(5000)
    fill(window, 1)
    assert not window.has_room(5000)
    window.pending.clear()
    window.charge(b"L", 5000)
    window.pending[b"L"] = object()  # type: ignore[assignment]
    assert window.limit == 1
    assert not window.has_room()


def test_publishers_wake_when_a_quarter_is_free_and_no_more_than_there_is_room_for() -> None:
    window = Window(8, 8000)
    fill(window, 8)
    got: list[bool] = []
    threads = [threading.Thread(target=lambda: got.append(window.wait_for_room(0, 10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(window.parked) == 3)
    window.pending.popitem()
    window.unpark()
    assert got == []
    window.pending.popitem()
    window.unpark()
    wait_until(lambda: len(got) == 2)
    assert len(window.parked) == 1
    window.unpark()
    for thread in threads:
        thread.join(5)
    assert got == [True, True, True]


def test_waiting_for_empty() -> None:
    window = Window(8, 8000)
    assert window.wait_empty(0)
    fill(window, 2)
    assert not window.wait_empty(0.01)
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(window.wait_empty(10)))
    thread.start()
    wait_until(lambda: window.parked)
    window.pending.popitem()
    window.unpark()
    assert got == []
    window.pending.popitem()
    window.unpark()
    thread.join(5)
    assert got == [True]
