"""Several servers: discovery, failover, lame duck, a pool changed at run time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import Cluster, FakeServer, NatsServer, ScriptFailed, info_line, wait_until

LAME = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "10s"\n'


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(jetstream=False, config=LAME) as running:
        yield running


@pytest.fixture
def whole(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with all servers running, again after the test."""
    cluster.start()
    yield cluster
    cluster.start()


def flushes(nc: jsclient.Connection) -> bool:
    try:
        nc.flush(timeout=5)
    except errors.ConnectionLost:
        return False
    return True


def test_servers_are_discovered_and_a_connection_survives_its_own(whole: Cluster) -> None:
    told: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    first = whole.servers[0]
    with jsclient.connect(first.url, on_discovered_servers=lambda _, urls: told.put(urls)) as nc:
        wait_until(lambda: len(nc.servers) == 3)
        assert set(nc.servers) == set(whole.urls)
        assert set(told.get(timeout=5)) <= set(whole.urls)
        sub = nc.subscribe("alive")
        nc.flush()
        first.kill()
        wait_until(lambda: nc.stats().reconnects == 1 and flushes(nc), 10)
        assert nc.connected_url in {server.url for server in whole.servers[1:]}
        nc.publish("alive", b"x")
        assert sub.next(timeout=5).data == b"x"


def test_discovery_can_be_ignored(whole: Cluster) -> None:
    with jsclient.connect(whole.servers[0].url, ignore_discovered=True) as nc:
        nc.flush()
        assert nc.servers == [whole.servers[0].url]


def test_a_server_that_leaves_the_cluster_leaves_the_pool(whole: Cluster) -> None:
    with jsclient.connect(whole.servers[0].url) as nc:
        wait_until(lambda: len(nc.servers) == 3)
        whole.servers[2].stop()
        wait_until(lambda: whole.servers[2].url not in nc.servers, 10)
        whole.servers[2].start()
        wait_until(lambda: whole.servers[2].url in nc.servers, 20)


def test_lame_duck_moves_to_another_server_before_being_closed(whole: Cluster) -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    ducks = jsclient.connect(
        whole.servers[0].url,
        on_lame_duck=lambda nc: told.put("lame"),
        on_disconnected=lambda nc, error: told.put(str(error)),
        on_reconnected=lambda nc: told.put("up"),
    )
    with ducks as nc:
        wait_until(lambda: len(nc.servers) == 3)
        sub = nc.subscribe("duck")
        nc.flush()
        whole.servers[0].lame_duck()
        assert told.get(timeout=5) == "lame"
        assert told.get(timeout=10) == "up", "the application is not told of a link that goes after the next one stands"
        assert nc.connected_url in {server.url for server in whole.servers[1:]}
        nc.publish("duck", b"x")
        assert sub.next(timeout=5).data == b"x"
        for _ in range(3):
            reconnects = nc.stats().reconnects
            nc.force_reconnect()
            wait_until(lambda least=reconnects: nc.stats().reconnects > least and flushes(nc))  # type: ignore[misc]
            assert nc.connected_url != whole.servers[0].url, "never back to the one that is going"
    whole.servers[0].kill()


def test_a_lame_duck_without_alternative_is_kept(server: NatsServer) -> None:
    go = threading.Event()

    def script(client: Any) -> None:
        client.handshake()
        go.wait(10)
        client.send(info_line(ldm=True))
        try:
            while True:
                client.expect(b"PING\r\n")
                client.send(b"PONG\r\n")
        except ScriptFailed:
            pass

    told = threading.Event()
    with FakeServer(script) as fake, jsclient.connect(fake.url, on_lame_duck=lambda nc: told.set()) as nc:
        go.set()
        assert told.wait(5)
        nc.flush()
        assert nc.stats().reconnects == 0


def test_the_pool_can_be_replaced(whole: Cluster) -> None:
    with jsclient.connect(whole.servers[0].url, ignore_discovered=True) as nc:
        nc.set_servers([whole.servers[1].url])
        nc.force_reconnect()
        wait_until(lambda: nc.stats().reconnects == 1 and flushes(nc))
        assert nc.connected_url == whole.servers[1].url
        with pytest.raises(errors.ConfigError):
            nc.set_servers("http://nonsense")


def test_users_of_a_random_pool_spread_and_an_ordered_one_does_not(whole: Cluster) -> None:
    seen = set()
    for _ in range(12):
        with jsclient.connect(whole.url) as nc:
            seen.add(nc.connected_url)
        with jsclient.connect(whole.url, randomize=False) as nc:
            assert nc.connected_url == whole.servers[0].url
    assert len(seen) > 1


def test_rolling_restart_under_load(whole: Cluster) -> None:
    """Every server restarts once; publishers and a subscriber go on, and the order is kept."""
    with jsclient.connect(whole.url) as nc, jsclient.connect(whole.url) as other:
        sub = other.subscribe("rolling")
        other.flush()
        stop = threading.Event()
        failures: list[BaseException] = []

        def publish() -> None:
            number = 0
            try:
                while not stop.wait(0.0005):
                    nc.publish("rolling", b"%d" % number)
                    number += 1
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        for one in whole.servers:
            one.stop()
            one.start()
            wait_until(lambda: flushes(nc) and flushes(other), 20)
            before = sub.pending
            wait_until(lambda before=before: sub.pending > before + 10, 20)  # type: ignore[misc]
        stop.set()
        thread.join(5)
        assert not failures
        got = [int(sub.next(timeout=0).data) for _ in range(sub.pending)]
        assert got == sorted(set(got))
