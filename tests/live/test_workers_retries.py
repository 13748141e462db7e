"""Retry is not a failed attempt: it has a limit of its own, in all shapes of pools and over their restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jsclient import errors
from jsclient.groups import Filter, GroupPool, create_elastic
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, Retry, WorkerPool


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    return js


def queue(js: JetStream, count: int = 1, **settings: Any) -> Consumer:
    given: dict[str, Any] = {"subjects": ["jobs.*", "later.jobs.*"], "retention": "workqueue", "storage": "memory"}
    js.create_stream(StreamConfig(name="JOBS", **(given | settings)))
    for number in range(count):
        js.publish("jobs.a", b"%d" % number)
    return js.create_consumer("JOBS", ConsumerConfig(durable_name="w", ack_wait=2.0, filter_subject="jobs.*"))


def emptied(js: JetStream) -> Callable[[], bool]:
    stream = js.stream("JOBS")
    return lambda: stream.info().state.messages == 0


class Script:
    """A handler that does one thing after another for each message, the last one again and again."""

    def __init__(self, *steps: BaseException | None, batch: bool = False) -> None:
        self.steps = steps
        self.batch = batch
        self.calls: dict[bytes, int] = {}
        self.lock = threading.Lock()

    def outcome(self, message: Any) -> BaseException | None:
        with self.lock:
            number = self.calls[message.data] = self.calls.get(message.data, 0) + 1
        return self.steps[min(number, len(self.steps)) - 1]

    def __call__(self, got: Any) -> Any:
        if self.batch:
            return [self.outcome(message) for message in got]
        error = self.outcome(got)
        if error is not None:
            raise error
        return None


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keyed": {"key": lambda message: message.data},
    "batch": {"batch": (5, 0.01)},
}
FAILURE = ValueError("broken")


def run(js: JetStream, consumer: Consumer, way: str, *steps: BaseException | None, **options: Any) -> Script:
    handler = Script(*steps, batch=way == "batch")
    given: dict[str, Any] = {"backoff": [0.0], "dead_letter": "dead.x", "threads": 2, **WAYS[way], **options}
    with WorkerPool(consumer, handler, **given):
        wait_until(emptied(js), 30)
    return handler


@pytest.mark.parametrize("way", list(WAYS))
def test_a_retry_is_no_failed_attempt(js: JetStream, way: str) -> None:
    steps = [*[Retry(0)] * 12, FAILURE, *[Retry(0)] * 3, None]
    handler = run(js, queue(js, 3), way, *steps, attempts=2)
    assert handler.calls == {b"%d" % number: 17 for number in range(3)}
    assert list(DeadLetters(js).list()) == []


@pytest.mark.parametrize("way", list(WAYS))
def test_failures_after_retries_count_from_one(js: JetStream, way: str) -> None:
    handler = run(js, queue(js), way, *[Retry(0)] * 5, FAILURE, attempts=3)
    assert handler.calls == {b"0": 8}
    (letter,) = DeadLetters(js).list()
    assert letter.reason == "ValueError: broken"


@pytest.mark.parametrize("way", list(WAYS))
def test_with_one_attempt_a_retry_is_a_retry(js: JetStream, way: str) -> None:
    assert run(js, queue(js), way, Retry(0), None, attempts=1).calls == {b"0": 2}
    assert list(DeadLetters(js).list()) == []


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("attempts", [None, 2])
def test_retries_have_a_limit_of_their_own(js: JetStream, way: str, attempts: int | None) -> None:
    handler = run(js, queue(js), way, Retry(0, "too early"), attempts=attempts, retries=3)
    assert handler.calls == {b"0": 4}
    (letter,) = DeadLetters(js).list()
    assert letter.reason == "Retry: too early"


def test_the_default_limit(js: JetStream) -> None:
    assert run(js, queue(js), "plain", Retry(0), attempts=1).calls == {b"0": 101}
    with pytest.raises(errors.ConfigError, match="retries"):
        WorkerPool(js.consumer("JOBS", "w"), print, retries=-1)


@pytest.mark.parametrize("way", ["plain", "batch"])
def test_retries_of_another_process_are_no_failures(js: JetStream, way: str) -> None:
    """Two pools share the consumer: each knows about half of the tries."""
    consumer = queue(js, 4)
    handler = Script(*[Retry(0.01)] * 20, FAILURE, None, batch=way == "batch")
    options: dict[str, Any] = {"attempts": 2, "backoff": [0.0], "dead_letter": "dead.x", "threads": 1, **WAYS[way]}
    with WorkerPool(consumer, handler, **options), WorkerPool(js.consumer("JOBS", "w"), handler, **options):
        wait_until(emptied(js), 30)
    assert handler.calls == {b"%d" % number: 22 for number in range(4)}
    assert list(DeadLetters(js).list()) == []


@pytest.mark.parametrize("way", list(WAYS))
def test_a_restart_gives_up_no_message_for_its_retries(js: JetStream, way: str) -> None:
    consumer = queue(js)
    for _ in range(12):
        consumer.next(5).nak()
    handler = run(js, consumer, way, FAILURE, None, attempts=2, retries=50)
    assert handler.calls == {b"0": 2}
    assert list(DeadLetters(js).list()) == []


def test_retries_through_schedules(js: JetStream, server: NatsServer) -> None:
    """Each copy of the message says how often it failed, and how often it asked for another try."""
    settings = {"allow_msg_schedules": True} if server.version >= (2, 12) else {}
    options: dict[str, Any] = {"later": "later.jobs", "later_from": 0.0, "attempts": 2, "backoff": [0.05]}
    handler = run(js, queue(js, **settings), "plain", *[Retry(0.05)] * 4, FAILURE, **options)
    assert handler.calls == {b"0": 6}
    letters = DeadLetters(js)
    (letter,) = letters.list()
    assert (letter.reason, letter.deliveries) == ("ValueError: broken", 6)
    letters.replay(letter)
    handler = run(js, js.consumer("JOBS", "w"), "plain", Retry(0.05), FAILURE, **options)
    assert handler.calls == {b"0": 3}


def test_retries_through_schedules_have_a_limit(js: JetStream, server: NatsServer) -> None:
    settings = {"allow_msg_schedules": True} if server.version >= (2, 12) else {}
    options: dict[str, Any] = {"later": "later.jobs", "later_from": 0.0, "retries": 2}
    assert run(js, queue(js, **settings), "plain", Retry(0.05), **options).calls == {b"0": 3}


def test_retries_of_a_group_are_no_failures(js: JetStream, server: NatsServer) -> None:
    if server.version < (2, 11):
        return
    js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
    group = create_elastic(js, "SRC", "g", partitions=2, filters=[Filter("src.*", [1])])
    js.publish("src.a", b"0")
    handler = Script(*[Retry(0.0)] * 6, FAILURE, None)
    options: dict[str, Any] = {"attempts": 2, "backoff": [0.0], "dead_letter": "dead.x", "settle": 0.2, "lease": 2.0}
    with GroupPool(group, handler, **options) as pool:
        wait_until(lambda: pool.snapshot().handled == 1, 20)
    assert handler.calls == {b"0": 8}
    assert list(DeadLetters(js).list()) == []
