"""What mypy --strict and pyright must refuse: one mistake on every line that ends in `# wrong`, and none elsewhere.

Never run; test_typing.py hands it to both checkers.
"""

import datetime as dt

import msgspec

import jsclient
from jsclient import codecs
from jsclient.groups import GroupPool, PartitionedGroup
from jsclient.jetstream import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Discard,
    JetStream,
    JetStreamMsg,
    Schedule,
    StreamConfig,
    TypedMsg,
)
from jsclient.keyvalue import BASE64_VALUES, PATH_KEYS, KeyValueConfig, create_key_value
from jsclient.objectstore import ObjectStoreConfig, create_object_store
from jsclient.services import ServiceConfig, TypedRequest, add_service, call
from jsclient.spark import publish_partition
from jsclient.system import SystemClient
from jsclient.workers import WorkerPool


def handle(msg: JetStreamMsg) -> None:
    msg.ack()


# --- connect
jsclient.connect(servrs="nats://localhost")  # wrong
jsclient.connect(connect_timeout="5")  # wrong
jsclient.connect(pasword="secret")  # wrong
jsclient.connect(4222)  # wrong
jsclient.connect(tls="yes")  # wrong
jsclient.connect(reconnect=True)  # wrong
jsclient.ConnectOptions(pinginterval=3.0)  # wrong
jsclient.TLSOptions(ca="ca.pem")  # wrong
jsclient.ReconnectPolicy(max_attempts="3")  # wrong
jsclient.shared(nme="worker")  # wrong

nc = jsclient.connect()
nc.publish("a", 5)  # wrong
nc.publish(b"a", b"")  # wrong
nc.request("a", b"", timeout="1")  # wrong
nc.request()  # wrong
nc.subscribe("a", queue_group="q")  # wrong
nc.fail(RuntimeError())  # wrong

# --- JetStream
js = JetStream(nc, domian="hub")  # wrong
js = JetStream(nc, publish_async_max_pendig=10)  # wrong
js = JetStream("nats://localhost")  # wrong
js = JetStream(nc, timeout="5")  # wrong
js = JetStream(nc)
ConsumerConfig(deliver_policy=AckPolicy.ALL)  # wrong
ConsumerConfig(ack_policy=DeliverPolicy.ALL)  # wrong
ConsumerConfig(priority_policy=AckPolicy.NONE)  # wrong
ConsumerConfig(deliver_policy=Discard.NEW)  # wrong
Schedule.at(dt.datetime.now(dt.timezone.utc), "a", tlt=1)  # wrong
Schedule.every(60, "a", rollup="subject")  # wrong
js.create_stream("ORDERS")  # wrong
js.create_stream(StreamConfig(name="S", subjects="a.b"))  # wrong
StreamConfig(name="S").replace(max_mesages=10)  # wrong
StreamConfig(name="S").replace(storage="disk")  # wrong
ConsumerConfig(durable_name="C").replace(ack_wait="30s")  # wrong
js.create_stream(StreamConfig(name="S", retention="workqueu"))  # wrong
js.create_stream(StreamConfig(name="S", max_age="1h"))  # wrong
js.create_stream(StreamConfig(name="S", max_message=5))  # wrong
js.create_stream(StreamConfig(name="S", storage="disk"))  # wrong

# --- publishing
js.publish("a", b"", msgid="1")  # wrong
js.publish("a", {"json": 1})  # wrong
js.publish("a", b"", expected_last_seq="4")  # wrong
js.publish("a", b"", rollup="subject")  # wrong
js.publish("a", b"", ttl="forever")  # wrong
js.publish_async("a", b"", timout=3)  # wrong
js.publish_msg(b"a")  # wrong
js.atomic_batch(ack_evry=3)  # wrong
js.fast_batch(gap="ignore")  # wrong
with js.atomic_batch() as atomic:
    atomic.add("a", 1)  # wrong
with js.fast_batch() as fast:
    fast.add_msg("a")  # wrong

# --- consuming
stream = js.stream("S")
stream.create_consumer(ConsumerConfig(durable="C"))  # wrong
stream.create_consumer(ConsumerConfig(ack_policy="Explicit"))  # wrong
stream.create_consumer(ConsumerConfig(deliver_policy="latest"))  # wrong
stream.create_consumer(ConsumerConfig(ack_wait="30s"))  # wrong
stream.create_consumer(ConsumerConfig(opt_start_time="2026-01-01"))  # wrong
consumer = stream.consumer("C")
consumer.fetch("10")  # wrong
consumer.fetch(10, timout=5)  # wrong
consumer.fetch_bytes(100, min_pendig=1)  # wrong
consumer.next(timeout="5")  # wrong
consumer.next(max_wait=5)  # wrong
consumer.messages(max_message=5)  # wrong
consumer.messages(expires="30")  # wrong
consumer.consume()  # wrong
consumer.consume(handle, threads=4)  # wrong
consumer.consume(lambda a, b: None)  # wrong
stream.ordered_consumer(filter="a.>")  # wrong
stream.ordered_consumer(deliver_policy="newest")  # wrong
for msg in consumer.fetch(1):
    msg.nak("5")  # wrong
    msg.ackk()  # wrong
    msg.data = b""  # wrong

# --- buckets and stores
create_key_value(js, KeyValueConfig(bucket="B", history="5"))  # wrong
create_key_value(js, KeyValueConfig(name="B"))  # wrong
kv = create_key_value(js, KeyValueConfig(bucket="B", storage="memory"))
kv.put("k", 5)  # wrong
kv.update("k", b"v")  # wrong
kv.get("k", revison=3)  # wrong
print(kv.get("k", default=None).value)  # wrong
kv["k"] = 5  # wrong
print(len(kv))  # wrong
kv.watch("a", include_histry=True)  # wrong
objects = create_object_store(js, ObjectStoreConfig(bucket="O", storage="tape"))  # wrong
objects.put("name", 5)  # wrong
objects.get_bytes("name", timeout=dt.date.today())  # wrong

kv.encoded(keys="base64")  # wrong
kv.encoded(keys=BASE64_VALUES)  # wrong
kv.encoded(values=codecs.JSON)  # wrong
kv.encoded(keys=PATH_KEYS, on_bad="reject")  # wrong
kv.encoded(keys=PATH_KEYS).put("a", 5)  # wrong

# --- the system account
SystemClient(nc).connections(account="APP")  # wrong
SystemClient(nc).connections(sort="name")  # wrong
SystemClient(nc).jetstream(stream=True)  # wrong
SystemClient(nc).ask("CONNZ", subscription=True)  # wrong

# --- services
service = add_service(nc, ServiceConfig(name="s"))  # wrong
service = add_service(nc, ServiceConfig(name="s", version=1))  # wrong
service = add_service(nc, ServiceConfig(name="s", version="1.0.0"))
service.add_endpoint("e")  # wrong
service.add_endpoint("e", lambda request: None, queue="q")  # wrong

# --- pools
WorkerPool(consumer, handle, thread=4)  # wrong
WorkerPool(consumer, handle, backoff="1s")  # wrong
WorkerPool(consumer)  # wrong
WorkerPool(js, handle)  # wrong


# --- values
class Order(msgspec.Struct):
    id: int


class Customer(msgspec.Struct):
    name: str


class HalfACodec:
    def encode(self, value: object, /) -> bytes:
        return b""


def on_order(msg: TypedMsg[Order]) -> None:
    print(msg.value.id, msg.value.nam)  # wrong


def on_customer(msg: TypedMsg[Customer]) -> None:
    print(msg.value.name)


def on_request(request: TypedRequest[Customer]) -> str:
    return request.value.nam  # wrong


plain = JetStream(nc)
plain.publish("a", Order(id=1))  # wrong
plain.publish_async("a", Order(id=1))  # wrong
JetStream(nc, codec="json")  # wrong
JetStream(nc, codec=HalfACodec())  # wrong
JetStream(nc, codex=codecs.JSON)  # wrong
nc.jetstream(codec=codecs)  # wrong
nc.jetstream().publish("a", Order(id=1))  # wrong
consumer.typed(5).fetch(1)  # wrong
consumer.typed(Order, on_bad="ignore").fetch(1)  # wrong
print(consumer.typed(Order).fetch(1)[0].value.name)  # wrong
consumer.typed(Order).next().value.upper()  # wrong
print(consumer.next().value)  # wrong
for typed in consumer.typed(Order).messages(max_messages=10):
    print(typed.value.total)  # wrong
consumer.typed(Order).messages(max_message=10)  # wrong
consumer.typed(Order).consume(on_customer)  # wrong
consumer.consume(on_order)  # wrong
stream.ordered_consumer().typed(Order, on_bad="reject").messages()  # wrong
print(consumer.typed(Order).fetch_no_wait(1)[0].value.name)  # wrong
print(consumer.typed(Order).fetch_bytes(100)[0].value.name)  # wrong
consumer.typed(Order, on_bad="drop").fetch_bytes(100)  # wrong
for typed in consumer.typed(Order).fetch_each(1):
    print(typed.value.name)  # wrong
for batch in consumer.typed(Order).batches(1, max_bytes=10):
    print(batch[0].value.name)  # wrong
consumer.typed(Order).batches(1, max_byte=10)  # wrong
consumer.read_until(5)  # wrong
stream.ordered_consumer().read_until("5")  # wrong
print(stream.ordered_consumer().typed(Order).next().value.name)  # wrong
print(stream.ordered_consumer().typed(Order).fetch_no_wait(1)[0].value.name)  # wrong
for typed in stream.ordered_consumer().typed(Order).read_until(5):
    print(typed.value.name)  # wrong
WorkerPool(consumer.typed(Order), on_customer)  # wrong
WorkerPool(consumer.typed(Order, on_bad="drop"), on_order)  # wrong
WorkerPool(consumer, on_order)  # wrong
WorkerPool(consumer.typed(Order), on_order, thread=3)  # wrong
consumer.fetch(1, decode=Order)  # wrong
group = PartitionedGroup(plain, "ORDERS", "g", elastic=True)
GroupPool(group, on_order, leas=3)  # wrong
GroupPool(group, on_order)  # wrong
GroupPool(group.typed(Customer), on_order)  # wrong
orders = kv.typed(Order)
orders.put("k", Customer(name="sue"))  # wrong
print(orders.get("k").value.name)  # wrong
orders["k"] = b"{}"  # wrong
kv.typed(Order, on_bad="reject")  # wrong
service.add_endpoint("e", on_request, decode=Order)  # wrong
call(nc, "e", Order(id=1))  # wrong
print(call(nc, "e", Order(id=1), decode=Customer).id)  # wrong

# --- Spark
publish_partition([], {"servers": 4222})  # wrong
publish_partition([], {}, batch="1")  # wrong
