"""Headers that a publisher broke: the server stores and passes them on unread, and nobody's reading stops at them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.keyvalue import KeyValue, KeyValueConfig, Operation
from jsclient.testing import NatsServer
from protocol import MalformedHeaders

BROKEN = b"NATS/1.0\r\nno colon\r\nKV-Operation: DEL\r\n\r\n"


def publish_broken(nc: jsclient.Connection, subject: str, body: bytes = b"x") -> None:
    start = b"HPUB %s %d %d\r\n" % (subject.encode(), len(BROKEN), len(BROKEN) + len(body))
    engine_of(nc).post(start + BROKEN + body + b"\r\n")
    nc.flush()


@pytest.fixture
def js(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        yield JetStream(nc)


@pytest.fixture
def stream(js: JetStream) -> Stream:
    name = uuid.uuid4().hex
    return js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], allow_direct=True))


@pytest.fixture
def bucket(js: JetStream) -> KeyValue:
    return keyvalue.create_key_value(js, KeyValueConfig(bucket=uuid.uuid4().hex, history=5))


@pytest.mark.parametrize("direct", [True, False])
def test_reading_one_message_is_a_typed_error(js: JetStream, stream: Stream, direct: bool) -> None:
    publish_broken(js.nc, f"{stream.name}.a")
    js.publish(f"{stream.name}.b", b"after")
    reads: tuple[Callable[[], Any], ...] = (
        lambda: stream.get_msg(1, direct=direct),
        lambda: stream.get_last_msg(f"{stream.name}.a", direct=direct),
    )
    for read in reads:
        with pytest.raises(errors.BadResponse):
            read()
    assert stream.get_msg(2, direct=direct).data == b"after"


def test_consumers_go_past_it(js: JetStream, stream: Stream) -> None:
    publish_broken(js.nc, f"{stream.name}.a")
    js.publish(f"{stream.name}.b", b"after")
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    first, second = consumer.fetch(2, timeout=10)
    assert (first.data, second.data) == (b"x", b"after")
    with pytest.raises(MalformedHeaders):
        _ = first.headers
    for message in (first, second):
        message.double_ack()
    assert [message.data for message in stream.ordered_consumer().fetch(2, timeout=10)] == [b"x", b"after"]


@pytest.mark.parametrize("way", ["fetch", "messages"])
def test_a_pinned_group_goes_past_it(js: JetStream, stream: Stream, way: str) -> None:
    config = ConsumerConfig(durable_name="C", priority_groups=["g"], priority_policy="pinned_client")
    try:
        consumer = stream.create_consumer(config)
    except errors.NotSupported:
        pytest.skip("priority groups need nats-server 2.11")
    publish_broken(js.nc, f"{stream.name}.a")
    js.publish(f"{stream.name}.b", b"after")
    if way == "fetch":
        taken = list(consumer.fetch(2, timeout=10, group="g"))
    else:
        with consumer.messages(group="g") as messages:
            taken = [messages.next(timeout=10) for _ in range(2)]
    assert [message.data for message in taken] == [b"x", b"after"]


def test_a_bucket_reads_and_watches_past_it(js: JetStream, bucket: KeyValue) -> None:
    bucket.put("a", b"1")
    publish_broken(js.nc, f"$KV.{bucket.bucket}.a")
    bucket.put("b", b"2")
    with pytest.raises(errors.KeyDeleted):
        bucket.get("a", direct=True)
    with pytest.raises((errors.KeyDeleted, errors.BadResponse)):
        bucket.get("a", direct=False)
    with bucket.watch(include_history=True) as watcher:
        seen = watcher.initial(10)
    assert [(entry.key, entry.operation) for entry in seen] == [
        ("a", Operation.PUT),
        ("a", Operation.DELETE),
        ("b", Operation.PUT),
    ]
    assert list(bucket.keys()) == ["b"]
