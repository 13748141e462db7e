"""The queue between reader and takers: limits, wake-ups, closing, many takers."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from jsclient import errors
from jsclient._connection.mailbox import OVERHEAD, Mailbox, message_size
from jsclient.message import Msg
from jsclient.states import WAKE
from jsclient.testing import wait_until


def message(payload: bytes = b"", number: int = 0) -> Msg:
    return Msg(b"s", b"1", None, payload or b"%d" % number)


def put(mailbox: Mailbox, *messages: Msg) -> bool:
    return mailbox.put_many(list(messages), sum(message_size(m) + OVERHEAD for m in messages))


def start(target: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def test_takes_in_order_and_times_out() -> None:
    mailbox = Mailbox(10, 1000)
    put(mailbox, message(number=1), message(number=2))
    taken: list[Any] = [mailbox.get(0), mailbox.get(1)]
    assert [item.data for item in taken] == [b"1", b"2"]
    assert mailbox.get(0) is None
    assert mailbox.get(0.01) is None
    assert not mailbox._waiters


def test_drops_the_new_and_reports_once_per_episode() -> None:
    mailbox = Mailbox(4, None)
    assert put(mailbox, *[message(number=n) for n in range(4)])
    assert not put(mailbox, message(number=4)), "the first drop of an episode is reported"
    assert put(mailbox, message(number=5), message(number=6))
    assert mailbox.dropped == 3
    mailbox.take()
    assert put(mailbox, message(number=7))
    assert put(mailbox, message(number=8)), "still the same episode: the taker has not caught up"
    assert [mailbox.take().data for _ in range(4)] == [b"1", b"2", b"3", b"7"]  # type: ignore[union-attr]
    assert put(mailbox, message(number=9))
    put(mailbox, *[message(number=n) for n in range(3)])
    assert not put(mailbox, message(number=10)), "a new episode"


def test_a_burst_that_overflows_at_once_is_an_episode_of_its_own() -> None:
    mailbox = Mailbox(4, 10_000)
    for _ in range(5):
        assert not put(mailbox, *(message() for _ in range(9)))
        assert put(mailbox, *(message() for _ in range(9))), "the same burst"
        while mailbox.take() is not None:
            pass
    assert mailbox.dropped == 5 * 14


def test_part_of_a_chunk_fits() -> None:
    mailbox = Mailbox(3, None)
    assert not put(mailbox, *[message(number=n) for n in range(5)])
    assert len(mailbox) == 3
    assert mailbox.dropped == 2


def test_byte_limit_counts_what_waits() -> None:
    one = message(b"x" * 799)  # 1,000 bytes with subject and overhead
    mailbox = Mailbox(1000, 10_000)
    for _ in range(10):
        assert put(mailbox, one)
    assert mailbox.pending_bytes() == 10_000
    assert not put(mailbox, one)
    mailbox.take()
    assert mailbox.pending_bytes() == 9_000
    put(mailbox, one)
    assert (len(mailbox), mailbox.dropped) == (10, 1)
    for _ in range(10):
        mailbox.take()
    assert mailbox.pending_bytes() == 0


def test_byte_limit_admits_part_of_a_chunk() -> None:
    mailbox = Mailbox(1000, 3_500)
    assert not put(mailbox, *[message(b"x" * 799) for _ in range(5)])
    assert len(mailbox) == 3


def test_pending_bytes_may_be_asked_while_the_reader_puts() -> None:
    mailbox = Mailbox(100_000, 10_000_000)
    stop = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                assert mailbox.pending_bytes() >= 0
        except BaseException as error:
            failures.append(error)

    threads = [start(look) for _ in range(2)]
    for n in range(5000):
        put(mailbox, message(number=n))
        mailbox.take()
    stop.set()
    for thread in threads:
        thread.join(5)
    assert not failures
    assert mailbox.pending_bytes() == 0


def test_close_lets_takers_have_the_rest() -> None:
    mailbox = Mailbox()
    put(mailbox, message(number=1))
    mailbox.close(errors.SubscriptionClosed("over"))
    assert mailbox.get(1).data == b"1"  # type: ignore[union-attr]
    for call in (mailbox.take, lambda: mailbox.get(1), lambda: mailbox.get(0)):
        with pytest.raises(errors.SubscriptionClosed, match="over"):
            call()


def test_the_first_reason_of_closing_counts() -> None:
    mailbox = Mailbox()
    mailbox.close(errors.PermissionViolation("no", "s", "subscribe"))
    mailbox.close(errors.SubscriptionClosed("late"))
    with pytest.raises(errors.PermissionViolation) as caught:
        mailbox.get(0)
    assert caught.value.subject == "s"


def test_close_with_discard_forgets_the_rest() -> None:
    mailbox = Mailbox()
    put(mailbox, message())
    mailbox.close(errors.SubscriptionClosed("over"), discard=True)
    with pytest.raises(errors.SubscriptionClosed):
        mailbox.take()


def blocked_takers(mailbox: Mailbox, number: int) -> tuple[list[threading.Thread], queue.SimpleQueue[Any]]:
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def take() -> None:
        try:
            results.put(mailbox.get(10))
        except errors.JsClientError as error:
            results.put(error)

    threads = [start(take) for _ in range(number)]
    wait_until(lambda: len(mailbox._waiters) == number)
    return threads, results


def test_close_wakes_all_waiters() -> None:
    mailbox = Mailbox()
    threads, results = blocked_takers(mailbox, 8)
    mailbox.close(errors.SubscriptionClosed("over"))
    found = [results.get(timeout=2) for _ in threads]
    assert all(isinstance(item, errors.SubscriptionClosed) for item in found)
    assert len({id(item) for item in found}) == 8, "threads must not share a traceback"


def test_wake_wakes_all_waiters_and_who_comes_too_late_to_hear_it() -> None:
    mailbox = Mailbox()
    threads, results = blocked_takers(mailbox, 4)
    mailbox.wake()
    assert [results.get(timeout=2) for _ in threads] == [WAKE] * 4
    put(mailbox, message(number=1))
    item = mailbox.get(5)
    assert item is not None
    assert item.data == b"1"
    assert mailbox.get(5) is WAKE


def test_one_message_wakes_one_taker() -> None:
    mailbox = Mailbox()
    _, results = blocked_takers(mailbox, 3)
    put(mailbox, message(number=1))
    assert results.get(timeout=2).data == b"1"
    wait_until(lambda: len(mailbox._waiters) == 2)  # another one may have looked and parked again
    assert results.empty()
    mailbox.close(errors.SubscriptionClosed("over"))


def test_no_wake_up_is_lost_among_many_takers() -> None:
    mailbox = Mailbox()
    total, takers = 20_000, 8
    got: list[list[int]] = [[] for _ in range(takers)]

    def take(mine: list[int]) -> None:
        while (item := mailbox.get(10)) is not None and item.data != b"end":
            mine.append(int(item.data))

    threads = [start(take, mine) for mine in got]
    for n in range(0, total, 10):
        put(mailbox, *[message(number=n + i) for i in range(10)])
    put(mailbox, *[message(b"end") for _ in range(takers)])
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(n for mine in got for n in mine) == list(range(total))
    assert all(mine == sorted(mine) for mine in got)


class Interrupting:
    """A queue of waiters with an `append` or `remove` that a Ctrl-C strikes once, after the call has been made."""

    def __init__(self, waiters: Any, where: str) -> None:
        self.waiters, self.where = waiters, where

    def append(self, item: Any) -> None:
        self.waiters.append(item)
        self.strike("append")

    def remove(self, item: Any) -> None:
        self.strike("remove")
        self.waiters.remove(item)

    def strike(self, where: str) -> None:
        if self.where == where:
            self.where = ""
            raise KeyboardInterrupt

    def __len__(self) -> int:
        return len(self.waiters)

    def popleft(self) -> Any:
        return self.waiters.popleft()


@pytest.mark.parametrize("where", ["append", "remove"])
def test_ctrl_c_leaves_no_ticket_behind(where: str) -> None:
    mailbox = Mailbox()
    mailbox._waiters = Interrupting(mailbox._waiters, where)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        mailbox.get(0)
    assert len(mailbox._waiters) == 0, "a ticket left behind would swallow the next wake-up"


def test_items_past_the_limits_travel_in_order() -> None:
    mailbox = Mailbox(1, 1000)
    put(mailbox, message(number=1))
    mailbox.put("event")
    assert mailbox.take().data == b"1"  # type: ignore[union-attr]
    assert mailbox.take() == "event"
    assert mailbox.pending_bytes() == 0


def test_a_taker_that_leaves_passes_the_wake_up_on() -> None:
    """Two items came, and the wake-up of the second one went to a thread that has left: the next in line gets it."""
    mailbox = Mailbox()
    _, results = blocked_takers(mailbox, 1)
    mailbox.items.extend([message(number=1), message(number=2)])
    first = mailbox._wait(0)
    assert first is not None
    assert first.data == b"1"
    assert results.get(timeout=5).data == b"2"
