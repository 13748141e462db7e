"""jsclient.auth and jsclient.auth.secret: credentials to CONNECT fields, and nothing secret in any text."""

from __future__ import annotations

import base64
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from jsclient.auth import nkeys
from jsclient.auth.credentials import Authenticator, AuthFields, Secret, parse_creds, parse_seed
from jsclient.errors import AuthError, ConfigError
from jsclient.urls import parse_url

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
JWT = "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVQSJ9.c2ln"
CREDS = f"""-----BEGIN NATS USER JWT-----
{JWT}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.

-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------

*************************************************************
"""


def signed_by_seed(fields: AuthFields, nonce: bytes) -> bool:
    assert fields.sig is not None
    assert "=" not in fields.sig
    return nkeys.verify(PUBLIC, nonce, base64.urlsafe_b64decode(fields.sig + "=="))


# --- Secret


def test_a_secret_shows_nothing_and_pickles() -> None:
    secret = Secret("marker")
    assert "marker" not in f"{secret} {secret!r} {secret:>5} {[secret]} %s" % secret
    assert pickle.loads(pickle.dumps(secret)).reveal() == "marker"
    assert secret == Secret("marker")
    assert secret != Secret("other")
    assert secret != "marker"
    assert hash(secret) == hash(Secret(secret))
    assert bool(secret)
    assert not Secret("")


def test_env_values_are_looked_up_late(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = Authenticator(user="app", password="env:JSCLIENT_TEST_PASSWORD")
    assert b"first" not in pickle.dumps(auth)
    monkeypatch.setenv("JSCLIENT_TEST_PASSWORD", "first")
    assert auth.fields(None).password == "first"
    monkeypatch.setenv("JSCLIENT_TEST_PASSWORD", "second")
    assert auth.fields(None).password == "second"
    monkeypatch.delenv("JSCLIENT_TEST_PASSWORD")
    with pytest.raises(ConfigError, match="JSCLIENT_TEST_PASSWORD"):
        auth.fields(None)


# --- the ways


def test_nothing_configured() -> None:
    auth = Authenticator()
    assert not auth.configured
    assert not auth.fields("nonce")
    assert auth.fields("nonce").digest == ""


def test_user_and_password() -> None:
    fields = Authenticator(user="app", password="pw").fields(None)
    assert (fields.user, fields.password) == ("app", "pw")
    assert Authenticator(user="app").fields(None).password == ""


def test_token() -> None:
    assert Authenticator(token="t").fields(None).auth_token == "t"


def test_what_the_url_says_wins() -> None:
    auth = Authenticator(token="t")
    fields = auth.fields(None, url_user="u", url_password=Secret("p"))
    assert (fields.user, fields.password, fields.auth_token) == ("u", "p", None)
    assert auth.fields(None, url_token=Secret("url")).auth_token == "url"


def test_callables_are_asked_every_time() -> None:
    values = iter(["one", "two"])
    auth = Authenticator(token=lambda: next(values))
    assert [auth.fields(None).auth_token, auth.fields(None).auth_token] == ["one", "two"]


@pytest.mark.usefixtures("cryptography")
def test_nkey_seed() -> None:
    fields = Authenticator(nkey_seed=SEED).fields("the nonce")
    assert (fields.nkey, fields.jwt) == (PUBLIC, None)
    assert signed_by_seed(fields, b"the nonce")


@pytest.mark.usefixtures("cryptography")
def test_nkey_needs_a_nonce() -> None:
    with pytest.raises(AuthError, match="nonce"):
        Authenticator(nkey_seed=SEED).fields(None)


@pytest.mark.usefixtures("cryptography")
def test_jwt_and_seed() -> None:
    fields = Authenticator(jwt=JWT, nkey_seed=SEED).fields("n")
    assert (fields.nkey, fields.jwt) == (None, JWT)
    assert signed_by_seed(fields, b"n")


@pytest.mark.usefixtures("cryptography")
def test_jwt_to_a_server_without_authentication() -> None:
    assert Authenticator(jwt=JWT, nkey_seed=SEED).fields(None).jwt == JWT


@pytest.mark.usefixtures("cryptography")
def test_signature_callback_raw_and_text() -> None:
    pair = nkeys.KeyPair(SEED)
    assert signed_by_seed(Authenticator(nkey=PUBLIC, signature_callback=pair.sign).fields("n"), b"n")
    fields = Authenticator(jwt=JWT, signature_callback=lambda nonce: "already-base64url").fields("n")
    assert (fields.sig, fields.nkey, fields.jwt) == ("already-base64url", None, JWT)


@pytest.mark.parametrize("answer", [AuthFields(user="u", password="p"), {"user": "u", "password": "p"}])
def test_auth_callback(answer: Any) -> None:
    nonces = []

    def callback(nonce: str) -> Any:
        nonces.append(nonce)
        return answer

    auth = Authenticator(auth_callback=callback)
    assert auth.fields("n").user == "u"
    assert auth.fields(None).password == "p"
    assert nonces == ["n", ""]


@pytest.mark.parametrize("answer", [None, "text", {"pass": "marker"}, {"user": 3}])
def test_a_wrong_answer_of_the_auth_callback(answer: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Authenticator(auth_callback=lambda nonce: answer).fields("n")
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "u", "token": "t"},
        {"credentials": "file", "nkey_seed": SEED},
        {"password": "p"},
        {"jwt": JWT},
        {"nkey": PUBLIC},
        {"signature_callback": len},
        {"nkey_seed": SEED, "signature_callback": len, "jwt": JWT},
        {"auth_callback": dict, "user": "u"},
    ],
)
def test_contradictions_are_refused_without_secrets(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Authenticator(**options)
    assert SEED not in str(caught.value)


@pytest.mark.usefixtures("cryptography")
def test_nothing_secret_in_repr() -> None:
    auth = Authenticator(jwt=JWT, nkey_seed=SEED)
    assert SEED not in repr(auth)
    assert JWT not in repr(auth)
    assert SEED not in repr(Authenticator(credentials=CREDS.encode()))
    fields = auth.fields("n")
    assert JWT not in repr(fields)
    assert fields.sig is not None
    assert fields.sig not in repr(fields)


@pytest.mark.usefixtures("cryptography")
def test_pickles_with_its_secrets() -> None:
    auth = pickle.loads(pickle.dumps(Authenticator(jwt=JWT, nkey_seed=SEED)))
    assert auth.fields("n").jwt == JWT


@pytest.mark.usefixtures("cryptography")
def test_digest_tells_credentials_apart_whatever_the_nonce() -> None:
    one, two = Authenticator(nkey_seed=SEED).fields("1"), Authenticator(nkey_seed=SEED).fields("2")
    assert one.sig != two.sig
    assert one.digest == two.digest != ""
    others = [
        Authenticator(jwt=JWT, nkey_seed=SEED).fields("1"),
        Authenticator(token="x").fields(None),
        Authenticator(user="x").fields(None),
        Authenticator(user="x", password="y").fields(None),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 5


# --- .creds


@pytest.mark.parametrize(
    "text",
    [
        CREDS,
        CREDS.replace("\n", "\r\n"),
        "\n\n  " + CREDS.replace("\n", "\n   "),
        "\ufeff" + CREDS,
        CREDS.replace("------END", "-----END"),
        f"-----BEGIN NATS USER JWT-----\n{JWT}\n-----BEGIN USER NKEY SEED-----\n{SEED}",
        CREDS + "trailing text",
    ],
    ids=["plain", "crlf", "indented", "bom", "five dashes", "no end lines", "trailing"],
)
def test_parse_creds(text: str) -> None:
    assert parse_creds(text.encode()) == (JWT, SEED)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "JWT"),
        ("no armour at all", "JWT"),
        (f"-----BEGIN NATS USER JWT-----\n{JWT}\n------END NATS USER JWT------\n", "seed"),
        (CREDS.replace(JWT, ""), "JWT"),
        (CREDS.replace(SEED, ""), "seed"),
        (f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n", "JWT"),
    ],
)
def test_missing_parts_are_named(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        parse_creds(text.encode())
    assert SEED not in str(caught.value)


@pytest.mark.parametrize("data", [b"x" * (1024 * 1024 + 1), b"\xff\xfe\x00"])
def test_what_is_no_creds_file(data: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_creds(data)


def test_a_damaged_seed_in_a_creds_file_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        Authenticator(credentials=CREDS.replace(SEED, SEED[:-2] + "AA").encode()).fields("n")
    assert SEED[5:20] not in str(caught.value)


@pytest.fixture
def creds_file(tmp_path: Path) -> Path:
    path = tmp_path / "user.creds"
    path.write_text(CREDS)
    path.chmod(0o600)
    return path


@pytest.mark.usefixtures("cryptography")
def test_a_file_is_read_again_at_every_connect(creds_file: Path) -> None:
    auth = Authenticator(credentials=str(creds_file))
    first = auth.fields("n")
    creds_file.write_text(CREDS.replace(JWT, "rotated.jwt.x"))
    second = auth.fields("n")
    assert (first.jwt, second.jwt) == (JWT, "rotated.jwt.x")
    assert first.digest != second.digest


@pytest.mark.usefixtures("cryptography")
@pytest.mark.parametrize("kind", ["path", "bytes", "text", "callable", "secret"])
def test_forms_of_credentials(creds_file: Path, kind: str) -> None:
    source: Any = {
        "path": creds_file,
        "bytes": CREDS.encode(),
        "text": CREDS,
        "callable": lambda: CREDS.encode(),
        "secret": Secret(CREDS),
    }[kind]
    assert Authenticator(credentials=source).fields("n").jwt == JWT


@pytest.mark.usefixtures("cryptography")
def test_credentials_path_from_the_environment(creds_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSCLIENT_TEST_CREDS", str(creds_file))
    assert Authenticator(credentials="env:JSCLIENT_TEST_CREDS").fields("n").jwt == JWT


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.creds", tmp_path):
        with pytest.raises(ConfigError, match="cannot read"):
            Authenticator(credentials=path).fields("n")
    with pytest.raises(ConfigError, match="int"):
        Authenticator(credentials=3).fields("n")
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(10 * 1024 * 1024)
    with pytest.raises(ConfigError, match="1 MB"):
        Authenticator(credentials=big).fields("n")


@pytest.mark.usefixtures("cryptography")
@pytest.mark.skipif(os.name != "posix", reason="file modes are a matter of POSIX")
def test_a_file_others_can_read_is_warned_about_once(creds_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    creds_file.chmod(0o644)
    with caplog.at_level(logging.WARNING, "jsclient.auth"):
        for _ in range(3):
            Authenticator(credentials=creds_file).fields("n")
    assert len(caplog.records) == 1
    assert "can be read by other users" in caplog.text


@pytest.mark.usefixtures("cryptography")
@pytest.mark.parametrize("text", [SEED, f"\n {SEED} \n", CREDS, f"-----BEGIN USER NKEY SEED-----\n{SEED}\n"])
def test_seed_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "user.nk"
    path.write_text(text)
    path.chmod(0o600)
    auth = pickle.loads(pickle.dumps(Authenticator(nkey_seed_file=path)))
    assert auth.fields("n").nkey == PUBLIC


def test_a_seed_file_without_a_seed() -> None:
    with pytest.raises(ConfigError, match="no nkey seed"):
        parse_seed(b"nothing here\n")


# --- what may name the environment


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JSCLIENT_TEST_SECRET", "marker")
    return "env:JSCLIENT_TEST_SECRET"


@pytest.mark.parametrize("url", ["nats://x:{}@host", "nats://{}@host", "nats://{}:p@host", "wss://x:{}@host/p"])
def test_a_url_is_never_sent_a_variable_of_the_environment(variable: str, url: str) -> None:
    server = parse_url(url.format(variable.replace(":", "%3A")))
    fields = pickle.loads(pickle.dumps(Authenticator())).fields(
        "n", url_user=server.user, url_password=server.password, url_token=server.token
    )
    assert variable in (fields.user, fields.password, fields.auth_token)
    assert "marker" not in (fields.user, fields.password, fields.auth_token)
    for secret in (server.password, server.token):
        assert secret is None or pickle.loads(pickle.dumps(secret)).resolve() == secret.reveal()


def test_what_a_callable_returns_is_taken_at_its_word(variable: str) -> None:
    assert Authenticator(token=lambda: variable).fields(None).auth_token == variable
    assert Authenticator(token=lambda: Secret(variable)).fields(None).auth_token == variable
    with pytest.raises(ConfigError) as caught:
        Authenticator(credentials=lambda: variable).fields("n")
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "as_secret"), [("credentials", False), ("credentials", True), ("nkey_seed_file", False)]
)
def test_a_variable_that_holds_no_path_is_not_shown(variable: str, field: str, as_secret: bool) -> None:
    options: dict[str, Any] = {field: Secret(variable) if as_secret else variable}
    with pytest.raises(ConfigError) as caught:
        Authenticator(**options).fields("n")
    assert "marker" not in str(caught.value)


@pytest.mark.usefixtures("cryptography")
def test_a_variable_may_hold_the_credentials_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSCLIENT_TEST_CREDS", CREDS)
    assert Authenticator(credentials="env:JSCLIENT_TEST_CREDS").fields("n").jwt == JWT


# --- which seeds sign


@pytest.mark.usefixtures("cryptography")
@pytest.mark.parametrize("kind", [kind for kind in nkeys.KeyType if kind is not nkeys.KeyType.USER])
def test_only_user_seeds_sign(kind: nkeys.KeyType, tmp_path: Path) -> None:
    """A server that says "sign this" could be handed the claims of a new user by an account's or operator's seed."""
    seed = nkeys.encode_seed(kind, bytes(range(32)))
    file = tmp_path / "seed.nk"
    file.write_text(seed)
    file.chmod(0o600)
    creds = CREDS.replace(SEED, seed).encode()
    public = nkeys.encode_public(kind, bytes(range(32)))
    ways: list[dict[str, Any]] = [
        {"nkey_seed": seed},
        {"nkey_seed": lambda: seed},
        {"nkey_seed_file": file},
        {"jwt": JWT, "nkey_seed": seed},
        {"credentials": creds},
        {"nkey": public, "signature_callback": lambda nonce: b"x" * 64},
    ]
    for options in ways:
        with pytest.raises(ConfigError, match="only a user's") as caught:
            Authenticator(**options).fields("the nonce")
        assert seed not in str(caught.value)
