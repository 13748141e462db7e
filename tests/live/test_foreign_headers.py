"""Headers of other clients that ours may not send: every reader reads them, and no writer sends them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import nats
import pytest

from jsclient import arrow, errors, keyvalue, objectstore
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.protocol import Headers
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, WorkerPool

LINES = b"A b: v\r\nn\xc3\xa4me: w\r\nNul: a\x00b\r\nLf: a\nb\r\nCr: a\rb\r\n x : y \r\nOk: 1\r\n"
PAIRS = [("A b", "v"), ("näme", "w"), ("Nul", "a\0b"), ("Lf", "a\nb"), ("Cr", "a\rb"), ("x", "y"), ("Ok", "1")]
SINCE = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)
BROKEN = b"no colon\r\nKept: 1\r\n"


def send(js: JetStream, subject: str, payload: bytes = b"x", lines: bytes = LINES) -> None:
    block = b"NATS/1.0\r\n" + lines + b"\r\n"
    start = b"HPUB %b %d %d\r\n" % (subject.encode(), len(block), len(block) + len(payload))
    engine_of(js.nc).enqueue(start + block + payload + b"\r\n")
    js.nc.flush()


@pytest.fixture
def stream(js: JetStream) -> Iterator[Stream]:
    name = uuid.uuid4().hex
    yield js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], allow_direct=True))
    js.delete_stream(name)


READS: dict[str, Callable[[Stream], Any]] = {
    "get_msg": lambda stream: [stream.get_msg(1, direct=False), stream.get_msg(2, direct=False)],
    "direct": lambda stream: [stream.get_msg(1, direct=True), stream.get_msg(2, direct=True)],
    "next": lambda stream: [stream.get_msg(1, subject=f"{stream.name}.a"), stream.get_msg(1, subject=">", direct=True)],
    "last": lambda stream: [stream.get_last_msg(f"{stream.name}.a"), stream.get_last_msg(f"{stream.name}.b")],
    "first": lambda stream: [stream.get_first_msg(start_time=SINCE), stream.get_msg(2)],
    "batch": lambda stream: list(stream.get_batch(5)),
    "batch since": lambda stream: list(stream.get_batch(5, start_time=SINCE)),
    "last of each": lambda stream: list(stream.get_last_msgs([f"{stream.name}.>"])),
    "fetch": lambda stream: stream.ordered_consumer().fetch(2, timeout=5),
    "read_until": lambda stream: list(stream.ordered_consumer().read_until(drained=True)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_gives_what_was_sent(js: JetStream, stream: Stream, read: Callable[[Stream], Any]) -> None:
    for last in "ab":
        send(js, f"{stream.name}.{last}")
    for message in read(stream):
        assert message.headers.items() == PAIRS
        assert message.data == b"x"


def test_what_nats_py_sends_is_read(js: JetStream, server: NatsServer, stream: Stream) -> None:
    async def store() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().publish(f"{stream.name}.a", b"x", headers={"Nul": "a\0b"})
        await client.close()

    asyncio.run(store())
    assert [message.headers.items() for message in stream.get_batch(5)] == [[("Nul", "a\0b")]]


def test_nothing_sends_them_again(js: JetStream, stream: Stream) -> None:
    send(js, f"{stream.name}.a")
    message = stream.get_msg(1)
    subject = f"{stream.name}.copy"
    batch = js.fast_batch()
    writes: tuple[Callable[[Any], Any], ...] = (
        lambda headers: js.nc.publish(subject, b"", headers=headers),
        lambda headers: js.nc.request(subject, b"", headers=headers, timeout=1),
        lambda headers: js.publish(subject, b"", headers=headers),
        lambda headers: js.publish_async(subject, b"", headers=headers),
        lambda headers: batch.add(subject, b"", headers=headers),
    )
    for write in writes:
        for headers in (message.headers, Headers(message.headers), stream.ordered_consumer().next(timeout=5).headers):
            with pytest.raises(errors.InvalidHeader):
                write(headers)
    assert stream.info().state.messages == 1
    js.publish(subject, b"", headers=message.headers.sendable())
    assert stream.get_msg(2).headers.items() == [("x", "y"), ("Ok", "1")]


def test_buckets_and_stores_read_them(js: JetStream) -> None:
    name = uuid.uuid4().hex
    bucket = keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket=name, history=5))
    send(js, f"$KV.{name}.k", b"1")
    send(js, f"$KV.{name}.k", b"2", LINES + b"Kv-Operation: DEL\r\n")
    send(js, f"$KV.{name}.gone", b"", LINES + b"KV-Operation: DEL\r\n")
    for direct in (True, False):
        assert bucket.get("k", direct=direct).value == b"2"
        with pytest.raises(errors.KeyDeleted):
            bucket.get("gone", direct=direct)
    assert [entry.value for entry in bucket.history("k")] == [b"1", b"2"]
    assert list(bucket.keys()) == ["k"]
    store = objectstore.create_object_store(js, ObjectStoreConfig(bucket=name))
    store.put("o", b"data")
    meta = js.stream(f"OBJ_{name}").get_last_msg(f"$O.{name}.M.>")
    info = {**json.loads(meta.data), "headers": {"A b": ["x\0y\nz"], "näme": ["1"]}}
    send(js, meta.subject, json.dumps(info).encode(), b"Nats-Rollup: sub\r\n" + LINES)
    assert [each.headers for each in store.list()] == [{"A b": ["x\0y\nz"], "näme": ["1"]}]
    with store.get("o") as reader:
        assert reader.read() == b"data"
    keyvalue.delete_key_value(js, name)
    objectstore.delete_object_store(js, name)


def test_columns_have_them(js: JetStream, stream: Stream) -> None:
    send(js, f"{stream.name}.a")
    send(js, f"{stream.name}.b", lines=LINES + b"Ok: 2\r\n")
    send(js, f"{stream.name}.c", lines=BROKEN)
    rows = arrow.read_table(js, stream.name).column("headers").to_pylist()
    assert rows[0] == [(name, [value]) for name, value in PAIRS]
    assert rows[1] == [*rows[0][:-1], ("Ok", ["1", "2"])]
    assert rows[2] == [("Kept", ["1"])]


def test_spark_code_reads_them(server: NatsServer, js: JetStream, stream: Stream) -> None:
    spark = pytest.importorskip("jsclient.spark")
    send(js, f"{stream.name}.a")
    send(js, f"{stream.name}.b", lines=BROKEN)
    records = list(spark.read_range({"servers": server.url, "stream": stream.name}, 1, 3))
    spark.close_idle()
    assert [record.headers.items() for record in records] == [PAIRS, [("Kept", "1")]]


@pytest.mark.parametrize("lines", [LINES, BROKEN], ids=["foreign", "broken"])
def test_dead_letters_keep_the_rest(js: JetStream, stream: Stream, lines: bytes) -> None:
    dead = uuid.uuid4().hex
    js.create_stream(StreamConfig(name=dead, subjects=[f"{dead}.>"]))
    send(js, f"{stream.name}.a", lines=lines)

    def fail(message: Any) -> None:
        raise ValueError("no")

    consumer = stream.create_consumer(ConsumerConfig(durable_name="C"))
    letters = DeadLetters(js, dead)
    with WorkerPool(consumer, fail, attempts=1, dead_letter=f"{dead}.letters"):
        wait_until(lambda: js.stream(dead).info().state.messages == 1, 10)
    kept = [("x", "y"), ("Ok", "1")] if lines is LINES else [("Kept", "1")]
    (letter,) = letters.list()
    assert letter.headers.items() == kept
    letters.replay(letter)
    assert [pair for pair in stream.get_msg(2).headers.items() if pair in kept] == kept
    if lines is LINES:
        send(js, f"{dead}.foreign", lines=LINES + b"Dead-Letter-Subject: " + f"{stream.name}.b\r\n".encode())
        foreign = list(letters.list())[-1]
        assert foreign.headers.items() == PAIRS
        letters.replay(foreign)
        assert [pair for pair in stream.get_msg(3).headers.items() if pair in PAIRS] == kept
    js.delete_stream(dead)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [LINES, BROKEN], ids=["foreign", "broken"])
def test_the_command_line_shows_them_on_one_line_each(
    server: NatsServer, js: JetStream, stream: Stream, lines: bytes
) -> None:
    send(js, f"{stream.name}.a", lines=lines)
    stream.create_consumer(ConsumerConfig(durable_name="C"))
    for command in (
        ["consumer", "next", stream.name, "C"],
        ["stream", "get", stream.name, "1"],
        ["stream", "view", stream.name],
    ):
        run = subprocess.run(
            [sys.executable, "-m", "jsclient", *command],
            capture_output=True,
            timeout=60,
            env={**os.environ, "NATS_URL": server.url},
            check=True,
        )
        shown = run.stdout.decode().splitlines()[1:]
        if lines is BROKEN:
            assert shown == ["Kept: 1", "x"]
        else:
            assert shown == ["A b: v", "näme: w", "Nul: a\\x00b", "Lf: a\\nb", "Cr: a\\rb", "x: y", "Ok: 1", "x"]
