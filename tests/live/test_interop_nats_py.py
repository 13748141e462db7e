"""Buckets, objects and services together with nats-py: what one side writes, the other one reads."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import nats
import nats.js.errors
import pytest
from nats.js import api
from nats.js.kv import KeyValue as PyKeyValue

from jsclient import Connection, errors, keyvalue, objectstore, services
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig, Operation
from jsclient.objectstore import ObjectMeta, ObjectStoreConfig
from jsclient.testing import NatsServer

T = TypeVar("T")
DATA = os.urandom(400_000)
OLD_ACKS = pytest.mark.skipif(
    "js_ack_fc_v2" in os.environ.get("NATS_SERVER_CONFIG", ""), reason="nats-py does not read the newer ack subjects"
)


class Peer:
    """nats-py on an event loop of its own; `run` waits for a coroutine there."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="nats-py")
        self.thread.start()
        self.nc = self.run(nats.connect(url))
        self.js = self.nc.jetstream()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def close(self) -> None:
        self.run(self.nc.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


@pytest.fixture
def js(nc: Connection) -> Iterator[JetStream]:
    js = JetStream(nc)
    yield js
    for name in list(js.stream_names()):
        js.delete_stream(name)


@pytest.fixture
def peer(server: NatsServer) -> Iterator[Peer]:
    peer = Peer(server.url)
    yield peer
    peer.close()


async def keys_of(bucket: PyKeyValue) -> list[str]:
    return list(await bucket.keys())


@OLD_ACKS
def test_a_bucket_of_ours_is_theirs(js: JetStream, peer: Peer) -> None:
    ours = keyvalue.create_key_value(js, KeyValueConfig(bucket="ours", history=5))
    theirs = peer.run(peer.js.key_value("ours"))
    ours.put("a", b"1")
    entry = peer.run(theirs.get("a"))
    assert (entry.value, entry.revision) == (b"1", 1)
    assert peer.run(theirs.update("a", b"2", last=1)) == 2
    assert ours.get("a").value == b"2"
    with pytest.raises(errors.RevisionMismatch):
        ours.update("a", b"3", 1)
    ours.delete("a")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        peer.run(theirs.get("a"))
    assert peer.run(theirs.create("a", b"4")) == 4
    ours.put("b", b"x")
    assert sorted(peer.run(keys_of(theirs))) == sorted(ours.keys()) == ["a", "b"]
    status = peer.run(theirs.status())
    assert (status.history, status.values) == (5, ours.status().values)


def test_a_bucket_of_theirs_is_ours(js: JetStream, peer: Peer) -> None:
    theirs = peer.run(peer.js.create_key_value(bucket="theirs", history=5))
    ours = keyvalue.key_value(js, "theirs")
    peer.run(theirs.put("a", b"1"))
    peer.run(theirs.put("a", b"2"))
    peer.run(theirs.put("b", b"3"))
    assert [entry.value for entry in ours.history("a")] == [b"1", b"2"]
    peer.run(theirs.delete("a"))
    peer.run(theirs.purge("b"))
    with ours.watch() as watcher:
        found = {entry.key: entry.operation for entry in watcher.initial()}
        assert found == {"a": Operation.DELETE, "b": Operation.PURGE}
        peer.run(theirs.put("c", b"new"))
        entry = watcher.next(10)
        assert entry is not None
        assert (entry.key, entry.value) == ("c", b"new")
    assert ours.create("a", b"again") > 0
    assert list(keyvalue.key_value_store_names(js)) == ["theirs"]
    assert ours.status().history == 5


@OLD_ACKS
def test_their_watcher_sees_our_changes(js: JetStream, peer: Peer) -> None:
    ours = keyvalue.create_key_value(js, KeyValueConfig(bucket="b"))
    ours.put("a", b"1")
    theirs = peer.run(peer.js.key_value("b"))
    watcher = peer.run(theirs.watchall())
    first = peer.run(watcher.updates(timeout=10))
    assert first is not None
    assert (first.key, first.value) == ("a", b"1")
    assert peer.run(watcher.updates(timeout=10)) is None
    ours.purge("a")
    second = peer.run(watcher.updates(timeout=10))
    assert second is not None
    assert second.operation == "PURGE"
    peer.run(watcher.stop())


@OLD_ACKS
def test_objects_of_ours_are_theirs(js: JetStream, peer: Peer) -> None:
    ours = objectstore.create_object_store(js, ObjectStoreConfig(bucket="ours"))
    put = ours.put(ObjectMeta(name="ü a", description="d"), DATA)
    theirs = peer.run(peer.js.object_store("ours"))
    result = peer.run(theirs.get("ü a"))
    assert result.data == DATA
    assert (result.info.size, result.info.chunks, result.info.digest) == (put.size, put.chunks, put.digest)
    assert result.info.description == "d"
    ours.put("empty", b"")
    assert peer.run(theirs.get("empty")).data == b""
    ours.add_link("link", put)
    assert peer.run(theirs.get("link")).data == DATA
    target = io.BytesIO()
    peer.run(theirs.get("ü a", writeinto=target))
    assert target.getvalue() == DATA
    ours.delete("ü a")
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        peer.run(theirs.get("ü a"))
    assert {info.name for info in peer.run(theirs.list(ignore_deletes=True))} == {"empty", "link"}


@OLD_ACKS
def test_objects_of_theirs_are_ours(js: JetStream, peer: Peer) -> None:
    theirs = peer.run(peer.js.create_object_store(bucket="theirs"))
    meta = api.ObjectMeta(name="a", description="d", headers={"h": "1"})
    peer.run(theirs.put("a", DATA, meta=meta))
    peer.run(theirs.put("small", b"x"))
    ours = objectstore.object_store(js, "theirs")
    assert ours.get_bytes("a") == DATA
    assert ours.get_bytes("small") == b"x"
    info = ours.info("a")
    assert (info.description, info.headers, info.size) == ("d", {"h": ["1"]}, len(DATA))
    assert {found.name for found in ours.list()} == {"a", "small"}
    peer.run(theirs.delete("small"))
    assert "small" not in ours
    ours.put("a", b"replaced")
    assert peer.run(theirs.get("a")).data == b"replaced"
    assert ours.status(repair=True).repaired == 0
    peer.run(theirs.put("a", DATA[:1000]))
    assert ours.get_bytes("a") == DATA[:1000]
    assert list(objectstore.object_store_names(js)) == ["theirs"]


# nats-py calls datetime.utcnow, which warns from Python 3.12 on.
@pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
def test_a_service_of_theirs_is_found_and_asked(nc: Connection, peer: Peer) -> None:
    from nats.micro import add_service
    from nats.micro.request import Request as PyRequest
    from nats.micro.service import EndpointConfig, ServiceConfig

    async def start() -> Any:
        async def handle(request: PyRequest) -> None:
            if not request.data:
                await request.respond_error("400", "empty")
            else:
                await request.respond(request.data[::-1])

        service = await add_service(peer.nc, ServiceConfig(name="reverser", version="1.0.0", description="d"))
        await service.add_endpoint(EndpointConfig(name="reverse", handler=handle, metadata={"a": "b"}))
        await peer.nc.flush()
        return service

    service = peer.run(start())
    assert nc.request("reverse", b"abc").data == b"cba"
    with pytest.raises(errors.ServiceError) as caught:
        services.check_response(nc.request("reverse"))
    assert (caught.value.code, caught.value.description) == ("400", "empty")
    (ping,) = services.ping(nc, "reverser")
    assert (ping.name, ping.version, ping.id) == ("reverser", "1.0.0", service.id)
    (info,) = services.info(nc, "reverser", service.id)
    assert [(e.name, e.subject, e.metadata) for e in info.endpoints] == [("reverse", "reverse", {"a": "b"})]
    (stats,) = services.stats(nc)
    assert stats.endpoints[0].num_requests == 2
    peer.run(service.stop())


def test_a_service_of_ours_speaks_their_models(nc: Connection, peer: Peer) -> None:
    import json

    from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

    def reverse(request: services.Request) -> None:
        request.respond(request.data[::-1])

    config = services.ServiceConfig(name="reverser", version="1.0.0", description="d")
    with services.add_service(nc, config) as service:
        service.add_group("v1").add_endpoint("reverse", reverse)
        nc.flush()
        ask: Callable[..., Awaitable[Any]] = peer.nc.request

        async def answer(subject: str, payload: bytes = b"") -> bytes:
            data: bytes = (await ask(subject, payload, timeout=10)).data
            return data

        assert peer.run(answer("v1.reverse", b"abc")) == b"cba"
        ping = ServicePing.from_dict(json.loads(peer.run(answer("$SRV.PING"))))
        info = ServiceInfo.from_dict(json.loads(peer.run(answer("$SRV.INFO.reverser"))))
        stats = ServiceStats.from_dict(json.loads(peer.run(answer(f"$SRV.STATS.reverser.{service.id}"))))
        assert ping.id == info.id == stats.id == service.id
        assert info.endpoints[0].subject == "v1.reverse"
        assert stats.endpoints[0].num_requests == 1
