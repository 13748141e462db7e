"""The service of the recipe for auth callout: whom it lets in, to what, and for how long."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.jwts import encode, new_seed

import jsclient
from jsclient import errors
from jsclient.auth.nkeys import KeyPair, KeyType
from jsclient.jetstream import JetStream
from jsclient.services import Service
from jsclient.testing import Cluster, NatsServer, wait_until

RECIPE = Path(__file__).parents[1] / "examples" / "recipe_auth_callout.py"
SUE: dict[str, Any] = {"user": "sue", "password": "sue's password"}
JOE: dict[str, Any] = {"user": "joe", "password": "joe's password"}


class Rig(NamedTuple):
    server: NatsServer
    nc: jsclient.Connection
    issuer: KeyPair
    recipe: dict[str, Any]
    services: list[Service]

    def serve(self) -> None:
        self.services.append(self.recipe["serve"](self.nc, self.issuer))


@pytest.fixture
def rig(server: NatsServer) -> Iterator[Rig]:
    if server.version < (2, 10, 0):
        pytest.skip("this server has no auth callout")
    recipe = runpy.run_path(str(RECIPE), run_name="recipe")
    issuer = KeyPair(new_seed(KeyType.ACCOUNT))
    with (
        NatsServer(recipe["CONFIG"] % issuer.public) as own,
        jsclient.connect(own.url, user="callout", password="callout secret") as nc,
    ):
        made = Rig(own, nc, issuer, recipe, [])
        made.serve()
        yield made


def test_it_gives_account_and_permissions(rig: Rig) -> None:
    with jsclient.connect(rig.server.url, **SUE) as sue, jsclient.connect(rig.server.url, **JOE) as joe:
        orders = joe.subscribe("orders.new")
        joe.flush()
        sue.publish("orders.new", b"x")
        assert orders.next(timeout=5).data == b"x"
        with pytest.raises(errors.PermissionViolation):
            joe.request("orders.new", b"x", timeout=5)
        links = rig.server.monitor("connz?auth=1")["connections"]
        assert sorted(link["account"] for link in links) == ["AUTH", "SHOP", "SHOP"]
        with pytest.raises(errors.PermissionViolation):
            JetStream(sue).account_info(timeout=5)


@pytest.mark.parametrize(
    "given", [{}, {"user": "sue"}, {**SUE, "password": "x"}, {**SUE, "user": "eve"}, {"token": "sue"}], ids=str
)
def test_it_refuses_others(rig: Rig, given: dict[str, Any]) -> None:
    with pytest.raises(errors.AuthError):
        jsclient.connect(rig.server.url, **given)
    with jsclient.connect(rig.server.url, **SUE) as sue:
        sue.flush()


def test_a_client_comes_back_when_its_time_is_over(rig: Rig) -> None:
    rig.recipe["user_jwt"].__globals__["LIFETIME"] = 2
    with jsclient.connect(rig.server.url, **SUE) as sue:
        wait_until(lambda: sue.stats().reconnects > 0 and sue.is_connected, 20)
        sue.flush()


def test_instances_share_the_requests(rig: Rig) -> None:
    rig.serve()
    for _ in range(20):
        with jsclient.connect(rig.server.url, **SUE) as sue:
            sue.flush()
    wait_until(lambda: sum(service.stats().endpoints[0].num_requests for service in rig.services) == 20)
    rig.services[0].stop()
    with jsclient.connect(rig.server.url, **SUE) as sue:
        sue.flush()


def test_one_service_answers_every_server_of_a_cluster(rig: Rig) -> None:
    recipe, issuer = rig.recipe, rig.issuer
    with Cluster(config=recipe["CONFIG"] % issuer.public) as cluster:
        with jsclient.connect(cluster.servers[0].url, user="callout", password="callout secret") as nc:
            recipe["serve"](nc, issuer)
            for server in cluster.servers:
                with jsclient.connect(server.url, **SUE) as sue:
                    sue.flush()
                with pytest.raises(errors.AuthError):
                    jsclient.connect(server.url, user="eve", password="x")


def test_the_page_shows_what_it_prints(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> None:
    if server.version < (2, 10, 0):
        pytest.skip("this server has no auth callout")
    runpy.run_path(str(RECIPE), run_name="__main__")
    page = RECIPE.parents[2] / "tools" / "docs" / "pages" / "recipes.md"
    assert f"```text\n{capsys.readouterr().out}```" in page.read_text(encoding="utf-8")


def request_of(server: KeyPair, signer: KeyPair, audience: str) -> bytes:
    claims = {"server_id": {"id": server.public}, "connect_opts": {**SUE, "pass": SUE["password"]}}
    return encode(signer, "U", "R", claims, aud=audience).encode()


def test_only_requests_of_servers_are_answered(rig: Rig) -> None:
    server, other = KeyPair(new_seed(KeyType.SERVER)), KeyPair(new_seed(KeyType.SERVER))
    audience = "nats-authorization-request"
    checked: Callable[[bytes], dict[str, Any]] = rig.recipe["checked"]
    good = request_of(server, server, audience)
    assert checked(good)["connect_opts"]["user"] == "sue"
    head, body, signature = good.split(b".")
    changed = request_of(server, server, audience).split(b".")[1][:-8] + body[-8:]
    for wrong in (
        request_of(server, other, audience),
        request_of(server, server, "another"),
        b".".join((head, changed[:-1], signature)),
    ):
        with pytest.raises(ValueError):  # also one of JSON
            checked(wrong)
