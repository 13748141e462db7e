"""A timeout bounds the whole call, whatever the peer does: tried with every public call that waits.

The calls are found by introspection. Each name of the public classes and functions stands in one of the tables below:
what waits, with the call that is tried; what waits for ever on purpose; what does not wait. A new name without an entry
makes the test fail.

A call may end `ALLOWED` after its timeout. What the machine adds is measured beside it: a thread that waits for 10 ms
again and again notes by how much it was late. The calls run side by side on a machine that others use, and a call waits
several times, so three times the worst lateness is allowed on top.
"""

from __future__ import annotations

import datetime as dt
import enum
import importlib
import inspect
import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import msgspec
import pytest
from tests.conftest import FULL
from tests.deadline_rig import ALLOWED, LEASE, PUSH, TIMEOUT, Env, Lateness, fill

import jsclient
from jsclient import backup, coordination, errors, groups, monitor, services
from jsclient import jetstream as jets
from jsclient import keyvalue as kvs
from jsclient import objectstore as objs
from jsclient._connection import Engine
from jsclient.groups.message import of_member
from jsclient.system import SystemClient
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = pytest.mark.timeout(120)

AT_ONCE = 24
"""Calls under way at the same time."""

PACKAGES = (
    "", ".jetstream", ".keyvalue", ".objectstore", ".services", ".workers", ".system", ".coordination", ".backup",
    ".monitor", ".groups",
)  # fmt: skip

MONITOR = ("Monitor",)
"""What is public of jsclient.monitor, a single file."""

Call = Callable[[Any, float], Any]

CONSUMER = jets.ConsumerConfig(durable_name="new", ack_policy="explicit")
STREAM = jets.StreamConfig(name="NEW", subjects=["new.>"])
KV = kvs.KeyValueConfig(bucket="new")
OBJ = objs.ObjectStoreConfig(bucket="new")
SERVICE = services.ServiceConfig(name="dl2", version="1.0.0")


def through(items: Any) -> None:
    """Take an iterator to its end."""
    for _ in items:
        pass


def atomic(env: Any) -> jets.AtomicBatch:
    """A batch; its first message goes out with the next call."""
    batch: jets.AtomicBatch = env.js.atomic_batch()
    batch.add("dl.js.x", b"1")
    return batch


def typed_of_member(env: Any) -> Any:
    message = env.typed.pop()
    return of_member(message, 1, message._values)


def changed(batch: Any) -> Any:
    """A batch of a bucket that has something to store."""
    batch.delete("c", revision=3)
    batch.purge("a")
    return batch


def through_batch(batch: Any) -> None:
    """Commit it by the end of its block."""
    with batch:
        batch.delete("c", revision=3)


WAITS: dict[str, Call] = {
    "connect": lambda e, t: jsclient.connect(e.dead_url, connect_timeout=t).close(),
    "shared": lambda e, t: jsclient.shared(jsclient.ConnectOptions(servers=e.dead_url, connect_timeout=t)),
    "Connection.drain": lambda e, t: e.spare().drain(t),
    "Connection.flush": lambda e, t: e.nc.flush(t),
    "Connection.request": lambda e, t: e.nc.request("dl.nobody.here", b"x" * 100_000, timeout=t),
    "Connection.request_many": lambda e, t: through(e.nc.request_many("dl.nobody.here", timeout=t)),
    "Connection.barrier": lambda e, t: e.nc.barrier(timeout=t),
    "ConnectionEvents.next": lambda e, t: e.events.next(t),
    "Connection.rtt": lambda e, t: e.nc.rtt(t),
    "Subscription.drain": lambda e, t: e.subs.pop().drain(t),
    "Subscription.next": lambda e, t: e.sub.next(t),
    "AtomicBatch.add": lambda e, t: atomic(e).add("dl.js.x", b"2", timeout=t),
    "AtomicBatch.commit": lambda e, t: atomic(e).commit(timeout=t),
    "FastBatch.add": lambda e, t: e.js.fast_batch().add("dl.js.x", b"1", timeout=t),
    "FastBatch.commit": lambda e, t: e.js.fast_batch().commit("dl.js.x", b"1", timeout=t),
    "AsyncPublisher.complete": lambda e, t: e.publisher.complete(t),
    "AsyncPublisher.close": lambda e, t: e.publishers.pop().close(t),
    "PublishFuture.exception": lambda e, t: e.future.exception(t),
    "PublishFuture.result": lambda e, t: e.future.result(t),
    "ConsumeContext.close": lambda e, t: e.consuming.pop().close(t),
    "ConsumeContext.drain": lambda e, t: e.consuming.pop().drain(t),
    "ConsumeContext.wait": lambda e, t: e.consuming[0].wait(t),
    "Consumer.fetch": lambda e, t: e.consumer.fetch(10, t),
    "Consumer.fetch_each": lambda e, t: list(e.consumer.fetch_each(10, t)),
    "Consumer.batches": lambda e, t: next(e.consumer.batches(10, t)),
    "Consumer.delete": lambda e, t: e.expendable.delete(timeout=t),
    "Consumer.pause": lambda e, t: e.consumer.pause(60, timeout=t),
    "Consumer.reset": lambda e, t: e.consumer.reset(1, timeout=t),
    "Consumer.step_down": lambda e, t: e.consumer.step_down(timeout=t),
    "Consumer.resume": lambda e, t: e.consumer.resume(timeout=t),
    "Consumer.unpin": lambda e, t: e.consumer.unpin("g", timeout=t),
    "Consumer.fetch_bytes": lambda e, t: e.consumer.fetch_bytes(1000, t),
    "Consumer.fetch_no_wait": lambda e, t: e.consumer.fetch_no_wait(10, t),
    "Consumer.info": lambda e, t: e.consumer.info(t),
    "Consumer.next": lambda e, t: e.consumer.next(t),
    "OrderedRead.__next__": lambda e, t: next(e.read),
    "JetStreamMsg.ack_next": lambda e, t: e.messages.pop().ack_next(t),
    "JetStreamMsg.double_ack": lambda e, t: e.messages.pop().double_ack(t),
    "JetStreamMsg.double_nak": lambda e, t: e.messages.pop().double_nak(timeout=t),
    "JetStreamMsg.double_term": lambda e, t: e.messages.pop().double_term(timeout=t),
    "Messages.close": lambda e, t: e.consumer.messages().close(t),
    "Messages.drain": lambda e, t: e.consumer.messages().drain(t),
    "Messages.next": lambda e, t: e.iterator.next(t),
    "OrderedConsumer.fetch": lambda e, t: e.stream.ordered_consumer().fetch(1, t),
    "OrderedConsumer.info": lambda e, t: e.ordered.info(t),
    "OrderedConsumer.next": lambda e, t: e.stream.ordered_consumer().next(t),
    "OrderedConsumer.read_until": lambda e, t: e.stream.ordered_consumer().read_until(5, timeout=t),
    "PushConsumer.info": lambda e, t: e.push.info(t),
    "double_ack_many": lambda e, t: jets.double_ack_many([e.messages.pop() for _ in range(3)], t),
    "TypedMsg.ack_next": lambda e, t: e.typed.pop().ack_next(t),
    "TypedMsg.double_ack": lambda e, t: e.typed.pop().double_ack(t),
    "TypedMsg.double_nak": lambda e, t: e.typed.pop().double_nak(timeout=t),
    "TypedMsg.double_term": lambda e, t: e.typed.pop().double_term(timeout=t),
    "trace": lambda e, t: jets.trace(e.nc, "dl.js.t", timeout=t),
    "KeyValue.batch": lambda e, t: through_batch(e.kv.batch(timeout=t)),
    "KeyValueBatch.commit": lambda e, t: changed(e.kv.batch()).commit(timeout=t),
    "KeyValue.create": lambda e, t: e.kv.create("c", b"1", timeout=t),
    "KeyValue.delete": lambda e, t: e.kv.delete("a", timeout=t),
    "KeyValue.get": lambda e, t: e.kv.get("a", timeout=t),
    "KeyValue.get_many": lambda e, t: e.kv.get_many(["a", "c"], timeout=t),
    "KeyValue.get_revision": lambda e, t: e.kv.get_revision("a", 1, timeout=t),
    "KeyValue.history": lambda e, t: e.kv.history("a", timeout=t),
    "KeyValue.keys": lambda e, t: through(e.kv.keys(timeout=t)),
    "KeyValue.purge": lambda e, t: e.kv.purge("a", timeout=t),
    "KeyValue.purge_all": lambda e, t: e.kv.purge_all(timeout=t),
    "KeyValue.purge_deletes": lambda e, t: e.kv.purge_deletes(timeout=t),
    "KeyValue.status": lambda e, t: e.kv.status(timeout=t),
    "KeyValue.put": lambda e, t: e.kv.put("a", b"2", timeout=t),
    "KeyValue.update": lambda e, t: e.kv.update("a", b"2", 1, timeout=t),
    "KeyWatcher.initial": lambda e, t: through(e.watchers.pop().initial(timeout=t)),
    "ObjectWatcher.initial": lambda e, t: through(e.object_watchers.pop().initial(timeout=t)),
    "KeyWatcher.next": lambda e, t: e.watcher.next(t),
    "create_key_value": lambda e, t: kvs.create_key_value(e.js, KV, timeout=t),
    "create_or_update_key_value": lambda e, t: kvs.create_or_update_key_value(e.js, KV, timeout=t),
    "delete_key_value": lambda e, t: kvs.delete_key_value(e.js, "none", timeout=t),
    "key_value": lambda e, t: kvs.key_value(e.js, "DLKV", timeout=t),
    "key_value_store_names": lambda e, t: through(kvs.key_value_store_names(e.js, timeout=t)),
    "key_value_stores": lambda e, t: through(kvs.key_value_stores(e.js, timeout=t)),
    "update_key_value": lambda e, t: kvs.update_key_value(e.js, KV, timeout=t),
    "ObjectStore.get": lambda e, t: e.objects.get("o", timeout=t).read(),
    "ObjectStore.open": lambda e, t: e.objects.open("o", timeout=t).read(),
    "ObjectStore.get_bytes": lambda e, t: e.objects.get_bytes("o", timeout=t),
    "ObjectStore.get_file": lambda e, t: e.objects.get_file("o", e.path(), timeout=t),
    "ObjectStore.get_string": lambda e, t: e.objects.get_string("o", timeout=t),
    "ObjectStore.put": lambda e, t: e.objects.put("p", b"x" * 300_000, timeout=t),
    "ObjectStore.put_file": lambda e, t: e.objects.put_file(__file__, "f", timeout=t),
    "ObjectStore.info": lambda e, t: e.objects.info("o", timeout=t),
    "ObjectStore.status": lambda e, t: e.objects.status(timeout=t),
    "ObjectStore.update_meta": lambda e, t: e.objects.update_meta("o", objs.ObjectMeta(name="o"), timeout=t),
    "ObjectStore.delete": lambda e, t: e.objects.delete("other", timeout=t),
    "ObjectStore.add_link": lambda e, t: e.objects.add_link("link", e.object_info, timeout=t),
    "ObjectStore.add_bucket_link": lambda e, t: e.objects.add_bucket_link("bucket", "DLOBJ", timeout=t),
    "ObjectStore.seal": lambda e, t: objs.object_store(e.js, "DLOBJ2", fetch_info=False).seal(timeout=t),
    "ObjectStore.list": lambda e, t: through(e.objects.list(timeout=t)),
    "ObjectWatcher.next": lambda e, t: e.object_watcher.next(t),
    "create_object_store": lambda e, t: objs.create_object_store(e.js, OBJ, timeout=t),
    "create_or_update_object_store": lambda e, t: objs.create_or_update_object_store(e.js, OBJ, timeout=t),
    "delete_object_store": lambda e, t: objs.delete_object_store(e.js, "none", timeout=t),
    "object_store": lambda e, t: objs.object_store(e.js, "DLOBJ", timeout=t),
    "object_store_names": lambda e, t: through(objs.object_store_names(e.js, timeout=t)),
    "object_stores": lambda e, t: through(objs.object_stores(e.js, timeout=t)),
    "update_object_store": lambda e, t: objs.update_object_store(e.js, OBJ, timeout=t),
    "Service.stop": lambda e, t: e.service.stop(t),
    "Service.wait": lambda e, t: e.service.wait(t),
    "call": lambda e, t: services.call(e.nc, "dl.nobody.here", b"x" * 100_000, decode=dict, timeout=t),
    "info": lambda e, t: through(services.info(e.nc, timeout=t)),
    "ping": lambda e, t: through(services.ping(e.nc, timeout=t)),
    "stats": lambda e, t: through(services.stats(e.nc, timeout=t)),
    "WorkerPool.stop": lambda e, t: e.pools.pop().stop(t),
    "WorkerPool.wait": lambda e, t: e.pools[0].wait(t),
    "add_service": lambda e, t: services.add_service(e.nc, SERVICE, timeout=t),
    "Service.add_endpoint": lambda e, t: e.service.add_endpoint("own", print, timeout=t),
    "Group.add_endpoint": lambda e, t: e.service.add_group("group").add_endpoint("other", print, timeout=t),
    "DeadLetters.delete": lambda e, t: e.letters.delete(99, timeout=t),
    "DeadLetters.export": lambda e, t: through(e.letters.export(timeout=t)),
    "DeadLetters.get": lambda e, t: e.letters.get(1, timeout=t),
    "DeadLetters.list": lambda e, t: through(e.letters.list(timeout=t)),
    "DeadLetters.purge": lambda e, t: e.letters.purge(consumer="none", timeout=t),
    "DeadLetters.replay": lambda e, t: e.letters.replay(1, to="dl.js.again", timeout=t),
    "DeadLetters.replay_all": lambda e, t: e.letters.replay_all(to="dl.js.again", timeout=t),
    "DeadLetters.summary": lambda e, t: e.letters.summary(timeout=t),
    "Lock.acquire": lambda e, t: coordination.Lock(e.leases, "free", ttl=LEASE).acquire(t),
    "Semaphore.acquire": lambda e, t: coordination.Semaphore(e.leases, "seats", 3, ttl=LEASE).acquire(t),
    "Lease.release": lambda e, t: e.lease.release(t),
    "Election.close": lambda e, t: e.election.close(t),
    "lease_bucket": lambda e, t: coordination.lease_bucket(e.js, "DLLEASES", ttl=LEASE, timeout=t),
    "holders": lambda e, t: coordination.holders(e.leases, timeout=t),
    "evict": lambda e, t: coordination.evict(e.leases, e.holder, timeout=t),
    "once_per": lambda e, t: coordination.once_per(e.leases, "job", 2.0, timeout=t),
    "Monitor.snapshot": lambda e, t: monitor.Monitor(e.js).snapshot(timeout=t),
    "create_elastic": lambda e, t: groups.create_elastic(e.js, "DL", "new", partitions=4, timeout=t),
    "create_static": lambda e, t: groups.create_static(e.js, "DL", "new", partitions=4, timeout=t),
    "open_group": lambda e, t: groups.open_group(e.js, "DL", "group", timeout=t),
    "partitioned_groups": lambda e, t: through(groups.partitioned_groups(e.js, "DL", timeout=t)),
    "PartitionedGroup.add": lambda e, t: e.group.add("one", timeout=t),
    "PartitionedGroup.config": lambda e, t: e.group.config(timeout=t),
    "PartitionedGroup.delete": lambda e, t: groups.PartitionedGroup(e.js, "DL", "none", elastic=True).delete(timeout=t),
    "PartitionedGroup.drop": lambda e, t: e.group.drop("one", timeout=t),
    "PartitionedGroup.lag": lambda e, t: e.group.lag(timeout=t),
    "PartitionedGroup.members": lambda e, t: e.group.members(timeout=t),
    "PartitionedGroup.set_mappings": lambda e, t: e.group.set_mappings({"one": [0]}, timeout=t),
    "PartitionedGroup.step_down": lambda e, t: e.group.step_down("one", timeout=t),
    "TypedGroupMessage.ack_next": lambda e, t: typed_of_member(e).ack_next(t),
    "TypedGroupMessage.double_ack": lambda e, t: typed_of_member(e).double_ack(t),
    "TypedGroupMessage.double_nak": lambda e, t: typed_of_member(e).double_nak(timeout=t),
    "TypedGroupMessage.double_term": lambda e, t: typed_of_member(e).double_term(timeout=t),
    "GroupMessage.ack_next": lambda e, t: of_member(e.messages.pop(), 1).ack_next(t),
    "GroupMessage.double_ack": lambda e, t: of_member(e.messages.pop(), 1).double_ack(t),
    "GroupMessage.double_nak": lambda e, t: of_member(e.messages.pop(), 1).double_nak(timeout=t),
    "GroupMessage.double_term": lambda e, t: of_member(e.messages.pop(), 1).double_term(timeout=t),
    "GroupPool.stop": lambda e, t: [pool.stop(t) for pool in e.group_pools[:1]],
    "GroupPool.wait": lambda e, t: [pool.wait(t) for pool in e.group_pools[1:]],
    "backup_stream": lambda e, t: backup.backup_stream(e.js, "DL", e.path(), timeout=t),
    "backup_account": lambda e, t: backup.backup_account(e.js, e.path(), include=["DL"], timeout=t),
    "restore_stream": lambda e, t: backup.restore_stream(e.js, e.backups / "GONE", timeout=t),
    "restore_account": lambda e, t: backup.restore_account(e.js, e.backups, timeout=t),
}


def _jetstream(name: str, *args: Any, **options: Any) -> None:
    WAITS[f"JetStream.{name}"] = lambda e, t: through_if(getattr(e.js, name)(*args, timeout=t, **options))


def _stream(name: str, *args: Any, **options: Any) -> None:
    """The same on a handle and, where it is there, by name on the context."""
    WAITS[f"Stream.{name}"] = lambda e, t: through_if(getattr(e.stream, name)(*args, timeout=t, **options))
    if hasattr(jets.JetStream, name):
        _jetstream(name, "DL", *args, **options)


def through_if(result: Any) -> Any:
    return through(result) if inspect.isgenerator(result) else result


for name in ("account_info", "publish_async_complete", "stream_names", "streams"):
    _jetstream(name)
WAITS["JetStream.api_level"] = lambda e, t: jets.JetStream(e.nc).api_level(timeout=t)
for name in ("create_stream", "update_stream", "create_or_update_stream", "get_or_create_stream"):
    _jetstream(name, STREAM)
_jetstream("publish", "dl.js.p", b"x" * 1000)
_jetstream("put_stream", "UPDATE", STREAM)
_jetstream("stream", "DL")
_jetstream("delete_stream", "NONE")
_jetstream("stream_name_by_subject", "dl.js.x")
for name in ("create_consumer", "update_consumer", "create_or_update_consumer", "get_or_create_consumer"):
    _stream(name, CONSUMER)
for name in ("create_push_consumer", "update_push_consumer", "create_or_update_push_consumer"):
    _stream(name, PUSH)
for name in ("consumer", "consumer_info", "push_consumer", "resume_consumer", "reset_consumer"):
    _stream(name, "c")
_stream("delete_consumer", "none")
_stream("pause_consumer", "c", 1.0)
_stream("unpin_consumer", "c", "group")
for name in ("consumer_names", "consumers"):
    _stream(name)
WAITS["Stream.seal"] = lambda e, t: e.js.stream("DL2", fetch_info=False).seal(timeout=t)
for name in ("info", "purge", "subjects"):
    WAITS[f"Stream.{name}"] = lambda e, t, name=name: through_if(getattr(e.stream, name)(timeout=t))  # type: ignore[misc]
WAITS["Stream.step_down"] = lambda e, t: e.stream.step_down(timeout=t)
WAITS["Stream.remove_peer"] = lambda e, t: e.stream.remove_peer("n1", timeout=t)
WAITS["Stream.delete"] = lambda e, t: e.js.stream("DL2", fetch_info=False).delete(timeout=t)
for name in ("delete_msg", "secure_delete_msg"):
    WAITS[f"Stream.{name}"] = lambda e, t, name=name: getattr(e.stream, name)(99, timeout=t)  # type: ignore[misc]
WAITS["Stream.get_data"] = lambda e, t: e.stream.get_data(1, timeout=t)
WAITS["Stream.get_msg"] = lambda e, t: e.stream.get_msg(1, timeout=t)
WAITS["Stream.get_last_msg"] = lambda e, t: e.stream.get_last_msg("dl.js.x", timeout=t)
WAITS["Stream.get_first_msg"] = lambda e, t: e.stream.get_first_msg(dt.datetime.now(dt.timezone.utc), timeout=t)
for name in ("add", "load", "get", "get_all"):
    WAITS[f"Counters.{name}"] = lambda e, t, name=name: through_if(  # type: ignore[misc]
        getattr(jets.Counters(e.stream), name)("dl.js.x", timeout=t)
    )
WAITS["Stream.get_batch"] = lambda e, t: through(e.stream.get_batch(3, timeout=t))
WAITS["Stream.get_last_msgs"] = lambda e, t: through(e.stream.get_last_msgs("dl.js.>", timeout=t))
WAITS["SystemClient.ask"] = lambda e, t: SystemClient(e.nc).ask("VARZ", timeout=t)
for name in ("servers", "variables", "connections", "jetstream", "health"):
    WAITS[f"SystemClient.{name}"] = lambda e, t, name=name: getattr(SystemClient(e.nc), name)(timeout=t)  # type: ignore[misc]
WAITS["SystemClient.kick"] = lambda e, t: SystemClient(e.nc).kick(7, "x", timeout=t)
WAITS["SystemClient.reload"] = lambda e, t: SystemClient(e.nc).reload("x", timeout=t)
WAITS["SystemClient.ask_to_move"] = lambda e, t: SystemClient(e.nc).ask_to_move(7, "x", timeout=t)

BOUNDED: dict[str, tuple[float, Call]] = {
    # What waits without a `timeout`: the seconds that it has by itself.
    "Connection.close": (4.0, lambda e, t: e.spare().close()),
    "Connection.__exit__": (4.0, lambda e, t: e.spare().__exit__(None, None, None)),
    "Connection.publish": (0.5, lambda e, t: e.impatient.publish("dl.x", b"x" * 1000)),
    "Connection.subscribe": (0.5, lambda e, t: e.nc.subscribe("dl.sub")),
    "Connection.force_reconnect": (1.5, lambda e, t: e.spare().force_reconnect()),
    "Subscription.unsubscribe": (0.5, lambda e, t: e.subs.pop().unsubscribe()),
    "Subscription.close": (0.5, lambda e, t: e.subs.pop().close()),
    "AsyncPublisher.publish": (
        0.5,
        lambda e, t: jets.AsyncPublisher(jets.JetStream(e.impatient), stall_wait=0.1).publish("dl.js.q", b"x"),
    ),
    "Messages.stop": (0.5, lambda e, t: e.consumer.messages().stop()),
    "Consumer.messages": (0.5, lambda e, t: e.consumer.messages().stop()),
    "KeyWatcher.stop": (1.5, lambda e, t: e.watchers.pop().stop()),
}

FOREVER = {
    # Wait as long as it takes, by their definition; close() and Ctrl-C end them.
    "Subscription.__next__", "Messages.__next__", "WorkerPool.run_until_signal",
    "GroupPool.run_until_signal",
    "KeyWatcher.__next__", "ObjectWatcher.__next__", "ConnectionEvents.__next__",
}  # fmt: skip

ITS_OWN_PARTS = {
    # Steps and arguments of calls that are tried above; what layers use of each other is bounded by those.
    "KeyValue.watch",
    "ObjectStore.watch", "SystemClient.events", "Engine.later_reply", "Engine.wait_connected",
    "AsyncPublisher.publish_msg", "JetStream.publish_msg", "JetStream.publish_async", "JetStream.publish_msg_async",
    "AtomicBatch.add_msg", "AtomicBatch.__exit__", "FastBatch.add_msg", "FastBatch.__exit__",
    "AsyncPublisher.__exit__", "ConsumeContext.__exit__", "Service.__exit__", "WorkerPool.__exit__",
    "GroupPool.__exit__",
    "Messages.__exit__", "Subscription.__exit__", "KeyWatcher.__exit__", "ObjectWatcher.__exit__",
    "OrderedRead.close", "OrderedRead.__exit__", "OrderedConsumer.close", "OrderedConsumer.__exit__",
    "OrderedConsumer.fetch_no_wait", "OrderedConsumer.messages", "OrderedConsumer.open_messages",
    "ObjectWatcher.stop", "OrderedConsumer.consume", "OrderedPushConsumer.messages", "OrderedPushConsumer.consume",
    "PushConsumer.messages", "PushConsumer.consume", "Consumer.consume", "Election.__exit__", "Lease.__exit__",
    "Lock.__exit__", "Semaphore.__exit__", "ConnectionEvents.__exit__",
    "KeyValueBatch.__exit__", "KeyValueBatch.create", "KeyValueBatch.update", "KeyValueBatch.delete",
    "KeyValueBatch.purge",
}  # fmt: skip

NO_TIMEOUT_YET: set[str] = set()
"""These ask the server with a default timeout, or that of their object, and take none of their own."""

#: Names that wait in no class: looking, making, telling, and the steps that internal threads call.
NEVER_NAMES = """
    acked add add_group add_link_listener add_violation_listener advisories all_received ask_no_more assignment
    atomic_batch begin_drain bound call cancel check check_draining check_headers check_process check_takes
    check_usable chunks close closed_error complete consumer_of count count_of decode deliver deliveries discard encode
    encode_filter encoded end ends enter error event events fail failed fast_batch filters_of finish_drain flush
    for_handlers forget_reply forked frame get get_all hand_back health hold index info initial items jetstream
    json keys learn_pin learn_size leave link_event makes new_inbox not_started open_inbox open_sink
    ordered_consumer ordered_push_consumer partitions_of pending ping pub_start publish_async_pending pull_bytes
    pull_options put read read_only read_with readable readall readinto reads_direct refuse_pickle release
    remove_link_listener remove_subscription remove_violation_listener report_error reported
    required_permissions reset resize resolve respond respond_json reveal run_callback run_last_callback
    runs_here same_shape sends_within set_callbacks set_pending_limits set_servers snapshot stats stop succeed take
    to_concurrent to_dict typed under_way unwatch wake watch when_closed when_read with_mappings with_members
    withdraw withdrawn
"""
NEVER = set(NEVER_NAMES.split())
NEVER_FUNCTIONS = {
    "balanced",
    "partition_of",
    "counter_sources",
    "counter_value",
    "decode_digest",
    "encode_digest",
    "extract",
    "object_digest",
    "inspect",
    "load",
    "verify",
    "empty_payload",
    "live_connections",
    "check_response",
    "control_subject",
}


def public_calls() -> dict[str, bool]:
    """Every public function and method -> whether it has a `timeout`. Values (structs, options, errors) have none."""
    found: dict[str, bool] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"jsclient{package}")
        for name in getattr(module, "__all__", MONITOR):
            thing = getattr(module, name)
            if inspect.isclass(thing):
                found.update(_methods(thing))
            elif callable(thing):
                found[name] = "timeout" in inspect.signature(thing).parameters
    return found | {name: True for name, has_timeout in _methods(Engine).items() if has_timeout}


def _methods(kind: type) -> dict[str, bool]:
    value = issubclass(kind, (BaseException, enum.Enum, Mapping, tuple)) or attrs.has(kind)
    if value:
        return {}
    found = {}
    for name in dir(kind):
        special = name in ("__next__", "__exit__")
        method = getattr(kind, name)
        if (special or not name.startswith("_")) and (inspect.isfunction(method) or inspect.ismethod(method)):
            has_timeout = "timeout" in inspect.signature(method).parameters
            if has_timeout or not issubclass(kind, msgspec.Struct):
                found[f"{kind.__name__}.{name}"] = has_timeout
    return found


def test_every_public_call_is_in_one_of_the_tables() -> None:
    calls = public_calls()
    waiting_calls = {*WAITS, *BOUNDED, *FOREVER, *ITS_OWN_PARTS, *NO_TIMEOUT_YET}
    unknown = [name for name in calls if name not in waiting_calls and not _never(name, calls[name])]
    assert not unknown, f"say in this file how long these may wait: {unknown}"
    gone = [name for name in (*WAITS, *BOUNDED, *FOREVER, *ITS_OWN_PARTS, *NO_TIMEOUT_YET) if name not in calls]
    assert not gone, f"not there any more: {gone}"
    assert [name for name in NO_TIMEOUT_YET if calls[name]] == [], "these have a timeout now: move them to WAITS"
    untried = [name for name, has in calls.items() if has and name not in {*WAITS, *FOREVER, *ITS_OWN_PARTS}]
    assert not untried, "whatever takes a timeout is tried"


def _never(name: str, has_timeout: bool) -> bool:
    _, dot, method = name.rpartition(".")
    return not has_timeout and (method in NEVER if dot else name in NEVER_FUNCTIONS)


# --- peers ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["silent", "stalled and full", "offline with slow DNS", "slow"])
def env(
    request: pytest.FixtureRequest, server: NatsServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Env]:
    answering = threading.Event()
    answering.set()
    original = socket.getaddrinfo

    def resolve(host: str, *args: Any, **options: Any) -> Any:
        if host != "slow.test":
            return original(host, *args, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        answering.wait(30)
        return original("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with Proxy(server.port) as proxy:
        slow_dns = "DNS" in request.param
        made = Env(f"nats://slow.test:{proxy.port}" if slow_dns else proxy.url, server.url, tmp_path)
        try:
            if request.param == "slow":
                proxy.delay(0.7 * TIMEOUT, "down")
            elif slow_dns:
                answering.clear()
                proxy.refuse()
                wait_until(lambda: not made.nc.is_connected)
            else:
                proxy.stall("down" if request.param == "silent" else "both")
            made.leave_unacknowledged()
            if "full" in request.param:
                fill(made.nc)
                fill(made.impatient)
            yield made
        finally:
            answering.set()
            proxy.heal()
            made.close()
            wait_until(lambda: not any("resolve" in thread.name for thread in threading.enumerate()))


def run(env: Env, name: str, call: Call, bound: float, found: queue.SimpleQueue[tuple[str, float, float, Any]]) -> None:
    result: Any = None
    start = time.monotonic()
    try:
        call(env, TIMEOUT)
    except BaseException as error:
        result = error
    found.put((name, time.monotonic() - start, bound, result))


def test_every_call_ends_within_its_timeout(env: Env) -> None:
    calls = [(name, call, TIMEOUT) for name, call in WAITS.items()]
    calls += [(name, call, bound) for name, (bound, call) in BOUNDED.items() if FULL or bound < 1]
    random.shuffle(calls)
    found: queue.SimpleQueue[tuple[str, float, float, Any]] = queue.SimpleQueue()
    with Lateness() as lateness, ThreadPoolExecutor(AT_ONCE) as pool:
        for name, call, bound in calls:
            pool.submit(run, env, name, call, bound, found)
    late, untyped = [], []
    for _ in calls:
        name, took, bound, result = found.get_nowait()
        if took > bound + ALLOWED + 3 * lateness.worst:
            late.append(f"{name}: {took:.2f} s ({result!r:.80})")
        if result is not None and not isinstance(result, errors.JsClientError):
            untyped.append(f"{name}: {result!r}")
    assert not untyped, untyped
    assert not late, f"timeout {TIMEOUT} s, the machine was up to {lateness.worst:.2f} s late: {sorted(late)}"


@pytest.mark.parametrize("wrong", ["1", -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused_before_anything_ends(server: NatsServer, wrong: Any) -> None:
    """The iterator was closed, and held what it had; `drain` returned as if it had drained."""
    with jsclient.connect(server.url) as nc:
        js = jets.JetStream(nc)
        stream = js.create_stream(jets.StreamConfig(name="BACK", subjects=["back"], storage="memory"))
        messages = stream.create_consumer(CONSUMER).messages()
        for end in (messages.close, messages.drain):
            with pytest.raises(errors.ConfigError):
                end(wrong)
            assert not messages.closed
        messages.close()
        js.delete_stream("BACK")


def test_connecting_ends_within_its_timeout_whatever_a_callable_does() -> None:
    """A callable of the options that does not come back is left to itself."""
    release = threading.Event()

    def factory(host: str, port: int, timeout: float | None) -> socket.socket:
        release.wait(30)
        raise ConnectionRefusedError("too late")

    start = time.monotonic()
    try:
        with Lateness() as lateness, pytest.raises(errors.ConnectFailed, match="a callable of the options"):
            jsclient.connect("nats://127.0.0.1:1", connect_timeout=0.3, socket_factory=factory)
        assert time.monotonic() - start < 0.3 + ALLOWED + 3 * lateness.worst
    finally:
        release.set()
