"""What ends a consume without a message: seen within two heartbeats, each cause with an error of its own.

The clock starts when the cause happens; the heartbeat is 1 s, so an answer after 2.0 s is in time. The silence of a
server that hangs, of one that refuses a pull without a word (max_waiting) and of a deleted consumer are told apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream import ConsumeContext, ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consuming.push import OrderedPushConsumer
from jsclient.testing import NatsServer, wait_until

HEARTBEAT = 1.0
TOLERANCE = 0.3  # of the scheduler

STREAM = StreamConfig(name="A", subjects=["a.>"], storage="memory")


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(STREAM)
    return js


class Reading:
    """One way of reading: waits for a message in a thread, and notes what it was told, and when."""

    def __init__(self, read: Callable[[Callable[[Exception], None]], Any]) -> None:
        self.told: list[tuple[float, Exception]] = []
        self._thread = threading.Thread(target=self._run, args=(read,), daemon=True)
        self._thread.start()

    def _run(self, read: Callable[[Callable[[Exception], None]], Any]) -> None:
        try:
            read(self._note)
        except errors.NoMessages:
            pass
        except errors.JsClientError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        self.told.append((time.monotonic(), error))

    def first(self, since: float) -> type[Exception]:
        """The class of the first thing that it was told, in time."""
        at, error = wait_until(lambda: self.told[0] if self.told else None, 6)
        assert at - since <= 2 * HEARTBEAT + TOLERANCE, f"{error!r} after {at - since:.2f} s"
        self._thread.join(10)
        assert not self._thread.is_alive()
        return type(error)


Hook = Callable[[Exception], None]


def until_told(reading: Any, told: list[Exception], hook: Hook) -> None:
    """Read until something is raised or reported."""
    with reading:
        wait = reading.wait if isinstance(reading, ConsumeContext) else reading.next
        while not told:
            try:
                wait(timeout=0.1)
            except errors.NoMessages:
                pass
        hook(told[0])


def by_messages(js: JetStream, hook: Hook) -> None:
    told: list[Exception] = []
    until_told(js.consumer("A", "C").messages(heartbeat=HEARTBEAT, on_error=told.append), told, hook)


def by_consume(js: JetStream, hook: Hook) -> None:
    told: list[Exception] = []
    consumer = js.consumer("A", "C")
    until_told(consumer.consume(lambda message: None, heartbeat=HEARTBEAT, on_error=told.append), told, hook)


def by_fetch(js: JetStream, hook: Hook) -> None:
    js.consumer("A", "C").fetch(1, timeout=6, heartbeat=HEARTBEAT)


def by_push(js: JetStream, hook: Hook) -> None:
    told: list[Exception] = []
    until_told(js.push_consumer("A", "C").messages(on_error=told.append), told, hook)


def by_push_consume(js: JetStream, hook: Hook) -> None:
    told: list[Exception] = []
    until_told(js.push_consumer("A", "C").consume(lambda message: None, on_error=told.append), told, hook)


PULLS = [by_messages, by_consume, by_fetch]
#: Push consumers and silence take their 1.5 to 2 s: most of these wait for the full tier.
PUSHES = [by_push, pytest.param(by_push_consume, marks=pytest.mark.slow)]
SLOW_PUSHES = [pytest.param(read, marks=pytest.mark.slow) for read in (by_push, by_push_consume)]
SLOW_PULLS = [by_messages, *(pytest.param(read, marks=pytest.mark.slow) for read in PULLS[1:])]


def start(js: JetStream, read: Callable[[JetStream, Hook], None]) -> Reading:
    """Make the consumer and read from it, until the server knows that somebody waits."""
    if read in (by_push, by_push_consume):
        config = ConsumerConfig(durable_name="C", deliver_subject=js.nc.new_inbox(), idle_heartbeat=HEARTBEAT)
        js.create_push_consumer("A", config)
    else:
        js.create_consumer("A", ConsumerConfig(durable_name="C"))
    reading = Reading(lambda hook: read(js, hook))
    wait_until(lambda: waits(js), 5)
    return reading


def waits(js: JetStream) -> bool:
    info = js.consumer_info("A", "C")
    return info.push_bound or info.num_waiting > 0


@pytest.mark.parametrize("read", [*PULLS, *PUSHES])
def test_a_deleted_consumer(js: JetStream, read: Callable[[JetStream, Hook], None]) -> None:
    reading = start(js, read)
    since = time.monotonic()
    js.delete_consumer("A", "C")
    assert reading.first(since) is errors.ConsumerDeleted


@pytest.mark.parametrize("read", [*PULLS, *SLOW_PUSHES])
def test_a_deleted_stream(js: JetStream, read: Callable[[JetStream, Hook], None]) -> None:
    reading = start(js, read)
    since = time.monotonic()
    js.delete_stream("A")
    assert reading.first(since) is errors.StreamNotFound


@pytest.mark.parametrize("read", [*PULLS, *SLOW_PUSHES])
def test_a_stream_deleted_and_made_again(js: JetStream, read: Callable[[JetStream, Hook], None]) -> None:
    """centrifugo 1166: the consumer was dead and looked healthy."""
    reading = start(js, read)
    since = time.monotonic()
    js.delete_stream("A")
    js.create_stream(STREAM)
    assert reading.first(since) is errors.StreamRecreated


@pytest.mark.parametrize("read", PULLS)
def test_a_stream_made_again_with_its_consumer(js: JetStream, read: Callable[[JetStream, Hook], None]) -> None:
    reading = start(js, read)
    since = time.monotonic()
    js.delete_stream("A")
    js.create_stream(STREAM)
    js.create_consumer("A", ConsumerConfig(durable_name="C"))
    assert reading.first(since) is errors.StreamRecreated


@pytest.mark.parametrize("read", SLOW_PULLS)
def test_too_many_pulls(js: JetStream, read: Callable[[JetStream, Hook], None]) -> None:
    """A pull with a heartbeat is refused without a word."""
    js.create_consumer("A", ConsumerConfig(durable_name="C", max_waiting=1))
    with js.consumer("A", "C").messages() as other:
        with pytest.raises(errors.NoMessages):
            other.next(timeout=0.1)
        wait_until(lambda: waits(js), 5)
        since = time.monotonic()
        assert Reading(lambda hook: read(js, hook)).first(since) is errors.MaxWaitingExceeded


@pytest.mark.slow
@pytest.mark.parametrize("read", [*SLOW_PULLS, *SLOW_PUSHES])
def test_a_server_that_hangs(server: NatsServer, js: JetStream, read: Callable[[JetStream, Hook], None]) -> None:
    """Nobody answers the question either: it must not delay the alarm."""
    reading = start(js, read)
    server.pause()
    try:
        assert reading.first(time.monotonic()) is errors.NoHeartbeat
    finally:
        server.resume()


# --- ordered: the consumer is made again, and the application is told what happened ------------------------------


def ordered(js: JetStream, hook: Hook, pushed: bool) -> Any:
    if pushed:
        return OrderedPushConsumer(js, "A", heartbeat=HEARTBEAT).messages(on_error=hook)
    return js.ordered_consumer("A").messages(heartbeat=HEARTBEAT, on_error=hook)


@pytest.mark.parametrize("pushed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["pull", "push"])
def test_an_ordered_consumer_that_was_deleted(js: JetStream, pushed: bool) -> None:
    told: list[tuple[float, Exception]] = []
    js.publish("a.1", b"1")
    with ordered(js, lambda error: told.append((time.monotonic(), error)), pushed) as messages:
        assert messages.next(timeout=5).data == b"1"
        since = time.monotonic()
        js.delete_consumer("A", next(js.consumer_names("A")))
        js.publish("a.2", b"2")
        assert messages.next(timeout=5).data == b"2"
        assert time.monotonic() - since <= 2 * HEARTBEAT + TOLERANCE
    assert [type(error) for _, error in told] == [errors.ConsumerDeleted]


@pytest.mark.slow
@pytest.mark.parametrize("pushed", [False, True], ids=["pull", "push"])
def test_an_ordered_consumer_whose_server_hangs(server: NatsServer, js: JetStream, pushed: bool) -> None:
    told: list[tuple[float, Exception]] = []
    js.publish("a.1", b"1")
    with ordered(js, lambda error: told.append((time.monotonic(), error)), pushed) as messages:
        assert messages.next(timeout=5).data == b"1"
        server.pause()
        since = time.monotonic()
        timer = threading.Timer(3, server.resume)
        timer.start()
        try:
            js.nc.publish("a.2", b"2")
            assert messages.next(timeout=15).data == b"2"
        finally:
            timer.join()
    assert isinstance(told[0][1], errors.NoHeartbeat)
    assert told[0][0] - since <= 2 * HEARTBEAT + TOLERANCE


@pytest.mark.parametrize("pushed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["pull", "push"])
def test_an_ordered_read_of_a_stream_deleted_and_made_again(js: JetStream, pushed: bool) -> None:
    """To go on after the last sequence would leave out what the new stream holds."""
    for number in range(5):
        js.publish("a.1", b"%d" % number)
    with ordered(js, lambda error: None, pushed) as messages:
        for _ in range(5):
            messages.next(timeout=5)
        since = time.monotonic()
        js.delete_stream("A")
        js.create_stream(STREAM)
        js.publish("a.1", b"new")
        with pytest.raises(errors.StreamRecreated):
            messages.next(timeout=10)
        assert time.monotonic() - since <= 2 * HEARTBEAT + TOLERANCE


def test_an_ordered_consumer_does_not_go_on_in_another_stream(js: JetStream) -> None:
    for number in range(5):
        js.publish("a.1", b"%d" % number)
    with js.ordered_consumer("A") as consumer:
        assert len(consumer.fetch(5, timeout=5)) == 5
        consumer.close()
        js.delete_stream("A")
        js.create_stream(STREAM)
        for _ in range(2):
            with pytest.raises(errors.StreamRecreated):
                consumer.messages()
        wait_until(lambda: list(js.consumer_names("A")) == [], 5)
    js.publish("a.1", b"new")
    with js.ordered_consumer("A") as consumer:
        assert consumer.next(timeout=5).data == b"new"
