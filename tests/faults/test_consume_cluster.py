"""Consumption in a cluster while leaders step down or die (reliability R6; findings 3 and 4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.pauses import time_passes

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


HEARTBEAT = 1.0
TOLERANCE = 0.3  # of the scheduler

Told = list[tuple[float, Exception]]
LEADER_LOST = (errors.ConsumerLeadershipChanged, errors.NoHeartbeat)


def note(told: Told) -> Callable[[Exception], None]:
    return lambda error: told.append((time.monotonic(), error))


def readings(js: JetStream, pushed: bool) -> tuple[list[Told], Callable[[], None]]:
    """Every way of reading from "C" at once, each with what it is told; and what ends them."""
    if pushed:
        by_push: Told = []
        running = js.push_consumer("W", "C").consume(lambda message: message.ack(), on_error=note(by_push))
        return [by_push], running.close
    by_messages: Told = []
    by_consume: Told = []
    by_fetch: Told = []
    consumer = js.consumer("W", "C")
    stop = threading.Event()

    def fetch() -> None:
        while not stop.is_set():
            try:
                batch = consumer.fetch(10, timeout=3, heartbeat=HEARTBEAT)
            except errors.JsClientError as error:
                note(by_fetch)(error)
            else:
                for message in batch:
                    message.ack()
                if batch.error is not None:
                    note(by_fetch)(batch.error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    one = consumer.consume(lambda message: message.ack(), heartbeat=HEARTBEAT, on_error=note(by_consume))
    other = consumer.messages(heartbeat=HEARTBEAT, on_error=note(by_messages))

    def take() -> None:
        for message in other:
            message.ack()

    taking = threading.Thread(target=take, daemon=True)
    taking.start()

    def end() -> None:
        stop.set()
        one.close()
        other.stop()
        taking.join(10)
        thread.join(10)

    return [by_messages, by_consume, by_fetch], end


@pytest.mark.parametrize("how", ["step down", "kill"])
@pytest.mark.parametrize("pushed", [False, True], ids=["pull", "push"])
def test_the_loss_of_the_leader_is_told_within_two_heartbeats(cluster: Cluster, how: str, pushed: bool) -> None:
    with jsclient.connect(cluster.url) as admin:
        wait_until(lambda: has_stream(JetStream(admin)), 30)
        config = ConsumerConfig(durable_name="C", ack_wait=2.0)
        if pushed:
            config = config.replace(deliver_subject="deliver.here", idle_heartbeat=HEARTBEAT)
        js = JetStream(admin)
        (js.create_push_consumer if pushed else js.create_consumer)("W", config, timeout=20)
        lead = wait_until(lambda: lead_of(js), 30)
    victim = cluster.by_name(lead)
    bystander = next(server for server in cluster.servers if server is not victim)
    with jsclient.connect(bystander.url, ignore_discovered=True) as nc:
        js = JetStream(nc)
        reported, end = readings(js, pushed)
        try:
            publish(js, 1, 10)
            wait_until(lambda: js.consumer_info("W", "C").ack_floor.stream_seq == 10, 10)
            time_passes(0.2, "every pull is out; the server does not tell")
            since = time.monotonic()
            if how == "kill":
                victim.kill()
            else:
                js.api.request("CONSUMER.LEADER.STEPDOWN.W.C")
            if how == "step down":
                # A fetch pulls again by itself, and to a push consumer the next leader sends at once.
                reported = [] if pushed else reported[:2]
            for told in reported:
                at, error = wait_until(lambda told=told: told[0] if told else None, 6)  # type: ignore[misc]
                assert isinstance(error, LEADER_LOST), error
                assert at - since <= 2 * HEARTBEAT + TOLERANCE, f"{error!r} after {at - since:.2f} s"
            publish(js, 11, 10)
            wait_until(lambda: acked(js) == 20, 20)
        finally:
            end()


def lead_of(js: JetStream) -> str:
    try:
        found = js.consumer_info("W", "C", timeout=2).cluster
    except errors.JsClientError:
        return ""
    return (found.leader or "") if found is not None else ""


def acked(js: JetStream) -> int:
    try:
        return js.consumer_info("W", "C", timeout=2).ack_floor.stream_seq
    except errors.JsClientError:
        return 0


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
            wait_until(lambda target=target: len(seen) >= target, 60)  # type: ignore[misc]
            victim = leader(cluster, consumer)
            victim.kill()
            wait_until(lambda target=target: len(seen) > target + 20 or len(seen) == total, 60)  # type: ignore[misc]
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
