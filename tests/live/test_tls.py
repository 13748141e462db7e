"""TLS against real servers and men in the middle: every mode, every refusal, nothing said in clear."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

import jsclient
from jsclient import TLSOptions, errors
from jsclient.connection import engine_of
from jsclient.testing import (
    Certificates,
    FakeClient,
    FakeServer,
    NatsServer,
    Proxy,
    certificates,
    free_port,
    info_line,
    wait_until,
)


@pytest.fixture(scope="module")
def certs(cryptography: object, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def tls_server(certs: Certificates) -> Iterator[NatsServer]:
    with NatsServer(certs.server_config(), jetstream=False) as server:
        yield server


@pytest.fixture
def ours(certs: Certificates) -> TLSOptions:
    return TLSOptions(ca_file=certs.ca)


def works(url: str, **options: Any) -> None:
    with jsclient.connect(url, **options) as nc:
        subscription = nc.subscribe("echo")
        nc.publish("echo", b"x" * 100_000)
        assert len(subscription.next(timeout=10).data) == 100_000


def refused(url: str, **options: Any) -> str:
    with pytest.raises(errors.TlsError) as caught:
        jsclient.connect(url, **options)
    return str(caught.value)


def tls_url(server: NatsServer, host: str = "127.0.0.1") -> str:
    return f"tls://{host}:{server.port}"


def is_secure(nc: jsclient.Connection) -> bool:
    link = engine_of(nc).session.link
    return link is not None and link.stream.secure


# --- modes


def test_required(tls_server: NatsServer, certs: Certificates, ours: TLSOptions) -> None:
    for url in (tls_server.url, tls_url(tls_server), tls_url(tls_server, "localhost")):
        works(url, tls=ours)
    works(tls_server.url, tls=ssl.create_default_context(cafile=certs.ca))
    with pytest.raises(errors.TlsError, match="CA file"):
        jsclient.connect(tls_server.url)  # no option: verified all the same, against the system's authorities


def test_available(certs: Certificates, ours: TLSOptions) -> None:
    with NatsServer("allow_non_tls: true\n" + certs.server_config(), jetstream=False) as server:
        ways: list[tuple[str, dict[str, Any], bool]] = [
            (server.url, {}, False),
            (server.url, {"tls": False}, False),
            (server.url, {"tls": ours}, True),
            (tls_url(server), {"tls": ours}, True),
        ]
        for url, options, secure in ways:
            with jsclient.connect(url, **options) as nc:
                assert is_secure(nc) is secure
                assert bool(nc.server_info.tls_available)


def handshake_first_server(certs: Certificates, mode: str) -> NatsServer:
    return NatsServer(certs.server_config(extra=f"handshake_first: {mode}"), jetstream=False)


def test_handshake_first(server: NatsServer, certs: Certificates, ours: TLSOptions) -> None:
    first = attrs.evolve(ours, handshake_first=True)
    if server.version < (2, 10, 4):
        # Such a server speaks first: the option says so instead of hanging.
        with NatsServer(certs.server_config(), jetstream=False) as old:
            assert "after INFO" in refused(old.url, tls=first)
        return
    with handshake_first_server(certs, "true") as only:
        works(only.url, tls=first)
        with pytest.raises(errors.ConnectFailed, match="TLS first"):
            jsclient.connect(only.url, tls=ours, connect_timeout=0.5)
    with handshake_first_server(certs, "auto") as both:
        works(both.url, tls=first)
        works(both.url, tls=ours)
    with NatsServer(certs.server_config(), jetstream=False) as plain:
        assert "after INFO" in refused(plain.url, tls=first)


def test_client_certificates(certs: Certificates, ours: TLSOptions) -> None:
    with NatsServer(certs.server_config(verify=True), jetstream=False) as server:
        works(server.url, tls=attrs.evolve(ours, cert_file=certs.client.cert, key_file=certs.client.key))
        context = ssl.create_default_context(cafile=certs.ca)
        context.load_cert_chain(certs.client.cert, certs.client.key)
        works(server.url, tls=context)
        assert "client certificate" in refused(server.url, tls=ours)
        foreign = attrs.evolve(ours, cert_file=certs.foreign_client.cert, key_file=certs.foreign_client.key)
        text = refused(server.url, tls=foreign)
        assert "client certificate" in text


def test_client_certificate_as_the_user(certs: Certificates, ours: TLSOptions) -> None:
    """`verify_and_map`: the certificate is the credentials."""
    config = (
        certs.server_config(extra="verify_and_map: true") + 'authorization { users: [ { user: "client.example" } ] }'
    )
    with NatsServer(config, jetstream=False) as server:
        works(server.url, tls=attrs.evolve(ours, cert_file=certs.client.cert, key_file=certs.client.key))


# --- certificates that must not be accepted


@pytest.mark.parametrize(
    ("kind", "text"),
    [("expired", "has expired"), ("foreign", "CA file"), ("wrong_name", "another IP address")],
)
def test_bad_server_certificates(certs: Certificates, ours: TLSOptions, kind: str, text: str) -> None:
    with NatsServer(certs.server_config(getattr(certs, kind)), jetstream=False) as server:
        assert text in refused(server.url, tls=ours, user="u", password="p")
        assert text in refused(tls_url(server), tls=ours)


def test_the_name_to_verify_can_be_given(certs: Certificates, ours: TLSOptions) -> None:
    with NatsServer(certs.server_config(certs.wrong_name), jetstream=False) as server:
        works(server.url, tls=attrs.evolve(ours, server_name="other.example"))
        assert "another host name" in refused(server.url, tls=attrs.evolve(ours, server_name="localhost"))


def test_the_host_of_info_is_not_believed(certs: Certificates, ours: TLSOptions) -> None:
    """An attacker has a good certificate for another name, and INFO claims that this is the server's name."""
    config = 'client_advertise: "other.example:4222"\n' + certs.server_config(certs.wrong_name)
    with NatsServer(config, jetstream=False) as attacker:
        assert "another IP address" in refused(attacker.url, tls=ours)
        assert "another host name" in refused(tls_url(attacker, "localhost"), tls=ours)


# --- nothing in clear


def plain_info(client: FakeClient) -> None:
    """A man in the middle that takes the TLS out of INFO, or a server that offers none."""
    client.send(info_line(connect_urls=["127.0.0.1:1"]))
    client.hold()


def silent_about(fake: FakeServer, connects: int) -> None:
    """The client has come and gone without a byte."""
    wait_until(lambda: len(fake.clients) >= connects)
    assert [bytes(client.received) for client in fake.clients] == [b""] * len(fake.clients)


def test_stripped_tls_sees_no_byte(ours: TLSOptions) -> None:
    secret = {"user": "u", "password": "marker"}
    with FakeServer(plain_info) as fake:
        ways: list[tuple[str, dict[str, Any]]] = [
            (fake.url.replace("nats:", "tls:"), {}),
            (fake.url, {"tls": True}),
            (fake.url, {"tls": ours}),
            (fake.url, {"tls": ssl.create_default_context()}),
        ]
        for url, options in ways:
            assert "offers no TLS" in refused(url, **secret, **options)
        silent_about(fake, 4)


def test_data_in_clear_behind_info_is_refused(ours: TLSOptions) -> None:
    """What a man in the middle puts between INFO and the handshake must not be taken for the server's."""

    def script(client: FakeClient) -> None:
        client.send(info_line(tls_required=True) + b"MSG a 1 2\r\nhi\r\n")
        client.hold()

    with FakeServer(script) as fake:
        assert "in clear" in refused(fake.url, tls=ours)
        silent_about(fake, 1)


def test_a_man_in_the_middle_that_edits_info(tls_server: NatsServer, ours: TLSOptions) -> None:
    with Proxy(tls_server.port) as proxy:
        proxy.mutate(lambda data: data.replace(b'"tls_required":true,', b""))
        assert "offers no TLS" in refused(f"tls://127.0.0.1:{proxy.port}", tls=ours, user="u", password="p")
        assert proxy.up.bytes == 0


def clustered(number: int, routes: list[int], tls: str, extra: str = "") -> str:
    cluster = f"cluster {{ name: c, port: {routes[number]}, routes: [ nats://127.0.0.1:{routes[1 - number]} ] }}\n"
    return cluster + tls + extra


@pytest.mark.slow
def test_no_byte_in_clear_to_a_discovered_server(certs: Certificates, ours: TLSOptions) -> None:
    """The second server of the cluster names the address of the man in the middle as its own."""
    routes = [free_port(), free_port()]
    tls = certs.server_config()
    with (
        FakeServer(plain_info) as fake,
        NatsServer(clustered(0, routes, tls), jetstream=False) as server,
        NatsServer(clustered(1, routes, tls, f'client_advertise: "127.0.0.1:{fake.port}"'), jetstream=False),
    ):
        for count, url in [(1, tls_url(server)), (2, server.url)]:
            with jsclient.connect(url, tls=ours, user="u", password="marker") as nc:
                wait_until(lambda nc=nc: any(str(fake.port) in url for url in nc.servers))  # type: ignore[misc]
                nc.flush()
                server.stop()
                wait_until(lambda count=count: len(fake.clients) >= count)  # type: ignore[misc]
                wait_until(lambda nc=nc: isinstance(nc.last_error, errors.TlsError))  # type: ignore[misc]
                server.start()
                wait_until(lambda nc=nc: nc.is_connected)  # type: ignore[misc]
                assert is_secure(nc)
                nc.flush()
        silent_about(fake, 2)


def test_discovered_addresses_keep_the_name_of_the_certificate(certs: Certificates, ours: TLSOptions) -> None:
    """The second server is known by its IP address only; its certificate carries the name of the first URL."""

    def dial(host: str, port: int, timeout: float | None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout)

    ports = [free_port(), free_port()]
    routes = [free_port(), free_port()]
    tls = certs.server_config(certs.wrong_name)
    with (
        NatsServer(clustered(0, routes, tls), jetstream=False, port=ports[0], name="one") as one,
        NatsServer(clustered(1, routes, tls), jetstream=False, port=ports[1], name="two"),
        jsclient.connect(f"tls://other.example:{ports[0]}", tls=ours, socket_factory=dial) as nc,
    ):
        wait_until(lambda: f"tls://127.0.0.1:{ports[1]}" in nc.servers)
        one.stop()
        wait_until(lambda: nc.is_connected and nc.server_info.server_name == "two", 20)
        assert is_secure(nc)
        nc.flush()


@pytest.mark.parametrize("own_authority", [False, True])
def test_a_name_that_was_told_in_clear(certs: Certificates, ours: TLSOptions, own_authority: bool) -> None:
    """An attacker between adds a host of their own, which has a certificate for its own name, and cuts the link.

    It is refused, also where one authority of our own is trusted: not every host that it knows is a NATS server.
    """

    def dial(host: str, port: int, timeout: float | None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout)

    tls = ours if own_authority else ssl.create_default_context(cafile=certs.ca)
    with (
        NatsServer(certs.server_config(), jetstream=False, name="good") as good,
        NatsServer(certs.server_config(certs.wrong_name), jetstream=False, name="added") as added,
        Proxy(good.port) as proxy,
    ):
        more = f'"connect_urls":["other.example:{added.port}"],"tls_required":true'.encode()
        proxy.mutate(lambda data: data.replace(b'"tls_required":true', more) if data.startswith(b"INFO") else data)
        with jsclient.connect(f"tls://localhost:{proxy.port}", tls=tls, socket_factory=dial) as nc:
            assert f"tls://other.example:{added.port}" in nc.servers
            proxy.refuse()
            wait_until(lambda: isinstance(nc.last_error, errors.TlsError))
            assert "localhost" in str(nc.last_error)
            assert added.monitor("varz")["total_connections"] >= 1
            assert not any("lang" in client for client in added.monitor("connz")["connections"]), "a CONNECT has come"


@pytest.mark.parametrize("late", [False, True])
def test_a_name_that_is_confirmed_inside_tls(certs: Certificates, ours: TLSOptions, late: bool) -> None:
    """The second server has a name of its own: it is used where an INFO inside TLS names it, too.

    2.15 sends one at once, older servers when the cluster changes; until then its name is hearsay.
    """

    def dial(host: str, port: int, timeout: float | None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout)

    ports = [free_port(), free_port()]
    routes = [free_port(), free_port()]
    good = clustered(0, routes, certs.server_config())
    other = clustered(1, routes, certs.server_config(certs.wrong_name), f'client_advertise: "other.example:{ports[1]}"')
    one = NatsServer(good, jetstream=False, port=ports[0], name="one")
    two = NatsServer(other, jetstream=False, port=ports[1], name="two")
    with one, two:
        wait_until(lambda: one.monitor("varz").get("connect_urls"))
        if late:
            two.stop()
        with jsclient.connect(f"tls://localhost:{ports[0]}", tls=ours, socket_factory=dial) as nc:
            if late:
                two.start()
            wait_until(lambda: f"tls://other.example:{ports[1]}" in nc.servers, 20)
            nc.flush()
            confirmed = late or nc.server_info.connect_info
            one.stop()
            if confirmed:
                wait_until(lambda: nc.is_connected and nc.server_info.server_name == "two", 20)
                assert is_secure(nc)
            else:
                wait_until(lambda: isinstance(nc.last_error, errors.TlsError), 20)
                assert "localhost" in str(nc.last_error)


def test_a_nats_url_is_encrypted_again_once_it_was(
    tls_server: NatsServer, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but INFO, which comes in clear, has said that there is TLS: the next one may say there is none."""
    monkeypatch.setenv("SSL_CERT_FILE", certs.ca)  # what OpenSSL trusts by default: no TLS option is given
    with Proxy(tls_server.port) as proxy, FakeServer(plain_info) as thief:
        more = f'"connect_urls":["127.0.0.1:{thief.port}"],"tls_required":true'.encode()
        proxy.mutate(lambda data: data.replace(b'"tls_required":true', more) if data.startswith(b"INFO") else data)
        with jsclient.connect(f"nats://127.0.0.1:{proxy.port}", user="u", password="marker") as nc:
            assert is_secure(nc)
            assert f"nats://127.0.0.1:{thief.port}" in nc.servers
            nc.flush()
            proxy.mutate(lambda data: data.replace(b'"tls_required":true,', b"") if data.startswith(b"INFO") else data)
            proxy.cut()
            before = proxy.up.bytes
            wait_until(lambda: len(thief.clients) >= 1)
            wait_until(lambda: isinstance(nc.last_error, errors.TlsError) and "encrypted before" in str(nc.last_error))
            assert proxy.up.bytes == before
            silent_about(thief, 1)
            proxy.heal()
            wait_until(lambda: nc.is_connected)
            assert is_secure(nc)


def test_a_reconnect_is_encrypted_again(tls_server: NatsServer, ours: TLSOptions) -> None:
    with Proxy(tls_server.port) as proxy, jsclient.connect(f"tls://127.0.0.1:{proxy.port}", tls=ours) as nc:
        nc.flush()
        for count in range(1, 4):
            proxy.cut()
            wait_until(lambda count=count: nc.stats().reconnects == count and nc.is_connected)  # type: ignore[misc]
            assert is_secure(nc)
            nc.flush()
        # Now TLS is taken out: the connection never comes back in clear.
        proxy.mutate(lambda data: data.replace(b'"tls_required":true,', b"") if data.startswith(b"INFO") else data)
        proxy.cut()
        wait_until(lambda: isinstance(nc.last_error, errors.TlsError) and "offers no TLS" in str(nc.last_error))
        proxy.heal()
        wait_until(lambda: nc.is_connected)
        nc.flush()


# --- threads


def in_background(calls: list[Callable[[], None]], seconds: float) -> None:
    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result(seconds)


SIZES = [16, 1_000, 16_384, 16_385, 100_000, 1_000_000, 40, 65_536]


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_two_threads_and_a_reader(tls_server: NatsServer, ours: TLSOptions, full: bool) -> None:
    """16 B to 1 MiB from two threads while their echoes come back: no TLS error, the order of each thread kept."""
    errors_seen: list[BaseException] = []
    seconds = 60.0 if full else 6.0
    stop = threading.Event()
    sent = {b"a": 0, b"b": 0}
    received: dict[bytes, int] = {b"a": 0, b"b": 0}
    with (
        jsclient.connect(tls_server.url, tls=ours, on_error=lambda nc, error, sub: errors_seen.append(error)) as nc,
        jsclient.connect(tls_server.url, tls=ours) as listener,
    ):
        subscription = listener.subscribe("load", pending_messages=1_000_000, pending_bytes=1 << 30)
        echo = nc.subscribe("load", pending_messages=1_000_000, pending_bytes=1 << 30)
        listener.flush()
        nc.flush()

        def publish(name: bytes) -> None:
            while not stop.is_set():
                number = sent[name]
                head = b"%b%08d" % (name, number)
                nc.publish("load", head + b"x" * (SIZES[number % len(SIZES)] - len(head)))
                sent[name] = number + 1
                if number % 50 == 49:
                    nc.flush(timeout=30)
            nc.publish("load", name)

        def read(source: jsclient.Subscription, counts: dict[bytes, int]) -> None:
            ended = 0
            while ended < len(sent):
                message = source.next(timeout=30)
                name, number = message.data[:1], message.data[1:9]
                if not number:
                    ended += 1
                    continue
                assert int(number) == counts[name]
                assert len(message.data) == SIZES[int(number) % len(SIZES)]
                counts[name] += 1

        timer = threading.Timer(seconds, stop.set)
        timer.start()
        echoes = {b"a": 0, b"b": 0}
        in_background(
            [
                lambda: publish(b"a"),
                lambda: publish(b"b"),
                lambda: read(subscription, received),
                lambda: read(echo, echoes),
            ],
            seconds + 60,
        )
        timer.join()
        assert received == echoes == sent
        assert min(sent.values()) > 100
        assert nc.stats().reconnects == listener.stats().reconnects == 0
    assert errors_seen == []
