"""Servers that lie, rave or garble: a typed error within a second, and no memory to speak of."""

from __future__ import annotations

import queue
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jsclient
from jsclient import ReconnectPolicy, errors
from jsclient.jetstream import JetStream
from jsclient.testing import FakeServer, NatsServer, Proxy, ScriptFailed, info_line, wait_until

MIB = 1024 * 1024
ONCE = ReconnectPolicy(enabled=False)


def answer_pings(client: Any) -> None:
    try:
        while True:
            client.expect(b"PING\r\n")
            client.send(b"PONG\r\n")
    except ScriptFailed:
        pass


def flood(client: Any, piece: bytes, total: int) -> None:
    for _ in range(total // len(piece)):
        client.send(piece)
    client.hold()


@contextmanager
def little_memory(limit: int = 4 * MIB) -> Iterator[None]:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak <= limit, f"{peak / MIB:.1f} MiB"


JUNK: dict[str, Callable[[Any], None]] = {
    "endless line": lambda c: flood(c, b"A" * 16384, 8 * MIB),
    "endless INFO": lambda c: flood(c, b"INFO " + b"[" * 16379, 8 * MIB),
    "endless blanks": lambda c: flood(c, b" " * 16384, 8 * MIB),
    "http": lambda c: c.send(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n"),
    "ssh": lambda c: c.send(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "zeros": lambda c: flood(c, b"\x00" * 16384, MIB),
    "no json": lambda c: c.send(b"INFO hello\r\n"),
    "a list": lambda c: c.send(b"INFO [1,2,3]\r\n"),
    "NaN": lambda c: c.send(b'INFO {"max_payload":NaN}\r\n'),
    "wrong types": lambda c: c.send(b'INFO {"max_payload":"many","connect_urls":7}\r\n'),
    "nested": lambda c: c.send(b'INFO {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\r\n"),
    "nested in a known key": lambda c: c.send(b'INFO {"connect_urls":' + b"[" * 100_000 + b"]" * 100_000 + b"}\r\n"),
    "bad utf-8": lambda c: c.send(b'INFO {"server_id":"\xff\xfe"}\r\n'),
    "a message first": lambda c: c.send(b"MSG a 1 2\r\nhi\r\n"),
    "nothing": lambda c: c.close(),
    "-ERR first": lambda c: c.send(b"-ERR 'maximum connections exceeded'\r\n"),
}


@pytest.mark.parametrize("what", JUNK)
def test_junk_instead_of_info(what: str) -> None:
    def script(client: Any) -> None:
        JUNK[what](client)

    with FakeServer(script) as fake:
        start = time.monotonic()
        with little_memory(), pytest.raises(errors.JsClientError) as caught:
            jsclient.connect(fake.url, connect_timeout=5)
        assert time.monotonic() - start < 1
        assert not isinstance(caught.value, errors.ConfigError)
        assert str(fake.port) in str(caught.value) or what == "-ERR first"
        assert len(str(caught.value)) < 2000


LATER: dict[str, bytes] = {
    "size 10^10": b"MSG a 1 10000000000\r\n",
    "size of 100 digits": b"MSG a 1 " + b"9" * 100 + b"\r\n",
    "negative size": b"MSG a 1 -5\r\n",
    "endless headers": b"HMSG a 1 9999999999 9999999999\r\nNATS/1.0\r\n" + b"A: b\r\n" * 10_000,
    "headers larger than the total": b"HMSG a 1 20 10\r\n" + b"x" * 30,
    "no CRLF after the payload": b"MSG a 1 2\r\nhixxPING\r\n",
    "unknown operation": b"HELO you\r\n",
    "endless line": b"A" * 200_000,
    "MSG without a sid": b"MSG a\r\n",
    "INFO of nothing": b"INFO \r\n",
    "nested INFO": b'INFO {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\r\n",
    "wrong types in INFO": b'INFO {"max_payload":[]}\r\n',
}


@pytest.mark.parametrize("what", LATER)
def test_junk_on_a_live_link_costs_the_link_and_names_itself(what: str) -> None:
    go = threading.Event()

    def bad(client: Any) -> None:
        client.handshake()
        client.expect(b"PING\r\n")
        client.send(b"PONG\r\n")
        go.wait(10)
        client.send(LATER[what])
        client.hold()

    def good(client: Any) -> None:
        client.handshake()
        answer_pings(client)

    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with (
        FakeServer(bad, good) as fake,
        jsclient.connect(fake.url, on_disconnected=lambda _, error: told.put(error)) as nc,
    ):
        nc.flush()  # a link over which nothing came counts as flapping: the next one is dialled after 2 s
        with little_memory():
            start = time.monotonic()
            go.set()
            error = told.get(timeout=5)
            assert time.monotonic() - start < 1
        assert isinstance(error, errors.JsClientError)
        assert len(str(error)) < 1000
        wait_until(lambda: nc.stats().reconnects == 1)
        nc.flush()


def test_what_came_before_the_junk_is_delivered() -> None:
    def script(client: Any) -> None:
        client.handshake()
        client.expect(b"SUB a 1\r\n")
        client.send(b"MSG a 1 2\r\nhi\r\nNONSENSE\r\n")
        client.hold()

    with FakeServer(script) as fake:
        nc = jsclient.connect(fake.url, reconnect=ONCE)
        sub = nc.subscribe("a")
        assert sub.next(timeout=5).data == b"hi"
        with pytest.raises(errors.ConnectionClosed, match="not NATS"):
            sub.next(timeout=5)


def test_20_000_servers_in_info_are_capped() -> None:
    urls = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:4222" for n in range(20_000)]
    junk = ["", "x" * 5000, "user:secret@h:1", "a b:1", "nats://[::1", 7, None, "h:99999999", "h:0"]

    def script(client: Any) -> None:
        client.handshake(connect_urls=urls)
        client.expect(b"PING\r\n")
        client.send(info_line(connect_urls=junk[:1] + [u for u in junk if isinstance(u, str)]) + b"PONG\r\n")
        answer_pings(client)

    with FakeServer(script) as fake:
        start = time.monotonic()
        with jsclient.connect(fake.url) as nc:
            assert time.monotonic() - start < 1
            assert len(nc.servers) == 101
            nc.flush()
            assert len(nc.servers) == 1
            assert fake.url in nc.servers


def test_20_000_servers_in_every_info_cost_little() -> None:
    line = info_line(connect_urls=[f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:4222" for n in range(20_000)])

    def script(client: Any) -> None:
        client.send(line)
        client.expect(b"PING\r\n")
        client.send(b"PONG\r\n")
        for _ in range(4):  # the last one comes from close()
            client.expect(b"PING\r\n")
            client.send(line + b"PONG\r\n")
        client.hold()

    with FakeServer(script) as fake, little_memory(), jsclient.connect(fake.url) as nc:
        for _ in range(3):
            nc.flush(timeout=10)
            assert len(nc.servers) == 101


@pytest.mark.slow
def test_an_err_text_cannot_flood_or_forge_a_log() -> None:
    def script(client: Any) -> None:
        client.send(info_line())
        client.expect(b"CONNECT ")
        client.send(b"-ERR '" + b"a\x1b[31m\x00" + b"b" * 60_000 + b"'\r\n")
        client.hold()

    with FakeServer(script) as fake, pytest.raises(errors.JsClientError) as caught:
        jsclient.connect(fake.url)
    text = str(caught.value)
    assert len(text) < 1000
    assert "\x1b" not in text
    assert "\x00" not in text


def test_a_flood_of_pings_and_infos_is_answered() -> None:
    """A thousand PINGs at once, with INFOs between them: INFO may come at any time."""
    answers: list[int] = []

    def script(client: Any) -> None:
        client.handshake()
        before = len(client.received)
        client.send((b"PING\r\n" * 10 + info_line(max_payload=2048)) * 100)
        wait_until(lambda: client.fill() and client.received.count(b"PONG\r\n", before) >= 1000)
        answers.append(client.received.count(b"PONG\r\n", before))
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        wait_until(lambda: answers == [1000])
        assert nc.max_payload == 2048


def test_a_large_info_is_read() -> None:
    def script(client: Any) -> None:
        client.handshake(git_commit="x" * 300_000)
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        nc.flush()


def test_a_silent_server_fails_in_time_and_says_what_it_may_be() -> None:
    with FakeServer(lambda client: client.hold()) as fake:
        start = time.monotonic()
        with pytest.raises(errors.ConnectFailed, match=r"no INFO.*TLS"):
            jsclient.connect(fake.url, connect_timeout=0.3)
        assert time.monotonic() - start < 1


def test_a_server_that_never_answers_connect() -> None:
    def script(client: Any) -> None:
        client.send(info_line())
        client.hold()

    with FakeServer(script) as fake, pytest.raises(errors.ConnectFailed, match="PONG"):
        jsclient.connect(fake.url, connect_timeout=0.3)


def test_a_second_info_before_the_first_pong() -> None:
    def script(client: Any) -> None:
        client.send(info_line(max_payload=1000))
        client.expect(b"PING\r\n")
        client.send(info_line(max_payload=500, connect_info=True) + b"PONG\r\n" + b"PING\r\n")
        client.expect(b"PONG\r\n")
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        assert nc.max_payload == 500
        nc.flush()


def test_pings_of_the_server_are_answered_while_the_application_blocks() -> None:
    answered = threading.Event()

    def script(client: Any) -> None:
        client.handshake()
        for _ in range(5):
            client.send(b"PING\r\n")
            client.expect(b"PONG\r\n")
        answered.set()
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        nc.subscribe("a", lambda message: answered.wait(10))
        assert answered.wait(5)


def test_old_servers_two_blanks_tabs_and_lower_case() -> None:
    def script(client: Any) -> None:
        client.handshake()
        client.expect(b"SUB a 1\r\n")
        client.send(b"MSG a 1  2\r\nhi\r\nmsg\ta\t1\t2\r\nho\r\n+OK\r\nping\r\n")
        client.expect(b"PONG\r\n")
        answer_pings(client)

    with FakeServer(script) as fake, jsclient.connect(fake.url) as nc:
        sub = nc.subscribe("a")
        assert [sub.next(timeout=5).data for _ in range(2)] == [b"hi", b"ho"]


def test_flipped_bytes_are_never_silence(server: NatsServer, count: Callable[[int, int], int]) -> None:
    """A bit flip ends in an altered payload or in a new link; afterwards everything works."""
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        sub = nc.subscribe("flip.>", pending_messages=1_000_000)
        nc.flush()
        for number in range(count(100, 15)):
            proxy.corrupt(number * 97 % 3000, "down", mask=0x20 if number % 2 else 0xFF)
            for _ in range(100):
                nc.publish("flip.data", b"x" * 20)
            wait_until(lambda: flushes(nc), 20)
        proxy.heal()
        wait_until(lambda: flushes(nc), 20)
        nc.publish("flip.end", b"end")
        while sub.next(timeout=5).data != b"end":
            pass


def flushes(nc: jsclient.Connection) -> bool:
    try:
        nc.flush(timeout=1)
    except (errors.ConnectionLost, errors.FlushTimeout):
        nc.force_reconnect() if nc.is_connected else None
        return False
    return True


def test_answers_nested_too_deep_are_no_answers(server: NatsServer) -> None:
    """Whoever may answer a publish may answer with JSON that no decoder reads: an error of that one call."""
    evil = b'{"stream":"S","new":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    with jsclient.connect(server.url) as nc:
        nc.subscribe("evil.>", lambda message: message.respond(evil))
        js = JetStream(nc)
        with pytest.raises(errors.InvalidPubAck):
            js.publish("evil.a", b"x")
        with pytest.raises(errors.InvalidPubAck):
            js.publish_async("evil.a", b"x").result(timeout=5)
        with pytest.raises(errors.BadResponse):
            JetStream(nc, api_prefix="evil").account_info()
        assert nc.stats().reconnects == 0
