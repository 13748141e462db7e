"""A server with `no_header_support` ends the link at the first header: whatever would send one is refused before."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue, objectstore, services
from jsclient.exactly import sending
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.spark.options import WRITE, parse
from jsclient.testing import FakeServer, NatsServer, wait_until

NO_HEADERS = "no_header_support: true\n"


@pytest.fixture(scope="module")
def bare() -> Iterator[NatsServer]:
    with NatsServer(NO_HEADERS) as server:
        yield server


@pytest.fixture
def js(bare: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(bare.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory"))
        yield js
        # Nothing that was refused has cost the link.
        nc.flush()
        assert nc.stats().reconnects == 0
        for name in list(js.stream_names()):
            js.delete_stream(name)


H = {"A": "b"}


def spark_rows(js: JetStream) -> None:
    options = parse({"servers": "nats://unused", "subject": "s.a"}, WRITE)
    publisher = sending.row_publisher(js.nc, options)
    publisher.publish([(b"s.a", b"", b"x", b"id")])


def spark_fast(js: JetStream) -> None:
    options = parse({"servers": "nats://unused", "subject": "s.a"}, WRITE)
    sending.fast_publisher(js.nc, options).publish([(b"s.a", b"", b"x", None)])


def bucket(js: JetStream) -> keyvalue.KeyValue:
    return keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="b"))


def store(js: JetStream) -> Any:
    return objectstore.create_object_store(js, objectstore.ObjectStoreConfig(bucket="o"))


def batch(made: Any) -> None:
    made.add("s.a", b"x", headers=H)
    made.commit("s.a", b"y")


CALLS: dict[str, Callable[[JetStream], Any]] = {
    "publish": lambda js: js.nc.publish("a", b"x", headers=H),
    "publish with reply": lambda js: js.nc.publish("a", b"x", reply="b", headers=H),
    "publish text": lambda js: js.nc.publish("a", "x", headers=jsclient.Headers(H)),
    "request": lambda js: js.nc.request("a", b"x", headers=H),
    "request_many": lambda js: list(js.nc.request_many("a", b"x", headers=H)),
    "jetstream publish": lambda js: js.publish("s.a", b"x", headers=H),
    "jetstream publish with id": lambda js: js.publish("s.a", b"x", msg_id="1"),
    "jetstream publish, expectation": lambda js: js.publish("s.a", b"x", expected_last_seq=0),
    "publish_async": lambda js: js.publish_async("s.a", b"x", headers=H),
    "publish_async with id": lambda js: js.publish_async("s.a", b"x" * 100_000, msg_id="1"),
    "key-value create": lambda js: bucket(js).create("k", b"v"),
    "key-value put with headers": lambda js: bucket(js).put("k", b"v", headers=H),
    "key-value update": lambda js: bucket(js).update("k", b"v", 1),
    "key-value delete": lambda js: bucket(js).delete("k"),
    "key-value purge": lambda js: bucket(js).purge("k"),
    "object put": lambda js: store(js).put("name", b"x" * 1000),
    "atomic batch": lambda js: batch(js.atomic_batch()),
    "fast batch": lambda js: batch(js.fast_batch()),
    "spark": spark_rows,
    "spark, fast": spark_fast,
}


@pytest.mark.parametrize("what", CALLS)
def test_headers_are_refused_before_anything_is_sent(js: JetStream, what: str) -> None:
    others = js.nc.subscribe(">")
    js.nc.flush()
    with pytest.raises(errors.NotSupported) as caught:
        CALLS[what](js)
    if not what.endswith("batch"):  # older servers have none: then that is the reason
        assert isinstance(caught.value, errors.HeadersNotSupported)
        assert "no_header_support" in str(caught.value)
    js.nc.flush()
    assert js.stream("S").info().state.messages == 0
    while len(others):
        assert not others.next(timeout=0).subject.startswith(("a", "s."))


def test_without_headers_everything_goes_on(js: JetStream) -> None:
    assert js.publish("s.a", b"x").seq == 1
    assert js.publish_async("s.a", b"x").result(5).seq == 2
    kv = bucket(js)
    kv.put("k", b"v")
    with pytest.raises(errors.BadResponse):  # a server that gives none tells no revisions either
        kv.get("k")
    sub = js.nc.subscribe("a")
    js.nc.publish("a", b"plain")
    assert sub.next(timeout=5).data == b"plain"


def test_a_service_survives_an_answer_that_it_cannot_give(bare: NatsServer) -> None:
    def handle(request: services.Request) -> None:
        if request.data == b"bad":
            request.error(400, "no")
        elif request.data == b"worse":
            raise ValueError("worse")
        else:
            request.respond(b"good")

    with (
        jsclient.connect(bare.url) as nc,
        jsclient.connect(bare.url) as client,
        services.add_service(nc, services.ServiceConfig(name="s", version="1.0.0")) as service,
    ):
        service.add_endpoint("e", handle)
        nc.flush()
        for bad in (b"bad", b"worse"):
            with pytest.raises(errors.RequestTimeout):
                client.request("e", bad, timeout=0.3)
            assert client.request("e", b"x", timeout=5).data == b"good"
        assert nc.stats().reconnects == 0


def test_what_was_kept_for_a_server_that_takes_none(bare: NatsServer) -> None:
    """The first server takes headers, the second does not: messages kept in between do not cut its link for ever."""

    def script(client: Any) -> None:
        client.handshake()
        client.expect(b"PING\r\n")
        client.send(b"PONG\r\n")
        client.hold()

    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with FakeServer(script) as fake, jsclient.connect(bare.url) as other:
        sub = other.subscribe("kept")
        other.flush()
        with jsclient.connect(
            fake.url,
            reconnect=jsclient.ReconnectPolicy(delay=lambda number: 0.5),
            on_error=lambda nc, error, sub: told.put(error),
        ) as nc:
            nc.flush()
            nc.set_servers(bare.url)
            fake.close()
            wait_until(lambda: not nc.is_connected)
            nc.publish("kept", b"1")
            nc.publish("kept", b"2", headers=H)
            nc.publish("kept", b"3")
            wait_until(lambda: nc.is_connected)
            nc.flush()
            assert [sub.next(timeout=5).data for _ in range(2)] == [b"1", b"3"]
            while not isinstance(error := told.get(timeout=5), errors.HeadersNotSupported):
                pass
            assert "1 message with headers" in str(error)
            assert nc.stats().reconnects == 1
