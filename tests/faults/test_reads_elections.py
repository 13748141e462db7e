"""What a reader notices of servers that die or leave: no more than a publisher, and hardly anything of lame ducks."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import Cluster, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

LAME_DUCK = "lame_duck_duration: 30s\nlame_duck_grace_period: 1s\n"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config=LAME_DUCK) as running:
        yield running


def make_stream(js: JetStream) -> bool:
    try:
        js.create_stream(StreamConfig(name="W", subjects=["w.>"], num_replicas=3), timeout=20)
    except errors.JsClientError:
        return False
    return True


class Publisher:
    """Publishes until it is closed, and notes when."""

    def __init__(self, url: str) -> None:
        self.at: list[float] = []
        self._nc = jsclient.connect(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        js, number = JetStream(self._nc), 0
        while not self._stop.wait(0.02):
            js.publish("w.a", b"%d" % number, msg_id=str(number), timeout=60)
            number += 1
            self.at.append(time.monotonic())

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        self._nc.close()


class Prober:
    """Asks for a consumer again and again, and notes when one was made: then the servers can do it for anybody."""

    def __init__(self, url: str) -> None:
        self.at: list[float] = []
        self._nc = jsclient.connect(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        config = {"ack_policy": "none", "deliver_policy": "new", "mem_storage": True, "num_replicas": 1}
        config["inactive_threshold"] = 1_000_000_000
        body = json.dumps({"stream_name": "W", "config": config}).encode()
        while not self._stop.wait(0.2):
            with contextlib.suppress(errors.JsClientError):
                if b'"name"' in self._nc.request("$JS.API.CONSUMER.CREATE.W", body, timeout=0.5).data:
                    self.at.append(time.monotonic())

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._nc.close()


def longest_gap(times: list[float], since: float) -> float:
    after = [at for at in times if at > since - 1]
    return max(later - earlier for earlier, later in itertools.pairwise(after))


@pytest.mark.parametrize(("how", "kind"), [("kill", "pulled"), ("lame duck", "pulled"), ("lame duck", "pushed")])
def test_an_ordered_read_whose_server_leaves(cluster: Cluster, how: str, kind: str) -> None:
    """It goes on within two seconds of the moment at which the servers make consumers, and store messages, again."""
    with jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        wait_until(lambda: make_stream(js), 60)
        publisher, prober = Publisher(cluster.url), Prober(cluster.url)
        read: list[float] = []
        consumer: Any = js.ordered_consumer("W") if kind == "pulled" else js.stream("W").ordered_push_consumer()
        with consumer.messages(on_error=lambda error: None) as messages:
            thread = threading.Thread(target=lambda: read.extend(time.monotonic() for _ in messages), daemon=True)
            thread.start()
            wait_until(lambda: len(read) > 20 and len(prober.at) > 3, 20)
            found = next(js.consumers("W")).cluster
            host = cluster.by_name(found.leader if found and found.leader else "")
            since = time.monotonic()
            host.kill() if how == "kill" else host.lame_duck()
            wait_until(lambda: time.monotonic() - since > 15 and len(read) > 100, 60)
            publisher.close()
            prober.close()
            wait_until(lambda: len(read) >= len(publisher.at), 30)
            messages.stop()
            thread.join(10)
        gaps = {"read": longest_gap(read, since), "publish": longest_gap(publisher.at, since)}
        gaps["create"] = longest_gap(prober.at, since)
        print(how, gaps)
        assert gaps["read"] < max(gaps["publish"], gaps["create"]) + 2.0, gaps


def test_fetches_during_the_elections_of_others_wait(cluster: Cluster) -> None:
    with jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        wait_until(lambda: make_stream(js), 60)
        consumer = js.create_consumer("W", ConsumerConfig(durable_name="C"), timeout=20)
        victim = cluster.servers[0]

        def leader() -> str:
            found = consumer.info(timeout=2).cluster
            return (found.leader or "") if found else ""

        def elsewhere() -> bool:
            """The consumer's leader is not the server that we are connected to."""
            nonlocal victim
            victim = cluster.by_name(wait_until(leader, 20))
            if victim.url.rpartition(":")[2] == nc.connected_url.rpartition(":")[2]:
                nc.force_reconnect()
                return False
            return True

        wait_until(elsewhere, 30)
        victim.kill()
        got = calls = 0
        started = time.monotonic()
        while time.monotonic() - started < 12:
            calls += 1
            js.publish("w.a", b"x", timeout=30)
            for message in consumer.fetch(1, timeout=20):  # raises nothing
                message.ack()
                got += 1
        assert calls > 100
        assert got >= calls - 3  # what was on its way from the dead server comes again later
