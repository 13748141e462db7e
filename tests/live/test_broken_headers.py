"""Headers that a publisher broke: the server stores and passes them on unread, and nobody's reading stops at them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.keyvalue import KeyValue, KeyValueConfig, Operation
from jsclient.protocol import MalformedHeaders
from jsclient.testing import NatsServer, wait_until

BROKEN = b"NATS/1.0\r\nno colon\r\nKV-Operation: DEL\r\n\r\n"


def publish_broken(nc: jsclient.Connection, subject: str, body: bytes = b"x", block: bytes = BROKEN) -> None:
    start = b"HPUB %s %d %d\r\n" % (subject.encode(), len(block), len(block) + len(body))
    engine_of(nc).enqueue(start + block + body + b"\r\n")
    nc.flush()


@pytest.fixture
def stream(js: JetStream) -> Stream:
    name = uuid.uuid4().hex
    return js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], allow_direct=True))


@pytest.fixture
def bucket(js: JetStream) -> KeyValue:
    return keyvalue.create_key_value(js, KeyValueConfig(bucket=uuid.uuid4().hex, history=5))


#: A block as a client may send it -> what is read of it; None: not even its first line is NATS.
BLOCKS: list[tuple[bytes, list[tuple[str, str]] | None]] = [
    (b"NATS/1.0\r\nno colon\r\nA: b\r\n\r\n", [("A", "b")]),
    (b"NATS/1.0\r\n: no name\r\nA: b\r\n\r\n", [("A", "b")]),
    (b"NATS/1.0\r\n\xff\xfe x\0: y\nz\r\n\r\n", [("\udcff\udcfe x\0", "y\nz")]),
    (b"NATS/1.0\r\nA: b\r\nC: d", [("A", "b")]),
    (b"NATS/1.0\r\nA: b\r\n", []),
    (b"NATS/1.0\r\n\r\n", []),
    (b"NATS/1.0", []),
    (b"NATS/1.0 503\r\n\r\n", []),
    (b"NATS/1.0 404 No Messages\r\nA: b\r\n\r\n", [("A", "b")]),
    (b"NATS/2.0\r\nA: b\r\n\r\n", None),
    (b"A: b\r\n\r\n", None),
    (b"abcd", None),
    (b"\r\n\r\n", None),
]


@pytest.fixture(scope="module")
def broken(server: NatsServer) -> Iterator[Stream]:
    with jsclient.connect(server.url) as nc:
        stream = JetStream(nc).create_stream(
            StreamConfig(name="BROKEN", subjects=["broken.>"], allow_direct=True, mirror_direct=False)
        )
        for number, (block, _) in enumerate(BLOCKS):
            publish_broken(nc, f"broken.{number}", b"x", block)
        wait_until(lambda: stream.info().state.messages == len(BLOCKS))
        yield stream
        with contextlib.suppress(errors.StreamNotFound):  # the fixture `js` of another test deletes all streams
            stream.js.delete_stream("BROKEN")


@pytest.mark.parametrize("direct", [True, False])
def test_every_message_is_read_by_itself(broken: Stream, direct: bool) -> None:
    for number, (block, expected) in enumerate(BLOCKS):
        for message in (
            broken.get_msg(number + 1, direct=direct),
            broken.get_last_msg(f"broken.{number}", direct=direct),
        ):
            assert (message.seq, message.subject, message.stream) == (number + 1, f"broken.{number}", "BROKEN")
            assert message.data == b"x"
            check(message, block, expected, cut=direct)


def check(message: Any, block: bytes, expected: list[tuple[str, str]] | None, cut: bool) -> None:
    """`cut`: for a direct get the server takes two bytes off, which are the end of a block that has one."""
    if cut and not block.endswith(b"\r\n\r\n"):
        assert message.raw_headers is None or block.startswith(message.raw_headers.removesuffix(b"\r\n\r\n"))
        return
    if expected is None:
        with pytest.raises(errors.MalformedHeaders, match="not a NATS/1.0 header block"):
            _ = message.headers
    elif block.endswith(b"\r\n\r\n"):
        assert message.headers.items() == expected
    else:
        assert set(expected) <= set(message.headers.items())


def test_ranges_are_read_past_them(broken: Stream) -> None:
    if not broken.js.nc.server_info.at_least(2, 11):
        pytest.skip("batched gets need nats-server 2.11")
    for messages in (
        list(broken.get_batch(100)),
        list(broken.get_last_msgs(["broken.>"])),
    ):
        assert [message.seq for message in messages] == list(range(1, len(BLOCKS) + 1))
        for message, (block, expected) in zip(messages, BLOCKS, strict=True):
            assert message.data == b"x"
            check(message, block, expected, cut=True)


def test_every_consumer_delivers_them(broken: Stream) -> None:
    pull = broken.create_consumer(ConsumerConfig(durable_name="P"))
    with broken.ordered_consumer().messages() as ordered, broken.ordered_push_consumer().messages() as pushed:
        ways = {
            "fetch": list(pull.fetch(len(BLOCKS), timeout=10)),
            "ordered": [ordered.next(timeout=10) for _ in BLOCKS],
            "pushed": [pushed.next(timeout=10) for _ in BLOCKS],
        }
    for messages in ways.values():
        for message, (block, expected) in zip(messages, BLOCKS, strict=True):
            assert message.data == b"x"
            check(message, block, expected, cut=False)
    with pytest.raises(MalformedHeaders):  # the error of `protocol`, too
        _ = ways["fetch"][-1].headers


def test_consumers_go_past_it(js: JetStream, stream: Stream) -> None:
    publish_broken(js.nc, f"{stream.name}.a")
    js.publish(f"{stream.name}.b", b"after")
    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    first, second = consumer.fetch(2, timeout=10)
    assert (first.data, second.data) == (b"x", b"after")
    assert first.headers.items() == [("KV-Operation", "DEL")]
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
    with pytest.raises(errors.KeyDeleted):
        bucket.get("a", direct=False)
    with bucket.watch(include_history=True) as watcher:
        seen = watcher.initial(10)
    assert [(entry.key, entry.operation) for entry in seen] == [
        ("a", Operation.PUT),
        ("a", Operation.DELETE),
        ("b", Operation.PUT),
    ]
    assert list(bucket.keys()) == ["b"]


@pytest.mark.parametrize("direct", [True, False])
def test_a_bucket_reads_every_block(js: JetStream, bucket: KeyValue, direct: bool) -> None:
    for number, (block, _) in enumerate(BLOCKS):
        publish_broken(js.nc, f"$KV.{bucket.bucket}.k{number}", b"x", block)
    wait_until(lambda: bucket.status().values == len(BLOCKS))
    for number in range(len(BLOCKS)):
        entry = bucket.get(f"k{number}", direct=direct)
        assert (entry.value, entry.revision) == (b"x", number + 1)
    assert len(bucket.history("k0")) == 1
    assert len(list(bucket.keys())) == len(BLOCKS)
