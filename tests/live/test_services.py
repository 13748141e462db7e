"""Services on a real server: requests, errors, statistics, groups, discovery, workers, and how they end."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator

import pytest

import jsclient
from jsclient import Connection, errors, services
from jsclient.services import Request, Service, ServiceConfig
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def client(server: NatsServer) -> Iterator[Connection]:
    with jsclient.connect(server.url) as nc:
        yield nc


@pytest.fixture
def service(nc: Connection) -> Iterator[Service]:
    config = ServiceConfig(name="adder", version="1.2.3", description="adds", metadata={"team": "x"})
    with services.add_service(nc, config) as service:
        yield service


def add(request: Request) -> None:
    numbers = request.json()
    if len(numbers) != 2:
        request.error(422, "two numbers, please", b"details", headers={"hint": "2"})
        return
    request.respond_json(sum(numbers), headers={"unit": "none"})


def test_requests_and_answers(service: Service, client: Connection) -> None:
    endpoint = service.add_endpoint("add", add, subject="math.add.*", metadata={"a": "b"})
    service.nc.flush()
    reply = client.request("math.add.now", b"[1,2]")
    assert reply.data == b"3"
    assert reply.headers is not None
    assert reply.headers["unit"] == "none"
    assert services.check_response(reply) is reply
    assert (endpoint.name, endpoint.subject, endpoint.queue_group) == ("add", "math.add.*", "q")
    raw = client.request("math.add.now", b"[1]")
    assert raw.headers is not None
    assert raw.headers["hint"] == "2"
    with pytest.raises(errors.ServiceError) as caught:
        services.check_response(raw)
    assert (caught.value.code, caught.value.description, caught.value.data) == (
        "422",
        "two numbers, please",
        b"details",
    )


def test_exceptions_of_the_handler_are_answers(service: Service, client: Connection) -> None:
    def fail(request: Request) -> None:
        if request.data == b"known":
            raise errors.ServiceError("418", "teapot", b"body")
        raise RuntimeError("several\nlines")

    endpoint = service.add_endpoint("fail", fail)
    service.nc.flush()
    for payload, code, description in (
        (b"known", "418", "teapot"),
        (b"", "500", "RuntimeError('several\\nlines')"),
    ):
        with pytest.raises(errors.ServiceError) as caught:
            services.check_response(client.request("fail", payload))
        assert (caught.value.code, caught.value.description) == (code, description)
    wait_until(lambda: endpoint.stats().num_errors == 2)
    assert endpoint.stats().last_error.startswith("500:RuntimeError")
    client.publish("fail", b"nobody waits for an answer")
    wait_until(lambda: endpoint.stats().num_errors == 3)
    service.reset()
    assert (endpoint.stats().num_errors, endpoint.stats().last_error) == (0, "")


def test_statistics_and_reset(service: Service, client: Connection) -> None:
    endpoint = service.add_endpoint("add", add)
    service.nc.flush()
    for _ in range(10):
        client.request("add", b"[1,2]")
    wait_until(lambda: endpoint.stats().num_requests == 10)
    stats = endpoint.stats()
    assert stats.num_errors == 0
    assert stats.processing_time > 0
    assert stats.average_processing_time == stats.processing_time // 10
    started = service.stats().started
    service.reset()
    assert (endpoint.stats().num_requests, endpoint.stats().processing_time) == (0, 0)
    assert service.stats().started >= started


def test_every_verb_on_every_subject(service: Service, client: Connection) -> None:
    service.add_endpoint("add", add, metadata={"a": "b"})
    identity = {"name": "adder", "id": service.id, "version": "1.2.3", "metadata": {"team": "x"}}
    for end in ("", ".adder", f".adder.{service.id}"):
        ping = json.loads(client.request(f"$SRV.PING{end}").data)
        assert ping == {**identity, "type": "io.nats.micro.v1.ping_response"}
        info = json.loads(client.request(f"$SRV.INFO{end}").data)
        endpoints = [{"name": "add", "subject": "add", "queue_group": "q", "metadata": {"a": "b"}}]
        expected = {"type": "io.nats.micro.v1.info_response", "description": "adds", "endpoints": endpoints}
        assert info == {**identity, **expected}
        stats = json.loads(client.request(f"$SRV.STATS{end}").data)
        assert stats["type"] == "io.nats.micro.v1.stats_response"
        assert stats["started"].endswith("Z")
        assert stats["endpoints"][0]["num_requests"] == 0
    for subject in ("$SRV.PING.other", "$SRV.PING.adder.other", "$SRV.SCHEMA"):
        with pytest.raises(errors.NoResponders):
            client.request(subject, timeout=1)


def test_finding_services(nc: Connection, client: Connection) -> None:
    assert list(services.ping(client, "finders")) == []
    config = ServiceConfig(name="finders", version="1.0.0", stats_handler=lambda endpoint: {"named": endpoint.name})
    running = [services.add_service(nc, config) for _ in range(3)]
    for service in running:
        service.add_endpoint("e", add)
    assert {found.id for found in services.ping(client, "finders")} == {service.id for service in running}
    assert [info.endpoints[0].name for info in services.info(client, "finders")] == ["e"] * 3
    (stats,) = services.stats(client, "finders", running[0].id)
    assert stats.endpoints[0].data == {"named": "e"}
    for service in running:
        service.stop()
    assert list(services.ping(client, "finders")) == []


def test_groups_and_queue_groups(nc: Connection, client: Connection) -> None:
    config = ServiceConfig(name="grouped", version="1.0.0", queue_group="mine")
    with services.add_service(nc, config) as service:
        outer = service.add_group("v1")
        inner = outer.add_group("math", queue_group="other")
        endpoints = [
            service.add_endpoint("a", add),
            outer.add_endpoint("b", add),
            inner.add_endpoint("c", add, subject="c.*"),
            inner.add_endpoint("d", add, queue_group=""),
        ]
        expected = [("a", "mine"), ("v1.b", "mine"), ("v1.math.c.*", "other"), ("v1.math.d", "")]
        assert [(endpoint.subject, endpoint.queue_group) for endpoint in endpoints] == expected
        nc.flush()
        for subject in ("a", "v1.b", "v1.math.c.x", "v1.math.d"):
            assert client.request(subject, b"[1,2]").data == b"3"
        for call in (
            lambda: service.add_endpoint("bad name", add),
            lambda: service.add_endpoint("a", add, subject="with space"),
            lambda: service.add_endpoint("a", add, subject="a.>.b"),
            lambda: service.add_endpoint("a", add, queue_group="q g"),
            lambda: service.add_group("a b"),
            lambda: service.add_group(">"),
        ):
            with pytest.raises(errors.InvalidName):
                call()
        with pytest.raises(errors.ConfigError):
            service.add_endpoint("a", add, workers=0)


def test_instances_share_a_queue_group(nc: Connection, client: Connection) -> None:
    config = ServiceConfig(name="shared", version="1.0.0")
    with services.add_service(nc, config) as one, services.add_service(nc, config) as two:
        first = one.add_endpoint("work", add, subject="shared.work")
        second = two.add_endpoint("work", add, subject="shared.work")
        nc.flush()
        for _ in range(200):
            client.request("shared.work", b"[1,2]")
        wait_until(lambda: first.stats().num_requests + second.stats().num_requests == 200)
        assert first.stats().num_requests > 20
        assert second.stats().num_requests > 20


def test_workers_serve_at_the_same_time(service: Service, client: Connection) -> None:
    meeting = threading.Barrier(4, timeout=10)

    def meet(request: Request) -> None:
        meeting.wait()
        request.respond(b"met")

    service.add_endpoint("meet", meet, workers=4)
    service.nc.flush()
    replies: list[bytes] = []
    threads = [threading.Thread(target=lambda: replies.append(client.request("meet").data)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [b"met"] * 4


def test_stop_finishes_what_waits_and_refuses_the_rest(nc: Connection, client: Connection) -> None:
    told: list[Service] = []
    config = ServiceConfig(name="stopping", version="1.0.0", on_stop=told.append)
    service = services.add_service(nc, config)
    entered, go_on = threading.Event(), threading.Event()

    def slow(request: Request) -> None:
        entered.set()
        go_on.wait(10)
        request.respond(b"done")

    service.add_endpoint("slow", slow, subject="stopping.slow")
    nc.flush()
    inbox = client.subscribe("answers")
    for _ in range(5):
        client.publish("stopping.slow", b"", reply="answers")
    client.flush()
    assert entered.wait(5)
    stopper = threading.Thread(target=service.stop)
    stopper.start()
    wait_until(lambda: not _listens(client, "stopping.slow"))
    assert not service.stopped
    go_on.set()
    stopper.join(10)
    assert service.wait(0)
    assert told == [service]
    assert [inbox.next(5).data for _ in range(5)] == [b"done"] * 5
    service.stop()
    with pytest.raises(errors.ConfigError):
        service.add_endpoint("late", slow)
    with pytest.raises(errors.NoResponders):
        client.request("$SRV.PING.stopping", timeout=1)


def _listens(client: Connection, subject: str) -> bool:
    try:
        client.request(subject, timeout=0.05)
    except errors.NoResponders:
        return False
    except errors.TimedOut:
        pass
    return True


def test_a_handler_may_stop_its_service(nc: Connection, client: Connection) -> None:
    service = services.add_service(nc, ServiceConfig(name="self-stopping", version="1.0.0"))

    def last(request: Request) -> None:
        request.respond(b"bye")
        service.stop()

    service.add_endpoint("last", last, subject="self.last")
    nc.flush()
    assert client.request("self.last").data == b"bye"
    assert service.wait(10)


def test_closing_the_connection_stops_it(server: NatsServer) -> None:
    told = threading.Event()
    nc = jsclient.connect(server.url)
    config = ServiceConfig(name="closing", version="1.0.0", on_stop=lambda service: told.set())
    service = services.add_service(nc, config)
    service.add_endpoint("e", add, subject="closing.e")
    nc.close()
    assert service.wait(10)
    assert told.wait(10)


def test_it_lives_through_a_reconnect(client: Connection) -> None:
    with NatsServer() as own, jsclient.connect(own.url) as nc:
        with services.add_service(nc, ServiceConfig(name="lasting", version="1.0.0")) as service:
            service.add_endpoint("e", add, subject="lasting.e")
            nc.flush()
            with jsclient.connect(own.url) as asking:
                assert asking.request("lasting.e", b"[1,2]").data == b"3"
            own.restart()
            wait_until(lambda: nc.is_connected, 10)
            nc.flush()
            with jsclient.connect(own.url) as asking:
                assert asking.request("lasting.e", b"[1,2]").data == b"3"
                assert [found.id for found in services.ping(asking)] == [service.id]


def test_services_do_not_pickle(service: Service) -> None:
    with pytest.raises(TypeError, match="ServiceConfig"):
        pickle.dumps(service)
    config = ServiceConfig(name="a", version="1.0.0")
    assert pickle.loads(pickle.dumps(config)) == config
