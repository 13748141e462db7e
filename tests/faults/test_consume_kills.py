"""At-least-once through crashes (reliability R5, R8): every message comes, whatever dies, and nobody goes idle."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consumer import Consumer
from jsclient.jetstream.message import JetStreamMsg
from jsclient.testing import NatsServer, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

IDLE_LIMIT = 15.0


class Seen:
    """What was processed, and the longest pause between two messages."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.ids: set[int] = set()
        self.order: list[int] = []
        self.longest = 0.0
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            now = time.monotonic()
            self.longest = max(self.longest, now - self._last)
            self._last = now
            self.ids.add(number)
            self.order.append(number)

    def handle(self, message: JetStreamMsg) -> None:
        self.add(int(message.data))
        message.ack()

    @property
    def complete(self) -> bool:
        return len(self.ids) == self.total


def by_messages(consumer: Consumer, seen: Seen) -> None:
    with consumer.messages(max_messages=50) as messages:
        for message in messages:
            seen.handle(message)
            if seen.complete:
                return


def by_consume(consumer: Consumer, seen: Seen) -> None:
    done = threading.Event()

    def handler(message: JetStreamMsg) -> None:
        seen.handle(message)
        if seen.complete:
            done.set()

    with consumer.consume(handler, workers=2, max_messages=50):
        assert done.wait(240)


def by_fetch(consumer: Consumer, seen: Seen) -> None:
    while not seen.complete:
        for message in consumer.fetch(20, timeout=5):
            seen.handle(message)


def kill_while(server: NatsServer, seen: Seen, kills: int) -> None:
    for number in range(1, kills + 1):
        target = seen.total * number // (kills + 1)
        wait_until(lambda target=target: len(seen.ids) >= target, 60, f"{len(seen.ids)} of {target}")  # type: ignore[misc]
        server.kill()
        server.start()


def fill(js: JetStream, total: int) -> None:
    for number in range(1, total + 1):
        js.nc.publish("work.item", b"%d" % number)
    wait_until(lambda: js.stream("WORK").info().state.messages == total, 30)


def all_acked(consumer: Consumer, total: int) -> bool:
    """A crash may forget acks that were confirmed, so some come again: ack those as well."""
    for message in consumer.fetch_no_wait(total):
        message.ack()
    return consumer.info().ack_floor.stream_seq == total


@pytest.mark.parametrize("reader", [by_messages, by_consume, by_fetch])
def test_every_message_comes_through_crashes(
    reader: Callable[[Consumer, Seen], None], count: Callable[[int, int], int]
) -> None:
    total, kills = count(3000, 600), count(6, 2)
    seen = Seen(total)
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="WORK", subjects=["work.*"]))
        fill(js, total)
        consumer = stream.create_consumer(ConsumerConfig(durable_name="worker", ack_wait=2.0, max_ack_pending=200))
        failures: list[BaseException] = []

        def run() -> None:
            try:
                reader(consumer, seen)
            except BaseException as error:
                failures.append(error)
                raise

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        kill_while(server, seen, kills)
        thread.join(240)
        assert not failures
        assert not thread.is_alive()
        nc.flush()
        assert seen.ids == set(range(1, total + 1))
        assert seen.longest < IDLE_LIMIT
        wait_until(lambda: all_acked(consumer, total), 30)


def test_an_ordered_consumer_reads_every_message_once_through_crashes(count: Callable[[int, int], int]) -> None:
    total, kills = count(10_000, 2_000), count(20, 4)
    seen = Seen(total)
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="WORK", subjects=["work.*"]))
        fill(js, total)
        ordered = stream.ordered_consumer()
        go_on = threading.Semaphore(0)

        def run() -> None:
            with ordered.messages(max_messages=100) as messages:
                for message in messages:
                    seen.add(int(message.data))
                    if seen.complete:
                        return
                    if len(seen.order) % (total // (kills + 1)) == 0:
                        assert go_on.acquire(timeout=60)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        for number in range(1, kills + 1):
            target = total * number // (kills + 1)
            wait_until(lambda target=target: len(seen.order) >= target - kills, 60)  # type: ignore[misc]
            server.kill()
            go_on.release()
            server.start()
        for _ in range(kills):
            go_on.release()
        thread.join(240)
        assert not thread.is_alive()
        assert seen.order == list(range(1, total + 1))
        assert seen.longest < IDLE_LIMIT
        wait_until(lambda: len(list(stream.consumer_names())) <= 2, 5)


def test_confirmed_acks_are_not_repeated_through_restarts(count: Callable[[int, int], int]) -> None:
    """SIGTERM, unlike a crash, loses no ack that was confirmed."""
    total, restarts = count(1000, 200), count(4, 2)
    confirmed: list[int] = []
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="WORK", subjects=["work.*"]))
        fill(js, total)
        consumer = stream.create_consumer(ConsumerConfig(durable_name="worker", ack_wait=2.0))

        def run() -> None:
            with contextlib.suppress(errors.ConnectionClosed), consumer.messages(max_messages=20) as messages:
                for message in messages:
                    assert int(message.data) not in confirmed
                    try:
                        message.double_ack(timeout=5)
                    except (errors.ConnectionLost, errors.TimedOut, errors.NoResponders):
                        continue  # unknown: it may come again
                    confirmed.append(int(message.data))
                    if len(confirmed) == total:
                        return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        for number in range(1, restarts + 1):
            target = total * number // (restarts + 1)
            wait_until(lambda target=target: len(confirmed) >= target, 60)  # type: ignore[misc]
            server.restart()
        wait_until(lambda: not thread.is_alive() or len(set(confirmed)) >= total - restarts, 100)
        thread.join(5)
        assert len(confirmed) == len(set(confirmed)) >= total - restarts
        nc.close()
        thread.join(10)
