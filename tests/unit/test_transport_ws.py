"""jsclient._transport.ws: the handshake and frames through a real socket, the other side scripted."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.sockets import mask, opened_websocket, write_all

from jsclient._transport.tcp import TcpTransport
from jsclient._transport.ws import (
    FRAME_SLICE,
    INFLATE_PIECE,
    MAX_FRAME,
    MAX_INFLATED,
    MAX_PONGS,
    WebSocketTransport,
    start_websocket,
)
from jsclient.errors import ConfigError, NotANatsServer

NO_TAKEOVER = (
    b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
)
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

    def agreement(self, headers: dict[str, str], extra: bytes = b"") -> bytes:
        key = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + GUID).digest())
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %s\r\n%s\r\n" % (key, extra)
        )

    def accept(self, extra: bytes = b"", behind: bytes = b"") -> dict[str, str]:
        headers = self.request()
        self.sock.sendall(self.agreement(headers, extra) + behind)
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
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload


def deflated(data: bytes) -> bytes:
    made = zlib.compressobj(9, wbits=-15)
    return (made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH))[:-4]


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
    [
        b"INFO {}\r\n",
        b"\x15\x03\x01",
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 101 x\r\n\r\n",
        b"HTTP/1.1 1010\r\n\r\n",
        b"HTTP/2 101\r\n\r\n",
        b"HTTP/1.1 101 x\r\nno colon\r\n\r\n",
        b"HTTP/1.1 " + b"x" * 99999,
        b"HTTP/1.1 101 x\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
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
    assert write_all(transport, [b"PUB a 1", b"\r\nx\r\n"], 5) == 0
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
    while not write_all(transport, [b"x" * 100_000], 0):
        pass
    assert 0 < transport.unsent < 2 * FRAME_SLICE
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(transport.send, b"end", 10)
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
    info = b"INFO {}\r\n" * 20
    headers = peer.accept(NO_TAKEOVER, behind=server_frame(deflated(info), 0xC2))
    assert headers["sec-websocket-extensions"].encode() in NO_TAKEOVER
    transport = starting.result(5)
    assert transport.recv() == info, "what comes right behind the response is compressed, too"
    assert transport.send(b"a" * 10_000, 5)
    first, payload = peer.frame()
    assert first & 0x40
    assert len(payload) < 200
    assert zlib.decompressobj(-15).decompress(payload + b"\x00\x00\xff\xff") == b"a" * 10_000


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ok: ok.replace(b"Sec-WebSocket-Accept: ", b"Sec-WebSocket-Accept: x"),
        lambda ok: ok.replace(b"Upgrade: websocket\r\n", b""),
        lambda ok: ok.replace(b"Connection: Upgrade", b"Connection: close"),
        lambda ok: ok.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: x\r\n\r\n"),
        lambda ok: ok.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: x-other\r\n\r\n"),
        lambda ok: ok.replace(b"\r\n\r\n", b"\r\n" + NO_TAKEOVER + b"\r\n"),
    ],
)
def test_an_agreement_to_something_else(ends: Ends, wrong: Callable[[bytes], bytes]) -> None:
    _, peer, start = ends
    starting = start()
    peer.sock.sendall(wrong(peer.agreement(peer.request())))
    with pytest.raises(NotANatsServer, match="peer:80"):
        starting.result(5)


def test_the_answer_may_come_in_pieces(ends: Ends) -> None:
    _, peer, start = ends
    starting = start()
    for byte in peer.agreement(peer.request()) + server_frame(b"INFO {}\r\n"):
        peer.sock.sendall(bytes((byte,)))
    transport = starting.result(5)
    assert transport.recv_within(5) == b"INFO {}\r\n"


@pytest.mark.parametrize(
    ("host", "path"), [("a b", "/"), ("h", "x"), ("h", "/a b"), ("h", "/\u20ac"), ("h", "/a\r\nX: 1")]
)
def test_bad_hosts_and_paths(host: str, path: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ConfigError):
        start_websocket(TcpTransport(ours, "peer:80"), host, 80, path, (), compression=False, timeout=1)


@pytest.mark.parametrize("name", ["", "a b", "a:", "Host", "sec-websocket-key", "UPGRADE"])
def test_bad_header_names(ends: Ends, name: str) -> None:
    with pytest.raises(ConfigError):
        ends[2](headers={name: "v"}).result(5)


@pytest.mark.parametrize(
    "frame",
    [
        server_frame(b"x", 0x81),  # text
        server_frame(b"x", 0x83),  # a reserved opcode
        server_frame(b"x", 0xC2),  # compressed without an agreement
        server_frame(b"x", 0x92),  # reserved bits
        server_frame(b"x", 0x80),  # a continuation of nothing
        server_frame(b"x", 0x02) + server_frame(b"x", 0x82),  # a new message inside another
        b"\x82\x81kkkkx",  # masked
        server_frame(b"x" * 126, 0x89),  # a control frame that is too long
        server_frame(b"x", 0x09),  # one in fragments
        server_frame(b"x", 0x88),  # half a close code
        b"\x82\x7f" + (MAX_FRAME + 1).to_bytes(8, "big"),
    ],
)
def test_broken_frames_end_the_stream(opened: tuple[WebSocketTransport, Peer], frame: bytes) -> None:
    transport, peer = opened
    peer.sock.sendall(server_frame(b"good") + frame)
    received = b""
    with pytest.raises(OSError, match="websocket with peer:80"):
        while True:
            received += transport.recv_within(5) or b""
    assert received.startswith(b"good")


def test_of_many_pings_the_last_are_answered(opened: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = opened
    pings = b"".join(server_frame(b"%d" % number, 0x89) for number in range(1000))
    peer.sock.sendall(pings + server_frame(b"x"))
    while transport.recv() is None:
        pass
    assert transport.send(b"", 5)
    assert [peer.frame()[1] for _ in range(MAX_PONGS)] == [b"%d" % n for n in range(1000 - MAX_PONGS, 1000)]


@pytest.fixture
def squeezed(ends: Ends) -> tuple[WebSocketTransport, Peer]:
    """A websocket that has agreed to compression."""
    _, peer, start = ends
    starting = start(compression=True)
    peer.accept(NO_TAKEOVER)
    return starting.result(5), peer


def read_all(transport: WebSocketTransport, end: bytes) -> tuple[bytes, int]:
    """(what came up to `end`, the size of the largest piece)."""
    pieces: list[bytes] = []
    while not b"".join(pieces[-2:]).endswith(end):
        piece = transport.recv_within(5)
        assert piece, "the stream ended early"
        pieces.append(piece)
    return b"".join(pieces), max(map(len, pieces))


@pytest.mark.parametrize("fragments", [1, 2, 7])
def test_what_is_inflated_comes_in_pieces(squeezed: tuple[WebSocketTransport, Peer], fragments: int) -> None:
    transport, peer = squeezed
    plain = bytes(20 * INFLATE_PIECE) + b"end"
    body = deflated(plain)
    step = len(body) // fragments + 1
    parts = [body[at : at + step] for at in range(0, len(body), step)]
    for index, part in enumerate(parts):
        peer.sock.sendall(server_frame(part, (0x42 if not index else 0) | (0x80 if index == len(parts) - 1 else 0)))
    received, largest = read_all(transport, b"end")
    assert received == plain
    assert largest <= 2 * INFLATE_PIECE
    peer.sock.sendall(server_frame(b"not compressed"))
    assert transport.recv_within(5) == b"not compressed"


def test_pings_between_compressed_messages(squeezed: tuple[WebSocketTransport, Peer]) -> None:
    transport, peer = squeezed
    final = zlib.compressobj(9, wbits=-15)
    block = final.compress(b"one") + final.flush(zlib.Z_FINISH)  # a final block is legal
    peer.sock.sendall(
        server_frame(block, 0x42) + server_frame(b"", 0x89) + server_frame(deflated(b"-two"), 0x80)
        + server_frame(deflated(b"-end"), 0xC2)
    )  # fmt: skip
    assert read_all(transport, b"end")[0] == b"one-two-end"


@pytest.mark.parametrize("body", [b"\xff\xff\xff", deflated(bytes(MAX_INFLATED + 1))])
def test_broken_or_endless_compressed_data(squeezed: tuple[WebSocketTransport, Peer], body: bytes) -> None:
    transport, peer = squeezed
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(peer.sock.sendall, server_frame(body, 0xC2))
        with pytest.raises(OSError, match="websocket with peer:80"):
            while True:
                assert transport.recv_within(5) is not None
        sending.result(5)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=st.lists(st.binary(max_size=40)))
@example(chunks=[b"\x89\x00"])  # a ping: the reader has to send its answer before it can go on
def test_garbage_is_an_os_error_and_nothing_else(chunks: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        transport = WebSocketTransport(TcpTransport(ours, "peer:80"), opened_websocket())
        theirs.sendall(b"".join(chunks))
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while transport.recv() != b"":
                if transport.needs_flush:
                    transport.send(b"", 5)
        transport.close()


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
