"""Asynchronous publish against a real server: futures, window, callbacks, order, ending."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import AsyncPublisher, JetStream, PublishFuture, PubMsg, StreamConfig
from jsclient.message import Msg
from jsclient.testing import NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
    return js


@pytest.fixture
def silent(js: JetStream) -> str:
    """A subject of a stream that never acknowledges."""
    js.create_stream(StreamConfig(name="N", subjects=["n.>"], no_ack=True, storage="memory"))
    return "n.x"


def test_future(js: JetStream) -> None:
    future = js.publish_async("s.a", b"hello", msg_id="1", headers={"A": "b"})
    ack = future.result(5)
    assert (ack.stream, ack.seq) == ("S", 1)
    assert future.done()
    assert future.exception() is None
    assert future.result() is ack
    assert (future.msg.subject, future.msg.data, future.msg_id) == ("s.a", b"hello", "1")
    assert future.msg.headers == jsclient.Headers({"A": "b", "Nats-Msg-Id": "1"})
    assert js.publish_async("s.a", b"hello", msg_id="1").result(5).duplicate
    assert "s.a" in repr(future)
    assert len({future, future}) == 1


def test_many_in_order(js: JetStream) -> None:
    futures = [js.publish_async("s.a", b"%d" % number) for number in range(5000)]
    js.publish_async_complete(20)
    assert js.publish_async_pending() == 0
    assert [future.result().seq for future in futures] == list(range(1, 5001))


def test_callbacks(js: JetStream) -> None:
    called: list[tuple[Any, str]] = []
    acked: list[PublishFuture] = []
    failed: list[tuple[PublishFuture, BaseException]] = []
    with AsyncPublisher(
        js, on_ack=acked.append, on_error=lambda future, error: failed.append((future, error))
    ) as publisher:
        future = publisher.publish("s.a", b"x")
        future.add_done_callback(lambda f: called.append((f, threading.current_thread().name)))
        bad = publisher.publish("s.a", b"x", expected_stream="other")
        future.result(5)
        future.add_done_callback(lambda f: called.append((f, threading.current_thread().name)))
        wait_until(lambda: len(called) == 2 and acked and failed)
    assert [item[0] for item in called] == [future, future]
    assert all(name.startswith("jsclient-events") for _, name in called)
    assert acked == [future]
    assert failed[0][0] is bad
    assert failed[0][0].msg.data == b"x"
    assert isinstance(failed[0][1], errors.StreamMismatch)


def test_a_callback_may_publish_and_wait(js: JetStream) -> None:
    results: list[int] = []

    def again(future: PublishFuture) -> None:
        results.append(js.publish("s.b", b"from the callback").seq)
        results.append(js.publish_async("s.b", b"again").result(5).seq)

    js.publish_async("s.a", b"x").add_done_callback(again)
    wait_until(lambda: len(results) == 2)
    assert results == [2, 3]


def test_close_resolves_everything(server: NatsServer, js: JetStream, silent: str) -> None:
    nc = jsclient.connect(server.url)
    futures = [JetStream(nc).publish_async(silent, b"x") for _ in range(50)]
    waiting: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: waiting.append(futures[0].exception(30)))
    thread.start()
    nc.flush()
    start = time.monotonic()
    nc.close()
    thread.join(5)
    assert time.monotonic() - start < 3
    assert isinstance(waiting[0], errors.PublishUnknown)
    assert all(isinstance(future.exception(0), errors.PublishUnknown) for future in futures)


def test_close_wakes_a_publisher_at_the_full_window(server: NatsServer, js: JetStream, silent: str) -> None:
    nc = jsclient.connect(server.url)
    publisher = AsyncPublisher(JetStream(nc), max_pending=5)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                publisher.publish(silent, b"x")
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: publisher.window.parked)
    nc.close()
    thread.join(5)
    assert isinstance(ended[0], errors.ConnectionClosed)


def test_many_threads_share_one_window(js: JetStream) -> None:
    futures: list[list[PublishFuture]] = [[] for _ in range(16)]
    with AsyncPublisher(js, max_pending=100) as publisher:

        def work(number: int) -> None:
            for count in range(300):
                futures[number].append(publisher.publish(f"s.{number}", b"%d" % count))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        publisher.complete(10)
    for mine in futures:
        sequences = [future.result(0).seq for future in mine]
        assert len(sequences) == 300
        assert sequences == sorted(sequences)
    assert js.stream("S").info().state.messages == 16 * 300


def test_nothing_stays_behind(js: JetStream) -> None:
    before = js.nc.stats().subscriptions
    with AsyncPublisher(js) as publisher:
        for number in range(1000):
            publisher.publish("s.a", b"x", msg_id=str(number))
    assert js.nc.stats().subscriptions == before
    assert not publisher.recovery.held
    assert not publisher.recovery.retries
    assert not publisher.window.large
    wait_until(lambda: not publisher.recovery.sweeping)


def test_drain_waits_for_the_acks(js: JetStream, server: NatsServer) -> None:
    with Proxy(server.port) as proxy:
        nc = jsclient.connect(proxy.url)
        far = JetStream(nc)
        far.publish_async("s.a", b"first").result(5)
        proxy.stall("down")
        futures = [far.publish_async("s.a", b"x") for _ in range(50)]
        draining = threading.Thread(target=nc.drain, args=(30,))
        draining.start()
        wait_until(lambda: nc.state is jsclient.ConnectionState.DRAINING_PUBLISHES)
        with pytest.raises(errors.ConnectionDraining):
            far.publish_async("s.a", b"too late")
        assert not any(future.done() for future in futures)
        proxy.resume()
        draining.join(30)
        assert nc.closed
        assert [future.result(0).seq for future in futures] == list(range(2, 52))


def test_drain_waits_for_what_handlers_publish_to_the_end(js: JetStream, server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        own = JetStream(nc)
        futures: list[PublishFuture] = []
        nc.subscribe("work", lambda message: futures.append(own.publish_async("s.a", message.data)))
        nc.flush()
        for number in range(100):
            js.nc.publish("work", b"%d" % number)
        js.nc.flush()
        nc.drain(30)
        assert len({future.result(0).seq for future in futures}) == 100


def test_drain_waits_for_a_handler_that_is_the_first_to_publish(js: JetStream, server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        own = JetStream(nc)
        futures: list[PublishFuture] = []

        def handle(message: Msg) -> None:
            wait_until(lambda: nc.is_draining)
            nc.flush()  # by now the drain has asked what takes messages
            futures.extend(own.publish_async("s.a", b"%d" % number) for number in range(50))

        nc.subscribe("work", handle)
        nc.flush()
        js.nc.publish("work", b"begin")
        js.nc.flush()
        nc.drain(30)
        assert len({future.result(0).seq for future in futures}) == 50


def test_drain_says_that_acks_did_not_come_in_its_time(server: NatsServer, silent: str) -> None:
    nc = jsclient.connect(server.url)
    future = JetStream(nc).publish_async(silent, b"x")
    with pytest.raises(errors.DrainTimeout, match="1 published messages were not acknowledged"):
        nc.drain(0.3)
    assert nc.closed
    with pytest.raises((errors.PublishUnknown, errors.ConnectionClosed)):
        future.result(5)


@pytest.mark.parametrize("way", ["publish", "publish_async"])
def test_a_leader_that_is_just_stepping_down_is_tried_again(js: JetStream, server: NatsServer, way: str) -> None:
    """Servers say so without an err_code, and the message is not stored (seen with 2.10 in a rolling restart)."""
    answers = [
        b'{"error":{"code":503,"description":"raft: not leader"},"stream":"R","seq":0}',
        b'{"stream":"R","seq":7}',
    ]
    with jsclient.connect(server.url) as other:
        other.subscribe("raft.x", lambda message: message.respond(answers.pop(0)))
        other.flush()
        ack = js.publish("raft.x", b"1") if way == "publish" else js.publish_async("raft.x", b"1").result(10)
    assert ack.seq == 7
    assert not answers


def test_a_closed_publisher_publishes_nothing(js: JetStream) -> None:
    publisher = AsyncPublisher(js)
    publisher.publish("s.x", b"1").result(5)
    publisher.close()
    for subject in ("s.x", "s.new"):
        with pytest.raises(errors.NotStored, match="was closed"):
            publisher.publish(subject, b"2", msg_id="2")
    with pytest.raises(errors.NotStored, match="was closed"):
        publisher.publish_msg(PubMsg("s.x", b"3"))
    assert publisher.pending() == 0
    publisher.close()
    js.nc.flush()
    assert js.publish("s.x", b"4").seq == 2


def test_what_is_published_while_another_thread_closes_is_resolved(js: JetStream) -> None:
    for _ in range(20):
        publisher, over = AsyncPublisher(js), threading.Event()
        futures: list[PublishFuture] = []

        def publish(publisher: Any = publisher, futures: list[Any] = futures, over: Any = over) -> None:
            with contextlib.suppress(errors.NotStored):
                while not over.is_set():
                    futures.append(publisher.publish("s.x", b"1"))

        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(lambda: len(futures) > 20)  # noqa: B023
        publisher.in_flight.close()
        thread.join(5)
        over.set()
        assert not thread.is_alive()
        assert publisher.pending() == 0
        wait_until(lambda: all(future.done() for future in futures), 5)  # noqa: B023
