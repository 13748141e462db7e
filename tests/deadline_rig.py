"""For calls that must end within their timeout: everything that they need, a full link, and how late the machine is."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import FULL

import jsclient
from jsclient import backup, coordination, errors, groups, services, waiting
from jsclient import jetstream as jets
from jsclient import keyvalue as kvs
from jsclient import objectstore as objs
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.testing import wait_until
from jsclient.workers import DeadLetters, WorkerPool

TIMEOUT = 0.3 if FULL else 0.15
ALLOWED = 0.2
LEASE = 5.0
PUSH = jets.ConsumerConfig(durable_name="push", deliver_subject="dl.to", ack_policy="explicit")


class Env:
    """Everything that the calls need, made while the peer is well."""

    def __init__(self, url: str, control: str, folder: Any) -> None:
        self.url = url
        self.dead_url = url
        self._folder = folder
        self._files = 0
        self._spares: list[jsclient.Connection] = []
        self.stack = contextlib.ExitStack()
        options: dict[str, Any] = {"ping_interval": 60, "pending_buffer": 1000}
        self.connect: Callable[..., Any] = lambda **more: jsclient.connect(url, **options, **more)
        self.control = self.stack.enter_context(jsclient.connect(control))  # not through the proxy
        self._prepare(jets.JetStream(self.control))
        self.nc = self.stack.enter_context(self.connect())
        self.impatient = self.stack.enter_context(self.connect(write_timeout=0.2))  # for calls that have only that
        self.js = jets.JetStream(self.nc)
        self._open()

    def _prepare(self, js: jets.JetStream) -> None:
        for name in (
            "DL",
            "DL-group",
            "DL2",
            "GONE",
            "KV_elastic-consumer-groups",
            "KV_DLKV",
            "KV_DLLEASES",
            "OBJ_DLOBJ",
            "OBJ_DLOBJ2",
        ):
            with contextlib.suppress(errors.StreamNotFound):
                js.delete_stream(name)
        stream = js.create_stream(jets.StreamConfig(name="DL", subjects=["dl.js.>"], allow_direct=True))
        js.create_stream(jets.StreamConfig(name="DL2", subjects=["dl2"]))
        stream.create_consumer(jets.ConsumerConfig(durable_name="c", filter_subject="dl.js.none"))
        stream.create_consumer(jets.ConsumerConfig(durable_name="full"))
        stream.create_consumer(jets.ConsumerConfig(durable_name="expendable"))
        stream.create_push_consumer(PUSH.replace(durable_name="p"))
        for _ in range(30):
            js.publish("dl.js.x", b"x")
        kvs.create_key_value(js, kvs.KeyValueConfig(bucket="DLKV", history=5)).put("a", b"1")
        objects = objs.create_object_store(js, objs.ObjectStoreConfig(bucket="DLOBJ"))
        objs.create_object_store(js, objs.ObjectStoreConfig(bucket="DLOBJ2"))
        objects.put("other", b"x")
        objects.put("o", io.BytesIO(b"x" * 500_000))
        coordination.lease_bucket(js, "DLLEASES", ttl=LEASE)
        gone = js.create_stream(jets.StreamConfig(name="GONE", subjects=["dl.gone"]))
        js.publish("dl.gone", b"x" * 1000)
        if js.nc.server_info.at_least(2, 11):
            groups.create_elastic(js, "DL", "group", partitions=4)
        self.backups = self.path()
        backup.backup_stream(js, "GONE", self.backups / "GONE")
        gone.delete()

    def _open(self) -> None:
        nc, js = self.nc, self.js
        self._spares = [self.stack.enter_context(self.connect()) for _ in range(6)]
        self.sub = nc.subscribe("dl.silence")
        self.events = nc.events()
        self.subs = [nc.subscribe(f"dl.silence.{n}") for n in range(6)]
        self.stream = js.stream("DL")
        self.consumer = self.stream.consumer("c")
        self.expendable = self.stream.consumer("expendable")
        self.read = self.stream.ordered_consumer().read_until(10**9, timeout=TIMEOUT)
        self.push = self.stream.push_consumer("p")
        self.messages = list(self.stream.consumer("full").fetch(15, 5))
        self.typed = list(self.stream.consumer("full").typed(dict).fetch(8, 5))
        self.ordered = self.stream.ordered_consumer()
        with contextlib.suppress(errors.NoMessages):
            self.ordered.next(1)
        self.iterator = self.stack.enter_context(self.consumer.messages())
        self.consuming = [self.consumer.consume(lambda message: None) for _ in range(4)]
        self.pools = [WorkerPool(self.consumer, lambda message: None) for _ in range(3)]
        self.kv = kvs.key_value(js, "DLKV")
        self.watcher = self.stack.enter_context(self.kv.watch("none"))
        self.watchers = [self.kv.watch("none") for _ in range(2)]
        self.objects = objs.object_store(js, "DLOBJ")
        self.object_info = self.objects.info("o")
        self.object_watchers = [self.stack.enter_context(self.objects.watch())]
        self.object_watcher = self.stack.enter_context(self.objects.watch(updates_only=True))
        self.group = groups.PartitionedGroup(js, "DL", "group", elastic=True)
        self.group_pools: list[groups.GroupPool] = []
        if nc.server_info.at_least(2, 11):
            self.group_pools = [groups.GroupPool(self.group, lambda message: None, settle=0.1) for _ in range(2)]
            wait_until(lambda: all(pool.state == "working" for pool in self.group_pools), 30)
        self.letters = DeadLetters(js, "DL", "dl.js.x")
        self.leases = kvs.key_value(js, "DLLEASES")
        self.lease = coordination.Lock(self.leases, "held", ttl=LEASE).acquire(5)
        (self.holder,) = coordination.holders(self.leases)
        self.election = coordination.Election(self.leases, "election", ttl=LEASE)
        wait_until(lambda: self.election.leading)
        self.service = services.add_service(nc, services.ServiceConfig(name="dl", version="1.0.0"))
        self.publisher = jets.AsyncPublisher(js, ack_timeout=60)
        self.publishers = [jets.AsyncPublisher(js, ack_timeout=60) for _ in range(2)]
        for publisher in (self.publisher, *self.publishers):
            publisher.publish("dl.js.a", b"").result(5)
        js.publish_async("dl.js.a", b"").result(5)
        js.api_level()
        nc.flush()

    def leave_unacknowledged(self) -> None:
        """Once the peer is silent: publishes without their acks."""
        self.future = self.publisher.publish("dl.js.a", b"")
        for publisher in self.publishers:
            publisher.publish("dl.js.a", b"")
        self.js.publish_async("dl.js.a", b"")

    def spare(self) -> jsclient.Connection:
        return self._spares.pop()

    def path(self) -> Any:
        self._files += 1
        return self._folder / f"file-{self._files}"

    def close(self) -> None:
        self.lease.release()
        self.election.close()
        running: list[jets.ConsumeContext | WorkerPool | groups.GroupPool]
        running = [*self.consuming, *self.pools, *self.group_pools]
        for closing in running:
            with contextlib.suppress(errors.JsClientError):
                closing.stop()
        self.stack.close()


def fill(nc: jsclient.Connection) -> None:
    """Publish until the outbox takes nothing more, be it as small as an ack.

    A full kernel takes more, up to a megabyte, when it looks for the first time whether the window of its peer is still
    closed: 0.25 s after it has refused. 100 MB are the bound, and no number of messages.
    """
    for size, patience in ((100_000, 0.4), (1000, 0.2), (1, 0.2)):
        with engine_of(nc).sends_within(Deadline(patience)), pytest.raises(errors.BufferFull):
            for _ in range(100_000_000 // max(size, 100)):
                nc.publish("dl.x", b"x" * size)


class Lateness:
    """How late the machine runs a thread that is due: the worst that was seen, in seconds."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._stop = waiting.Gate()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            self._stop.wait(0.01)
            self.worst = max(self.worst, time.monotonic() - start - 0.01)

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


def in_calm(attempt: Callable[[], Any], calm: float) -> Any:
    """What an attempt comes to while the machine keeps no thread for `calm` seconds; if it does so three times, what
    the last one came to. For times of the server's that go on while the machine stands still: our side cannot be in
    time then (a stop of 0.5 s had the server deliver one of two messages again that were in progress)."""
    for _ in range(3):
        with Lateness() as lateness:
            came_to = attempt()
        if lateness.worst < calm:
            break
    return came_to
