"""The system account: what the servers say of themselves, and the few things that can be done to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jsclient
from jsclient import errors
from jsclient.backup import backup_stream, restore_stream
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.jetstream.advisories import (
    AccountConnections,
    Advisories,
    ApiAudit,
    ClientConnected,
    ClientDisconnected,
    RestoreCompleted,
    SnapshotCompleted,
    SnapshotCreated,
)
from jsclient.system import SystemClient
from jsclient.testing import Cluster, NatsServer, Proxy, wait_until

ACCOUNTS = """
system_account: SYS
accounts {
  SYS: { users: [{user: sys, password: s}] }
  APP: { jetstream: enabled, users: [{user: app, password: a}] }
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer(ACCOUNTS, name="alone") as running:
        yield running


@pytest.fixture
def system(server: NatsServer) -> Iterator[SystemClient]:
    with jsclient.connect(server.url, user="sys", password="s") as nc:
        yield SystemClient(nc)


def app(server: NatsServer, name: str = "app") -> jsclient.Connection:
    return jsclient.connect(server.url, user="app", password="a", name=name)


def test_one_server_is_complete_with_one_answer(server: NatsServer, system: SystemClient) -> None:
    servers = system.servers()
    assert servers.complete
    assert [one.name for one in servers] == ["alone"]
    assert servers[0].version == ".".join(map(str, server.version))
    variables = system.variables(server="alone")[0]
    assert variables.data["server_name"] == variables.value.server_name == "alone"
    assert variables.value.start is not None
    assert servers[0].value.active_servers == 1
    assert servers[0].value.mem > 0
    with pytest.raises(errors.ConfigError, match=r"no server 'other' \(known: alone\)"):
        system.variables(server="other")


def test_a_stranger_that_answers_ends_no_question(server: NatsServer, system: SystemClient) -> None:
    def stranger(message: jsclient.Msg) -> None:
        for garbage in (b"", b"garbage", b"[]", b'{"server": 3}'):
            message.respond(garbage)

    system.nc.subscribe("$SYS.REQ.SERVER.PING.>", callback=stranger)
    system.nc.flush()
    assert len(system.servers(timeout=5)) == 1
    assert len(system.ask("VARZ", timeout=5)) == 1


def test_connections_and_jetstream_with_options(server: NatsServer, system: SystemClient) -> None:
    with app(server, "worker") as nc:
        JetStream(nc).create_stream(StreamConfig(name="S", storage="memory"))
        (answer,) = system.connections(acc="APP", auth=True)
        assert [one["name"] for one in answer.data["connections"]] == ["worker"]
        (worker,) = answer.value.connections
        assert (worker.cid, worker.name, worker.account) == (nc.client_id, "worker", "APP")
        assert worker.start is not None
        (state,) = system.jetstream(accounts=True, streams=True)
        assert (state.value.streams, state.value.disabled) == (1, False)
        assert state.value.config is not None
        assert state.value.config.max_memory > 0
        details = state.value.account_details
        assert [stream["name"] for one in details for stream in one["stream_detail"]] == ["S"]


def test_health_of_a_stream_that_does_not_exist_is_never_ok(server: NatsServer, system: SystemClient) -> None:
    healthy = system.health()
    assert len(healthy) == 1
    assert not healthy.errors
    assert healthy[0].value.status == "ok"
    ill = system.health(account="APP", stream="NOTHING")
    assert not len(ill)
    assert ill.errors[0].code == (501 if server.version < (2, 10, 0) else 404)
    with pytest.raises(errors.ConfigError, match="name the account"):
        system.health(stream="S")


def test_an_unknown_endpoint_is_an_error_of_each_server(system: SystemClient) -> None:
    gathered = system.ask("NONSENSE", timeout=1)
    assert gathered.complete
    assert [error.code for error in gathered.errors] == [503]


def test_without_rights_nobody_answers(server: NatsServer) -> None:
    with app(server) as nc, pytest.raises(errors.NoResponders):
        SystemClient(nc).servers()


def test_a_server_that_did_not_answer_is_not_called_absent(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, user="sys", password="s") as nc:
        proxy.stall("down")
        with pytest.raises(errors.TimedOut, match="is not known"):
            SystemClient(nc, timeout=0.2).variables(server="somewhere")
        assert not SystemClient(nc, timeout=0.2).servers().complete
        proxy.cut()


def test_a_kicked_client_comes_back(server: NatsServer, system: SystemClient) -> None:
    if server.version < (2, 10, 0):
        with pytest.raises(errors.ServerError, match="has no KICK"):
            system.kick(1, "alone")
        return
    with pytest.raises(errors.ServerError, match="no such client"):
        system.kick(999_999, "alone")
    with app(server, "kicked") as nc:
        nc.flush()  # so that it is dialled again at once
        before = nc.client_id
        system.kick(before, "alone")
        wait_until(lambda: nc.client_id not in (None, before))


def test_events_of_clients(server: NatsServer, system: SystemClient) -> None:
    with system.events("$SYS.ACCOUNT.APP.*", timeout=5) as events:
        with app(server, "seen"):
            subject, event = next(events)
        assert subject == "$SYS.ACCOUNT.APP.CONNECT"
        assert event["client"]["name"] == "seen"
        assert next(events)[0] == "$SYS.ACCOUNT.APP.DISCONNECT"
    with system.events("$SYS.SERVER.*.LAMEDUCK", timeout=0.1) as events:
        assert list(events) == []


def test_a_cluster_is_complete_when_all_have_answered() -> None:
    with Cluster(config=ACCOUNTS) as cluster, jsclient.connect(cluster.url, user="sys", password="s") as nc:
        cluster.wait_ready()
        system = SystemClient(nc)
        wait_until(lambda: len(system.servers()) == 3)
        servers = system.servers()
        assert servers.complete
        assert [one.name for one in servers] == ["n1", "n2", "n3"]
        assert [one.name for one in system.variables()] == ["n1", "n2", "n3"]
        assert [one.name for one in system.variables(server="n2")] == ["n2"]
        connected = {one.id: one.name for one in servers}[nc.server_info.server_id]
        silent = next(server for server in cluster.servers if server.name != connected)
        silent.pause()
        try:
            partial = system.servers(timeout=0.5)
            assert len(partial) == 2
            assert not partial.complete
            assert partial.unknown == 1
            with pytest.raises(errors.TimedOut, match="1 servers did not answer"):
                partial.raise_unless_complete()
        finally:
            silent.resume()


def beside(value: object, data: dict[str, object]) -> set[str]:
    """What a server says that its model has not."""
    return data.keys() - set(getattr(value, "__struct_fields__", ()))


def test_everything_that_servers_say_is_typed(server: NatsServer) -> None:
    """The JWT of a client may be a password by itself: it is the only field that stays in the JSON."""
    with (
        Cluster(config=ACCOUNTS) as cluster,
        jsclient.connect(cluster.url, user="sys", password="s") as nc,
        jsclient.connect(cluster.url, user="app", password="a") as client,
    ):
        JetStream(client).create_stream(StreamConfig(name="S", num_replicas=3))
        system = SystemClient(nc)
        for stats in system.servers().raise_unless_complete():
            assert beside(stats.value, stats.data) == set()
            assert {route.name for route in stats.value.routes or ()} | {stats.name} == {"n1", "n2", "n3"}
            part = stats.value.jetstream
            assert part is not None
            assert part.meta is not None
            assert beside(part, stats.data["jetstream"]) == set()
            assert beside(part.meta, stats.data["jetstream"]["meta"]) == set()
            assert beside(part.config, stats.data["jetstream"]["config"]) == set()
        for variables in system.variables().raise_unless_complete():
            assert beside(variables.value, variables.data) == set()
            assert variables.value.ping_interval == 120.0
            assert (variables.value.cluster or {})["name"] == cluster.name
        options = {"auth": True, "subscriptions": True, "subscriptions_detail": True}
        clients = [
            (one, data)
            for answer in system.connections(**options)  # type: ignore[arg-type]
            for one, data in zip(answer.value.connections, answer.data["connections"], strict=True)
        ]
        assert all(beside(one, data) == set() for one, data in clients)
        assert all(one.subscriptions_list_detail for one, _ in clients if one.cid == client.client_id)
        states = system.jetstream().raise_unless_complete()
        assert all(beside(state.value, state.data) <= {"server_id"} for state in states)
        meta = cluster.meta_leader().name
        (peers,) = (one.value.meta_cluster.replicas for one in states if one.name == meta and one.value.meta_cluster)
        assert {peer.name for peer in peers or ()} | {meta} == {"n1", "n2", "n3"}
        assert all(peer.active is not None and peer.active < 60 for peer in peers or ())


def test_events_of_the_system_account_are_typed(server: NatsServer, system: SystemClient) -> None:
    with (
        Advisories(system.nc, ClientConnected) as connected,
        Advisories(system.nc, ClientDisconnected) as gone,
        Advisories(system.nc, AccountConnections) as counted,
    ):
        system.nc.flush()
        with app(server, "told") as nc:
            event = connected.next(5)
            assert (event.client.name, event.client.acc, event.server.name) == ("told", "APP", "alone")
            assert event.client.id == nc.client_id
            assert event.client.start is not None
            assert counted.next(5).acc == "APP"
        assert gone.next(5).reason == "Client Closed"


def test_snapshots_and_the_use_of_the_api_are_told(server: NatsServer, tmp_path: Path) -> None:
    with app(server) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="T", subjects=["t"]))
        with (
            js.advisories(ApiAudit) as audits,
            js.advisories(SnapshotCreated, stream="T") as begun,
            js.advisories(SnapshotCompleted, stream="T") as ended,
            js.advisories(RestoreCompleted) as restored,
        ):
            nc.flush()
            backup_stream(js, "T", tmp_path / "t")
            assert begun.next(5).client.acc == "APP"
            done = ended.next(5)
            assert done.start is not None
            assert done.end is not None
            assert done.end >= done.start
            js.delete_stream("T")
            restore_stream(js, tmp_path / "t")
            assert restored.next(5).stream == "T"
            assert "T" in audits.next(5).api_subject
        js.delete_stream("T")
