"""jsclient._transport.tls: handshakes with a server of the standard library, records, refusals with their reasons."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.pauses import time_passes
from tests.sockets import write_all

from jsclient._transport.dialling import connect_tcp
from jsclient._transport.tls import ENCRYPT_SLICE, TlsAlert, TlsTransport, default_tls_context, start_tls
from jsclient.errors import ConfigError, TlsError
from jsclient.testing import wait_until
from jsclient.testing.certs import Certificates, Pair, certificates


@pytest.fixture(scope="module")
def certs(cryptography: object, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


class TlsServer:
    """Accepts one TLS connection at a time and hands the wrapped socket to `serve`."""

    def __init__(self, pair: Pair, client_ca: str | None = None, versions: ssl.TLSVersion | None = None) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pair.cert, pair.key)
        if client_ca is not None:
            self.context.load_verify_locations(client_ca)
            self.context.verify_mode = ssl.CERT_REQUIRED
        if versions is not None:
            self.context.maximum_version = versions
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.serve: Callable[[ssl.SSLSocket], None] = echo
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            try:
                raw, _ = self.listener.accept()
            except OSError:
                return
            raw.settimeout(20)
            try:
                with self.context.wrap_socket(raw, server_side=True) as sock:
                    self.serve(sock)
            except OSError:
                raw.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed before
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)


def echo(sock: ssl.SSLSocket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


@pytest.fixture
def serve(certs: Certificates) -> Iterator[Callable[..., TlsServer]]:
    servers: list[TlsServer] = []

    def start(pair: Pair | None = None, **options: object) -> TlsServer:
        servers.append(TlsServer(pair or certs.server, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def connect(server: TlsServer, context: ssl.SSLContext, name: str = "localhost") -> TlsTransport:
    tcp = connect_tcp("127.0.0.1", server.port, timeout=5)
    try:
        return start_tls(tcp, context, name, 5)
    except BaseException:
        tcp.shutdown()
        tcp.close()
        raise


def finish(transport: TlsTransport) -> None:
    transport.shutdown()
    transport.close()


def read_exactly(transport: TlsTransport, size: int) -> bytes:
    chunks = []
    while size > 0:
        chunk = transport.recv()
        if chunk is not None:
            assert chunk, "closed too early"
            chunks.append(chunk)
            size -= len(chunk)
    return b"".join(chunks)


Serve = Callable[..., TlsServer]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_echo(serve: Serve, certs: Certificates, version: ssl.TLSVersion, name: str) -> None:
    transport = connect(serve(versions=version), default_tls_context(certs.ca), name)
    assert transport.secure
    assert transport.version == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
    assert write_all(transport, [b"hello ", b"world"], 5) == 0
    assert read_exactly(transport, 11) == b"hello world"
    assert transport.unsent == 0
    transport.set_tick(0.02)
    assert transport.recv() is None
    assert transport.recv_within(0) is None
    finish(transport)


def test_large_amounts_both_ways_at_once(serve: Serve, certs: Certificates) -> None:
    transport = connect(serve(), default_tls_context(certs.ca))
    data = bytes(range(256)) * 20_000
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_exactly, transport, len(data))
        for start in range(0, len(data), 300_000):
            assert transport.send(data[start : start + 300_000], 20)
        assert reading.result(20) == data
    finish(transport)


def test_two_senders_under_one_lock_and_a_reader(serve: Serve, certs: Certificates) -> None:
    transport = connect(serve(), default_tls_context(certs.ca))
    lock = threading.Lock()
    count = 500

    def send(letter: bytes) -> None:
        for number in range(count):
            with lock:
                assert transport.send(letter * (1 + number % 50 * 100), 20)

    total = 2 * sum(1 + number % 50 * 100 for number in range(count))
    with ThreadPoolExecutor(3) as pool:
        reading = pool.submit(read_exactly, transport, total)
        for sending in [pool.submit(send, b"a"), pool.submit(send, b"b")]:
            sending.result(20)
        received = reading.result(20)
    assert received.count(b"a") == received.count(b"b") == total // 2
    finish(transport)


def test_a_peer_that_does_not_read_ends_the_send_at_its_deadline(serve: Serve, certs: Certificates) -> None:
    server = serve()
    go_on = threading.Event()
    received: list[int] = []

    def deaf(sock: ssl.SSLSocket) -> None:
        go_on.wait(20)
        size = 0
        while data := sock.recv(65536):
            size += len(data)
            received[:] = [size]

    server.serve = deaf
    transport = connect(server, default_tls_context(certs.ca))
    sent = left = 0
    while not left:
        left = write_all(transport, [b"x" * 1_000_000], 0.1)
        sent += 1_000_000 - left
    assert left
    # What is encrypted ahead of the kernel is little: the rest could still be kept by its owner.
    assert 0 < transport.unsent < 2 * ENCRYPT_SLICE
    go_on.set()
    assert write_all(transport, [b"y" * 10], 20) == 0
    assert transport.unsent == 0
    wait_until(lambda: received == [sent + 10], 20)
    finish(transport)


def test_the_end_of_the_stream(serve: Serve, certs: Certificates) -> None:
    server = serve()

    def last_words(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"bye")

    server.serve = last_words
    transport = connect(server, default_tls_context(certs.ca))
    assert read_exactly(transport, 3) == b"bye"
    assert transport.recv() == b""
    assert transport.recv() == b""
    finish(transport)


def test_closing_sends_nothing(serve: Serve, certs: Certificates) -> None:
    """No close_notify: in a forked child it would end the session of the parent."""
    server = serve()
    seen: list[bytes] = []

    def watch(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"!")
        seen.append(socket.socket.recv(sock, 100))  # below TLS: a close_notify would be bytes

    server.serve = watch
    transport = connect(server, default_tls_context(certs.ca))
    assert read_exactly(transport, 1) == b"!"  # with bytes left unread the kernel resets the stream
    transport.close()
    transport.close()
    assert transport.fileno() == -1
    server.close()
    assert seen == [b""]


def test_shutdown_wakes_the_reader(serve: Serve, certs: Certificates) -> None:
    transport = connect(serve(), default_tls_context(certs.ca))
    transport.set_tick(30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.recv)
        transport.shutdown()
        with contextlib.suppress(OSError):
            assert waiting.result(2) == b""
    transport.close()


def test_damaged_records_are_an_error(serve: Serve, certs: Certificates) -> None:
    transport = connect(serve(), default_tls_context(certs.ca))
    transport._incoming.write(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
    with pytest.raises(TlsAlert) as caught:
        transport.recv()
    assert isinstance(caught.value, OSError)
    assert transport.needs_flush, "the alert for the server waits to be sent"
    finish(transport)


# --- refusals


def refused(server: TlsServer, context: ssl.SSLContext, name: str = "localhost") -> str:
    with pytest.raises(TlsError) as caught:
        connect(server, context, name)
    text = str(caught.value)
    assert f"127.0.0.1:{server.port}" in text
    return text


def test_certificates_that_do_not_verify(serve: Serve, certs: Certificates) -> None:
    ours = default_tls_context(certs.ca)
    assert "has expired" in refused(serve(certs.expired), ours)
    assert "another host name" in refused(serve(certs.wrong_name), ours)
    assert "another IP address" in refused(serve(certs.wrong_name), ours, "127.0.0.1")
    assert "give its certificate as CA file" in refused(serve(certs.foreign), ours)
    assert "give its certificate as CA file" in refused(serve(), default_tls_context())


def test_a_name_that_cannot_be_verified(serve: Serve, certs: Certificates) -> None:
    with pytest.raises(TlsError, match="cannot verify"):
        connect(serve(), default_tls_context(certs.ca), "")


def client_certificate_outcome(server: TlsServer, context: ssl.SSLContext) -> str:
    """With TLS 1.3 the refusal comes after the client's part of the handshake: as the first thing read."""
    with pytest.raises(TlsError) as caught:
        transport = connect(server, context)
        try:
            while transport.recv() is None:
                pass
        finally:
            finish(transport)
    return str(caught.value)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates(serve: Serve, certs: Certificates, version: ssl.TLSVersion) -> None:
    server = serve(client_ca=certs.ca, versions=version)
    good = connect(server, default_tls_context(certs.ca, certs.client.cert, certs.client.key))
    good.send(b"x", 5)
    assert read_exactly(good, 1) == b"x"
    finish(good)
    missing = client_certificate_outcome(server, default_tls_context(certs.ca))
    assert "client certificate" in missing or "refused the handshake" in missing
    context = default_tls_context(certs.ca, certs.foreign_client.cert, certs.foreign_client.key)
    assert "authority of our client certificate" in client_certificate_outcome(server, context)


@pytest.mark.parametrize(
    ("answer", "text"),
    [(b"INFO {}\r\n", "does not speak TLS"), (b"HTTP/1.1 400 Bad\r\n\r\n", "does not speak TLS"), (b"", "closed")],
)
def test_a_server_without_tls(answer: bytes, text: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def serve_once() -> None:
            with listener.accept()[0] as sock:
                sock.settimeout(10)
                sock.sendall(answer)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass

        serving = pool.submit(serve_once)
        tcp = connect_tcp("127.0.0.1", listener.getsockname()[1], timeout=5)
        with pytest.raises(TlsError, match=text):
            start_tls(tcp, default_tls_context(), "localhost", 5)
        tcp.shutdown()
        tcp.close()
        serving.result(10)


def test_a_silent_server_ends_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tcp = connect_tcp("127.0.0.1", listener.getsockname()[1], timeout=5)
        with pytest.raises(TlsError, match="no answer in time"):
            start_tls(tcp, default_tls_context(), "localhost", 0.1)
        tcp.close()


# --- the context


def test_the_default_context_verifies() -> None:
    context = default_tls_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_ca_file_replaces_the_authorities_of_the_system(certs: Certificates) -> None:
    assert len(default_tls_context(certs.ca).get_ca_certs()) == 1
    assert len(default_tls_context(ca_data=Path(certs.ca).read_text()).get_ca_certs()) == 1


def test_wrong_files(certs: Certificates, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for options in (
        {"ca_file": str(junk)},
        {"ca_file": str(tmp_path / "missing")},
        {"ca_data": "junk"},
        {"cert_file": str(junk)},
        {"cert_file": certs.client.cert, "key_file": certs.server.key},
        {"key_file": certs.client.key},
    ):
        with pytest.raises(ConfigError):
            default_tls_context(**options)


def test_an_encrypted_key_never_asks_the_terminal(certs: Certificates, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(certs.client.key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"marker"),
        )
    )
    default_tls_context(certs.ca, certs.client.cert, str(locked), key_password="marker")
    for password in (None, "wrong"):
        with pytest.raises(ConfigError) as caught:
            default_tls_context(certs.ca, certs.client.cert, str(locked), key_password=password)
        assert "marker" not in str(caught.value)


def test_a_record_that_comes_in_drops_does_not_hold_up_the_reader(
    serve: Serve, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has pings to look after: it comes back although bytes go on coming, and nothing is lost."""
    monkeypatch.setattr("jsclient._transport.tls.MAX_TRICKLE", 0.05)
    transport = connect(serve(), default_tls_context(certs.ca))
    transport.send(b"x" * 1000, 5)
    sealed = b""
    while len(sealed) < 1000:
        sealed += transport._inner.recv() or b""
    drops = iter([sealed[index : index + 1] for index in range(len(sealed))])

    def drop() -> bytes | None:
        time_passes(0.001, "a byte comes each millisecond")
        return next(drops, None)

    monkeypatch.setattr(transport._inner, "recv", drop)
    outcomes = [transport.recv()]
    while outcomes[-1] is None:
        outcomes.append(transport.recv())
    assert len(outcomes) > 3
    assert outcomes[-1] == b"x" * 1000
    finish(transport)
