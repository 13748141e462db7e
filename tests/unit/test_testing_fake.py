"""jsclient.testing.FakeServer, driven with a raw socket."""

from __future__ import annotations

import json
import socket

import pytest

from jsclient.testing import FakeClient, FakeServer, ScriptFailed, info_line


def dial(fake: FakeServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", fake.port), timeout=5)


def take(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := sock.recv(size - len(data))):
        data += piece
    return data


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while data := sock.recv(1000):
        parts.append(data)
    return b"".join(parts)


def test_a_script_sends_exact_bytes_and_waits_for_those_of_the_client() -> None:
    def script(client: FakeClient) -> None:
        client.send(b"one")
        client.expect(b"two")
        client.send(b"three")

    with FakeServer(script) as fake, dial(fake) as sock:
        assert take(sock, 3) == b"one"
        sock.sendall(b"..tw")
        sock.sendall(b"o")
        assert read_all(sock) == b"three"
        assert bytes(fake.clients[0].received) == b"..two"


def test_a_function_can_shake_hands() -> None:
    seen = {}

    def script(client: FakeClient) -> None:
        seen.update(client.handshake(max_payload=7, version=None))
        client.hold()

    with FakeServer(script) as fake, dial(fake) as sock:
        line = sock.makefile("rb").readline()
        sock.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert take(sock, 6) == b"PONG\r\n"
    info = json.loads(line[5:])
    assert info["max_payload"] == 7
    assert "version" not in info
    assert seen == {"verbose": False}


def test_each_connection_has_its_script_and_the_last_one_stays() -> None:
    with FakeServer(lambda client: client.send(b"1"), lambda client: client.send(b"2")) as fake:
        answers = []
        for _ in range(3):
            with dial(fake) as sock:
                answers.append(read_all(sock))
    assert answers == [b"1", b"2", b"2"]


def test_reset_is_a_reset() -> None:
    def script(client: FakeClient) -> None:
        client.expect(b"x")
        client.reset()

    with FakeServer(script) as fake, dial(fake) as sock:
        sock.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_a_broken_expectation_fails_the_test_with_what_came_instead() -> None:
    with pytest.raises(ScriptFailed, match="expected b'CONNECT'.*b'HELLO'"):
        with FakeServer(lambda client: client.expect(b"CONNECT")) as fake:
            with dial(fake) as sock:
                sock.sendall(b"HELLO")
                sock.shutdown(socket.SHUT_WR)
                assert read_all(sock) == b""


def test_closing_ends_scripts_that_wait() -> None:
    def script(client: FakeClient) -> None:
        client.send(b"hello")
        client.hold()

    with FakeServer(script) as fake, dial(fake) as sock:
        assert take(sock, 5) == b"hello"
        fake.close()
        assert sock.recv(1) == b""


def test_an_info_line_is_one_line_of_json() -> None:
    line = info_line(server_id="A", nonce="n")
    assert line.startswith(b"INFO {")
    assert line.endswith(b"}\r\n")
    assert json.loads(line[5:])["nonce"] == "n"
