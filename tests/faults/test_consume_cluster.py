"""Consumption in a cluster whose leaders step down or die (reliability R6; findings 3 and 4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.consumer import Consumer
from jsclient.testing import Cluster, NatsServer, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


def made(js: JetStream, heartbeat_wait: float = 2.0) -> Consumer:
    wait_until(lambda: has_stream(js), 30)
    config = ConsumerConfig(durable_name="C", ack_wait=heartbeat_wait, max_ack_pending=500)
    return js.create_consumer("W", config, timeout=20)


def has_stream(js: JetStream) -> bool:
    """Servers that have just met may still count each other as offline."""
    try:
        js.create_stream(StreamConfig(name="W", subjects=["w.>"], num_replicas=3), timeout=20)
    except errors.JsClientError:
        return False
    return True


def leader(cluster: Cluster, consumer: Consumer) -> NatsServer:
    info = wait_until(lambda: has_leader(consumer), 30)
    return cluster.by_name(info)


def has_leader(consumer: Consumer) -> str:
    try:
        found = consumer.info(timeout=2).cluster
    except errors.JsClientError:
        return ""
    return (found.leader or "") if found is not None else ""


def publish(js: JetStream, first: int, count: int) -> None:
    for number in range(first, first + count):
        js.publish("w.x", b"%d" % number, msg_id=str(number), timeout=30)


def test_a_leader_that_steps_down_is_noticed_at_once(cluster: Cluster) -> None:
    with jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        consumer = made(js)
        reported: list[tuple[float, Exception]] = []
        with consumer.messages(heartbeat=1, on_error=lambda e: reported.append((time.monotonic(), e))) as messages:
            publish(js, 1, 10)
            for _ in range(10):
                messages.next(timeout=10).ack()
            started = time.monotonic()
            js.api.request("CONSUMER.LEADER.STEPDOWN.W.C")
            with pytest.raises(errors.NoMessages):
                messages.next(timeout=4)
            publish(js, 11, 10)
            for _ in range(10):
                messages.next(timeout=15).ack()
        assert reported
        at, error = reported[0]
        assert isinstance(error, (errors.ConsumerLeadershipChanged, errors.NoHeartbeat))
        assert at - started < 3.5


def test_the_death_of_the_leader_is_survived(cluster: Cluster, count: Callable[[int, int], int]) -> None:
    total, kills = count(1000, 200), count(4, 1)
    with jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        consumer = made(js)
        publish(js, 1, total)
        seen: set[int] = set()
        longest, last = 0.0, time.monotonic()
        errors_seen: list[Exception] = []

        def run() -> None:
            nonlocal longest, last
            with consumer.messages(max_messages=20, heartbeat=1, on_error=errors_seen.append) as messages:
                for message in messages:
                    now = time.monotonic()
                    longest, last = max(longest, now - last), now
                    seen.add(int(message.data))
                    message.ack()
                    if len(seen) == total:
                        return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        for number in range(1, kills + 1):
            target = total * number // (kills + 1)
            wait_until(lambda target=target: len(seen) >= target, 60)
            victim = leader(cluster, consumer)
            victim.kill()
            wait_until(lambda target=target: len(seen) > target + 20 or len(seen) == total, 60)
            victim.start()
            cluster.wait_ready()
        thread.join(120)
        assert not thread.is_alive()
        assert seen == set(range(1, total + 1))
        assert longest < 15
        assert not [error for error in errors_seen if isinstance(error, errors.ConsumerDeleted)]


def test_an_ordered_consumer_survives_the_death_of_its_leader(cluster: Cluster) -> None:
    with jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        made(js)
        publish(js, 1, 100)
        ordered = js.stream("W").ordered_consumer()
        with ordered.messages(max_messages=10, heartbeat=1, on_error=lambda error: None) as messages:
            seen = [int(messages.next(timeout=10).data) for _ in range(50)]
            found = ordered.info().cluster
            assert found is not None
            victim = cluster.by_name(found.leader or "")
            victim.kill()
            seen += [int(messages.next(timeout=30).data) for _ in range(50)]
            publish(js, 101, 10)
            seen += [int(messages.next(timeout=30).data) for _ in range(10)]
            victim.start()
            cluster.wait_ready()
        assert seen == list(range(1, 111))
