"""Sending over TLS and websockets: an exception at any point loses no frame, sends none twice, and keeps the link."""

from __future__ import annotations

import functools
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.sockets import ProxySocket, mask, opened_websocket
from tests.unit import test_outbox_sending as plain

from jsclient import waiting
from jsclient._engine import outbox, sending
from jsclient._engine.outbox import AT_ONCE, Outbox
from jsclient._engine.unkept import Unkept
from jsclient._transport import sealing, stream, tcp, tls, ws
from jsclient._transport.tcp import TcpTransport
from jsclient._transport.tls import default_tls_context, start_tls
from jsclient._transport.ws import WebSocketTransport
from jsclient.testing.certs import Certificates, certificates
from protocol.frames import LARGE_PAYLOAD, Frame, LargeFrame

traced = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the points are those of 3.11")

SCENE: list[Frame] = [
    *(b"one;", b"two;", bytes(70_000), LargeFrame((b"line;", b"L" * 3 * LARGE_PAYLOAD, b"!;"))),
    *(b"%d;" % number for number in range(20)),
]


class Strike(plain.Strike):
    files = frozenset(module.__file__ for module in (outbox, sending, sealing, stream, tcp, tls, ws, waiting))


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
        self.transport: Any = WebSocketTransport(transport, opened_websocket()) if self.framed else transport
        ours_now = socket.socket(fileno=self.transport.fileno())
        ours_now.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        ours_now.detach()
        self.peer.setblocking(False)
        self.broken: list[BaseException] = []
        self.outbox = Outbox(kick=lambda: None, broken=lambda _, error: self.broken.append(error), limit=1 << 20)
        self.outbox.attach(self.transport, [])
        self.raw, self.opened = bytearray(), bytearray()

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
        return self.plain()

    def plain(self) -> bytes:
        """What has arrived, as it was before TLS and framing."""
        self.read()
        if self.session is None:
            self.opened += self.raw
        else:
            self.incoming.write(bytes(self.raw))
            try:
                while self.incoming.pending or self.session.pending():
                    self.opened += self.session.read(1 << 20)
            except ssl.SSLWantReadError:
                pass
        self.raw.clear()
        return unframe(bytes(self.opened)) if self.framed else bytes(self.opened)

    def answer(self, data: bytes) -> None:
        """Send something back, sealed as ours is."""
        framed = bytes((0x82, len(data))) + data if self.framed else data
        if self.session is not None:
            self.session.write(framed)
            framed = self.outgoing.read()
        self.peer.sendall(framed)

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
    """The payloads of masked binary frames, without the part of a last one; fails where a frame is broken."""
    out = []
    while len(data) > 1:
        assert data[0] == 0x82, "no binary frame"
        size, start = data[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        key, start = data[start : start + 4], start + 4
        if len(data) < start + size:
            break
        out.append(mask(data[start : start + size], key))
        data = data[start + size :]
    return b"".join(out)


def raises(error: type[BaseException]) -> Callable[[Line], None]:
    def handler(_: Line) -> None:
        raise error

    return handler


def struck(kind: str, certs: Certificates, number: int, handler: Callable[[Line], None], proxy: bool = False) -> Any:
    """A line over which the scene was sent, with the handler at the `number`-th point; None if there are fewer."""
    line = Line(kind, certs, proxy)
    strike = Strike(number, lambda: handler(line))
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
        line = struck(kind, certs, number, raises(error))
        if line is None:
            break
        found += 1
        assert not line.broken, number
        got = line.finish()
        assert got == plain.whole(SCENE) or got == plain.whole(SCENE[:-1]), number  # before it was queued
        line.close()
    assert found > 10


def on_top(line: Line) -> None:
    """A handler that sends, and waits for an answer, which the reader has to take."""
    line.outbox.post_now(Unkept(b"<handler>"))
    assert passes(line, b"<handler>"), "the frame of the handler is stuck"
    read_beside(line)


def beside(line: Line) -> None:
    """A handler that makes no call but waits for another thread, which sends; the flusher passes the right on."""
    found: list[bool] = []

    def ask() -> None:
        line.outbox.post_now(b"<handler>")
        found.append(passes(line, b"<handler>"))

    other = threading.Thread(target=ask, daemon=True)
    other.start()
    other.join(10)
    assert found == [True], "the frame of the other thread is stuck"
    read_beside(line)


def passes(line: Line, frame: bytes) -> bool:
    for _ in range(2000):
        if frame in line.plain():
            return True
        line.outbox.look()
        line.outbox.drain(AT_ONCE)
    return False


def read_beside(line: Line) -> None:
    """The reader is another thread, and gets what the handler waits for."""
    line.answer(b"+answer")
    got: list[bytes | None] = []
    reader = threading.Thread(target=lambda: got.append(line.transport.recv_within(5)), daemon=True)
    reader.start()
    reader.join(10)
    assert got == [b"+answer"], "the reader waits for the interrupted thread"


@traced
@pytest.mark.parametrize("kind", ["tls", "ws", pytest.param("wss", marks=pytest.mark.slow)])
@pytest.mark.parametrize("handler", [on_top, beside])
def test_a_handler_that_waits_holds_nobody_up(
    kind: str, handler: Callable[[Line], None], certs: Certificates, count: Any
) -> None:
    found = 0
    for number in range(1, 100_000, 11 - count(10, 1)):
        line = struck(kind, certs, number, handler)
        if line is None:
            break
        found += 1
        got = line.finish()
        assert got.count(b"<handler>") <= 1, number
        assert got.replace(b"<handler>", b"") == plain.whole(SCENE), number
        assert not line.broken, number
        line.close()
    assert found > 10


@traced
def test_a_socket_that_sends_in_python_code_is_given_up_beneath_tls(certs: Certificates) -> None:
    broken = 0
    for number in range(1, 100_000, 10):
        line = struck("tls", certs, number, raises(KeyboardInterrupt), proxy=True)
        if line is None:
            break
        broken += bool(line.broken)
        line.close()
    assert broken


def encrypting(line: Line, handler: Callable[[], None]) -> None:
    """The handler strikes once within the encryption: there CPython looks for signals, with the lock of the session
    taken and the record made."""
    session = vars(vars(line.transport)["_inner"] if line.framed else line.transport)
    write = session["_write"]

    def struck(piece: Any) -> int:
        made: int = write(piece)
        session["_write"] = write
        handler()
        return made

    session["_write"] = struck


@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_an_exception_within_the_encryption_sends_nothing_twice(kind: str, certs: Certificates) -> None:
    """What it had returned was lost with the exception, and the record was made again: 64 of 400 arrived twice."""
    line = Line(kind, certs)
    encrypting(line, lambda: raises(KeyboardInterrupt)(line))
    line.outbox.frames.extend(SCENE[:-1])
    with pytest.raises(KeyboardInterrupt):
        line.outbox.post_now(SCENE[-1])
    assert line.finish() == plain.whole(SCENE)
    line.close()


@pytest.mark.parametrize("handler", [on_top, beside])
@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_a_handler_within_the_encryption_holds_nobody_up(
    kind: str, handler: Callable[[Line], None], certs: Certificates
) -> None:
    """The reader needs the lock of the session, which the interrupted thread has."""
    line = Line(kind, certs)
    encrypting(line, lambda: handler(line))
    line.outbox.frames.extend(SCENE[:-1])
    line.outbox.post_now(SCENE[-1])
    got = line.finish()
    assert got.count(b"<handler>") == 1
    assert got.replace(b"<handler>", b"") == plain.whole(SCENE)
    assert not line.broken
    line.close()


@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_what_such_a_handler_raises_is_raised(kind: str, certs: Certificates) -> None:
    """Behind it the lock is not ours any more, and to release that raises, too: of these two only one is hidden."""
    line = Line(kind, certs)

    def handler() -> None:
        on_top(line)
        raise RuntimeError("of the handler")

    encrypting(line, handler)
    line.outbox.frames.extend(SCENE[:-1])
    with pytest.raises(RuntimeError, match="of the handler"):
        line.outbox.post_now(SCENE[-1])
    assert line.finish().replace(b"<handler>", b"") == plain.whole(SCENE)
    line.close()


def test_empty_blocks_are_nothing_to_send(certs: Certificates) -> None:
    """It went round and round, with the send lock taken."""
    line = Line("tls", certs)
    assert line.transport.carry(stream.Load([b"", b"x"]), stream.ALWAYS, 0)
    assert line.finish() == b"x"
    line.close()
