"""Finite pulls against a real server."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.advisories import ConsumerUnpinned
from jsclient.jetstream.consumer import Consumer
from jsclient.jetstream.consuming.fetch import BatchEnd
from jsclient.jetstream.consuming.pull_inboxes import pool_of
from jsclient.jetstream.consuming.pull_options import FETCH_BYTES
from jsclient.jetstream.consuming.sources import source_of
from jsclient.testing import LeafPair, NatsServer, Proxy, wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="F", subjects=["f.>"], storage="memory"))
    return js


def publish(js: JetStream, count: int, subject: str = "f.a", size: int = 10) -> None:
    for number in range(1, count + 1):
        js.nc.publish(subject, (b"%d " % number).ljust(size, b"."))
    js.nc.flush()


def durable(js: JetStream, **config: Any) -> Consumer:
    return js.create_consumer("F", ConsumerConfig(durable_name="C", **config))


def old(server: NatsServer, version: tuple[int, int]) -> bool:
    return server.version[:2] < version


def test_fetch_returns_as_soon_as_it_has_what_was_asked_for(js: JetStream) -> None:
    publish(js, 20)
    batch = durable(js).fetch(10)
    assert len(batch) == 10
    assert batch
    assert (batch.ended, batch.error) == (BatchEnd.COMPLETE, None)
    assert [int(m.data[:2]) for m in batch] == list(range(1, 11))
    assert batch[0] is batch[0]
    assert batch[-1].metadata.stream_seq == 10
    assert len(batch[2:4]) == 2
    assert "10 messages" in repr(batch)


def test_fetch_returns_what_there_is_at_the_timeout(js: JetStream) -> None:
    publish(js, 3)
    started = time.monotonic()
    batch = durable(js).fetch(10, timeout=0.5)
    assert 0.4 < time.monotonic() - started < 2
    assert len(batch) == 3
    assert (batch.ended, batch.error) == (BatchEnd.TIMEOUT, None)


def test_an_empty_fetch_from_afar_is_no_error_either(server: NatsServer, js: JetStream) -> None:
    """The status that ends the pull comes after the timeout; heartbeats that came in time are no silence."""
    durable(js)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        consumer = JetStream(nc).consumer("F", "C")
        proxy.delay(0.15)
        for _ in range(2):
            batch = consumer.fetch(10, timeout=2, heartbeat=0.9)
            assert (len(batch), batch.ended, batch.error) == (0, BatchEnd.TIMEOUT, None)


@pytest.mark.parametrize("call", [lambda c: c.fetch_no_wait(10), lambda c: c.fetch(10, timeout=0)])
def test_fetch_without_waiting(js: JetStream, call: object) -> None:
    consumer = durable(js)
    started = time.monotonic()
    batch = call(consumer)  # type: ignore[operator]
    assert not batch
    assert batch.ended is BatchEnd.NO_MESSAGES
    publish(js, 3)
    # The server acknowledges a publish before its consumers have heard of the message.
    wait_until(lambda: consumer.info().num_pending == 3)
    batch = call(consumer)  # type: ignore[operator]
    assert len(batch) == 3
    assert batch.ended is BatchEnd.NO_MESSAGES
    assert time.monotonic() - started < 2
    assert consumer.info().num_waiting == 0


@pytest.mark.slow
def test_a_fetch_that_does_not_wait_stops_at_max_ack_pending(js: JetStream) -> None:
    """The server leaves such a pull open until something is acked: what came is returned, and the pull is dropped."""
    publish(js, 30)
    consumer = durable(js, max_ack_pending=10)
    started = time.monotonic()
    batch = consumer.fetch_no_wait(30)
    assert time.monotonic() - started < 1
    assert (len(batch), batch.error) == (10, None)
    with pytest.raises(errors.ReadStalled):
        consumer.fetch_no_wait(30)
    assert time.monotonic() - started < 3
    assert consumer.info().num_waiting == 0
    for message in batch:
        message.double_ack(timeout=5)
    assert [message.metadata.stream_seq for message in consumer.fetch_no_wait(30)] == list(range(11, 21))


def test_no_wait_then_takes_what_is_there_or_waits_for_the_first(js: JetStream) -> None:
    consumer = durable(js)
    publish(js, 3)
    wait_until(lambda: consumer.info().num_pending == 3, 5)  # a PONG may come before the last one is stored
    assert len(consumer.fetch(10, no_wait_then=5)) == 3
    timer = threading.Timer(0.2, publish, (js, 1))
    timer.start()
    started = time.monotonic()
    assert len(consumer.fetch(10, no_wait_then=10)) == 1
    assert 0.1 < time.monotonic() - started < 5
    timer.join()
    assert not consumer.fetch(10, no_wait_then=0.2)
    with pytest.raises(errors.ConfigError):
        consumer.fetch(10, timeout=1, no_wait_then=1)


def test_after_a_timed_out_fetch_the_next_one_gets_the_message(js: JetStream) -> None:
    """nats.py #933: an orphan pull swallowed what the next fetch waited for."""
    consumer = durable(js, ack_wait=30.0)
    for round_ in range(5):
        assert not consumer.fetch(5, timeout=0.05)
        publish(js, 1)
        started = time.monotonic()
        (message,) = consumer.fetch(1, timeout=5)
        assert time.monotonic() - started < 1, round_
        message.ack()


def test_next(js: JetStream) -> None:
    consumer = durable(js)
    publish(js, 1)
    assert consumer.next(timeout=5).data.startswith(b"1")
    with pytest.raises(errors.NoMessages):
        consumer.next(timeout=0.1)
    with pytest.raises(TimeoutError):
        consumer.next(timeout=0)


def test_fetch_bytes(js: JetStream) -> None:
    publish(js, 20, size=100)
    consumer = durable(js)
    batch = consumer.fetch_bytes(1000, timeout=2)
    assert 0 < sum(message.size for message in batch) <= 1000
    assert batch.ended is BatchEnd.MAX_BYTES
    with pytest.raises(errors.MaxBytesExceeded, match="10"):
        consumer.fetch_bytes(10, timeout=2)
    assert len(consumer.fetch(2, max_bytes=100_000)) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_messages": 0},
        {"max_messages": 2_000_000},
        {"timeout": -1},
        {"timeout": 4, "heartbeat": 3},
        {"timeout": 4, "heartbeat": 0.01},
        {"max_messages": 2.5},
        {"max_bytes": -1},
        {"priority": 1},
        {"min_pending": 5},
        {"group": "g", "priority": 10},
    ],
)
def test_wrong_arguments_are_refused(js: JetStream, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        durable(js).fetch(**arguments)


def test_many_fetches_use_one_subscription(js: JetStream) -> None:
    publish(js, 300)
    consumer = durable(js)
    consumer.fetch(1)
    inboxes = list(pool_of(js.nc).idle)
    for _ in range(10):
        for message in consumer.fetch(20):
            message.ack()
    assert not consumer.fetch_no_wait(200)[199:]
    assert list(pool_of(js.nc).idle) == inboxes
    assert len(inboxes) == 1


def test_threads_fetch_at_once(js: JetStream) -> None:
    publish(js, 1000)
    consumer = durable(js)
    seen: list[int] = []

    def run() -> None:
        while len(seen) < 1000:
            for message in consumer.fetch(10, timeout=0.5):
                message.ack()
                seen.append(message.metadata.stream_seq)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 1001))


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_of_a_deleted_stream_nothing_is_said_to_stay(js: JetStream, when: str) -> None:
    publish(js, 3)
    consumer = durable(js, max_ack_pending=1)
    consumer.next(timeout=5)
    timer = threading.Timer(0.2 if when == "meanwhile" else 0.0, js.delete_stream, ("F",))
    timer.start()
    if when == "before":
        timer.join()
    with pytest.raises(errors.JetStreamError) as caught:
        consumer.fetch(1, timeout=5, heartbeat=0.5)
    timer.join()
    js.create_stream(StreamConfig(name="F", subjects=["f.>"], storage="memory"))
    for said in ("stay in the stream", "still in the stream", "stream is unchanged", "Nothing is lost"):
        assert said not in str(caught.value)


def test_what_was_received_is_returned_although_the_fetch_failed(js: JetStream) -> None:
    publish(js, 3)
    consumer = durable(js)
    timer = threading.Timer(0.3, js.delete_consumer, ("F", "C"))
    timer.start()
    batch = consumer.fetch(10, timeout=20, heartbeat=1)
    timer.join()
    assert len(batch) == 3
    assert batch.ended is BatchEnd.ERROR
    assert isinstance(batch.error, errors.ConsumerDeleted)


@pytest.mark.slow
def test_limits_of_the_consumer(js: JetStream) -> None:
    consumer = durable(js, max_batch=5, max_expires=1.0)
    with pytest.raises(errors.BadPullRequest, match="MaxRequestBatch"):
        consumer.fetch(10)
    started = time.monotonic()
    assert not consumer.fetch(5, timeout=2.5)  # lives longer than one pull may
    assert 2.2 < time.monotonic() - started < 4
    with consumer.messages() as messages, pytest.raises(errors.NoMessages):
        messages.next(timeout=0.3)


def test_a_fetch_lives_through_a_reconnect(server: NatsServer, js: JetStream) -> None:
    durable(js)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        consumer = JetStream(nc).consumer("F", "C")
        publish(js, 2)

        def later() -> None:
            wait_until(lambda: consumer.info().num_ack_pending == 2, 5)
            subscriptions = server.monitor("subsz")["num_subscriptions"]
            proxy.cut()
            # Until the server has forgotten the dead link, it would hand new messages to that one's pull. To look at
            # the list of connections alone was not enough once on a busy machine.
            wait_until(lambda: nc.stats().reconnects == 1 and server.monitor("connz")["num_connections"] == 2, 5)
            nc.flush(5)
            wait_until(lambda: server.monitor("subsz")["num_subscriptions"] == subscriptions, 5)
            publish(js, 2)

        thread = threading.Thread(target=later)
        thread.start()
        batch = consumer.fetch(4, timeout=15)
        thread.join()
        assert len(batch) == 4
        assert len({message.metadata.stream_seq for message in batch}) == 4


def test_without_permission_to_pull_the_reason_is_told(server: NatsServer) -> None:
    denied = 'permissions: { publish: { deny: "$JS.API.CONSUMER.MSG.NEXT.>" } }'
    config = f"authorization {{ users: [ {{ user: u, password: p, {denied} }} ] }}"
    with NatsServer(config) as strict, jsclient.connect(strict.url, user="u", password="p") as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="F", subjects=["f.>"], storage="memory"))
        consumer = durable(js)
        started = time.monotonic()
        with pytest.raises(errors.PermissionViolation):
            consumer.fetch(1, timeout=10)
        with consumer.messages() as messages, pytest.raises(errors.PermissionViolation):
            messages.next(timeout=10)
        assert time.monotonic() - started < 2


def test_a_cut_leaf_link_is_told_at_once() -> None:
    with LeafPair() as pair, jsclient.connect(pair.leaf.url) as nc:
        js = JetStream(nc, domain="hub")
        js.create_stream(StreamConfig(name="F", subjects=["f.>"], storage="memory"))
        consumer = durable(js)
        js.publish("f.a", b"1")
        assert len(consumer.fetch(1, timeout=5)) == 1
        pair.hub.stop()
        wait_until(lambda: pair.leaf.monitor("leafz").get("leafnodes", 0) == 0, 10)
        for call in (consumer.fetch, consumer.next, lambda: consumer.fetch_no_wait(5)):
            started = time.monotonic()
            with pytest.raises(errors.NoResponders):
                call()
            assert time.monotonic() - started < 0.1


def test_priority_groups(js: JetStream, server: NatsServer) -> None:
    config = ConsumerConfig(durable_name="P", priority_groups=["g"], priority_policy="overflow")
    if old(server, (2, 11)):
        with pytest.raises(errors.NotSupported):
            js.create_consumer("F", config)
        return
    consumer = js.create_consumer("F", config)
    publish(js, 10)
    assert not consumer.fetch(5, timeout=0.3, group="g", min_pending=100)
    assert len(consumer.fetch(5, timeout=2, group="g", min_pending=5)) == 5
    with pytest.raises(errors.BadPullRequest, match="Priority Group missing"):
        consumer.fetch(5, timeout=2)


def test_a_pinned_client_keeps_its_pin(js: JetStream, server: NatsServer) -> None:
    if old(server, (2, 11)):
        return
    config = ConsumerConfig(durable_name="P", priority_groups=["g"], priority_policy="pinned_client")
    consumer = js.create_consumer("F", config)
    publish(js, 30)
    assert len(consumer.fetch(5, group="g", timeout=2)) == 5
    assert source_of(consumer).pins["g"]
    assert len(consumer.fetch(5, group="g", timeout=2)) == 5
    other = js.consumer("F", "P")
    assert not other.fetch(5, group="g", timeout=0.3)
    js.unpin_consumer("F", "P", "g")
    assert len(other.fetch(5, group="g", timeout=2)) == 5
    assert not consumer.fetch(5, group="g", timeout=0.5)  # 423: it forgets its pin, asks again, and waits


@pytest.mark.slow
def test_two_healthy_clients_do_not_take_the_pin_from_each_other(js: JetStream, server: NatsServer) -> None:
    """The server counts from the last pull, and a pull of 30 s says nothing for 30 s."""
    if old(server, (2, 11)):
        return
    config = ConsumerConfig(
        durable_name="P", priority_groups=["g"], priority_policy="pinned_client", priority_timeout=2.0
    )
    consumer = js.create_consumer("F", config)
    with js.advisories(ConsumerUnpinned) as unpins, consumer.consume(lambda message: message.ack(), group="g"):
        publish(js, 1)
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 1)
        other = js.consumer("F", "P").consume(lambda message: message.ack(), group="g")
        with other, pytest.raises(errors.TimedOut):
            unpins.next(timeout=6)


def test_handles_without_a_round_trip(js: JetStream) -> None:
    durable(js)
    publish(js, 2)
    sent: list[str] = []
    quiet = JetStream(js.nc, on_request=lambda subject, *_: sent.append(subject))
    consumer = quiet.consumer("F", "C", fetch_info=False)
    (message,) = consumer.fetch(1, timeout=1)
    message.ack()
    with consumer.messages() as messages:
        assert messages.next(timeout=5).metadata.stream_seq == 2
    assert sent == []
    assert consumer.cached_info is None


@pytest.mark.parametrize("timeout", [20, 0])
def test_many_large_messages_come_in_several_pulls(js: JetStream, timeout: float) -> None:
    """All at once would be more than a server lets wait for a connection: it would cut the link off."""
    stream = js.create_stream(StreamConfig(name="MANYLARGE", subjects=["ml"], storage="memory"))
    for _ in range(3000):
        js.publish_async("ml", bytes(16 * 1024))
    js.publish_async_complete(30)
    consumer = stream.create_consumer(ConsumerConfig(ack_policy="none"))
    reconnects = js.nc.stats().reconnects
    batch = consumer.fetch(3000, timeout=timeout)
    assert (len(batch), batch.ended, batch.error) == (3000, BatchEnd.COMPLETE, None)
    assert [message.stream_seq for message in batch] == list(range(1, 3001))
    assert js.nc.stats().reconnects == reconnects
    js.delete_stream("MANYLARGE")


@pytest.mark.parametrize("timeout", [20, 0])
def test_a_message_that_is_larger_than_a_pull_comes_alone(timeout: float) -> None:
    with NatsServer("max_payload: 32MB") as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="LARGE", subjects=["LARGE"], storage="memory"))
        sizes = [1, FETCH_BYTES + 1, 1, 1, FETCH_BYTES + 1, 1]
        for size in sizes:
            js.publish("LARGE", bytes(size))
        consumer = stream.create_consumer(ConsumerConfig(ack_policy="none"))
        assert [len(message.data) for message in consumer.fetch(6, timeout=timeout)] == sizes


@pytest.mark.parametrize("waits", [True, False])
def test_bytes_of_a_pull_that_are_used_up_exactly_end_no_fetch(js: JetStream, waits: bool) -> None:
    """It stood still after four of eight, and said "timeout" (or "no messages") while the others were there."""
    for _ in range(9):
        js.publish("f.a", b"x" * 60_000)
    message = js.create_consumer("F", ConsumerConfig(durable_name="D")).fetch(1)[0].msg
    size = len(message.raw_subject) + len(message.raw_reply or b"") + len(message.data)
    consumer = durable(js, max_bytes=4 * size)
    batch = consumer.fetch(8, timeout=5) if waits else consumer.fetch_no_wait(8)
    assert (len(batch), batch.ended) == (8, BatchEnd.COMPLETE)
