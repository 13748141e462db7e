"""Auth callout: a token, or user and password, next to the sentinel credentials reach the service that decides."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.jwts import UNLIMITED, Operator, encode, new_seed

import jsclient
from jsclient import errors
from jsclient.auth import nkeys
from jsclient.auth.nkeys import KeyPair, KeyType
from jsclient.services import ServiceConfig, add_service
from jsclient.testing import NatsServer

GOOD = ({"auth_token": "tok"}, {"user": "joe", "pass": "p,w@1"}, {"user": "joe", "pass": ""})


class Callout:
    """The service that the server asks: it knows a token and a user, whoever has signed."""

    def __init__(self, issuer: KeyPair, audience: str) -> None:
        self.issuer, self.audience = issuer, audience
        self.asked: list[dict[str, Any]] = []

    def answer(self, request: Any) -> None:
        asked = json.loads(base64.urlsafe_b64decode(request.data.split(b".")[1] + b"==="))["nats"]
        options = asked["connect_opts"]
        self.asked.append(options)
        user = asked["user_nkey"]
        plain = {name: options[name] for name in ("auth_token", "user", "pass") if name in options}
        plain |= {"pass": ""} if plain == {"user": "joe"} else {}
        claims = {"type": "user", "version": 2, "pub": {}, "sub": {}, **UNLIMITED}
        said = (
            {"jwt": encode(self.issuer, user, "U", claims, **({"aud": self.audience} if self.audience else {}))}
            if plain in GOOD
            else {"error": "unknown"}
        )
        claims = {"type": "authorization_response", "version": 2, **said}
        request.respond(encode(self.issuer, user, "R", claims, aud=asked["server_id"]["id"]).encode())


@pytest.fixture(scope="module", params=["operator", "accounts"])
def callout(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callout, dict[str, Any]]]:
    """URL, service, and what signs: sentinel credentials of an operator, or an nkey."""
    with NatsServer(jetstream=False) as server, jsclient.connect(server.url) as nc:
        if not nc.server_info.at_least(2, 10):
            pytest.skip("this server has no auth callout")
    seed, guard = new_seed(), new_seed()
    if request.param == "operator":
        operator = Operator()
        config = operator.config(system=True, authorization={"auth_users": [KeyPair(guard).public]})
        sentinel: dict[str, Any] = {"credentials": operator.creds(seed=seed).encode()}
        own: dict[str, Any] = {"credentials": operator.creds(seed=guard).encode()}
        service = Callout(operator.account, "")
    else:
        issuer = KeyPair(new_seed(KeyType.ACCOUNT))
        config = (
            f"accounts {{ AUTH: {{ users: [ {{ user: auth, password: auth }}, {{ nkey: {KeyPair(seed).public} }} ] }}, "
            f"APP: {{}} }}\nauthorization {{ auth_callout {{ issuer: {issuer.public}, auth_users: [ auth ], "
            "account: AUTH } }\n"
        )
        sentinel, own = {"nkey_seed": seed}, {"user": "auth", "password": "auth"}
        service = Callout(issuer, "APP")
    with NatsServer(config, jetstream=False) as server, jsclient.connect(server.url, **own) as nc:
        added = add_service(nc, ServiceConfig(name="callout", version="1.0.0"))
        added.add_endpoint("auth", service.answer, subject="$SYS.REQ.USER.AUTH")
        nc.flush()
        yield server.url, service, sentinel


def test_plain_credentials_beside_signed_ones(callout: tuple[str, Callout, dict[str, Any]]) -> None:
    url, service, sentinel = callout
    ways: list[dict[str, Any]] = [{"token": "tok"}, {"user": "joe", "password": lambda: "p,w@1"}, {"user": "joe"}]
    for given, sent in zip(ways, GOOD, strict=True):
        with jsclient.connect(url, **sentinel, **given) as nc:
            nc.flush()
        assert sent.items() <= {"pass": "", **service.asked[-1]}.items()
        assert ("jwt" in service.asked[-1]) == ("credentials" in sentinel)
        assert "sig" in service.asked[-1]


def test_those_of_the_url_beside_signed_ones(callout: tuple[str, Callout, dict[str, Any]]) -> None:
    url, service, sentinel = callout
    for info, sent in (("tok", GOOD[0]), ("joe:p%2Cw%401", GOOD[1])):
        others: list[dict[str, Any]] = [{}, {"token": "env:JSCLIENT_NOT_SET"}]
        for more in others:
            with jsclient.connect(url.replace("//", f"//{info}@"), **sentinel, **more) as nc:
                nc.flush()
            assert sent.items() <= service.asked[-1].items()
            assert "sig" in service.asked[-1]


def test_what_the_service_refuses(callout: tuple[str, Callout, dict[str, Any]]) -> None:
    url, _, sentinel = callout
    wrong: list[dict[str, Any]] = [{}, {"token": "wrong"}, {"user": "joe", "password": "tok"}]
    for given in wrong:
        with pytest.raises(errors.AuthError):
            jsclient.connect(url, **sentinel, **given)


def test_an_auth_callback_may_return_all_fields(callout: tuple[str, Callout, dict[str, Any]]) -> None:
    from jsclient.auth.credentials import Authenticator

    url, service, sentinel = callout
    with jsclient.connect(url, auth_callback=Authenticator(token="tok", **sentinel).fields) as nc:
        nc.flush()
    assert service.asked[-1]["auth_token"] == "tok"


@pytest.mark.parametrize(
    "options",
    [
        {"user": "joe", "token": "tok"},
        {"user": "joe", "auth_callback": lambda nonce: {}},
        {"credentials": b"", "nkey_seed": "SU"},
        {"credentials": b"", "auth_callback": lambda nonce: {}},
        {"credentials": b"", "password": "pw"},
    ],
    ids=lambda options: "-".join(options),
)
def test_what_is_still_a_contradiction(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        jsclient.ConnectOptions(**options)


def test_the_digest_tells_all_of_them_apart() -> None:
    from jsclient.auth.credentials import Authenticator

    seeds = new_seed(), new_seed()
    made = [Authenticator(nkey_seed=seed, token=token) for seed in seeds for token in (None, "a", "b")]
    assert len({one.fields("nonce").digest for one in made}) == 6
    assert made[1].fields("nonce").digest == made[1].fields("other").digest
    assert nkeys.KeyPair(seeds[0]).public == made[0].fields("nonce").nkey
