"""Sending over TLS and websockets: an exception at any point loses no frame, sends none twice, and keeps the link."""

from __future__ import annotations

import functools
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jsclient import waiting
from jsclient._engine import outbox, sending
from jsclient._engine.outbox import AT_ONCE, Outbox
from jsclient._transport import tcp, tls, ws
from jsclient._transport.tcp import TcpTransport
from jsclient._transport.tls import default_tls_context, start_tls
from jsclient._transport.ws import WebSocketTransport
from jsclient.testing.certs import Certificates, certificates
from protocol import websocket
from protocol.frames import LARGE_PAYLOAD, Frame, LargeFrame
from protocol.websocket import WebSocket, mask
from tests.sockets import ProxySocket
from tests.unit import test_sending as plain

traced = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the points are those of 3.11")

SCENE: list[Frame] = [
    *(b"one;", b"two;", bytes(70_000), LargeFrame((b"line;", b"L" * 3 * LARGE_PAYLOAD, b"!;"))),
    *(b"%d;" % number for number in range(20)),
]


class Strike(plain.Strike):
    files = frozenset(module.__file__ for module in (outbox, sending, tcp, tls, ws, waiting, websocket))


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


class Line:
    """An outbox over an encrypted or framed socket, with a peer that undoes that."""

    def __init__(self, kind: str, certs: Certificates, proxy: bool = False) -> None:
        ours, self.peer = socket.socketpair()
        transport: Any = TcpTransport(ProxySocket(fileno=ours.detach()) if proxy else ours)
        self.session: ssl.SSLObject | None = None
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        if kind in ("tls", "wss"):
            context = _server(certs)
            self.session = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(self._handshake)
                transport = start_tls(transport, _client(certs), "localhost", 5)
                done.result(5)
        self.framed = kind in ("ws", "wss")
        self.transport: Any = WebSocketTransport(transport, WebSocket()) if self.framed else transport
        ours_now = socket.socket(fileno=self.transport.fileno())
        ours_now.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        ours_now.detach()
        self.peer.setblocking(False)
        self.broken: list[BaseException] = []
        self.outbox = Outbox(kick=lambda: None, broken=lambda _, error: self.broken.append(error), limit=1 << 20)
        self.outbox.attach(self.transport, [])
        self.raw = bytearray()

    def _handshake(self) -> None:
        assert self.session is not None
        while True:
            try:
                self.session.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:
                self.peer.sendall(self.outgoing.read())
            self.incoming.write(self.peer.recv(65536))

    def read(self) -> None:
        try:
            while chunk := self.peer.recv(1 << 20):
                self.raw += chunk
        except BlockingIOError:
            pass

    def finish(self) -> bytes:
        while self.outbox.frames or self.outbox.unsent:
            self.outbox.drain(AT_ONCE)
            self.read()
        self.read()
        data = bytes(self.raw)
        if self.session is not None:
            self.incoming.write(data)
            parts = []
            while self.incoming.pending or self.session.pending():
                parts.append(self.session.read(1 << 20))
            data = b"".join(parts)
        return unframe(data) if self.framed else data

    def close(self) -> None:
        self.transport.close()
        self.peer.close()


@functools.cache
def _server(certs: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server.cert, certs.server.key)
    context.num_tickets = 0
    return context


@functools.cache
def _client(certs: Certificates) -> ssl.SSLContext:
    return default_tls_context(certs.ca)


def unframe(data: bytes) -> bytes:
    """The payloads of masked binary frames; fails where a frame is broken."""
    out = []
    while data:
        assert data[0] == 0x82, "no whole binary frame"
        size, start = data[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        key, start = data[start : start + 4], start + 4
        out.append(mask(data[start : start + size], key))
        assert len(out[-1]) == size
        data = data[start + size :]
    return b"".join(out)


def struck(kind: str, certs: Certificates, number: int, error: type[BaseException], proxy: bool = False) -> Any:
    """A line over which the scene was sent, with an exception at the `number`-th point; None if there are fewer."""
    line = Line(kind, certs, proxy)

    def handler() -> None:
        raise error

    strike = Strike(number, handler)
    line.outbox.frames.extend(SCENE[:-1])
    try:
        strike.run(lambda: line.outbox.post_now(SCENE[-1]))
    except (KeyboardInterrupt, TimeoutError, BlockingIOError, ConnectionResetError):
        pass
    if strike.done:
        return line
    line.close()
    return None


@traced
@pytest.mark.parametrize("kind", ["tls", "ws", "wss"])
def test_an_exception_of_a_handler_loses_neither_frame_nor_link(kind: str, certs: Certificates, count: Any) -> None:
    """Each point in the full tier; a tenth of them in the short one."""
    step = count(10, 1)
    found = 0
    for number in range(1, 100_000, 11 - step):
        error = (KeyboardInterrupt, TimeoutError, BlockingIOError, ConnectionResetError)[number % 4]
        line = struck(kind, certs, number, error)
        if line is None:
            break
        found += 1
        assert not line.broken, number
        got = line.finish()
        assert got == plain.whole(SCENE) or got == plain.whole(SCENE[:-1]), number  # before it was queued
        line.close()
    assert found > 10


@traced
def test_a_socket_that_sends_in_python_code_is_given_up_beneath_tls(certs: Certificates) -> None:
    broken = 0
    for number in range(1, 100_000, 10):
        line = struck("tls", certs, number, KeyboardInterrupt, proxy=True)
        if line is None:
            break
        broken += bool(line.broken)
        line.close()
    assert broken
