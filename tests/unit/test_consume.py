"""Worker threads over an iterator, without a server: handlers that fail, and every way in which it ends."""

from __future__ import annotations

import logging
import pickle
import random
import threading
from typing import Any

import pytest
from tests.pull_rig import Connection, Server, Source, Stored

from jsclient import errors, waiting
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.consume import ConsumeContext, HandlerThreads
from jsclient.jetstream.consuming.pull_messages import PullMessages
from jsclient.jetstream.consuming.pull_options import PullOptions
from jsclient.testing import wait_until

COUNT = 3


class Line(Connection):
    refuses: Exception | None = None

    def check_takes(self) -> None:
        if self.refuses is not None:
            raise self.refuses


def messages_of(count: int = COUNT, refuses: Exception | None = None, **options: Any) -> PullMessages:
    """As many messages as end it."""
    server = Server(random.Random(1), [Stored(number, 100) for number in range(1, count + 1)])
    connection = Line(server)
    connection.refuses = refuses
    source: Any = Source(connection, "P")  # type: ignore[arg-type]
    return PullMessages(source, PullOptions(max_messages=count, max_bytes=0, stop_after=count, **options))


def test_every_message_is_handled_and_then_it_ends() -> None:
    seen: list[int] = []
    context = ConsumeContext(messages_of(), lambda message: seen.append(message.stream_seq), 1)
    assert context.wait(10)
    assert (seen, context.error, context.closed) == ([1, 2, 3], None, True)
    assert "closed" in repr(context)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(context)


def failing(message: Any) -> None:
    raise ValueError(message.stream_seq)


def test_a_handler_that_fails_does_not_end_it_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        context = ConsumeContext(messages_of(), failing, 1)
        assert context.wait(10)
    assert sum("the handler failed" in record.getMessage() for record in caplog.records) == COUNT


def test_a_hook_that_fails_itself_does_not_end_it_either(caplog: pytest.LogCaptureFixture) -> None:
    def hook(error: Exception) -> None:
        raise KeyError

    with caplog.at_level(logging.ERROR):
        context = ConsumeContext(messages_of(on_error=hook), failing, 1)
        assert context.wait(10)
    assert sum("a hook of the application failed" in record.getMessage() for record in caplog.records) == COUNT


def exiting(message: Any) -> None:
    raise SystemExit(3)


def test_a_handler_that_exits_ends_it_and_every_waiter_is_told(caplog: pytest.LogCaptureFixture) -> None:
    told: list[BaseException] = []

    def hook(error: BaseException) -> None:
        told.append(error)
        raise SystemExit(4)

    with caplog.at_level(logging.ERROR):
        context = ConsumeContext(messages_of(on_error=hook), exiting, 1)
        for _ in range(2):
            with pytest.raises(SystemExit):
                context.wait(10)
    assert [type(error) for error in told] == [SystemExit]


def test_a_connection_that_takes_nothing_more_leaves_nothing() -> None:
    messages = messages_of(refuses=errors.ConnectionDraining("it drains"))
    with pytest.raises(errors.ConnectionDraining):
        ConsumeContext(messages, failing, 2)
    assert messages.closed


def test_threads_that_cannot_be_had_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def scarce(thread: threading.Thread) -> None:
        if len(started) == 1:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    messages = messages_of()
    monkeypatch.setattr(threading.Thread, "start", scarce)
    with pytest.raises(errors.NoThread):
        ConsumeContext(messages, lambda message: None, 3)
    monkeypatch.undo()
    wait_until(lambda: messages.closed and not started[0].is_alive(), 10)


class Held:
    """A handler that works until it is let go."""

    def __init__(self) -> None:
        self.working, self.go = waiting.Gate(), waiting.Gate()

    def __call__(self, message: Any) -> None:
        self.working.set()
        assert self.go.wait(10)


def test_a_drain_that_takes_too_long_is_told() -> None:
    held = Held()
    context = ConsumeContext(messages_of(), held, 1)
    assert held.working.wait(10)
    assert not context.wait(0)
    with pytest.raises(errors.DrainTimeout):
        context.drain(0.05)
    held.go.set()
    assert context.wait(10)


def test_so_is_one_of_the_connection() -> None:
    held = Held()
    threads = HandlerThreads(messages_of(), held, 1)
    assert held.working.wait(10)
    with pytest.raises(errors.DrainTimeout):
        threads.finish_drain(Deadline(0.05))
    held.go.set()
    assert threads.done.wait(10)
    threads.finish_drain(Deadline(0.05))


def test_the_reason_of_a_connection_that_failed_is_kept() -> None:
    held = Held()
    threads = HandlerThreads(messages_of(2), held, 1)
    assert held.working.wait(10)
    closed = errors.ConnectionClosed("closed")
    closed.reason = errors.AuthError("revoked")
    threads.begin_drain()
    threads.all_received()
    threads.end(closed)
    held.go.set()
    assert threads.done.wait(10)
    assert threads.error is closed.reason


def test_one_that_the_application_closed_has_no_reason() -> None:
    held = Held()
    threads = HandlerThreads(messages_of(2), held, 1)
    assert held.working.wait(10)
    threads.end(errors.ConnectionClosed("closed"))
    held.go.set()
    assert threads.done.wait(10)
    assert threads.error is None
