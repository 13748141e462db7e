"""jsclient._transport.tcp: bytes through real sockets, partial sends, deadlines, wake-ups, connecting."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.sockets import ProxySocket, write_all

from jsclient._transport import dialling
from jsclient._transport.dialling import connect_tcp
from jsclient._transport.stream import Transport
from jsclient._transport.tcp import SelectTcpTransport, TcpTransport, format_address

Pair = tuple[TcpTransport, socket.socket]


@pytest.fixture(
    params=[(TcpTransport, False), (SelectTcpTransport, False), (TcpTransport, True)], ids=["poll", "select", "proxy"]
)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A transport and the raw socket at its other end, over the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    theirs.settimeout(10)
    kind, proxy = request.param
    transport = kind(ProxySocket(fileno=ours.detach()) if proxy else ours, "peer")
    transport.set_tick(0.05)
    with theirs:
        yield transport, theirs
        transport.shutdown()
        transport.close()


def read_exactly(sock: socket.socket, size: int) -> bytes:
    chunks = []
    while size:
        chunk = sock.recv(min(size, 1 << 20))
        assert chunk, "closed too early"
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def fill(transport: Transport) -> int:
    """Write until the kernel takes no more; returns how many bytes it has."""
    total = 0
    while True:
        left = write_all(transport, [b"x" * 100_000], 0)
        total += 100_000 - left
        if left:
            return total


# --- reading


def test_recv(pair: Pair) -> None:
    transport, theirs = pair
    assert transport.recv() is None
    theirs.sendall(b"hello")
    assert transport.recv() == b"hello"
    theirs.shutdown(socket.SHUT_WR)
    assert transport.recv() == b""


def test_recv_within(pair: Pair) -> None:
    transport, theirs = pair
    assert transport.recv_within(0) is None
    theirs.sendall(b"x")
    assert transport.recv_within(5) == b"x"


def test_recv_of_a_reset_connection_is_an_oserror(pair: Pair) -> None:
    transport, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    theirs.close()
    with pytest.raises(OSError):
        while transport.recv() is None:
            pass


# --- writing


@pytest.mark.parametrize(
    "data",
    [
        [b"one"],
        [b"one", b"", b"two"],
        [b"a" * 20_000, b"b", b"c", b"d" * 20_000],
        [bytes([i % 256]) * 17_000 for i in range(1200)],
        [b"z" * 5_000_000],
        [],
    ],
    ids=["one", "small list", "mixed", "more than a vector", "5 MB", "empty list"],
)
def test_what_is_written_arrives_whole_and_in_order(pair: Pair, data: list[bytes]) -> None:
    transport, theirs = pair
    whole = b"".join(data)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_exactly, theirs, len(whole))
        assert write_all(transport, data, 10) == 0
        assert reading.result(10) == whole
    assert transport.unsent == 0


def test_a_write_never_blocks_and_says_what_was_taken(pair: Pair) -> None:
    transport, theirs = pair
    total = fill(transport)
    with pytest.raises(BlockingIOError):
        list(transport.write([b"tail"]))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_exactly, theirs, total + 4)
        assert write_all(transport, [b"tail"], 10) == 0
        assert reading.result(10) == b"x" * total + b"tail"
    assert transport.unsent == 0


def test_a_blocked_send_ends_at_its_deadline(pair: Pair) -> None:
    transport, _ = pair
    fill(transport)
    started = time.monotonic()
    assert not transport.send(b"more", 0.2)
    assert 0.15 < time.monotonic() - started < 2


def test_a_blocked_send_goes_on_when_there_is_room(pair: Pair) -> None:
    transport, theirs = pair
    total = fill(transport)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(transport.send, b"end", None)
        assert read_exactly(theirs, total + 3).endswith(b"xend")
        assert sending.result(10)


def test_send_to_a_closed_peer_is_an_oserror(pair: Pair) -> None:
    transport, theirs = pair
    theirs.close()
    with pytest.raises(OSError):
        for _ in range(100):
            transport.send(b"x" * 100_000, 1)


# --- ending


def test_shutdown_wakes_a_blocked_recv(pair: Pair) -> None:
    transport, _ = pair
    transport.set_tick(30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.recv)
        transport.shutdown()
        transport.shutdown()
        with contextlib.suppress(OSError):
            assert waiting.result(2) == b""


def test_shutdown_wakes_a_blocked_send(pair: Pair) -> None:
    transport, _ = pair
    fill(transport)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.send, b"x", None)
        transport.shutdown()
        with pytest.raises(OSError):
            waiting.result(2)


def test_close_is_idempotent_and_silent(pair: Pair) -> None:
    transport, theirs = pair
    assert transport.fileno() >= 0
    transport.close()
    transport.close()
    transport.shutdown()
    assert transport.fileno() == -1
    assert theirs.recv(10) == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_close_in_a_forked_child_leaves_the_stream_of_the_parent(pair: Pair) -> None:
    transport, theirs = pair
    child = os.fork()
    if child == 0:
        transport.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert transport.send(b"still here", 1)
    assert theirs.recv(100) == b"still here"


# --- connecting


def test_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        transport = connect_tcp("localhost", port, timeout=5)
        theirs, address = listener.accept()
        with theirs:
            assert transport.peer == f"127.0.0.1:{port}"
            with socket.socket(fileno=os.dup(transport.fileno())) as ours:
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert address[0] == "127.0.0.1"
            theirs.sendall(b"x")
            assert transport.recv() == b"x"
        transport.close()


def test_local_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = connect_tcp("127.0.0.1", listener.getsockname()[1], timeout=5, local_address="127.0.0.2")
        theirs, address = listener.accept()
        theirs.close()
        transport.close()
        assert address[0] == "127.0.0.2"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_refused() -> None:
    with pytest.raises(ConnectionRefusedError, match=r"127.0.0.1:\d+: "):
        connect_tcp("127.0.0.1", free_port(), timeout=5)


def test_unknown_host() -> None:
    with pytest.raises(OSError):
        connect_tcp("host.invalid", 4222, timeout=5)


def _resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: answer)


def test_every_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        good = listener.getsockname()
        _resolve_to(monkeypatch, ("127.0.0.1", free_port()), ("127.0.0.1", free_port()), good)
        transport = connect_tcp("name", 1, timeout=5)
        assert transport.peer == format_address(*good)
        transport.close()


def test_the_error_names_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = free_port(), free_port()
    _resolve_to(monkeypatch, ("127.0.0.1", one), ("127.0.0.1", two))
    with pytest.raises(ConnectionRefusedError, match=rf"{one}.*{two}"):
        connect_tcp("name", 1, timeout=5)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [])
    with pytest.raises(OSError, match="no address"):
        connect_tcp("name", 1, timeout=5)


@contextlib.contextmanager
def deaf_listener() -> Iterator[int]:
    """A port that answers no SYN: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])


def test_a_deaf_address_gets_only_its_share_of_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with deaf_listener() as deaf, socket.create_server(("127.0.0.1", 0)) as listener:
        _resolve_to(monkeypatch, ("127.0.0.1", deaf), listener.getsockname())
        started = time.monotonic()
        connect_tcp("name", 1, timeout=0.6).close()
        assert 0.2 < time.monotonic() - started < 2


def test_timeout() -> None:
    with deaf_listener() as deaf:
        with pytest.raises(TimeoutError, match="no answer in time"):
            connect_tcp("127.0.0.1", deaf, timeout=0.2)


def test_an_abandoned_attempt_ends_soon() -> None:
    abandoned = threading.Event()
    with deaf_listener() as deaf, ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(connect_tcp, "127.0.0.1", deaf, timeout=30, abandoned=abandoned)
        abandoned.set()
        with pytest.raises(OSError, match="given up") as caught:
            attempt.result(2)
        assert caught.value.errno == errno.ECANCELED


def test_socket_factory() -> None:
    ours, theirs = socket.socketpair()
    asked = []

    def factory(host: str, port: int, timeout: float | None) -> socket.socket:
        asked.append((host, port, timeout))
        return ours

    transport = connect_tcp("host", 4222, timeout=3, socket_factory=factory)
    assert asked == [("host", 4222, 3)]
    assert transport.peer == "host:4222"
    assert transport.send(b"x", 1)
    assert theirs.recv(1) == b"x"
    transport.close()
    theirs.close()


def test_a_socket_connected_to_itself_counts_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        connect_tcp("127.0.0.1", port, timeout=1, local_address=("127.0.0.1", port))


def test_format_address() -> None:
    assert format_address("h", 1) == "h:1"
    assert format_address("::1", 1) == "[::1]:1"


def test_every_address_gets_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def refuse(family: int, kind: int, proto: int, address: Any, timeout: float, *more: Any) -> socket.socket:
        shares.append(timeout)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"10.0.0.{number}", 4222)) for number in (1, 2, 3)]
    monkeypatch.setattr("jsclient._transport.resolving.addresses", lambda *arguments: found)
    monkeypatch.setattr(dialling, "_connect_one", refuse)
    with pytest.raises(OSError, match=r"10\.0\.0\.1:4222.*10\.0\.0\.2:4222.*10\.0\.0\.3:4222"):
        dialling.connect_tcp("host", 4222, timeout=90.0)
    assert shares == pytest.approx([30.0, 45.0, 90.0], abs=5.0)
