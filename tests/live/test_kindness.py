"""What servers are spared: herds, hasty clients, clients that come back to one that is going."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import ReconnectPolicy
from jsclient.testing import FakeServer, NatsServer, ScriptFailed, wait_until

Count = Callable[[int, int], int]


def answer_pings(client: Any) -> None:
    try:
        while True:
            client.expect(b"PING\r\n", timeout=60)
            client.send(b"PONG\r\n")
    except ScriptFailed:
        pass


def test_a_server_that_flaps_is_dialled_every_two_seconds(count: Count) -> None:
    dialled: list[float] = []

    def flap(client: Any) -> None:
        dialled.append(time.monotonic())
        client.handshake()

    with FakeServer(flap) as fake, jsclient.connect(fake.url):
        wait_until(lambda: len(dialled) >= count(6, 3), 20)
    assert min(later - earlier for earlier, later in itertools.pairwise(dialled)) > 1.95


def test_force_reconnect_in_a_back_off_dials_now() -> None:
    with NatsServer(jetstream=False) as server:
        asked = threading.Event()

        def delay(number: int) -> float:
            asked.set()
            return 60.0

        with jsclient.connect(server.url, reconnect=ReconnectPolicy(delay=delay)) as nc:
            nc.flush()
            server.stop()
            assert asked.wait(10)
            server.start()
            assert not nc.is_connected
            start = time.monotonic()
            nc.force_reconnect()
            nc.flush(timeout=5)
            assert time.monotonic() - start < 2
            assert nc.stats().reconnects == 1


def test_the_addresses_of_a_name_are_shuffled(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that know a cluster by one name would all go to the first address that the resolver gives."""
    dead = [f"127.0.0.{number}" for number in range(2, 9)]
    original = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != "many.test":
            return original(host, port, *args, **options)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in dead]
        return [*found, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    tried: list[str] = []
    connect_ex = socket.socket.connect_ex

    class Watched(socket.socket):
        def connect_ex(self, address: Any) -> int:
            tried.append(address[0])
            return connect_ex(self, address)

    monkeypatch.setattr(socket, "socket", Watched)
    firsts = set()
    for _ in range(12):
        tried.clear()
        with jsclient.connect(f"nats://many.test:{server.port}") as nc:
            nc.flush()
        firsts.add(tried[0])
    assert len(firsts) > 2
    tried.clear()
    with jsclient.connect(f"nats://many.test:{server.port}", randomize=False):
        assert tried == [*dead, "127.0.0.1"]


def test_the_users_server_is_found_among_dead_ones() -> None:
    """Dead as in a black hole: each would cost connect_timeout."""
    hole = socket.create_server(("0.0.0.0", 0), backlog=0)  # all of 127.0.0.0/8
    port = hole.getsockname()[1]
    fill = []
    for _ in range(4):  # the kernel takes these, and answers nobody after them
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        fill.append(one)
    urls = [f"127.{number >> 8}.{number & 255}.1:{port}" for number in range(1000)]
    drop = threading.Event()

    def first(client: Any) -> None:
        client.handshake(connect_urls=urls)
        client.expect(b"PING\r\n")
        client.send(b"PONG\r\n")
        drop.wait(30)

    def again(client: Any) -> None:
        client.handshake()
        answer_pings(client)

    try:
        with FakeServer(first, again) as fake, jsclient.connect(fake.url, connect_timeout=0.5) as nc:
            nc.flush()
            assert len(nc.servers) <= 101
            start = time.monotonic()
            drop.set()
            wait_until(lambda: nc.stats().reconnects == 1, 20)
            nc.flush()
            assert time.monotonic() - start < 6
    finally:
        for one in [*fill, hole]:
            one.close()
