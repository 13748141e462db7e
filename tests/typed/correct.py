"""Correct programs: mypy --strict and pyright must find nothing in them.

Never run; test_typing.py hands it to both checkers.
"""

import datetime as dt
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import jsclient
from jsclient import codecs
from jsclient.groups import GroupPool, PartitionedGroup, TypedGroupMessage
from jsclient.jetstream import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    JetStream,
    JetStreamMsg,
    PubMsg,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    TypedMsg,
)
from jsclient.jetstream.advisories import MaxDeliveries
from jsclient.keyvalue import BASE64_KEYS, PATH_KEYS, KeyChain, KeyValueConfig, create_key_value
from jsclient.objectstore import ObjectStoreConfig, create_object_store
from jsclient.services import Request, ServiceConfig, TypedRequest, add_service, call
from jsclient.spark import publish_partition
from jsclient.system import SystemClient
from jsclient.workers import Reject, Retry, WorkerPool


def handle(msg: JetStreamMsg) -> None:
    if not msg.data:
        raise Reject("empty")
    if msg.metadata.num_delivered < 3:
        raise Retry(2.5)
    msg.ack()


def answer(request: Request) -> None:
    request.respond(request.data.upper())


def connect_in_many_ways() -> None:
    jsclient.connect().close()
    jsclient.connect("nats://a,nats://b", name="orders", connect_timeout=2).close()
    jsclient.connect(["nats://a", "nats://b"], user="u", password="env:PASSWORD").close()
    jsclient.connect(token=lambda: "fresh", tls=True).close()
    jsclient.connect(tls=jsclient.TLSOptions(ca_file="ca.pem", handshake_first=True)).close()
    jsclient.connect(reconnect=jsclient.ReconnectPolicy(max_attempts=3, delay=lambda round: 0.1 * round)).close()
    jsclient.connect(credentials=Path("user.creds"), on_error=lambda nc, error, subscription: None).close()
    options = jsclient.ConnectOptions(servers="nats://a", nkey_seed_file="seed.nk")
    jsclient.connect(options).close()
    jsclient.shared(options).flush()


def core(nc: jsclient.Connection) -> None:
    for payload in (b"bytes", bytearray(b"array"), memoryview(b"view"), "text"):
        nc.publish("greet.joe", payload)
        nc.request("help", payload, timeout=1).data.decode()
    nc.publish("a", b"", headers={"A": "1", "B": ["2", "3"]}, reply="b")
    with nc.subscribe("greet.*", queue="workers") as subscription:
        message = subscription.next(timeout=1)
        text: str = message.subject
        message.respond(text.encode())
    nc.subscribe("greet.>", callback=lambda message: None).close()
    for reply in nc.request_many("help", b"", timeout=1, max_messages=3):
        print(reply.data)


def manage(js: JetStream) -> None:
    stream = js.create_stream(
        StreamConfig(
            name="ORDERS",
            subjects=["orders.>"],
            retention=Retention.WORKQUEUE,
            storage=Storage.FILE,
            max_age=dt.timedelta(days=7),
            duplicate_window=120,
            discard="new",
        )
    )
    js.create_or_update_stream(StreamConfig(name="COPY", mirror=StreamSource(name="ORDERS"), compression="s2"))
    stream.create_consumer(
        ConsumerConfig(
            durable_name="C",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.BY_START_TIME,
            opt_start_time=dt.datetime.now(dt.timezone.utc),
            ack_wait=dt.timedelta(seconds=30),
            backoff=[1, 2.5, dt.timedelta(minutes=1)],
            replay_policy="instant",
        )
    )
    delays: list[float] = [1.0, 2.0]
    stream.create_or_update_consumer(ConsumerConfig(name="D", backoff=delays, max_deliver=5))
    for info in stream.consumers():
        total: int = info.num_pending + info.ack_floor.stream_seq
        print(total, info.config.ack_policy)
    changed = stream.info().config.replace(max_msgs=10, max_age=dt.timedelta(days=1), storage="file")
    js.update_stream(changed)
    with (
        js.advisories() as everything,
        js.advisories(MaxDeliveries, callback=lambda event: print(event.consumer)) as dead,
    ):
        print(everything.next(1.0).type, dead.next(1.0).deliveries)


def publish(js: JetStream, rows: Iterable[bytes]) -> None:
    ack = js.publish("orders.new", b"x", msg_id="1", expected_last_subject_seq=0, timeout=5)
    print(ack.seq + 1, ack.duplicate)
    js.publish("orders.new", bytearray(b"x"), ttl=dt.timedelta(minutes=5))
    js.publish("orders.new", "text", ttl="never", rollup="sub", headers={"A": "b"})
    js.publish_msg(PubMsg("orders.new", b"x"), msg_id="2", timeout=None)
    futures = [js.publish_async("orders.new", row, expected_stream="ORDERS") for row in rows]
    js.publish_async_complete(timeout=30)
    for future in futures:
        print(future.result(timeout=1).seq)
    with js.atomic_batch(ack_every=0) as batch:
        batch.add("orders.1", b"1", expected_last_seq=0)
        batch.add_msg(PubMsg("orders.2", b"2"))
    with js.fast_batch(gap="ok", max_outstanding=3) as fast:
        fast.add("orders.3", b"3")


def consume(js: JetStream) -> None:
    consumer = js.stream("ORDERS", fetch_info=False).consumer("C")
    for msg in consumer.fetch(10, timeout=5, heartbeat=1.0):
        msg.ack()
    consumer.fetch_bytes(1 << 20, timeout=1, group="g", min_pending=10)
    one = consumer.next(timeout=0)
    one.nak(delay=dt.timedelta(seconds=1))
    one.term(reason="bad")
    with consumer.messages(max_messages=100, heartbeat=None, stop_after=10) as messages:
        for msg in messages:
            msg.double_ack(timeout=1)
    with consumer.consume(handle, workers=4, max_bytes=1 << 20, on_error=print) as running:
        running.wait(timeout=60)
    for msg in consumer:
        msg.ack()
    for batch in consumer.batches(100, timeout=1, heartbeat=0.3):
        print(len(batch), batch[0].data)
    for msg in consumer.fetch_each(10, timeout=None):
        print(msg.data)
    consumer.pause(dt.timedelta(minutes=1))
    consumer.delete()
    for msg in js.stream("ORDERS").ordered_consumer(filter_subjects="orders.>", deliver_policy="last").messages():
        print(msg.metadata.timestamp.year, msg.metadata.stream_seq)


def buckets(js: JetStream) -> None:
    kv = create_key_value(js, KeyValueConfig(bucket="B", history=5, ttl=dt.timedelta(hours=1), storage="memory"))
    revision: int = kv.put("k", "v")
    kv.update("k", b"v2", revision)
    value: bytes = kv["k"]
    kv["k"] = "v3"
    del kv["k"]
    found = kv.get("k", default=None)
    print(found.value if found is not None else b"")
    print(value, "k" in kv, list(kv.keys("a.*", timeout=5)))
    with kv.watch("a.>", include_history=True, ignore_deletes=True) as watcher:
        for entry in watcher:
            if entry is not None:
                print(entry.key, entry.value)
    store = create_object_store(js, ObjectStoreConfig(bucket="O", storage="file"))
    with open("data.bin", "rb") as file:
        store.put("big", file, timeout=60)
    size: int = store.info("big").size
    print(size, store.get_bytes("big", timeout=5), [info.name for info in store.list()])


def serve(nc: jsclient.Connection) -> None:
    with add_service(nc, ServiceConfig(name="math", version="1.0.0", metadata={"team": "a"})) as service:
        service.add_endpoint("double", answer, workers=4)
        service.add_group("v2").add_endpoint("double", answer, queue_group="")
        service.wait(timeout=1)


def work(js: JetStream) -> None:
    consumer = js.stream("ORDERS").consumer("C")
    key = WorkerPool(consumer, handle, threads=4, key=lambda msg: msg.subject, attempts=5, dead_letter="dead.orders")
    key.stop()
    with WorkerPool(consumer, lambda batch: None, batch=(100, 0.5), backoff=[1, 5, 30]) as pool:
        pool.wait(timeout=10)


class Order(msgspec.Struct):
    id: int
    total: float = 0.0


def on_order(msg: TypedMsg[Order]) -> None:
    total: float = msg.value.total
    print(total, msg.metadata.stream_seq)
    msg.ack()


def on_orders(batch: list[TypedMsg[Order]]) -> None:
    print(sum(msg.value.total for msg in batch))


def on_order_in_order(msg: TypedGroupMessage[Order]) -> None:
    print(msg.value.id, msg.partition)


def price(request: TypedRequest[Order]) -> Order:
    return Order(id=request.value.id, total=2.0)


class Reversed:
    def encode(self, value: Any, /) -> bytes:
        return bytes(reversed(codecs.JSON.encode(value)))

    def decode(self, data: bytes, type: Any, /) -> Any:
        return codecs.JSON.decode(bytes(reversed(data)), type)


class Packed:
    def encode(self, value: bytes, /) -> bytes:
        return zlib.compress(value)

    def decode(self, stored: bytes, /) -> bytes:
        return zlib.decompress(stored)


def look(nc: jsclient.Connection) -> None:
    system = SystemClient(nc)
    print(system.connections(acc="APP", auth=True, state=1, sort="idle", timeout=5).complete)
    print(system.jetstream(accounts=True, streams=True, stream_leader_only=True).missing)
    print(system.ask("SUBSZ", subscriptions=True, limit=10, server_name="a").errors)


def values(nc: jsclient.Connection) -> None:
    js = JetStream(nc, codec=codecs.MSGPACK)
    js.publish("orders.new", Order(id=1), msg_id="1", timeout=5)
    js.publish("orders.new", {"id": 2})
    js.publish_async("orders.new", b"bytes").result(1)
    nc.jetstream(codec=codecs.JSON).publish("orders.new", Order(id=1))
    JetStream(nc, codec=Reversed(), domain="hub").publish("orders.new", Order(id=1))
    with js.atomic_batch() as batch:
        batch.add("orders.new", Order(id=3))
    manage(js)
    consumer = js.stream("ORDERS").consumer("C")
    for msg in consumer.typed(Order).fetch(10, timeout=1):
        on_order(msg)
    found = consumer.typed(Order, on_bad="skip").fetch(10)
    print(found[0].value.id, found.skipped, consumer.typed(list[int]).next(timeout=1).value[0])
    with consumer.typed(Order, on_bad="reject", dead_letter="dead.orders").messages(max_messages=10) as messages:
        for msg in messages:
            order: Order = msg.value
            print(order.id)
        print(messages.next(1).value.total)
    for msg in consumer.typed(Order).fetch_no_wait(10):
        on_order(msg)
    for msg in consumer.typed(Order, on_bad="skip").fetch_bytes(1 << 20, heartbeat=1.0):
        on_order(msg)
    for msg in consumer.typed(Order, on_bad="skip").fetch_each(10, 5, on_error=print):
        on_order(msg)
    for some in consumer.typed(Order).batches(10, max_bytes=1 << 20):
        on_orders(list(some))
    with js.stream("ORDERS").ordered_consumer() as ordered:
        on_order(ordered.typed(Order, on_bad="skip").next(1))
        on_orders(list(ordered.typed(Order).fetch_no_wait(1)))
        with ordered.typed(Order).read_until(7, on_error=print) as finite:
            for msg in finite:
                on_order(msg)
    consumer.typed(Order).consume(on_order, workers=3).close()
    consumer.typed(Order).consume(handle).close()
    js.stream("ORDERS").ordered_consumer().typed(Order).fetch(1)[0].value.total.hex()
    WorkerPool(consumer.typed(Order, on_bad="reject", dead_letter="dead.orders"), on_order, threads=3).stop()
    WorkerPool(consumer.typed(Order), on_orders, batch=(100, 0.5)).stop()
    group = PartitionedGroup(js, "ORDERS", "g", elastic=True)
    GroupPool(group.typed(Order), on_order_in_order, threads=3).stop()
    print(consumer.next().json()["id"], nc.request("a", b"").json())
    kv = create_key_value(js, KeyValueConfig(bucket="B"))
    orders = kv.typed(Order)
    revision: int = orders.put("k", Order(id=1))
    orders.update("k", Order(id=2), revision)
    total: float = orders["k"].total + orders.get("k").value.total
    with orders.watch("a.*") as watcher:
        for entry in watcher:
            print(entry.key, entry.value.id if entry.is_put else total)
    paths = kv.encoded(keys=KeyChain(PATH_KEYS, BASE64_KEYS), values=Packed(), on_bad="skip")
    paths["/etc/hosts"] = "localhost"
    stored = paths.get("/etc/hosts", default=None)
    print(stored.value if stored is not None else b"", list(paths.keys("/etc/*")))
    print(paths.typed(Order)["/orders/1"].total)
    with add_service(nc, ServiceConfig(name="math", version="1.0.0", codec=codecs.MSGPACK)) as service:
        service.add_endpoint("price", price, decode=Order, workers=4)
    priced: Order = call(nc, "price", Order(id=1), decode=Order, codec=codecs.MSGPACK)
    print(priced.total)


def spark(rows: Iterable[Any]) -> None:
    totals = publish_partition(rows, {"servers": "nats://a", "subject": "orders"}, job="job", batch=3)
    print(totals.rows)
