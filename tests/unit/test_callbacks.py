"""The events thread: serial, in order, bounded, and no exception of a user ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from jsclient._connection import callbacks
from jsclient._connection.callbacks import EventsThread
from jsclient.testing import wait_until


@pytest.fixture
def events() -> Iterator[EventsThread]:
    made = EventsThread("test-events")
    yield made
    made.stop()
    made.join(5)


def test_calls_run_in_order_on_one_thread(events: EventsThread) -> None:
    seen: list[tuple[int, str]] = []
    for number in range(1000):
        events.run(lambda n: seen.append((n, threading.current_thread().name)), number)
    wait_until(lambda: len(seen) == 1000)
    assert [number for number, _ in seen] == list(range(1000))
    assert {name for _, name in seen} == {"test-events"}


def test_no_thread_before_the_first_call(events: EventsThread) -> None:
    assert "test-events" not in {thread.name for thread in threading.enumerate()}


def test_what_a_callback_raises_is_logged(events: EventsThread, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail(error: BaseException) -> None:
        raise error

    events.run(fail, ValueError("of the user"))
    events.run(fail, SystemExit(3))
    events.run(done.set)
    assert done.wait(2)
    assert "of the user" in caplog.text


def test_a_blocked_callback_bounds_memory(events: EventsThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "LIMIT", 10)
    release, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait(10)

    events.run(block)
    assert started.wait(2)
    ran: list[int] = []
    for number in range(15):
        events.run(ran.append, number)
    release.set()
    wait_until(lambda: len(ran) == 10)
    assert ran == list(range(10))
    assert events.dropped == 5


def test_the_end_is_told_however_many_wait(events: EventsThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "LIMIT", 2)
    release, ended = threading.Event(), threading.Event()
    for _ in range(5):
        events.run(release.wait, 10)
    events.run(ended.set, always=True)
    assert events.dropped == 2
    release.set()
    assert ended.wait(2)


def test_a_thread_that_could_not_be_started_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[tuple[float, Callable[[], None]]] = []
    made = EventsThread("test-events-late", lambda seconds, call: later.append((seconds, call)))
    ran = threading.Event()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        made.run(ran.set)
    assert not ran.is_set()
    ((seconds, call),) = later
    assert seconds > 0
    call()
    assert ran.wait(2)
    made.stop()
    made.join(5)


def test_first_calls_from_many_threads_start_one_thread() -> None:
    made = EventsThread("test-events-many")
    names: list[int] = []
    threads = [
        threading.Thread(target=made.run, args=(lambda: names.append(threading.get_ident()),)) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    wait_until(lambda: len(names) == 16)
    assert len(set(names)) == 1
    made.stop()
    made.join(5)
