"""The window of asynchronous publishes: its account of messages and bytes, and which waiters are woken."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.jetstream.publishing.in_flight import Window
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


class Sized:
    """As much of a future as the window looks at."""

    def __init__(self, size: int, headers: int = 0) -> None:
        self.payload = bytes(size)
        self._block = bytes(headers) or None


def test_a_window_holds_what_is_under_way_on_the_line_besides() -> None:
    window = Window(100, 100_000, 1_000)
    now = 50.0
    assert not window.fit(now, 0.125)  # the first look
    for limit in (200, 300, 400):
        now += 0.125
        window.answers += window.limit
        assert window.fit(now, 0.125)
        assert (window.limit, window.share) == (limit, 100_000 // limit)
    window.answers += 400
    assert not window.fit(now + 0.0625, 0.125)  # not yet one round trip
    assert window.fit(now + 0.125, 0.125)
    for _ in range(20):
        now += 0.25
        window.answers += 2 * window.limit
        window.fit(now, 0.125)
    assert window.limit == 1_000


def test_a_window_near_its_server_or_of_a_given_size_does_not_grow() -> None:
    for window, round_trip in ((Window(100, 100_000, 1_000), 0.0001), (Window(100, 100_000), 0.125)):
        now = 50.0
        for _ in range(20):
            now += 0.125
            window.answers += 5_000
            assert not window.fit(now, round_trip)
        assert window.limit == 100


def test_answers_of_a_time_when_the_window_was_not_full_say_nothing() -> None:
    window = Window(100, 100_000, 1_000)
    window.fit(50.0, 0.125)
    window.answers += 100_000
    assert not window.fit(60.0, 0.125)
    window.answers += 100
    assert window.fit(60.125, 0.125)


def test_bytes_stay_bounded_when_the_window_grows() -> None:
    window = Window(10, 1_000, 40)  # 100 bytes each
    pending: dict[bytes, Any] = window.pending
    pending.update({b"a": Sized(100), b"b": Sized(10, 50), b"c": Sized(400)})
    window.charge(b"c", 400)
    window.charge(b"d", 300)  # on its way into pending
    window.fit(50.0, 0.125)
    window.answers += 30
    assert window.fit(50.125, 0.125)
    assert window.share == 25
    assert window.large == {b"a": 75, b"b": 35, b"c": 375, b"d": 275}
    assert window.limit == (1_000 - 75 - 35 - 375 - 275) // 25
    for token in (b"a", b"b", b"c"):
        del pending[token]
    for token in (b"a", b"b", b"c", b"d"):
        window.release(token)
    assert (window.limit, window.large) == (40, {})


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


class Late:
    """Garbage with a finalizer that lets another thread take an ack in: here it does so itself."""

    def __init__(self, pending: dict[bytes, Any], left: int) -> None:
        self.pending, self.left, self.me = pending, left, self

    def __del__(self) -> None:
        self.pending.pop(next(iter(self.pending)), None)
        if self.left:
            Late(self.pending, self.left - 1)


def test_acks_may_come_while_a_window_grows() -> None:
    """Seen with 2.9.10 on a long line: "dictionary changed size during iteration" out of publish_async."""
    window = Window(100, 100_000, most=32_000)
    for number in range(5_000):
        window.pending[b"%d" % number] = PublishFuture(None, b"%d" % number, "s", b"x", None)
    before = gc.get_threshold()
    gc.set_threshold(5, 1, 1)
    Late(window.pending, 200)
    try:
        window._resize(1_000)
    finally:
        gc.set_threshold(*before)
    assert window.limit > 1


def test_a_window_does_not_grow_by_little() -> None:
    window = Window(100, 100_000, 1_000)
    window.fit(50.0, 0.125)
    window.answers += 1
    assert not window.fit(50.125, 0.125)


def test_an_ack_that_comes_while_large_messages_are_counted_anew() -> None:
    window = Window(10, 1_000, 40)
    pending: dict[bytes, Any] = window.pending

    class Acknowledged(Sized):
        """Its ack comes just when its size is looked at."""

        @property
        def payload(self) -> bytes:
            pending.pop(b"a", None)
            return b"x" * 400

        @payload.setter
        def payload(self, value: bytes) -> None:
            """It stays as large as it is."""

    pending[b"a"] = Acknowledged(400)
    window.fit(50.0, 0.125)
    window.answers += 30
    assert window.fit(50.125, 0.125)
    assert window.large == {}


def test_a_publisher_goes_on_if_the_window_empties_before_it_waits() -> None:
    class Acknowledged(Window):
        def has_room(self, size: int = 0) -> bool:
            found = super().has_room(size)
            self.pending.clear()  # the reader has got all acks just then
            return found

    window = Acknowledged(10, 1000)
    fill(window, 10)
    begun = time.monotonic()
    assert window.wait_for_room(1, 20)
    assert time.monotonic() - begun < 10
