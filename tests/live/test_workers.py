"""Worker pools against a real server."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.deadline_rig import in_calm
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import BatchFailed, PoolEvent, Reject, Retry, WorkerPool

Count = Callable[[int, int], int]


@pytest.fixture
def stream(nc: jsclient.Connection) -> Iterator[Stream]:
    js = JetStream(nc)
    made = js.create_stream(StreamConfig(name="WORK", subjects=["work.>"], storage="memory"))
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    yield made
    js.delete_stream("WORK")
    js.delete_stream("DEAD")


def fill(stream: Stream, count: int, subject: Callable[[int], str] = lambda index: "work.x") -> None:
    for index in range(count):
        stream.js.publish_async(subject(index), b"%d" % index)
    stream.js.publish_async_complete(30)


def consumer_of(stream: Stream, **config: Any) -> Consumer:
    return stream.create_or_update_consumer(
        ConsumerConfig(durable_name="pool", **{"ack_wait": 5.0, "max_ack_pending": -1, **config})
    )


def settled(consumer: Consumer, count: int) -> Callable[[], bool]:
    return lambda: consumer.info().ack_floor.stream_seq >= count


def test_outcomes_decide_the_ack(stream: Stream) -> None:
    fill(stream, 40)
    consumer, calls = consumer_of(stream), Counter[bytes]()
    lock = threading.Lock()

    def handle(message: Any) -> None:
        with lock:
            calls[message.data] += 1
            first = calls[message.data] == 1
        if message.data == b"3":
            raise Reject("never")
        if message.data == b"5":
            raise ValueError("always")
        if message.data == b"7" and first:
            raise Retry(0.01)

    with WorkerPool(consumer, handle, threads=4, attempts=3, backoff=[0.02], dead_letter="dead.work") as pool:
        wait_until(settled(consumer, 40), 15)
        snapshot = pool.snapshot()
    assert (snapshot.handled, snapshot.failed, snapshot.rejected, snapshot.dead) == (38, 3, 1, 2)
    assert snapshot.redelivered == 3
    assert (calls[b"3"], calls[b"5"], calls[b"7"]) == (1, 3, 2)
    letters = {m.headers["Dead-Letter-Sequence"]: m for m in map(stream.js.stream("DEAD").get_msg, (1, 2)) if m.headers}
    assert set(letters) == {"4", "6"}
    assert letters["4"].headers["Dead-Letter-Reason"] == "never"
    assert letters["6"].headers["Dead-Letter-Reason"] == "ValueError: always"
    assert letters["6"].headers["Dead-Letter-Deliveries"] == "3"
    assert letters["6"].headers["Nats-Msg-Id"].startswith("_.WORK.pool.6.")


def test_a_consumer_that_does_not_fit_is_refused(stream: Stream) -> None:
    limited = consumer_of(stream, max_deliver=5)
    with pytest.raises(errors.ConfigError, match="max_deliver"):
        WorkerPool(limited, print, attempts=3)
    unacked = stream.create_consumer(ConsumerConfig(durable_name="none", ack_policy="none"))
    with pytest.raises(errors.ConfigError, match="ack policy"):
        WorkerPool(unacked, print)
    with pytest.raises(errors.ConfigError, match="PoolOptions"):
        WorkerPool(limited, print, thread=3)  # type: ignore[call-arg]


@pytest.mark.slow
def test_a_pool_takes_part_in_a_priority_group(stream: Stream, server: NatsServer) -> None:
    if server.version < (2, 11, 0):
        with pytest.raises(errors.ConfigError, match="no priority groups"):
            WorkerPool(consumer_of(stream), print, group="g")
        return
    fill(stream, 20)
    consumer = consumer_of(stream, priority_groups=["g"], priority_policy="overflow")
    for group in ("", "other"):
        with pytest.raises(errors.ConfigError, match="must be one of g"):
            WorkerPool(consumer, print, group=group)
    with WorkerPool(consumer, lambda message: None, group="g", threads=2):
        wait_until(settled(consumer, 20))


def test_a_long_handler_is_not_redelivered(stream: Stream) -> None:
    """A handler of 5 x ack_wait."""

    def handled() -> tuple[list[bytes], int]:
        fill(stream, 2)
        consumer, calls = consumer_of(stream, ack_wait=0.6), list[bytes]()

        def handle(message: Any) -> None:
            calls.append(message.data)
            time_passes(3.0, "the handler takes five times ack_wait")

        with WorkerPool(consumer, handle, threads=2):
            wait_until(settled(consumer, stream.info().state.last_seq), 10)
        redelivered = consumer.info().num_redelivered
        consumer.delete()
        stream.purge()
        return sorted(calls), redelivered

    assert in_calm(handled, calm=0.3) == ([b"0", b"1"], 0)


def test_a_hung_handler_is_reported_and_its_message_goes_to_another(stream: Stream) -> None:
    fill(stream, 1)
    events: list[PoolEvent] = []
    calls, release = [], threading.Event()

    def handle(message: Any) -> None:
        calls.append(message.metadata.num_delivered)
        if len(calls) == 1:
            release.wait(20)

    consumer = consumer_of(stream, ack_wait=0.5)
    with WorkerPool(consumer, handle, threads=2, progress_limit=0.6, on_event=events.append) as pool:
        wait_until(lambda: len(calls) == 2, 10)
        assert calls == [1, 2]
        wait_until(lambda: [event.kind for event in events].count("hung") == 1, 5)
        assert pool.snapshot().hung == 1
        release.set()


def test_order_by_key(stream: Stream, count: Count) -> None:
    """Random delays and naks: per key strictly in stream order."""
    keys, each = count(1000, 100), count(100, 20)
    fill(stream, keys * each, lambda index: f"work.{index % keys}")
    consumer = consumer_of(stream, ack_wait=30.0)
    seen: dict[str, list[int]] = {}
    lock, chance = threading.Lock(), random.Random(7)

    def handle(message: Any) -> None:
        with lock:
            roll = chance.random()
        if roll < 0.05:
            raise Retry(roll / 10)
        if roll < 0.1:
            time_passes(roll / 100, "some handlers take longer than others")
        with lock:
            seen.setdefault(message.subject, []).append(int(message.data))

    with WorkerPool(consumer, handle, threads=16, key=lambda message: message.subject, in_progress=True):
        wait_until(settled(consumer, keys * each), 55)
    assert len(seen) == keys
    assert all(numbers == sorted(numbers) and len(numbers) == each for numbers in seen.values())


def test_a_slow_pool_hoards_nothing(stream: Stream) -> None:
    """Messages go to whoever is free: two slow workers hold two messages, not a prefetched heap."""
    fill(stream, 50)
    consumer, busy, release = consumer_of(stream), threading.Semaphore(0), threading.Event()

    def handle(message: Any) -> None:
        busy.release()
        release.wait(20)

    with WorkerPool(consumer, handle, threads=2) as pool:
        assert busy.acquire(timeout=5)
        assert busy.acquire(timeout=5)
        assert consumer.info().num_ack_pending == 2
        assert pool.snapshot().buffered == 0
        release.set()


def test_stop_gives_back_what_was_not_started(stream: Stream) -> None:
    fill(stream, 3000)
    consumer, started, release = consumer_of(stream, ack_wait=60.0), threading.Event(), threading.Event()
    handled: list[bytes] = []

    def handle(message: Any) -> None:
        handled.append(message.data)
        if len(handled) == 1000:
            started.set()
            release.wait(20)

    pool = WorkerPool(consumer, handle, threads=1)
    assert started.wait(10)
    wait_until(lambda: pool.snapshot().buffered > 0, 5)
    report: list[Any] = []
    stopper = threading.Thread(target=lambda: report.append(pool.stop(timeout=10)))
    stopper.start()
    begun = time.monotonic()
    rest = consumer.fetch(2000, timeout=5)
    assert len(rest) == 2000
    assert time.monotonic() - begun < 5
    release.set()
    stopper.join(10)
    assert report[0].finished
    assert report[0].given_back > 0
    assert not report[0].cut_off
    assert pool.closed


def test_stop_says_what_was_cut_off(stream: Stream) -> None:
    fill(stream, 1)
    consumer, busy, release = consumer_of(stream), threading.Event(), threading.Event()

    def handle(message: Any) -> None:
        busy.set()
        release.wait(20)

    pool = WorkerPool(consumer, handle, threads=1)
    assert busy.wait(5)
    report = pool.stop(timeout=0.2)
    assert report is not None
    assert not report
    assert [message.data for message in report.cut_off] == [b"0"]
    release.set()
    assert pool.wait(5)


@pytest.mark.parametrize("confirm", [False, True])
def test_batches(stream: Stream, confirm: bool) -> None:
    fill(stream, 250)
    consumer, sizes, failed = consumer_of(stream), [], threading.Event()

    def handle(batch: list[Any]) -> list[Any] | None:
        sizes.append(len(batch))
        if not failed.is_set():
            failed.set()
            raise BatchFailed({0: Retry(0.01), 1: Reject("bad")})
        return [None] * len(batch)

    with WorkerPool(consumer, handle, threads=2, batch=(50, 0.2), confirm=confirm) as pool:
        wait_until(settled(consumer, 250), 15)
        snapshot = pool.snapshot()
    assert max(sizes) == 50
    assert sum(sizes) == 251
    assert (snapshot.handled, snapshot.rejected) == (249, 1)


def test_manual_acks(stream: Stream) -> None:
    fill(stream, 10)
    consumer = consumer_of(stream)

    def handle(message: Any) -> None:
        if message.data == b"4":
            message.term()  # with a reason: 2.10.4
        else:
            message.ack()
        if message.data == b"5":
            raise ValueError("after the ack: nothing is left to decide")

    with WorkerPool(consumer, handle, threads=2, manual=True):
        wait_until(settled(consumer, 10), 10)
    assert consumer.info().num_redelivered == 0


def test_hostile_handlers_do_not_deadlock(stream: Stream) -> None:
    """BaseException, the GIL held for a second, publishing and waiting inside, stop() inside."""
    fill(stream, 5)
    consumer, calls = consumer_of(stream, ack_wait=10.0), Counter[bytes]()
    pools: list[WorkerPool] = []

    def handle(message: Any) -> None:
        calls[message.data] += 1
        if message.data == b"0" and calls[b"0"] == 1:
            raise SystemExit("a handler must not end its worker")
        if message.data == b"1":
            end = time.perf_counter() + 1
            while time.perf_counter() < end:
                sum(range(10_000))
        if message.data == b"2":
            assert stream.js.publish("dead.inside", b"x").seq == 1
        if message.data == b"4" and calls[b"0"] > 1:
            pools[0].stop()
        elif message.data == b"4":
            raise Retry(0.05)

    with WorkerPool(consumer, handle, threads=2, backoff=[0.01]) as pool:
        pools.append(pool)
        assert pool.wait(20)
    assert settled(consumer, 5)()


def test_a_deleted_consumer_ends_the_pool_with_its_reason(stream: Stream) -> None:
    consumer = consumer_of(stream)
    pool = WorkerPool(consumer, print, threads=2)
    # A pull that arrives with the deletion gets no answer: that is noticed after two heartbeats, 10 s.
    wait_until(lambda: consumer.info().num_waiting > 0, 10)
    stream.delete_consumer("pool")
    with pytest.raises(errors.ConsumerDeleted):
        pool.wait(10)
    pool.stop()


def test_figures_for_prometheus(stream: Stream) -> None:
    from jsclient.workers import metrics

    fill(stream, 3)
    consumer = consumer_of(stream)
    with WorkerPool(consumer, lambda message: None, threads=1) as pool:
        wait_until(settled(consumer, 3), 10)
        page = metrics.text_page(pool, service="test").decode()
    assert 'jsclient_pool_handled_total{consumer="pool",service="test",stream="WORK"} 3.0' in page
