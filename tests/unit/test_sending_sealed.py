"""Sending over TLS and websockets, interrupted at any point: no frame is torn or sent twice. The link lives, with all
that was queued, or it is given up."""

from __future__ import annotations

import functools
import socket
import ssl
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.sockets import ProxySocket, mask, opened_websocket
from tests.unit import test_outbox_sending as plain

from jsclient import errors, waiting
from jsclient._connection import outbox, sender
from jsclient._connection.outbox import Outbox
from jsclient._connection.sender import LinkFrame
from jsclient._transport import sealing, stream, tcp, tls, ws
from jsclient._transport.tcp import TcpTransport
from jsclient._transport.tls import default_tls_context, start_tls
from jsclient._transport.ws import WebSocketTransport
from jsclient.protocol.frames import LARGE_PAYLOAD, Frame, LargeFrame
from jsclient.testing.certs import Certificates, certificates

traced = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the points are those of 3.11")

SCENE: list[Frame] = [
    *(b"one;", b"two;", bytes(70_000), LargeFrame((b"line;", b"L" * 3 * LARGE_PAYLOAD, b"!;"))),
    *(b"%d;" % number for number in range(20)),
]


class Strike(plain.Strike):
    files = frozenset(module.__file__ for module in (outbox, sender, sealing, stream, tcp, tls, ws, waiting))


@pytest.fixture(scope="module")
def certs(cryptography: object, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
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
            self.outbox.drain()
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
        strike.run(lambda: line.outbox.enqueue_now(SCENE[-1]))
    except (KeyboardInterrupt, TimeoutError, BlockingIOError, RuntimeError):
        pass
    if strike.done:
        return line
    line.close()
    return None


@traced
@pytest.mark.parametrize("kind", ["tls", "ws", "wss"])
def test_an_exception_of_a_handler_sends_nothing_twice(kind: str, certs: Certificates, count: Any) -> None:
    """Each point in the full tier; a tenth of them in the short one."""
    step = count(10, 1)
    lived = broken = 0
    for number in range(1, 100_000, 11 - step):
        error = (KeyboardInterrupt, TimeoutError, BlockingIOError, RuntimeError)[number % 4]
        line = struck(kind, certs, number, raises(error))
        if line is None:
            break
        if line.broken:
            broken += 1
            line.transport.shutdown()
            line.outbox.detach()
            got, kept = line.plain(), plain.whole(list(line.outbox.frames))
            assert plain.whole(SCENE).startswith(got), number
            if len(got) + len(kept) > len(plain.whole(SCENE)):
                pytest.fail(f"sent, and kept for the next link: {number}")
        else:
            lived += 1
            got = line.finish()
            assert got == plain.whole(SCENE) or got == plain.whole(SCENE[:-1]), number  # before it was queued
        assert plain.is_free(line.outbox), number
        line.close()
    assert lived > 2
    assert broken > 2


@traced
@pytest.mark.parametrize("kind", ["tls", "ws", pytest.param("wss", marks=pytest.mark.slow)])
def test_a_handler_may_post_and_is_refused_where_it_would_wait(kind: str, certs: Certificates, count: Any) -> None:
    refused = served = 0

    def handler(line: Line) -> None:
        nonlocal refused, served
        line.outbox.enqueue(b"<enqueued>")
        try:
            line.outbox.enqueue_now(LinkFrame(b"<waits>"))
            served += 1
        except errors.Reentered:
            refused += 1

    for number in range(1, 100_000, 11 - count(10, 1)):
        before = served
        line = struck(kind, certs, number, handler)
        if line is None:
            break
        got = line.finish()
        assert got.count(b"<enqueued>") == 1, number
        assert got.count(b"<waits>") == served - before, number
        assert got.replace(b"<enqueued>", b"").replace(b"<waits>", b"") == plain.whole(SCENE), number
        assert not line.broken, number
        line.close()
    assert refused > 2
    assert served > 2


def test_a_socket_that_sends_in_python_code_is_given_up_beneath_tls(certs: Certificates) -> None:
    line = Line("tls", certs, proxy=True)

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    vars(vars(line.transport)["_inner"])["_sock"].send = interrupted
    with pytest.raises(KeyboardInterrupt):
        line.outbox.enqueue_now(b"x;")
    assert line.broken
    line.close()


def encrypting(line: Line, handler: Callable[[], None]) -> None:
    """The handler strikes once within the encryption: there CPython looks for signals, with the lock of the session
    taken and the record made."""
    stream_of_tls = vars(vars(line.transport)["_inner"] if line.framed else line.transport)

    class Session:
        """The session, and the handler behind its first write."""

        def write(self, piece: Any) -> int:
            made: int = session.write(piece)
            stream_of_tls["_session"] = session
            handler()
            return made

        def __getattr__(self, name: str) -> Any:
            return getattr(session, name)

    session = stream_of_tls["_session"]
    stream_of_tls["_session"] = Session()


@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_an_exception_within_the_encryption_sends_nothing_twice(kind: str, certs: Certificates) -> None:
    """What the session had answered was lost with the exception, and the record was made again."""
    line = Line(kind, certs)
    encrypting(line, lambda: raises(KeyboardInterrupt)(line))
    line.outbox.frames.extend(SCENE[:-1])
    with pytest.raises(KeyboardInterrupt):
        line.outbox.enqueue_now(SCENE[-1])
    assert line.broken, "an interrupted write costs the link"
    line.transport.shutdown()
    assert line.outbox.detach() == []
    assert not line.outbox.frames, "it may be out: a frame that is sent twice is worse than a lost one"
    line.close()


@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_a_handler_within_the_encryption_is_refused_and_the_reader_goes_on(kind: str, certs: Certificates) -> None:
    line = Line(kind, certs)

    def handler() -> None:
        line.outbox.enqueue(b"<handler>")
        with pytest.raises(errors.Reentered):
            line.outbox.enqueue_now(LinkFrame(b"<waits>"))

    encrypting(line, handler)
    line.outbox.frames.extend(SCENE[:-1])
    line.outbox.enqueue_now(SCENE[-1])
    assert line.finish().replace(b"<handler>", b"") == plain.whole(SCENE)
    line.answer(b"+answer")
    assert line.transport.recv_within(5) == b"+answer"
    assert not line.broken
    line.close()


def test_what_such_a_handler_raises_is_raised(certs: Certificates) -> None:
    line = Line("tls", certs)

    def handler() -> None:
        raise RuntimeError("of the handler")

    encrypting(line, handler)
    with pytest.raises(RuntimeError, match="of the handler"):
        line.outbox.enqueue_now(SCENE[-1])
    line.close()


def test_empty_blocks_are_nothing_to_send(certs: Certificates) -> None:
    """It went round and round, with the send lock taken."""
    line = Line("tls", certs)
    assert list(line.transport.write([b"", b"x"])) == [1]
    assert list(line.transport.write([])) == [0]
    assert line.finish() == b"x"
    line.close()
