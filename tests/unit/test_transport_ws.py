"""jsclient._transport.ws: the handshake and frames through a real socket, the other side scripted."""

from __future__ import annotations

import base64
import hashlib
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from jsclient._transport.tcp import TcpTransport
from jsclient._transport.ws import FRAME_SLICE, WebSocketTransport, start_websocket
from jsclient.errors import ConfigError, NotANatsServer
from protocol.websocket import mask

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Peer:
    """The server's end of a websocket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""

    def take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            data = self.sock.recv(65536)
            assert data, "closed too early"
            self.buffer += data
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def request(self) -> dict[str, str]:
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.sock.recv(65536)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        return {"first": first, **{k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}}

    def accept(self, extra: bytes = b"", behind: bytes = b"") -> dict[str, str]:
        headers = self.request()
        key = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + GUID).digest())
        self.sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + b"Sec-WebSocket-Accept: %s\r\n%s\r\n%s" % (key, extra, behind)
        )
        return headers

    def frame(self) -> tuple[int, bytes]:
        first, second = self.take(2)
        assert second & 0x80, "client frames are masked"
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self.take(2), "big")
        elif size == 127:
            size = int.from_bytes(self.take(8), "big")
        key = self.take(4)
        return first, mask(self.take(size), key)


def server_frame(payload: bytes, first: int = 0x82) -> bytes:
    assert len(payload) < 126
    return bytes([first, len(payload)]) + payload


Start = Callable[..., Future[WebSocketTransport]]


@pytest.fixture
def ends() -> Iterator[tuple[TcpTransport, Peer, Start]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    tcp = TcpTransport(ours, "peer:80")
    with ThreadPoolExecutor(1) as pool, theirs:

        def start(
            path: str = "/",
            headers: Iterable[tuple[str, str]] = (),
            compression: bool = False,
            timeout: float = 5,
            port: int = 80,
        ) -> Future[WebSocketTransport]:
            return pool.submit(
                start_websocket, tcp, "host", port, path, headers, compression=compression, timeout=timeout
            )

        yield tcp, Peer(theirs), start
        tcp.shutdown()
        tcp.close()


Ends = tuple[TcpTransport, Peer, Start]


@pytest.fixture
def opened(ends: Ends) -> tuple[WebSocketTransport, Peer]:
    _, peer, start = ends
    starting = start()
    peer.accept()
    return starting.result(5), peer


def test_handshake(ends: Ends) -> None:
    _, peer, start = ends
    starting = start("/nats?x=1", {"Authorization": "Bearer marker"}, port=8080)
    headers = peer.accept(behind=server_frame(b"INFO {}\r\n"))
    assert headers["first"] == "GET /nats?x=1 HTTP/1.1"
    assert headers["host"] == "host:8080"
    assert headers["authorization"] == "Bearer marker"
    assert "sec-websocket-extensions" not in headers
    transport = starting.result(5)
    assert transport.recv() == b"INFO {}\r\n"
    assert (transport.peer, transport.secure) == ("peer:80", False)


def test_the_default_port_is_not_named(ends: Ends) -> None:
    _, peer, start = ends
    starting = start()
    assert peer.accept()["host"] == "host"
    starting.result(5)


@pytest.mark.parametrize(
    "answer",
    [b"INFO {}\r\n", b"HTTP/1.1 403 Forbidden\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n", b"HTTP/1.1 " + b"x" * 99999],
)
def test_an_answer_that_is_no_websocket(ends: Ends, answer: bytes) -> None:
    _, peer, start = ends
    starting = start()
    peer.request()
    peer.sock.sendall(answer)
    with pytest.raises(NotANatsServer, match="peer:80"):
        starting.result(5)


def test_no_answer(ends: Ends) -> None:
    _, _, start = ends
    with pytest.raises(TimeoutError, match="in time"):
        start(timeout=0.1).result(5)


def test_closed_during_the_handshake(ends: Ends) -> None:
    _, peer, start = ends
    starting = start()
    peer.request()
    peer.sock.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError):
        starting.result(5)


def test_headers_of_the_handshake_cannot_be_replaced(ends: Ends) -> None:
    _, _, start = ends
    for headers in ({"Upgrade": "marker"}, {"X": "marker\r\n"}):
        with pytest.raises(ConfigError) as caught:
            start(headers=headers).result(5)
        assert "marker" not in str(caught.value)


def test_frames_both_ways(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    assert transport.send([b"PUB a 1", b"\r\nx\r\n"], 5)
    assert peer.frame() == (0x82, b"PUB a 1\r\nx\r\n")
    peer.sock.sendall(server_frame(b"PING\r") + server_frame(b"\n+OK\r\n"))
    assert transport.recv() == b"PING\r\n+OK\r\n"
    transport.set_tick(0.02)
    assert transport.recv() is None
    assert transport.recv_within(0) is None
    peer.sock.shutdown(socket.SHUT_WR)
    assert transport.recv() == b""


def test_large_sends_become_several_frames(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    data = bytes(range(256)) * 1000
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(transport.send, data, 10)
        received = b""
        while len(received) < len(data):
            _, payload = peer.frame()
            assert len(payload) <= FRAME_SLICE
            received += payload
        assert sending.result(10)
    assert received == data
    assert transport.unsent == 0


def test_what_does_not_fit_stays(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    while transport.send(b"x" * 100_000, 0):
        pass
    assert transport.unsent > 0
    assert not transport.send(b"end", 0)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(transport.send, b"", 10)
        last = b""
        while not last.endswith(b"end"):
            last = peer.frame()[1]
        assert sending.result(10)
    assert transport.unsent == 0


def test_a_ping_is_answered_by_the_next_sender(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    peer.sock.sendall(server_frame(b"beat", 0x89))
    assert transport.recv() is None
    assert transport.needs_flush
    assert transport.unsent == 10, "whoever drains looks at this"
    assert transport.send(b"", 0)
    assert not transport.needs_flush
    assert transport.unsent == 0
    assert peer.frame() == (0x8A, b"beat")


def test_a_close_frame_ends_the_stream_and_is_answered(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    peer.sock.sendall(server_frame(b"last") + server_frame(b"\x03\xe8", 0x88))
    assert transport.recv() == b"last"
    assert transport.recv() == b""
    assert transport.send(b"", 1)
    assert peer.frame() == (0x88, b"\x03\xe8")


def test_what_came_before_a_broken_frame_is_delivered(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    peer.sock.sendall(server_frame(b"good") + b"\xff\xff\xff")
    assert transport.recv() == b"good"
    for _ in range(2):
        with pytest.raises(OSError, match="peer:80"):
            transport.recv()


def test_compression(ends: Ends) -> None:
    _, peer, start = ends
    starting = start(compression=True)
    extension = b"permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    headers = peer.accept(b"Sec-WebSocket-Extensions: " + extension + b"\r\n")
    assert headers["sec-websocket-extensions"].encode() == extension
    transport = starting.result(5)
    assert transport.send(b"a" * 10_000, 5)
    first, payload = peer.frame()
    assert first & 0x40
    assert len(payload) < 200
    assert zlib.decompressobj(-15).decompress(payload + b"\x00\x00\xff\xff") == b"a" * 10_000


def test_shutdown_and_close(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    assert transport.fileno() >= 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.recv)
        transport.shutdown()
        assert waiting.result(5) == b""
    transport.close()
    assert transport.fileno() == -1
    assert peer.sock.recv(10) == b""
