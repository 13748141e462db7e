"""jsclient.testing.Proxy between two raw sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from jsclient.testing import Proxy, wait_until


class Ends:
    """A client socket and its server socket, with the proxy between."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(5)
        self.proxy = Proxy(self.listener.getsockname()[1]).start()
        self.sockets: list[socket.socket] = [self.listener]

    def connect(self) -> tuple[socket.socket, socket.socket]:
        expected = self.proxy.accepted + 1
        client = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=5)
        server, _ = self.listener.accept()
        wait_until(lambda: self.proxy.accepted == expected)
        server.settimeout(5)
        self.sockets += [client, server]
        return client, server

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.proxy.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close()


def take(sock: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, fewer only when the other side closes before."""
    data = b""
    while len(data) < size and (piece := sock.recv(size - len(data))):
        data += piece
    return data


def silent(sock: socket.socket, seconds: float = 0.2) -> bool:
    """Nothing arrives for so long."""
    sock.settimeout(seconds)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(5)


def test_bytes_pass_both_ways_and_are_counted(ends: Ends) -> None:
    client, server = ends.connect()
    client.sendall(b"up")
    assert take(server, 2) == b"up"
    server.sendall(b"down" * 100_000)
    assert take(client, 400_000) == b"down" * 100_000
    assert ends.proxy.up.bytes == 2
    assert ends.proxy.down.bytes == 400_000
    assert ends.proxy.connections == ends.proxy.accepted == 1


@pytest.mark.parametrize("reset", [False, True])
def test_cut_ends_all_connections(ends: Ends, reset: bool) -> None:
    pairs = [ends.connect() for _ in range(3)]
    assert ends.proxy.cut(reset=reset) == 3
    for pair in pairs:
        for sock in pair:
            if reset:
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
            else:
                assert sock.recv(1) == b""
    assert ends.proxy.connections == 0
    assert ends.connect()[0].send(b"again") == 5


@pytest.mark.parametrize("size", [1, 7, 65536, 100_001])
def test_cut_after_cuts_at_exactly_that_byte(ends: Ends, size: int) -> None:
    client, server = ends.connect()
    ends.proxy.cut_after(size, "down")
    server.sendall(b"x" * 150_000)
    assert len(take(client, 150_000)) == size
    wait_until(lambda: ends.proxy.connections == 0)
    assert ends.proxy.cuts == 1
    client, server = ends.connect()
    server.sendall(b"y" * 10)
    assert take(client, 10) == b"y" * 10


def test_stall_holds_back_one_direction(ends: Ends) -> None:
    client, server = ends.connect()
    ends.proxy.stall("down")
    server.sendall(b"late")
    client.sendall(b"now")
    assert take(server, 3) == b"now"
    assert silent(client)
    ends.proxy.resume()
    assert take(client, 4) == b"late"


def test_a_stalled_connection_can_be_cut(ends: Ends) -> None:
    client, server = ends.connect()
    ends.proxy.stall()
    server.sendall(b"never")
    assert ends.proxy.cut() == 1
    assert client.recv(1) == b""


def test_a_half_open_connection_is_dead_and_later_ones_live(ends: Ends) -> None:
    client, server = ends.connect()
    assert ends.proxy.half_open() == 1
    server.sendall(b"never")
    assert silent(client)
    client.close()
    assert silent(server), "it is not told"
    other, its_server = ends.connect()
    its_server.sendall(b"here")
    assert take(other, 4) == b"here"


def test_delay_and_throttle_take_their_time(ends: Ends) -> None:
    client, server = ends.connect()
    ends.proxy.delay(0.3, "up")
    start = time.monotonic()
    client.sendall(b"x")
    assert take(server, 1) == b"x"
    assert time.monotonic() - start >= 0.3
    ends.proxy.throttle(50_000, "down")
    start = time.monotonic()
    server.sendall(b"y" * 20_000)
    assert len(take(client, 20_000)) == 20_000
    assert time.monotonic() - start >= 0.3
    ends.proxy.heal()
    server.sendall(b"z" * 1_000_000)
    assert len(take(client, 1_000_000)) == 1_000_000


def test_delay_is_a_long_line_and_not_a_slow_one(ends: Ends) -> None:
    """Chunks are under way at once: ten that are sent 20 ms apart need one delay, not ten."""
    client, server = ends.connect()
    ends.proxy.delay(0.5, "up")
    start = time.monotonic()
    for number in range(10):
        client.sendall(b"%d" % number)
        assert silent(client, 0.02)
    assert take(server, 10) == b"0123456789"
    assert 0.6 <= time.monotonic() - start < 4
    client.sendall(b"the last words of this side")
    client.shutdown(socket.SHUT_WR)
    assert take(server, 27) == b"the last words of this side"


def test_limit_makes_small_pieces(ends: Ends) -> None:
    client, server = ends.connect()
    ends.proxy.limit(3, "down")
    server.sendall(b"0123456789")
    assert take(client, 10) == b"0123456789"
    with pytest.raises(ValueError):
        ends.proxy.limit(0)


def test_corrupt_and_mutate_change_bytes(ends: Ends) -> None:
    client, server = ends.connect()
    ends.proxy.corrupt(2, "down", mask=0x20)
    server.sendall(b"abcdef")
    assert take(client, 6) == b"abCdef"
    ends.proxy.mutate(lambda data: data.replace(b"tls", b"TLS"), "up")
    client.sendall(b"no tls")
    assert take(server, 6) == b"no TLS"


def test_refuse_takes_the_port_down_and_accept_brings_it_back(ends: Ends) -> None:
    client, _ = ends.connect()
    ends.proxy.refuse()
    assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        ends.connect()
    ends.proxy.accept()
    client, server = ends.connect()
    client.sendall(b"back")
    assert take(server, 4) == b"back"


def test_a_dead_target_closes_the_client(ends: Ends) -> None:
    ends.listener.close()
    with socket.create_connection(("127.0.0.1", ends.proxy.port), timeout=5) as client:
        assert client.recv(1) == b""


def test_a_tap_sees_what_passes_and_on_which_connection(ends: Ends) -> None:
    seen: list[tuple[int, str, bytes]] = []
    ends.proxy.tap = lambda number, direction, data: seen.append((number, direction, data))
    for number in (1, 2):
        client, server = ends.connect()
        client.sendall(b"up%d" % number)
        assert take(server, 3) == b"up%d" % number
        server.sendall(b"down%d" % number)
        assert take(client, 5) == b"down%d" % number
    assert seen == [(1, "up", b"up1"), (1, "down", b"down1"), (2, "up", b"up2"), (2, "down", b"down2")]
