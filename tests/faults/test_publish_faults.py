"""Publishing while servers are killed, stopped and cut off: nothing acknowledged is lost, nothing is stored twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import AsyncPublisher, JetStream, PublishFuture, StreamConfig
from jsclient.testing import Cluster, NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]


IN_FLIGHT = 64


class Work:
    """Publishes `total` messages with ids as a user would: no try, no except. `acked` counts what came back.

    The test says how far it may go, so that every fault meets messages under way.
    """

    def __init__(self, js: JetStream, total: int, threads: int) -> None:
        self.js = js
        self.total = total
        self.sent = 0
        self.acked = 0
        self.duplicates = 0
        self.problem: BaseException | None = None
        self.longest_gap = 0.0
        self._last = time.monotonic()
        self._gate = threading.Condition()
        self._limit = 0
        self._threads = threads
        self._workers: list[threading.Thread] = []

    def start(self) -> Work:
        if self._threads == 1:
            work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(self._asynchronous, ())]
        else:
            work = [(self._synchronous, (number,)) for number in range(self._threads)]
        self._workers = [threading.Thread(target=self._guard, args=item) for item in work]
        for worker in self._workers:
            worker.start()
        return self

    def _guard(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            call(*args)
        except BaseException as error:
            self.problem = error

    def go_to(self, number: int) -> None:
        """Publish up to `number`, and wait until so many are acknowledged."""
        self._allow(number)
        wait_until(lambda: self.acked >= number or self.problem is not None, 50, f"only {self.acked} acknowledged")

    def kill_in_the_middle(self, server: NatsServer, number: int) -> None:
        """Kill the server with 64 messages under way beyond `number`, as soon as it has acknowledged one of them."""
        self.go_to(number)
        server.pause()
        self._allow(number + IN_FLIGHT)
        wait_until(lambda: self.sent >= min(self.total, number + IN_FLIGHT), 20)
        server.resume()
        with self._gate:
            self._gate.wait_for(lambda: self.acked > number, 20)
        server.kill()

    def release(self, more: int) -> None:
        """Publish so many more; do not wait for them."""
        self._allow(self._limit + more)

    def _allow(self, number: int) -> None:
        with self._gate:
            self._limit = number
            self._gate.notify_all()

    def _pass(self, number: int) -> None:
        with self._gate:
            self._gate.wait_for(lambda: number < self._limit)
            self.sent += 1

    def _count(self, duplicate: bool) -> None:
        with self._gate:
            now = time.monotonic()
            self.longest_gap = max(self.longest_gap, now - self._last)
            self._last = now
            self.acked += 1
            self.duplicates += duplicate
            self._gate.notify_all()

    def _synchronous(self, number: int) -> None:
        for one in range(number, self.total, self._threads):
            self._pass(one)
            ack = self.js.publish(f"s.{one}", b"%d" % one, msg_id=f"id-{one}", timeout=30)
            self._count(ack.duplicate)

    def _asynchronous(self) -> None:
        def acked(future: PublishFuture) -> None:
            self._count(future.result(0).duplicate)

        futures = []
        with AsyncPublisher(self.js, max_pending=IN_FLIGHT, on_ack=acked) as publisher:
            for one in range(self.total):
                self._pass(one)
                futures.append(publisher.publish(f"s.{one}", b"%d" % one, msg_id=f"id-{one}"))
        for future in futures:
            future.result(0)

    def join(self) -> None:
        self.go_to(self.total)
        for worker in self._workers:
            worker.join(50)
        if self.problem is not None:
            raise self.problem
        wait_until(lambda: self.acked == self.total, 5)
        print(f"{self.duplicates} duplicates, longest gap {self.longest_gap:.2f} s")


def check_exact(js: JetStream, total: int) -> None:
    """As many messages as were published, and as many different ones."""
    state = js.stream("S").info().state
    assert (state.messages, state.num_subjects) == (total, total)


@pytest.fixture
def fresh() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.mark.timeout(170)
@pytest.mark.parametrize("threads", [1, pytest.param(64, marks=pytest.mark.faults)], ids=["async", "64 threads"])
def test_server_killed_during_publishing(fresh: NatsServer, count: Count, threads: int) -> None:
    total, kills = count(3000, 600), count(8, 2)
    with jsclient.connect(fresh.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        work = Work(js, total, threads).start()
        for kill in range(1, kills + 1):
            work.kill_in_the_middle(fresh, total * kill // (kills + 1))
            fresh.start()
        work.join()
        check_exact(js, total)


@pytest.mark.faults
@pytest.mark.timeout(280)
@pytest.mark.parametrize("threads", [1, 64], ids=["async", "64 threads"])
def test_leaders_killed_during_publishing(count: Count, threads: int) -> None:
    total, kills = count(3000, 300), count(4, 1)
    with Cluster(3) as cluster, jsclient.connect(cluster.urls) as nc:
        js = JetStream(nc, timeout=20)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], num_replicas=3))
        work = Work(js, total, threads).start()
        for kill in range(1, kills + 1):
            leader = cluster.stream_leader("S")
            work.kill_in_the_middle(leader, total * kill // (kills + 4))
            leader.start()
            cluster.wait_ready()
        for number, server in enumerate(cluster.servers, 1):
            work.go_to(total * (kills + number) // (kills + 4) - IN_FLIGHT)
            work.release(IN_FLIGHT)
            server.restart()
            cluster.wait_ready()
        work.join()
        wait_until(lambda: _stored(js) == total, 30)
        check_exact(js, total)


def _stored(js: JetStream) -> int:
    try:
        return js.stream("S").info().state.messages
    except errors.JsClientError:
        return -1


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_stopped_server_is_an_unknown_outcome(fresh: NatsServer) -> None:
    with jsclient.connect(fresh.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        outcomes = _concurrently(50, lambda number: js.publish(f"s.{number}", b"x", timeout=1), fresh)
        assert [type(outcome) for outcome in outcomes] == [errors.PublishUnknown] * 50
        wait_until(lambda: _stored(js) == 50)
        outcomes = _concurrently(50, lambda number: js.publish(f"s.a{number}", b"x", msg_id=str(number)), fresh)
        assert {getattr(outcome, "stream", outcome) for outcome in outcomes} == {"S"}
        check_exact(js, 100)


def _concurrently(threads: int, call: Callable[[int], Any], server: NatsServer) -> list[Any]:
    """The results or exceptions of `call` in so many threads, while the server is stopped for 3 s."""
    outcomes: list[Any] = [None] * threads

    def run(number: int) -> None:
        try:
            outcomes[number] = call(number)
        except errors.JsClientError as error:
            outcomes[number] = error

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    server.pause()
    resume = threading.Timer(3, server.resume)
    resume.start()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(40)
    resume.join()
    return outcomes


@pytest.mark.timeout(120)
@pytest.mark.parametrize("with_id", [True, False], ids=["ids", "no ids"])
def test_lost_acks(fresh: NatsServer, count: Count, with_id: bool) -> None:
    total = count(400, 60)
    with Proxy(fresh.port) as proxy, jsclient.connect(fresh.url) as direct, jsclient.connect(proxy.url) as nc:
        js, beside = JetStream(nc), JetStream(direct)
        beside.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        duplicates = unknown = 0
        for number in range(total):
            lost = number % 20 == 19
            if lost:
                thread = _lose_the_ack(proxy, beside, number + 1 + unknown)
            try:
                ack = js.publish("s.x", b"%d" % number, msg_id=f"id-{number}" if with_id else None)
                duplicates += ack.duplicate
            except errors.PublishUnknown:
                unknown += 1
                js.publish("s.x", b"%d" % number)
            if lost:
                thread.join()
        assert (duplicates, unknown) == ((total // 20, 0) if with_id else (0, total // 20))
        assert beside.stream("S").info().state.messages == (total if with_id else total + total // 20)


def _lose_the_ack(proxy: Proxy, beside: JetStream, stored: int) -> threading.Thread:
    """From now on the client hears nothing; once the server has the message, the link is reset."""
    proxy.stall("down")
    stream = beside.stream("S")

    def reset() -> None:
        wait_until(lambda: stream.info().state.messages == stored)
        proxy.cut(reset=True)
        proxy.resume("down")

    thread = threading.Thread(target=reset)
    thread.start()
    return thread


@pytest.mark.timeout(120)
def test_lost_links_and_futures(fresh: NatsServer, count: Count) -> None:
    """With ids all messages arrive once; without, each future is acked or unknown, and what is acked is stored."""
    total = count(4000, 1000)
    with Proxy(fresh.port) as proxy, jsclient.connect(fresh.url) as direct, jsclient.connect(proxy.url) as nc:
        js, beside = JetStream(nc), JetStream(direct)
        beside.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
        beside.create_stream(StreamConfig(name="P", subjects=["p.>"], storage="memory"))
        with AsyncPublisher(js, max_pending=200) as publisher:
            safe, plain = [], []
            for number in range(total):
                if number % (total // 5) == total // 10:
                    proxy.cut_after(3000, "up" if number % 2 else "down", reset=bool(number % 4))
                safe.append(publisher.publish(f"s.{number}", b"x", msg_id=str(number)))
                plain.append(publisher.publish(f"p.{number}", b"x"))
        assert proxy.cuts
        assert all(future.exception(0) is None for future in safe)
        check_exact(beside, total)
        outcomes = {type(future.exception(0)) for future in plain}
        assert outcomes <= {type(None), errors.PublishUnknown}
        acked = sum(future.exception(0) is None for future in plain)
        assert acked <= beside.stream("P").info().state.messages <= total


@pytest.mark.timeout(120)
def test_publishing_while_disconnected(fresh: NatsServer) -> None:
    """Bounded in time and memory: what was not sent is certainly not stored, or goes out when the link is back."""
    with Proxy(fresh.port) as proxy, jsclient.connect(fresh.url) as direct, jsclient.connect(proxy.url) as nc:
        js, beside = JetStream(nc), JetStream(direct)
        beside.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        with AsyncPublisher(js, max_pending=100, stall_wait=0) as publisher:
            publisher.publish("s.first", b"x").result(5)
            proxy.refuse()
            wait_until(lambda: not nc.is_connected)
            start = time.monotonic()
            with pytest.raises(errors.NotStored):
                js.publish("s.a", b"x", timeout=0.5)
            assert 0.4 < time.monotonic() - start < 2
            futures = [publisher.publish(f"s.{number}", b"x") for number in range(100)]
            with pytest.raises(errors.TooManyStalledMessages):
                publisher.publish("s.more", b"x")
            assert not any(future.done() for future in futures)
            waiting = threading.Thread(target=js.publish, args=("s.sync", b"x"))
            waiting.start()
            proxy.accept()
            publisher.complete(20)
            waiting.join(20)
            assert all(future.exception(0) is None for future in futures)
        check_exact(beside, 102)


@pytest.mark.timeout(60)
def test_messages_held_too_long_are_given_up(fresh: NatsServer) -> None:
    with Proxy(fresh.port) as proxy, jsclient.connect(fresh.url) as direct, jsclient.connect(proxy.url) as nc:
        JetStream(direct).create_stream(StreamConfig(name="S", subjects=["s.>"]))
        with AsyncPublisher(JetStream(nc), ack_timeout=0.5, duplicate_window=1) as publisher:
            publisher.publish("s.first", b"x").result(5)
            proxy.stall()
            under_way = publisher.publish("s.a", b"x", msg_id="1")
            engine_of(nc).flush_outbox()
            proxy.refuse()
            wait_until(lambda: not nc.is_connected)
            not_sent = publisher.publish("s.b", b"x")
            assert isinstance(not_sent.exception(10), errors.NotStored)
            assert isinstance(under_way.exception(10), errors.PublishUnknown)
            assert publisher.pending() == 0


@pytest.mark.faults
@pytest.mark.timeout(60)
def test_what_was_never_sent_goes_out_later_without_an_id(fresh: NatsServer) -> None:
    """The kernel takes no more: of what is still queued when the link breaks, nothing needs to be called unknown."""
    with Proxy(fresh.port) as proxy, jsclient.connect(fresh.url) as direct, jsclient.connect(proxy.url) as nc:
        js, beside = JetStream(nc), JetStream(direct)
        beside.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        with AsyncPublisher(js, max_pending=100) as publisher:
            publisher.publish("s.first", b"x").result(5)
            proxy.stall("up")
            futures: list[PublishFuture] = []

            def work(thread: int) -> None:
                for number in range(20):
                    futures.append(publisher.publish(f"s.{thread}.{number}", bytes(500_000)))  # noqa: PERF401

            # Proxy and kernel hold a few MiB; one thread is stuck in a write, the others queue up behind it.
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            wait_until(lambda: nc.health().buffered_bytes > 500_000, 10)
            proxy.cut(reset=True)
            proxy.resume("up")
            for thread in threads:
                thread.join(20)
            publisher.complete(20)
        outcomes = [type(future.exception(0)) for future in futures]
        assert set(outcomes) == {type(None), errors.PublishUnknown}
        assert outcomes.count(type(None)) <= beside.stream("S").info().state.messages - 1 <= 80


@pytest.mark.faults
@pytest.mark.timeout(200)
def test_random_cuts(fresh: NatsServer) -> None:
    """Sixty links cut anywhere in either direction, with kills between: exact sets, and every future resolves."""
    random = Random(20)
    with Proxy(fresh.port) as proxy, jsclient.connect(fresh.url) as direct, jsclient.connect(proxy.url) as nc:
        js, beside = JetStream(nc), JetStream(direct)
        beside.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        beside.create_stream(StreamConfig(name="P", subjects=["p.>"]))
        stop = threading.Event()
        safe: list[PublishFuture] = []
        plain: list[PublishFuture] = []
        synchronous: list[int] = []
        problems: list[BaseException] = []

        def guarded(call: Callable[[int], None], number: int) -> None:
            try:
                call(number)
            except BaseException as error:
                problems.append(error)

        def asynchronously(_: int) -> None:
            with AsyncPublisher(js, max_pending=300) as one, AsyncPublisher(js, max_pending=300) as other:
                while not stop.wait(0.0005):
                    number = len(safe)
                    safe.append(one.publish(f"s.a{number}", bytes(random.randrange(2000)), msg_id=f"a{number}"))
                    plain.append(other.publish(f"p.{number}", b"x"))

        def synchronously(thread: int) -> None:
            while not stop.is_set():
                number = len(synchronous)
                js.publish(f"s.{thread}.{number}", b"y", msg_id=f"{thread}.{number}", timeout=60)
                synchronous.append(number)

        threads = [threading.Thread(target=guarded, args=(asynchronously, 0))]
        threads += [threading.Thread(target=guarded, args=(synchronously, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for cut in range(60):
            wait_until(lambda: nc.is_connected, 10)
            proxy.cut_after(random.randrange(1, 50_000), random.choice(["up", "down"]), reset=random.random() < 0.5)
            stop.wait(random.random() * 0.2)
            if cut % 20 == 10:
                fresh.kill()
                fresh.start()
        stop.set()
        proxy.heal()
        for thread in threads:
            thread.join(60)
        assert not problems
        assert proxy.cuts >= 20
        assert {type(future.exception(0)) for future in safe} == {type(None)}
        wait_until(lambda: beside.nc.is_connected)
        state = beside.stream("S").info().state
        assert state.messages == state.num_subjects == len(safe) + len(synchronous)
        assert {type(future.exception(0)) for future in plain} <= {type(None), errors.PublishUnknown}
        acked = sum(future.exception(0) is None for future in plain)
        assert acked <= beside.stream("P").info().state.messages <= len(plain)
