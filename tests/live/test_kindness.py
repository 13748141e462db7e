"""What servers are spared: herds, hasty clients, clients that come back to one that is going."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import ReconnectPolicy, errors
from jsclient._connection import lame_duck
from jsclient.jetstream import Consumer, ConsumerConfig, JetStream, PublishFuture, StreamConfig
from jsclient.testing import Cluster, FakeServer, NatsServer, ScriptFailed, info_line, wait_until

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
        with contextlib.suppress(ScriptFailed):  # the last one may be closed in the middle
            client.handshake()

    with FakeServer(flap) as fake, jsclient.connect(fake.url):
        wait_until(lambda: len(dialled) >= count(6, 2), 20)
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


# --- lame duck mode

LAME = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "10s"\n'


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(jetstream=False, config=LAME) as running:
        yield running


def answers(nc: jsclient.Connection) -> bool:
    try:
        return bool(nc.request("ask", b"0").data)
    except errors.NoResponders:
        return False


@pytest.mark.slow
def test_a_lame_duck_is_left_without_a_herd_and_without_notice(cluster: Cluster, count: Count) -> None:
    """Requests and messages of the application go on while each connection moves at a moment of its own."""
    problems: list[Any] = []
    left: list[float] = []
    stop = threading.Event()
    lame, other = cluster.servers[0], cluster.servers[1]
    options: dict[str, Any] = {
        "on_disconnected": lambda nc, error: problems.append(error),
        "on_error": lambda nc, error, sub: problems.append(error),
        "on_reconnected": lambda nc: left.append(time.monotonic()),
        "randomize": False,
    }
    with (
        contextlib.ExitStack() as stack,
        jsclient.connect(other.url, ignore_discovered=True) as steady,
        jsclient.connect(lame.url, **options) as nc,
    ):
        herd = [stack.enter_context(jsclient.connect(lame.url, **options)) for _ in range(count(30, 10))]
        steady.subscribe("ask", lambda msg: msg.respond(msg.data))
        heard = steady.subscribe("told", pending_messages=1_000_000)
        steady.flush()
        wait_until(lambda: all(len(one.servers) == 3 for one in [*herd, nc]))
        wait_until(lambda: answers(nc))  # the interest has come through the cluster
        sent = [0]

        def work(kind: str) -> None:
            try:
                while not stop.is_set():
                    if kind == "request":
                        assert nc.request("ask", b"x", timeout=20).data == b"x"
                    elif kind == "flush":
                        nc.flush(timeout=20)
                    else:
                        nc.publish("told", b"%d" % sent[0])
                        sent[0] += 1
                        stop.wait(0.001)
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(kind,)) for kind in ("request", "request", "flush", "publish")]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        lame.lame_duck()
        wait_until(lambda: len(left) == len(herd) + 1, 15)
        stop.set()
        for thread in threads:
            thread.join(10)
        assert [thread for thread in threads if thread.is_alive()] == [], "a request or flush was not answered"
        nc.flush()
        steady.flush()
        assert problems == []
        assert [int(heard.next(timeout=5).data) for _ in range(sent[0])] == list(range(sent[0]))
        assert len(heard) == 0
        assert {one.connected_url for one in [*herd, nc]} <= {server.url for server in cluster.servers[1:]}
        assert max(left) - start < 8
        assert max(left) - min(left) > 1, "they left as a herd"
        for one in herd:
            one.close(wait=False)
        for one in herd:
            wait_until(lambda one=one: one.closed)  # type: ignore[misc]
    lame.kill()


def test_a_lame_duck_is_not_left_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lame_duck, "SPREAD", 0.1)
    told = threading.Event()
    go = threading.Event()

    def second(client: Any) -> None:
        client.handshake(ldm=True)
        answer_pings(client)

    with FakeServer(second) as worse:

        def first(client: Any) -> None:
            client.handshake(connect_urls=[f"127.0.0.1:{worse.port}"])
            go.wait(10)
            client.send(info_line(ldm=True, connect_urls=[f"127.0.0.1:{worse.port}"]))
            answer_pings(client)

        with FakeServer(first) as fake, jsclient.connect(fake.url, on_lame_duck=lambda nc: told.set()) as nc:
            wait_until(lambda: len(nc.servers) == 2)
            go.set()
            assert told.wait(5)
            wait_until(lambda: worse.clients and worse.clients[0].socket.fileno() < 0, 5)  # looked at, and left alone
            nc.flush()
            assert nc.connected_url == fake.url
            assert nc.stats().reconnects == 0


def test_what_is_under_way_is_answered_before_a_lame_duck_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inbox of requests stays subscribed to the end of the old link: a quick answer would find nobody."""
    monkeypatch.setattr(lame_duck, "SPREAD", 0.1)
    monkeypatch.setattr(lame_duck, "PATIENCE", 20.0)
    stands = threading.Event()
    sent: list[bytes] = []

    def second(client: Any) -> None:
        client.handshake()
        stands.set()
        answer_pings(client)

    with FakeServer(second) as other:

        def first(client: Any) -> None:
            client.handshake(connect_urls=[f"127.0.0.1:{other.port}"])
            client.expect(b"PUB ask ")
            reply = client.line().split()[0]
            client.expect(b"x\r\n")
            client.send(info_line(ldm=True, connect_urls=[f"127.0.0.1:{other.port}"]))
            assert stands.wait(10)
            client.send(b"MSG %s 1 1\r\ny\r\n" % reply)
            sent.append(client.expect(b"PING\r\n"))
            client.send(b"PONG\r\n")

        with FakeServer(first) as fake, jsclient.connect(fake.url) as nc:
            assert nc.request("ask", b"x", timeout=20).data == b"y"
            wait_until(lambda: nc.connected_url == other.url, 10)
    assert sent == [b"PING\r\n"], "no UNSUB of the inbox"


def created(js: JetStream, config: ConsumerConfig) -> Consumer | None:
    try:
        return js.create_or_update_consumer("MOVED", config, timeout=2)
    except errors.RequestTimeout:
        return None


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_lame_duck_is_left_in_mid_stream() -> None:
    """Asynchronous publishes without ids, a pull, acks: nothing fails, nothing is lost or stored twice."""
    with Cluster(config=LAME) as cluster:
        problems: list[Any] = []
        with (
            jsclient.connect(cluster.servers[1].url, ignore_discovered=True) as steady,
            jsclient.connect(
                cluster.servers[0].url,
                on_disconnected=lambda nc, error: problems.append(error),
                on_error=lambda nc, error, sub: problems.append(error),
            ) as nc,
        ):
            placed = {"storage": "memory", "subjects": ["moved.>"]}
            for _ in range(30):  # until its one replica is not on the server that goes
                stream = JetStream(steady).create_stream(StreamConfig(name="MOVED", **placed))  # type: ignore[arg-type]
                cluster_info = stream.info().cluster
                if cluster_info is not None and cluster_info.leader != cluster.servers[0].name:
                    break
                JetStream(steady).delete_stream("MOVED")
            js = JetStream(nc)
            config = ConsumerConfig(durable_name="C", ack_wait=30.0)
            consumer = wait_until(lambda: created(js, config), 30)  # a young cluster may miss a question
            moved = threading.Event()
            seen: list[bytes] = []

            def read() -> None:
                with consumer.messages() as messages:
                    for msg in messages:
                        if msg.data == b"end":
                            msg.ack()
                            return
                        seen.append(msg.data)
                        msg.ack()

            reader = threading.Thread(target=read)
            reader.start()
            cluster.servers[0].lame_duck()
            futures: list[PublishFuture] = []
            end = time.monotonic() + 20
            while time.monotonic() < end and len(futures) < 200_000:
                futures.append(js.publish_async("moved.a", b"%d" % len(futures)))
                if not moved.is_set() and nc.connected_url != cluster.servers[0].url:
                    moved.set()
                    end = time.monotonic() + 1
                moved.wait(0.0005)
            js.publish_async_complete(timeout=30)
            assert moved.is_set()
            assert [future.exception(0) for future in futures if future.exception(0) is not None] == []
            js.publish("moved.a", b"end")
            reader.join(60)
            assert not reader.is_alive()
            numbers = [b"%d" % number for number in range(len(futures))]
            assert stream.info().state.messages == len(futures) + 1
            assert list(dict.fromkeys(seen)) == numbers
            assert problems == []
        cluster.servers[0].kill()
