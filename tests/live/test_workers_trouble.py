"""Worker pools where things go wrong: dead letters that cannot be stored, hangs, stops, refusals, restarts."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.deadline_rig import in_calm
from tests.pauses import time_passes

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import PoolEvent, Reject, Retry, WorkerPool
from jsclient.workers.parts import PoolMessages


@pytest.fixture
def stream(nc: jsclient.Connection) -> Iterator[Stream]:
    js = JetStream(nc)
    yield js.create_stream(StreamConfig(name="TROUBLE", subjects=["trouble.>"], storage="memory"))
    js.delete_stream("TROUBLE")


@pytest.fixture
def dead(stream: Stream) -> Iterator[Stream]:
    yield stream.js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
    stream.js.delete_stream("DEAD")


def fill(stream: Stream, count: int, subject: str = "trouble.x") -> None:
    for index in range(count):
        stream.js.publish_async(subject, b"%d" % index)
    stream.js.publish_async_complete(30)


def consumer_of(stream: Stream, **config: Any) -> Consumer:
    return stream.create_or_update_consumer(
        ConsumerConfig(durable_name="pool", **{"ack_wait": 5.0, "max_ack_pending": -1, **config})
    )


def settled(consumer: Consumer, count: int) -> Any:
    return lambda: consumer.info().ack_floor.stream_seq >= count


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")


@pytest.mark.parametrize("keyed", [False, True])
def test_odd_reasons_and_headers_reach_the_dead_letters(stream: Stream, dead: Stream, keyed: bool) -> None:
    fill(stream, 4)
    stream.js.nc.publish("trouble.x", b"4", headers={"Good": "yes", "Nats-Msg-Id": "id"})
    engine_of(stream.js.nc).enqueue(b"HPUB trouble.x 29 30\r\nNATS/1.0\r\nA b: c\r\nGood: x\r\n\r\n5\r\n")
    raised: list[BaseException] = [
        Reject("two\r\nlines"),
        Reject(7),  # type: ignore[arg-type]
        Unprintable(),
        ValueError("a\x00b"),
        KeyError("k"),
        SystemExit(3),
    ]

    def handle(message: Any) -> None:
        raise raised[int(message.data)]

    key = (lambda message: message.subject) if keyed else None
    with WorkerPool(consumer_of(stream), handle, threads=2, attempts=1, dead_letter="dead.x", key=key) as pool:
        wait_until(lambda: pool.snapshot().dead == 6, 10)
    letters = {m.data: m.headers for m in map(dead.get_msg, range(1, 7)) if m.headers is not None}
    reasons = [letters[b"%d" % index]["Dead-Letter-Reason"] for index in range(6)]
    assert reasons == [
        "two  lines", "7", "Unprintable: (without a text)", "ValueError: a b", "KeyError: 'k'", "SystemExit: 3"
    ]  # fmt: skip
    assert letters[b"4"]["Good"] == "yes"
    assert letters[b"4"]["Nats-Msg-Id"].startswith("_.TROUBLE.pool.5.")


@pytest.mark.parametrize("keyed", [False, True])
def test_the_reason_survives_until_the_dead_letter_can_be_stored(stream: Stream, keyed: bool) -> None:
    """The dead-letter stream is missing, then full, then there: nothing is lost, the handler is not run again."""
    fill(stream, 2)
    calls, events = Counter[bytes](), list[PoolEvent]()

    def handle(message: Any) -> None:
        calls[message.data] += 1
        raise ValueError("the real reason")

    key = (lambda message: message.data) if keyed else None
    js, consumer = stream.js, consumer_of(stream)
    options: dict[str, Any] = {"attempts": 2, "backoff": [0.05], "dead_letter": "dead.x", "key": key}
    with WorkerPool(consumer, handle, threads=2, on_event=events.append, **options):
        wait_until(lambda: len(events) >= 6, 20)
        full = js.create_stream(
            StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory", max_msgs=1, discard="new")
        )
        try:
            wait_until(lambda: full.info().state.last_seq == 1 and len(events) >= 9, 20)
            full.purge()
            wait_until(settled(consumer, 2), 20)
            letter = full.get_last_msg("dead.x")
            assert letter.headers is not None
            assert letter.headers["Dead-Letter-Reason"] == "ValueError: the real reason"
            assert full.info().state.last_seq == 2
        finally:
            js.delete_stream("DEAD")
    assert calls == {b"0": 2, b"1": 2}


def test_deliveries_that_no_handler_saw_do_not_use_up_a_message(stream: Stream, dead: Stream) -> None:
    """Given back three times by other workers: with attempts=1 it is still handled once."""
    fill(stream, 1)
    consumer, handled = consumer_of(stream), threading.Event()
    for _ in range(3):
        consumer.next(5).nak()
    with WorkerPool(consumer, lambda message: handled.set(), threads=1, attempts=1, dead_letter="dead.x"):
        assert handled.wait(10)
        wait_until(settled(consumer, 1), 5)
    assert dead.info().state.messages == 0


@pytest.mark.parametrize("shape", ["plain", "batch", "keyed"])
def test_a_message_that_kills_its_workers_is_given_up(stream: Stream, dead: Stream, shape: str) -> None:
    """So many deliveries without an outcome; the other one is tried again, it may only have been prefetched with it."""
    fill(stream, 2)
    consumer, calls = consumer_of(stream), list[Any]()
    for _ in range(8):
        for message in consumer.fetch(2, timeout=5):
            message.nak()
    options: dict[str, Any] = {"batch": (5, 0.01)} if shape == "batch" else {}
    if shape == "keyed":
        options["key"] = lambda message: message.subject
    with WorkerPool(consumer, calls.append, threads=2, attempts=3, dead_letter="dead.x", **options):
        wait_until(settled(consumer, 2), 10)
    assert len(calls) == 1
    assert dead.info().state.messages == 1
    letter = dead.get_last_msg("dead.x")
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Reason"] == "RuntimeError: delivered 9 times without an outcome"


@pytest.mark.slow
def test_waiting_behind_its_key_is_not_hanging(stream: Stream) -> None:
    """The limit counts from when the handler begins, and a message that waits here is not delivered again."""

    def handled() -> tuple[list[bytes], int]:
        fill(stream, 8)
        consumer, calls = consumer_of(stream, ack_wait=0.6), list[bytes]()

        def handle(message: Any) -> None:
            calls.append(message.data)
            time_passes(0.3, "the handler of the message before takes this long")

        with WorkerPool(consumer, handle, threads=2, key=lambda message: message.subject, progress_limit=1.0) as pool:
            wait_until(lambda: pool.snapshot().backlog > 0, 5)
            assert pool.snapshot().in_flight <= 1
            wait_until(settled(consumer, stream.info().state.last_seq), 20)
            hung = pool.snapshot().hung
        consumer.delete()
        stream.purge()
        return calls, hung

    assert in_calm(handled, calm=0.3) == ([b"%d" % index for index in range(8)], 0)


@pytest.mark.slow
def test_a_message_delivered_again_while_it_waits_here_is_handled_once(stream: Stream) -> None:
    fill(stream, 4)
    consumer, calls = consumer_of(stream, ack_wait=0.5), list[bytes]()

    def handle(message: Any) -> None:
        calls.append(message.data)
        time_passes(0.8, "the handler takes longer than ack_wait")

    with WorkerPool(consumer, handle, threads=2, key=lambda message: message.subject, in_progress=False):
        wait_until(settled(consumer, 4), 20)
    assert list(dict.fromkeys(calls)) == [b"0", b"1", b"2", b"3"]
    assert len(calls) <= 5  # one may come just when its ack is on the way; without a look at what is here: 12 and more


@pytest.mark.parametrize("batch", [None, (50, 0.05)])
def test_pulls_keep_within_the_limits_of_the_consumer(stream: Stream, batch: Any) -> None:
    fill(stream, 200)
    consumer, reported = consumer_of(stream, max_batch=3, max_expires=2.0), list[PoolEvent]()
    with WorkerPool(consumer, lambda got: None, threads=8, batch=batch, on_event=reported.append):
        wait_until(settled(consumer, 200), 20)
    assert {event.kind for event in reported} == {"handled"}


def test_a_batch_pool_prefetches_messages_not_batches(stream: Stream) -> None:
    fill(stream, 6000)
    consumer, calls, blocked = consumer_of(stream), list[int](), threading.Event()

    def handle(batch: list[Any]) -> None:
        calls.append(len(batch))
        if len(calls) > 20:
            blocked.wait(20)

    with WorkerPool(consumer, handle, threads=2, batch=(100, 0.05), max_prefetch=50):
        wait_until(lambda: len(calls) >= 22, 10)
        wait_until(lambda: consumer.info().num_waiting == 0, 5)
        assert consumer.info().num_ack_pending <= 2 * 100 + 2 * 100 + 50
        blocked.set()


def test_stop_in_a_signal_handler_a_thousand_times(stream: Stream) -> None:
    fill(stream, 100)
    consumer, threads = consumer_of(stream), list[int]()
    pool = WorkerPool(consumer, lambda message: None, threads=4)
    wait_until(settled(consumer, 100), 10)

    def stop(number: int, frame: Any) -> None:
        pool.stop(wait=False)
        threads.append(threading.active_count())
        if len(threads) >= 1000:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(threads) < 1000:
            pool.snapshot()
            time_passes(0.001, "a signal comes each millisecond")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert pool.wait(10)
    assert max(threads) <= threads[0] + 2


def test_a_key_that_cannot_be_had_fails_its_message_alone(stream: Stream, dead: Stream) -> None:
    fill(stream, 6)
    consumer = consumer_of(stream)

    def key(message: Any) -> Any:
        if message.data == b"2":
            raise SystemExit("no key")
        return [] if message.data == b"4" else message.data

    with WorkerPool(consumer, lambda m: None, threads=2, key=key, attempts=2, backoff=[0], dead_letter="dead.x"):
        wait_until(settled(consumer, 6), 10)
    assert dead.info().state.messages == 2


def test_a_delay_that_is_no_number_is_a_failure_of_the_handler(stream: Stream, dead: Stream) -> None:
    fill(stream, 3)
    consumer, delays = consumer_of(stream), [float("inf"), float("nan"), "soon"]

    def handle(message: Any) -> None:
        raise Retry(delays[int(message.data)])  # type: ignore[arg-type]

    with WorkerPool(consumer, handle, threads=1, attempts=2, backoff=[0], dead_letter="dead.x") as pool:
        wait_until(settled(consumer, 3), 10)
        assert pool.snapshot().running
    assert dead.info().state.messages == 3


LEAST = """
accounts { A { jetstream: enabled, users: [
  { user: admin, password: a },
  { user: worker, password: w, permissions: {
      publish: ["$JS.API.CONSUMER.MSG.NEXT.LEAST.pool", "$JS.ACK.LEAST.pool.>", "dead.x"], subscribe: ["_INBOX.>"] } }
] } }
"""


@pytest.mark.slow
def test_an_account_that_may_only_work() -> None:
    """No CONSUMER.INFO, no STREAM.NAMES: ack_wait has to be given, all else goes on."""
    with (
        NatsServer(LEAST) as server,
        jsclient.connect(server.url, user="admin", password="a") as admin,
        jsclient.connect(server.url, user="worker", password="w") as nc,
    ):
        js = JetStream(admin)
        stream = js.create_stream(StreamConfig(name="LEAST", subjects=["least.>"], storage="memory"))
        dead = js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], storage="memory"))
        watched = stream.create_consumer(ConsumerConfig(durable_name="pool", ack_wait=1.0))
        fill(stream, 20, "least.x")
        consumer = JetStream(nc).consumer("LEAST", "pool", fetch_info=False)
        with pytest.raises(errors.ConfigError, match="ack_wait"):
            WorkerPool(consumer, print)
        calls = list[bytes]()

        def handle(message: Any) -> None:
            calls.append(message.data)
            if message.data == b"3":
                time_passes(3.0, "the handler takes three times ack_wait")
            if message.data == b"5":
                raise Reject("no")

        with WorkerPool(consumer, handle, threads=4, ack_wait=1.0, dead_letter="dead.x"):
            wait_until(settled(watched, 20), 15)
        assert len(calls) == 20
        assert dead.info().state.messages == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "lame_duck"])
def test_the_server_goes_while_batches_are_gathered(how: str) -> None:
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc, timeout=20)
        stream = js.create_stream(StreamConfig(name="B", subjects=["trouble.>"]))
        consumer = stream.create_consumer(ConsumerConfig(durable_name="pool", ack_wait=2.0))
        handled: set[bytes] = set()

        def handle(batch: list[Any]) -> None:
            handled.update(message.data for message in batch)

        with WorkerPool(consumer, handle, threads=2, batch=(50, 2.0)) as pool:
            fill(stream, 30)
            wait_until(lambda: pool.snapshot().in_flight == 30, 10)
            getattr(server, how)()
            server.stop()
            server.restart()
            wait_until(lambda: nc.is_connected, 20)
            fill(stream, 60)
            wait_until(settled(consumer, 90), 40)
        assert handled == {b"%d" % index for index in range(60)}


def test_an_unforeseen_error_in_one_worker_ends_the_pool(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(stream, 1)
    pool = WorkerPool(consumer_of(stream), lambda message: None, threads=4)
    with pool:
        monkeypatch.setattr(PoolMessages, "resize", lambda *limits: 1 / 0)
        fill(stream, 50)
        with pytest.raises(ZeroDivisionError):
            pool.wait(10)


@pytest.mark.slow
def test_what_was_prefetched_goes_to_others_when_handlers_become_slow(stream: Stream) -> None:
    """Prefetched for fast handlers, then all of them block: nothing is hoarded, and nothing handled twice."""
    fill(stream, 5000)
    consumer, release = consumer_of(stream, ack_wait=3.0), threading.Event()
    calls, others = Counter[bytes](), Counter[bytes]()

    def handle(message: Any) -> None:
        calls[message.data] += 1
        if len(calls) > 2000:
            release.wait(30)

    with WorkerPool(consumer, handle, threads=4) as pool:
        wait_until(lambda: len(calls) >= 2004 and pool.snapshot().buffered > 0, 10)
        wait_until(lambda: pool.snapshot().buffered == 0, 5)
        while batch := consumer.fetch(5000, timeout=0.5):
            for message in batch:
                others[message.data] += 1
                message.ack()
        release.set()
        wait_until(settled(consumer, 5000), 10)
    assert len(calls) + len(others) == 5000
    assert max((calls + others).values()) == 1
