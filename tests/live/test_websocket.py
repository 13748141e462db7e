"""Websocket against real servers: ws, wss, compression, headers, discovery, reconnect."""

from __future__ import annotations

import logging
import queue
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import TLSOptions, errors
from jsclient.testing import (
    Certificates,
    FakeClient,
    FakeServer,
    NatsServer,
    Proxy,
    certificates,
    free_port,
    wait_until,
)

CLIENT_HELLO = b"\x16\x03"


@pytest.fixture(scope="module")
def certs(cryptography: object, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def ws_server() -> Iterator[NatsServer]:
    with NatsServer("websocket { port: -1, no_tls: true, compression: true }") as server:
        yield server


@pytest.fixture(scope="module")
def wss_server(certs: Certificates) -> Iterator[NatsServer]:
    with NatsServer(f"websocket {{ port: -1, {certs.server_config()} }}", jetstream=False) as server:
        yield server


def works(url: str, **options: Any) -> None:
    """Every size of frame both ways, and more than one message per frame."""
    with jsclient.connect(url, **options) as nc:
        subscription = nc.subscribe("echo.>", pending_bytes=1 << 30)
        payloads = [bytes([size % 256]) * size for size in (0, 1, 10, 125, 126, 127, 4000, 65_535, 65_536, 1_000_000)]
        payloads += [b"%d" % number for number in range(2000)]
        for payload in payloads:
            nc.publish("echo.x", payload, headers={"Size": str(len(payload))})
        for payload in payloads:
            message = subscription.next(timeout=20)
            assert message.data == payload
            assert message.headers is not None
            assert message.headers["Size"] == str(len(payload))
        nc.flush()


def test_ws(ws_server: NatsServer) -> None:
    works(ws_server.websocket_url)


def test_compression(ws_server: NatsServer) -> None:
    with Proxy(int(ws_server.websocket_url.rsplit(":", 1)[1])) as proxy:
        with jsclient.connect(f"ws://127.0.0.1:{proxy.port}", ws_compression=True) as nc:
            subscription = nc.subscribe("echo")
            nc.flush()
            up, down = proxy.up.bytes, proxy.down.bytes
            nc.publish("echo", b"a" * 1_000_000)
            assert subscription.next(timeout=10).data == b"a" * 1_000_000
            assert proxy.up.bytes - up < 50_000
            assert proxy.down.bytes - down < 50_000
    works(ws_server.websocket_url, ws_compression=True)


def test_compression_that_the_server_does_not_offer() -> None:
    with NatsServer("websocket { port: -1, no_tls: true }", jetstream=False) as server:
        works(server.websocket_url, ws_compression=True)


def test_wss(wss_server: NatsServer, certs: Certificates) -> None:
    port = wss_server.websocket_url.rsplit(":", 1)[1]
    ours = TLSOptions(ca_file=certs.ca)
    works(f"wss://127.0.0.1:{port}", tls=ours)
    works(f"wss://localhost:{port}", tls=ours)
    with pytest.raises(errors.TlsError, match="CA file"):
        jsclient.connect(f"wss://127.0.0.1:{port}")


def test_a_wss_url_never_talks_in_clear() -> None:
    # What answers is no TLS: so the attempt ends when its hello has come, and not with a time that may be over before.
    def no_tls(client: FakeClient) -> None:
        client.expect(CLIENT_HELLO)
        client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        client.hold()

    with FakeServer(no_tls) as fake:
        ways: list[tuple[str, dict[str, Any]]] = [
            (f"wss://127.0.0.1:{fake.port}", {}),
            (f"ws://127.0.0.1:{fake.port}", {"tls": TLSOptions()}),
        ]
        for url, options in ways:
            with pytest.raises(errors.TlsError):
                jsclient.connect(url, user="u", password="marker", connect_timeout=20, **options)
        assert len(fake.clients) == len(ways)
        for client in fake.clients:
            assert client.received.startswith(CLIENT_HELLO)
            assert b"GET" not in client.received
            assert b"marker" not in client.received


def test_ws_to_a_tls_port(wss_server: NatsServer) -> None:
    with pytest.raises(errors.NatsConnectionError):
        jsclient.connect(f"ws://127.0.0.1:{wss_server.websocket_url.rsplit(':', 1)[1]}", connect_timeout=1)


def test_ws_to_a_nats_port(ws_server: NatsServer) -> None:
    with pytest.raises(errors.NotANatsServer, match="websocket"):
        jsclient.connect(f"ws://127.0.0.1:{ws_server.port}", connect_timeout=2)


def test_nats_to_a_ws_port(ws_server: NatsServer) -> None:
    with pytest.raises(errors.NatsConnectionError):
        jsclient.connect(ws_server.websocket_url.replace("ws://", "nats://"), connect_timeout=0.5)


def test_path_and_headers() -> None:
    """A proxy in front of the server sees both; headers may come from a callable, asked at every connect."""
    requests: list[bytes] = []

    def script(client: Any) -> None:
        requests.append(bytes(client.expect(b"\r\n\r\n")))
        client.send(b"HTTP/1.1 403 Forbidden\r\n\r\n")

    asked: list[str] = []

    def headers() -> dict[str, str]:
        asked.append("x")
        return {"Authorization": f"Bearer {len(asked)}"}

    with FakeServer(script) as fake:
        for _ in range(2):
            with pytest.raises(errors.NotANatsServer, match="403"):
                jsclient.connect(f"ws://127.0.0.1:{fake.port}/nats/in?x=1", ws_headers=headers)
    assert [request.split(b"\r\n")[0] for request in requests] == [b"GET /nats/in?x=1 HTTP/1.1"] * 2
    assert b"Authorization: Bearer 1\r\n" in requests[0]
    assert b"Authorization: Bearer 2\r\n" in requests[1]


def test_a_token_in_the_query_never_shows(
    wss_server: NatsServer, certs: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    texts: list[str] = []
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    ours: dict[str, Any] = {"tls": TLSOptions(ca_file=certs.ca)}
    with Proxy(int(wss_server.websocket_url.rsplit(":", 1)[1])) as proxy, caplog.at_level(logging.DEBUG):
        url = f"wss://127.0.0.1:{proxy.port}/nats?token=marker"
        with jsclient.connect(
            url,
            **ours,
            on_error=lambda nc, error, sub: told.put(repr(error) + str(error)),
            on_disconnected=lambda nc, error: told.put(repr(error)),
        ) as nc:
            texts += [repr(nc), repr(nc.health()), repr(nc.servers), nc.connected_url, repr(nc.options)]
            nc.flush()
            proxy.refuse()
            proxy.cut()
            texts += [told.get(timeout=10), told.get(timeout=10), str(nc.last_error)]
            proxy.heal()
            wait_until(lambda: nc.is_connected, 10)
        for wrong, options in [
            (url, {}),  # unknown authority
            (url.replace("wss:", "ws:"), {}),
            (url + "\u20ac", ours),
            (url.replace("wss://", "wss://user:marker@").replace("/nats", "/n\u20ac"), ours),
        ]:
            with pytest.raises(errors.JsClientError) as caught:
                jsclient.connect(wrong, connect_timeout=2, **options)
            texts += [str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value))]
    shown = "\n".join([*texts, caplog.text])
    assert "127.0.0.1" in shown
    assert "marker" not in shown.replace('"marker"', "")  # the line of this test in a traceback


def test_headers_of_the_handshake_are_refused(ws_server: NatsServer) -> None:
    with pytest.raises(errors.ConfigError, match="Upgrade"):
        jsclient.connect(ws_server.websocket_url, ws_headers={"Upgrade": "x"})


def test_without_the_extra(ws_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(errors.ConfigError, match=r"pip install 'jsclient\[websocket\]'"):
        jsclient.connect(ws_server.websocket_url)


def test_ws_and_nats_are_not_mixed(ws_server: NatsServer) -> None:
    with pytest.raises(errors.ConfigError, match="mixed"):
        jsclient.connect([ws_server.websocket_url, ws_server.url])


def test_authentication() -> None:
    config = 'websocket { port: -1, no_tls: true }\nauthorization { user: "u", password: "p" }'
    with NatsServer(config, jetstream=False) as server:
        works(server.websocket_url, user="u", password="p")
        with pytest.raises(errors.AuthError):
            jsclient.connect(server.websocket_url, user="u", password="wrong")


def test_requests_and_jetstream(ws_server: NatsServer) -> None:
    from jsclient.jetstream import JetStream, StreamConfig

    with jsclient.connect(ws_server.websocket_url) as nc:
        with pytest.raises(errors.NoResponders):
            nc.request("nobody")
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="WS", subjects=["ws.*"]))
        assert js.publish("ws.a", b"x").seq == 1
        js.delete_stream("WS")


def test_reconnect(ws_server: NatsServer) -> None:
    with Proxy(int(ws_server.websocket_url.rsplit(":", 1)[1])) as proxy:
        with jsclient.connect(f"ws://127.0.0.1:{proxy.port}") as nc:
            subscription = nc.subscribe("after")
            nc.flush()
            for count in range(1, 6):
                # Cut inside a frame as well as between two of them.
                proxy.cut_after(3 + count, "down")
                nc.publish("after", b"lost")
                wait_until(lambda count=count: nc.stats().reconnects == count and nc.is_connected)  # type: ignore[misc]
                nc.flush()  # a server that drops us before it has served us is left alone for two seconds
            nc.publish("after", b"still here")
            while subscription.next(timeout=5).data != b"still here":
                pass


def test_discovered_servers_are_those_for_websockets() -> None:
    routes = [free_port(), free_port()]

    def config(number: int) -> str:
        cluster = f"cluster {{ name: c, port: {routes[number]}, routes: [ nats://127.0.0.1:{routes[1 - number]} ] }}\n"
        return cluster + "websocket { host: 127.0.0.1, port: -1, no_tls: true }"

    with NatsServer(config(0), jetstream=False) as one, NatsServer(config(1), jetstream=False) as two:
        with jsclient.connect(one.websocket_url) as nc:
            port = two.websocket_url.rsplit(":", 1)[1]
            wait_until(lambda: any(url.endswith(f":{port}") for url in nc.servers))
            assert all(url.startswith("ws://") for url in nc.servers)
            one.stop()
            wait_until(lambda: nc.is_connected and nc.connected_url.endswith(f":{port}"), 20)
            nc.flush()


def test_the_servers_pings_are_answered(ws_server: NatsServer) -> None:
    """A websocket ping, as proxies send it: the pong goes out although the application sends nothing."""
    import base64
    import hashlib

    pongs: list[bytes] = []

    def script(client: Any) -> None:
        request = bytes(client.expect(b"\r\n\r\n"))
        key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        client.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        info = b'INFO {"server_id":"x","version":"2.10.0","proto":1,"headers":true,"max_payload":1000}\r\n'
        client.send(bytes([0x82, len(info)]) + info)
        wait_until(lambda: client.fill() and len(client.received) > len(request) + 100)
        client.send(b"\x82\x06PONG\r\n" + b"\x89\x04beat")
        before = len(client.received)
        # Not simply the next bytes: the client's own PING may still be under way as a frame of its own.
        wait_until(lambda: client.fill() and b"\x8a\x84" in client.received[before:])
        pongs.append(b"\x8a\x84")

    once = jsclient.ReconnectPolicy(enabled=False)  # the script ends with the pong
    with FakeServer(script) as fake, jsclient.connect(f"ws://127.0.0.1:{fake.port}", reconnect=once):
        wait_until(lambda: pongs or fake.errors)
    assert pongs == [b"\x8a\x84"]
