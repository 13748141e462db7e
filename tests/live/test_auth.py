"""Authentication against real servers: every kind of credentials, refusals, rotation, expiry, revocation."""

from __future__ import annotations

import logging
import pickle
import queue
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.jwts import Operator, creds_text, new_seed

import jsclient
from jsclient import errors
from jsclient.auth import nkeys
from jsclient.testing import FakeServer, NatsServer, wait_until

# Made at run time: the test looks for them also in tracebacks, which quote the source.
MARKER = secrets.token_hex(8)
PASSWORD = f"password-{MARKER}"
TOKEN = f"token-{MARKER}"
SEED = new_seed()


@pytest.fixture(scope="module")
def password_server() -> Iterator[NatsServer]:
    with NatsServer(f'authorization {{ user: "app", password: "{PASSWORD}" }}', jetstream=False) as server:
        yield server


@pytest.fixture(scope="module")
def token_server() -> Iterator[NatsServer]:
    with NatsServer(f'authorization {{ token: "{TOKEN}" }}', jetstream=False) as server:
        yield server


@pytest.fixture(scope="module")
def nkey_server() -> Iterator[NatsServer]:
    config = f"authorization {{ users: [ {{ nkey: {nkeys.KeyPair(SEED).public} }} ] }}"
    with NatsServer(config, jetstream=False) as server:
        yield server


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator()


@pytest.fixture(scope="module")
def jwt_server(operator: Operator) -> Iterator[NatsServer]:
    with NatsServer(operator.config(), jetstream=False) as server:
        yield server


def works(url: str, **options: Any) -> None:
    with jsclient.connect(url, **options) as nc:
        nc.flush()


def refused(url: str, **options: Any) -> str:
    with pytest.raises(errors.AuthError) as caught:
        jsclient.connect(url, **options)
    return str(caught.value)


# --- every kind


def test_user_and_password(password_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = password_server.url
    monkeypatch.setenv("JSCLIENT_TEST_PASSWORD", PASSWORD)
    for password in (PASSWORD, jsclient.Secret(PASSWORD), lambda: PASSWORD, "env:JSCLIENT_TEST_PASSWORD"):
        works(url, user="app", password=password)
    works(url.replace("nats://", f"nats://app:{PASSWORD}@"))
    works(url.replace("nats://", f"nats://app:{PASSWORD}@"), user="other", password="wrong")


def test_token(token_server: NatsServer) -> None:
    works(token_server.url, token=TOKEN)
    works(token_server.url, token=lambda: TOKEN)
    works(token_server.url.replace("nats://", f"nats://{TOKEN}@"))


def test_nkey(nkey_server: NatsServer, tmp_path: Path) -> None:
    url = nkey_server.url
    path = tmp_path / "user.nk"
    path.write_text(SEED + "\n")
    path.chmod(0o600)
    pair = nkeys.KeyPair(SEED)
    works(url, nkey_seed=SEED)
    works(url, nkey_seed_file=path)
    works(url, nkey=pair.public, signature_callback=pair.sign)


def test_jwt(jwt_server: NatsServer, operator: Operator, tmp_path: Path) -> None:
    url = jwt_server.url
    seed = new_seed()
    jwt = operator.user_jwt(seed)
    path = tmp_path / "user.creds"
    path.write_text(creds_text(jwt, seed).replace("\n", "\r\n"))
    path.chmod(0o600)
    works(url, credentials=path)
    works(url, credentials=creds_text(jwt, seed).encode())
    works(url, credentials=lambda: path)
    works(url, jwt=jwt, nkey_seed=seed)
    works(url, jwt=lambda: jwt, signature_callback=nkeys.KeyPair(seed).sign)


def test_auth_callback(jwt_server: NatsServer, operator: Operator) -> None:
    from jsclient.auth.credentials import Authenticator

    creds = operator.creds().encode()
    works(jwt_server.url, auth_callback=lambda nonce: Authenticator(credentials=creds).fields(nonce))


def test_a_context_of_the_cli(password_server: NatsServer, tmp_path: Path) -> None:
    from jsclient.contexts import load_context

    path = tmp_path / "one.json"
    path.write_text(f'{{"url": "{password_server.url}", "user": "app", "password": "{PASSWORD}"}}')
    works_with(**load_context(path))


def works_with(**options: Any) -> None:
    with jsclient.connect(**options) as nc:
        nc.flush()


# --- refusals


def test_wrong_credentials(
    password_server: NatsServer, token_server: NatsServer, nkey_server: NatsServer, jwt_server: NatsServer
) -> None:
    refused(password_server.url)
    refused(password_server.url, user="app", password="wrong")
    refused(token_server.url, token="wrong")
    refused(nkey_server.url, nkey_seed=new_seed())
    refused(nkey_server.url)
    refused(jwt_server.url, credentials=Operator().creds().encode())


def test_a_signature_of_another_key(jwt_server: NatsServer, operator: Operator) -> None:
    refused(jwt_server.url, credentials=creds_text(operator.user_jwt(new_seed()), new_seed()).encode())


def test_expired_from_the_start(jwt_server: NatsServer, operator: Operator) -> None:
    refused(jwt_server.url, credentials=operator.creds(lifetime=-10).encode())


def test_an_nkey_for_a_server_that_sends_no_nonce(server: NatsServer) -> None:
    assert "nonce" in refused(server.url, nkey_seed=SEED)


def test_unusable_credentials_are_a_config_error(jwt_server: NatsServer, tmp_path: Path) -> None:
    for credentials in (tmp_path / "missing.creds", tmp_path, b"nothing"):
        with pytest.raises(errors.ConfigError):
            jsclient.connect(jwt_server.url, credentials=credentials)


# --- a live connection


def test_rotated_credentials_are_used_at_the_next_connect(
    jwt_server: NatsServer, operator: Operator, tmp_path: Path
) -> None:
    path = tmp_path / "user.creds"
    first, second = new_seed(), new_seed()
    path.write_text(operator.creds(seed=first))
    path.chmod(0o600)
    with jsclient.connect(jwt_server.url, credentials=path) as nc:

        def names() -> list[str]:
            return [one["authorized_user"] for one in jwt_server.monitor("connz?auth=1")["connections"]]

        assert names() == [nkeys.KeyPair(first).public]
        path.write_text(operator.creds(seed=second))
        nc.force_reconnect()
        wait_until(lambda: nc.stats().reconnects == 1 and names() == [nkeys.KeyPair(second).public])


def test_a_creds_file_that_is_missing_for_a_moment(jwt_server: NatsServer, operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(operator.creds())
    path.chmod(0o600)
    with jsclient.connect(jwt_server.url, credentials=path) as nc:
        nc.flush()  # so that the next dial comes at once
        away = path.rename(tmp_path / "away")
        nc.force_reconnect()
        wait_until(lambda: isinstance(nc.last_error, errors.ConfigError))
        away.rename(path)
        wait_until(lambda: nc.is_connected)
        nc.flush()


@pytest.mark.slow
def test_expiry_leads_to_a_reconnect_with_fresh_credentials(jwt_server: NatsServer, operator: Operator) -> None:
    made: list[bytes] = []
    disconnects: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def credentials() -> bytes:
        made.append(operator.creds(lifetime=2 if not made else 600).encode())
        return made[-1]

    with jsclient.connect(
        jwt_server.url, credentials=credentials, on_disconnected=lambda nc, error: disconnects.put(error)
    ) as nc:
        subscription = nc.subscribe("after")
        assert isinstance(disconnects.get(timeout=10), errors.AuthExpired)
        wait_until(lambda: nc.stats().reconnects == 1 and nc.is_connected)
        nc.publish("after", b"still here")
        assert subscription.next(timeout=5).data == b"still here"
        assert len(made) == 2


@pytest.mark.slow
def test_expiry_without_fresh_credentials_ends_the_connection(jwt_server: NatsServer, operator: Operator) -> None:
    closed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with jsclient.connect(
        jwt_server.url, credentials=operator.creds(lifetime=2).encode(), on_closed=lambda nc: closed.put(nc)
    ) as nc:
        closed.get(timeout=30)
        with pytest.raises(errors.ConnectionClosed, match=r"refused us|expired"):
            nc.flush()


@pytest.mark.slow
def test_without_a_limit_it_goes_on_until_the_credentials_are_good_again(
    jwt_server: NatsServer, operator: Operator
) -> None:
    creds = [operator.creds(lifetime=1).encode()]
    asked = []

    def credentials() -> bytes:
        asked.append(time.monotonic())
        return creds[0]

    with jsclient.connect(jwt_server.url, credentials=credentials, auth_error_limit=None) as nc:
        # The span of two refusals that would end it with the default limit.
        wait_until(lambda: len(asked) > 3 and asked[-1] - asked[1] > 3, 30)
        assert not nc.closed
        creds[0] = operator.creds().encode()
        wait_until(lambda: nc.is_connected, 10)
        nc.flush()


def test_revocation_ends_the_link(operator: Operator) -> None:
    seed = new_seed()
    disconnects: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    with NatsServer(operator.config(), jetstream=False) as server:
        with jsclient.connect(
            server.url,
            credentials=operator.creds(seed=seed).encode(),
            on_disconnected=lambda nc, error: disconnects.put(error),
        ) as nc:
            nc.flush()
            operator.revoked[nkeys.KeyPair(seed).public] = int(time.time()) + 1
            try:
                server.reload(operator.config())
                error = disconnects.get(timeout=10)
            finally:
                operator.revoked.clear()
            assert isinstance(error, errors.AuthRevoked)


# --- nothing secret shows


def test_secrets_never_show(
    password_server: NatsServer, token_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    texts: list[str] = []
    url = password_server.url.replace("nats://", f"nats://app:{PASSWORD}@")
    with caplog.at_level(logging.DEBUG):
        ways: list[tuple[str, dict[str, Any]]] = [
            (url, {}),
            (password_server.url, {"user": "app", "password": PASSWORD}),
            (token_server.url, {"token": TOKEN}),
        ]
        for connect_url, options in ways:
            made = jsclient.ConnectOptions(servers=connect_url, **options)
            texts.append(repr(made))
            assert MARKER in str(pickle.dumps(made)), "options carry the secrets by design"
            with jsclient.connect(made) as nc:
                texts += [repr(nc), repr(nc.health()), repr(nc.servers), nc.connected_url, repr(nc.stats())]
        for wrong in (url.replace("app", "other"), url.replace("password-", "wrong-")):
            with pytest.raises(errors.AuthError) as caught:
                jsclient.connect(wrong)
            texts += [str(caught.value), repr(caught.value), repr(caught.getrepr())]
        with pytest.raises(errors.ConfigError) as config:
            jsclient.connect(url + "/path", token=TOKEN)
        texts.append(repr(config.value))
    shown = "\n".join([*texts, caplog.text])
    assert "Authorization Violation" in shown
    assert MARKER not in shown


def test_connect_holds_exactly_what_the_server_needs(tmp_path: Path) -> None:
    """X6: never the seed, never the path of a file."""
    connects: list[dict[str, Any]] = []

    def script(client: Any) -> None:
        connects.append(client.handshake(nonce="abc"))
        client.expect(b"PING\r\n")  # the last flush of close()
        client.send(b"PONG\r\n")

    path = tmp_path / "marker.nk"
    path.write_text(SEED)
    path.chmod(0o600)
    with FakeServer(script) as fake:
        with jsclient.connect(fake.url, nkey_seed_file=path, name="me"):
            pass
        with jsclient.connect(fake.url, user="u", password="p"):
            pass
        with jsclient.connect(fake.url):
            pass
    common = {
        "verbose", "pedantic", "tls_required", "name", "lang", "version", "protocol", "echo", "headers", "no_responders"
    }  # fmt: skip
    assert set(connects[0]) == common | {"nkey", "sig"}
    assert set(connects[1]) - {"name"} == common - {"name"} | {"user", "pass"}
    assert set(connects[2]) - {"name"} == common - {"name"}
    text = str(connects)
    assert SEED not in text
    assert "marker" not in text
