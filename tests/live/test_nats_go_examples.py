"""The example programs of the nats.go jetstream README, in Python; and a client on a leaf node."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, PubMsg, Stream, StreamConfig
from jsclient.testing import LeafPair, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stream(js: JetStream) -> Stream:
    return js.create_stream(StreamConfig(name="ORDERS", subjects=["ORDERS.*"]))


def test_basic_usage(js: JetStream, stream: Stream) -> None:
    """Publish 100; then fetch 10, consume and messages at the same time on one consumer."""
    for number in range(100):
        js.publish("ORDERS.new", f"hello message {number}".encode())
    consumer = stream.create_consumer(ConsumerConfig(durable_name="CONS", ack_policy="explicit"))
    seen: list[int] = []
    for msg in consumer.fetch(10, timeout=5):
        msg.ack()
        seen.append(msg.metadata.stream_seq)
    assert seen == list(range(1, 11))

    def handle(msg: JetStreamMsg) -> None:
        msg.ack()
        seen.append(msg.metadata.stream_seq)

    with consumer.consume(handle, max_messages=20), consumer.messages(max_messages=20) as messages:

        def iterate() -> None:
            for msg in messages:
                handle(msg)

        thread = threading.Thread(target=iterate)
        thread.start()
        wait_until(lambda: len(seen) == 100, 20)
        messages.stop()
        thread.join(10)
    assert sorted(seen) == list(range(1, 101))
    wait_until(lambda: consumer.info().num_ack_pending == 0, 5)


def test_five_workers_share_an_iterator(js: JetStream, stream: Stream) -> None:
    for number in range(50):
        js.publish_async("ORDERS.new", b"%d" % number)
    js.publish_async_complete(10)
    consumer = stream.create_consumer(ConsumerConfig(durable_name="CONS"))
    done: list[int] = []
    with consumer.messages(max_messages=1) as messages:

        def work() -> None:
            for msg in messages:
                msg.double_ack(timeout=10)
                done.append(msg.metadata.stream_seq)

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(done) == 50, 30)
        messages.stop()
        for thread in threads:
            thread.join(10)
    assert sorted(done) == list(range(1, 51))
    assert consumer.info().num_ack_pending == 0


def test_three_ways_to_give_a_message_id(js: JetStream, stream: Stream) -> None:
    first = js.publish("ORDERS.new", b"hello", msg_id="id")
    second = js.publish_msg(PubMsg("ORDERS.new", b"hello"), msg_id="id")
    third = js.publish_msg(PubMsg("ORDERS.new", b"hello", headers={"Nats-Msg-Id": "id"}))
    assert [ack.duplicate for ack in (first, second, third)] == [False, True, True]
    assert {ack.seq for ack in (first, second, third)} == {1}
    assert stream.info().state.messages == 1


def test_asynchronous_publishing(js: JetStream, stream: Stream) -> None:
    futures = [js.publish_async("ORDERS.new", b"hello") for _ in range(500)]
    js.publish_async_complete(timeout=5)
    assert js.publish_async_pending() == 0
    assert sorted(future.result(0).seq for future in futures) == list(range(1, 501))
    assert futures[0].msg.subject == "ORDERS.new"


def test_listings(js: JetStream, stream: Stream) -> None:
    for name in ("foo", "bar"):
        js.create_stream(StreamConfig(name=name))
        stream.create_consumer(ConsumerConfig(durable_name=name))
    assert sorted(js.stream_names()) == ["ORDERS", "bar", "foo"]
    assert sorted(info.config.name for info in js.streams()) == ["ORDERS", "bar", "foo"]
    assert sorted(stream.consumer_names()) == ["bar", "foo"]
    assert sorted(info.name for info in stream.consumers()) == ["bar", "foo"]
    js.delete_stream("foo")
    stream.delete_consumer("bar")
    assert sorted(js.stream_names()) == ["ORDERS", "bar"]
    assert list(stream.consumer_names()) == ["foo"]


def test_operations_on_a_stream(js: JetStream, stream: Stream) -> None:
    for number in range(1, 21):
        js.publish("ORDERS.even" if number % 2 == 0 else "ORDERS.odd", b"%d" % number)
    assert stream.get_msg(10).data == b"10"
    assert stream.get_last_msg("ORDERS.odd").data == b"19"
    stream.delete_msg(10)
    stream.secure_delete_msg(12)
    assert stream.info(deleted_details=True).state.deleted == [10, 12]
    assert stream.purge(subject="ORDERS.odd", keep=3) == 7
    assert stream.purge(subject="ORDERS.even", seq=9) == 4
    assert stream.purge() == 7
    assert stream.info().state.messages == 0


def test_ordered(js: JetStream, stream: Stream) -> None:
    for number in range(200):
        js.publish_async("ORDERS.new", b"%d" % number)
    js.publish_async_complete(10)
    with stream.ordered_consumer() as consumer:
        assert [msg.metadata.stream_seq for msg in consumer.fetch(50, timeout=5)] == list(range(1, 51))
        with consumer.messages() as messages:
            rest = [next(messages).metadata.stream_seq for _ in range(150)]
    assert rest == list(range(51, 201))
    wait_until(lambda: list(stream.consumer_names()) == [], 5)


def test_push(js: JetStream, stream: Stream) -> None:
    seen: list[bytes] = []

    def handle(msg: JetStreamMsg) -> None:
        msg.ack()
        seen.append(msg.data)

    consumer = stream.create_push_consumer(
        ConsumerConfig(durable_name="P", deliver_subject=js.nc.new_inbox(), idle_heartbeat=1, flow_control=True)
    )
    with consumer.consume(handle):
        for number in range(100):
            js.publish("ORDERS.new", b"%d" % number)
        wait_until(lambda: len(seen) == 100, 10)
    assert seen == [b"%d" % number for number in range(100)]


LEAF_CLIENT = """
import signal, sys, threading
import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
with jsclient.connect(sys.argv[1]) as nc:
    consumer = JetStream(nc, domain="hub").consumer("ORDERS", "CONS", fetch_info=False)
    print("ready", flush=True)
    while not stop.is_set():
        for msg in consumer.fetch(1, timeout=1):
            meta = msg.metadata
            print(meta.stream, meta.consumer, meta.stream_seq, msg.data.decode(), flush=True)
            msg.ack()
print("bye", flush=True)
"""


def test_a_client_on_a_leaf_node() -> None:
    """Binds by name, fetches one by one until SIGTERM, prints the metadata, acks."""
    with LeafPair() as pair, jsclient.connect(pair.hub.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="ORDERS", subjects=["ORDERS.*"]))
        consumer = stream.create_consumer(ConsumerConfig(durable_name="CONS"))
        program = subprocess.Popen(
            [sys.executable, "-c", LEAF_CLIENT, pair.leaf.url], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            assert program.stdout is not None
            lines = iter(program.stdout.readline, "")
            assert next(lines) == "ready\n"
            for number in range(1, 6):
                js.publish("ORDERS.new", b"m%d" % number)
                assert next(lines) == f"ORDERS CONS {number} m{number}\n"
            wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 5)
            program.send_signal(signal.SIGTERM)
            assert next(lines) == "bye\n"
            assert program.wait(10) == 0
        finally:
            program.kill()
            program.wait(10)
            if program.stdout is not None:
                program.stdout.close()
