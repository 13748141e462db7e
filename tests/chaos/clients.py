"""The threads that use the cluster: each does one thing after another, and records what it was told."""

from __future__ import annotations

import functools
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
from tests.chaos.history import History, Op

import jsclient
from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.jetstream.publishing.future import PublishFuture
from jsclient.keyvalue import KeyValueEntry

BUCKET, APPENDS, SEQUENCE, QUEUE, CONSUMER = "chaos", "APPENDS", "SEQUENCE", "QUEUE", "C"
#: Operations on one key until the next one is taken: short histories are checked quickly.
PER_KEY = 150
#: Seconds between two operations of a thread: a machine with two cores runs three servers, too.
PAUSE = 0.03
IN_FLIGHT = 40


class Worker:
    """A thread that repeats `step` until it is told to stop. `nc` is its connection, often shared with others."""

    pause = PAUSE
    hurried = True

    def __init__(self, name: str, nc: jsclient.Connection, history: History, seed: str) -> None:
        self.name = name
        self.nc = nc
        self.js = JetStream(nc)
        self.history = history
        self.chance = random.Random(f"{seed}/{name}")
        self.stopping = threading.Event()
        self.count = 0
        self.times: list[float] = []  #: when it got on with its work
        self.failures: list[str] = []  #: errors of calls that may be made again
        self.thread = threading.Thread(target=self._run, name=f"chaos-{name}", daemon=True)

    def value(self) -> bytes:
        """Never the same twice, and none is the start of another."""
        self.count += 1
        return b"<%s:%d>" % (self.name.encode(), self.count)

    def patience(self) -> float:
        """Seconds for a write: impatient calls end in every way there is."""
        return self.chance.choice((0.3, 1.0, 15.0, 15.0)) if self.hurried else 15.0

    def step(self) -> None:
        raise NotImplementedError

    def progress(self) -> None:
        self.times.append(self.history.now())

    def end(self) -> None:
        """After the last step."""

    def _run(self) -> None:
        try:
            while not self.stopping.wait(self.pause * (0.5 + self.chance.random())):
                self.step()
            self.end()
        except BaseException as error:
            self.history.surprises.append(f"{self.name} ended: {error!r}")

    def write(self, op: Op, call: Callable[[], Any]) -> bool:
        try:
            self.history.ok(op, call())
        except errors.JsClientError as error:
            self.history.failed(op, error)
            return False
        self.progress()
        return True


class Keys(Worker):
    """Get, put, create, update and delete on few keys, with others that do the same."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kv = keyvalue.key_value(self.js, BUCKET, fetch_info=False)
        self.seen: dict[str, int] = {}

    def step(self) -> None:
        era = len(self.history.ops) // (PER_KEY * 6)
        key = f"k{self.chance.randrange(3)}.{era}"
        kind = self.chance.choices(("get", "update", "put", "create", "delete"), (35, 35, 10, 10, 10))[0]
        expected, patience = self.seen.get(key), self.patience()
        if kind == "get" or (kind in ("update", "delete") and expected is None):
            self.read(key)
        elif kind == "put":
            value = self.value()
            self.change(
                self.history.invoke(self.name, kind, key, value), lambda: self.kv.put(key, value, timeout=patience)
            )
        elif kind == "create":
            value = self.value()
            self.change(
                self.history.invoke(self.name, kind, key, value), lambda: self.kv.create(key, value, timeout=patience)
            )
        elif kind == "update":
            value = self.value()
            op = self.history.invoke(self.name, kind, key, value, expected)
            self.change(op, lambda: self.kv.update(key, value, expected or 0, timeout=patience))
        else:
            op = self.history.invoke(self.name, kind, key, None, expected)
            self.change(op, lambda: self.kv.delete(key, revision=expected, timeout=patience))

    def read(self, key: str) -> None:
        op = self.history.invoke(self.name, "get", key)
        try:
            entry = self.kv.get(key, direct=False, timeout=3)
        except errors.KeyNotFound as error:
            revision = error.revision if isinstance(error, errors.KeyDeleted) else None
            self.history.ok(op, revision, None)
            self.seen[key] = revision or 0
        except errors.JsClientError as error:
            self.history.failed(op, error)
        else:
            self.history.ok(op, entry.revision, entry.value)
            self.progress()
            self.seen[key] = entry.revision

    def change(self, op: Op, call: Callable[[], Any]) -> None:
        if self.write(op, call) and op.revision is not None:
            self.seen[op.key] = op.revision
        else:
            self.seen.pop(op.key, None)


class Appends(Worker):
    """Publishes that expect the last sequence of the subject, or of the stream; by `publish` or `publish_async`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.expected: dict[str, int] = {}

    def step(self) -> None:
        whole = self.chance.random() < 0.3
        stream = SEQUENCE if whole else APPENDS
        era = len(self.history.ops) // (PER_KEY * 6)
        subject = "sequence" if whole else f"appends.{self.chance.randrange(2)}.{era}"
        if subject not in self.expected:
            self.read(stream, subject)
            return
        value, expected = self.value(), self.expected.pop(subject)
        options: dict[str, Any] = {"expected_last_seq" if whole else "expected_last_subject_seq": expected}
        if self.chance.random() < 0.5:
            options["msg_id"] = value.decode()
        op = self.history.invoke(self.name, "append", subject, value, expected)
        if self.chance.random() < 0.5:
            patience = self.patience()
            done = self.write(op, lambda: self.js.publish(subject, value, timeout=patience, **options).seq)
        else:
            done = self.write(op, lambda: self.js.publish_async(subject, value, **options).result(60).seq)
        if done and op.revision is not None:
            self.expected[subject] = op.revision

    def read(self, stream: str, subject: str) -> None:
        op = self.history.invoke(self.name, "get", subject)
        try:
            message = self.js.stream(stream, fetch_info=False).get_last_msg(subject, direct=False, timeout=3)
        except errors.MessageNotFound:
            self.history.ok(op, None, None)
            self.expected[subject] = 0
        except errors.JsClientError as error:
            self.history.failed(op, error)
        else:
            self.history.ok(op, message.seq, message.data)
            self.expected[subject] = message.seq


class Publisher(Worker):
    """Publishes on a subject of its own, one after another; with ids or without."""

    ids = True

    def step(self) -> None:
        value = self.value()
        kind = "publish with id" if self.ids else "publish"
        op = self.history.invoke(self.name, kind, f"queue.{self.name}", value)
        options: dict[str, Any] = {"msg_id": value.decode()} if self.ids else {}
        patience = self.patience()
        self.write(op, lambda: self.js.publish(op.key, value, timeout=patience, **options).seq)


class PlainPublisher(Publisher):
    ids = False


class AsyncPublisher(Worker):
    """The same with many publishes under way."""

    ids = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.window: deque[tuple[Op, PublishFuture]] = deque()

    def step(self) -> None:
        value = self.value()
        kind = "publish_async with id" if self.ids else "publish_async"
        op = self.history.invoke(self.name, kind, f"queue.{self.name}", value)
        options: dict[str, Any] = {"msg_id": value.decode()} if self.ids else {}
        try:
            future = self.js.publish_async(op.key, value, **options)
        except errors.JsClientError as error:
            self.history.failed(op, error)
            return
        future.add_done_callback(functools.partial(self.settle, op))
        self.window.append((op, future))
        while self.window and (self.window[0][1].done() or len(self.window) > IN_FLIGHT):
            self.window.popleft()[1].exception(120)

    def settle(self, op: Op, future: PublishFuture) -> None:
        self.write(op, lambda: future.result(0).seq)

    def end(self) -> None:
        for _, future in self.window:
            future.exception(120)


class PlainAsyncPublisher(AsyncPublisher):
    ids = False


@attrs.frozen
class Delivery:
    at: float
    seq: int
    times: int
    value: bytes
    thread: str


class Deliveries:
    """What the consumers of the queue were given, and which acks were confirmed."""

    def __init__(self) -> None:
        self.given: list[Delivery] = []
        self.confirmed: dict[int, float] = {}  #: stream sequence -> when


class Consumer(Worker):
    """Takes from the durable consumer, and acks with a confirmation: by `fetch`, or by `messages`."""

    by_messages = False
    pause = 0.0

    def __init__(self, *args: Any, deliveries: Deliveries, durable: str = CONSUMER) -> None:
        super().__init__(*args)
        self.deliveries = deliveries
        self.consumer = self.js.consumer(QUEUE, durable, fetch_info=False)
        self.messages: Any = None

    def step(self) -> None:
        try:
            if self.by_messages:
                self.messages = self.messages or self.consumer.messages(max_messages=20, heartbeat=1.0)
                taken = [self.messages.next(timeout=2)]
            else:
                taken = list(self.consumer.fetch(20, timeout=2, heartbeat=0.5))
        except errors.TimedOut:
            return
        except errors.JsClientError as error:
            if not isinstance(error, (errors.PullError, errors.ConnectionLost, errors.NoResponders)):
                self.history.surprises.append(f"{self.name}: {error!r}")
            if isinstance(error, errors.SubscriptionClosed):
                self.messages = None
            return
        for message in taken:
            self.note(message)
        for message in taken:
            self.ack(message)

    def note(self, message: Any) -> None:
        now = self.history.now()
        self.times.append(now)
        self.deliveries.given.append(Delivery(now, message.stream_seq, message.num_delivered, message.data, self.name))

    def ack(self, message: Any) -> None:
        try:
            message.double_ack(timeout=3)
        except (errors.TimedOut, errors.ConnectionLost, errors.StaleDelivery, errors.NoResponders):
            return
        except errors.JsClientError as error:
            self.history.surprises.append(f"{self.name} double_ack: {error!r}")
            return
        self.deliveries.confirmed.setdefault(message.stream_seq, self.history.now())

    def end(self) -> None:
        if self.messages is not None:
            self.messages.stop()


class MessagesConsumer(Consumer):
    by_messages = True


class Reader(Worker):
    """Reads the whole queue with an ordered consumer: every message once, in the order of the stream."""

    pause = 0.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[tuple[int, bytes]] = []
        self.messages: Any = None

    def step(self) -> None:
        if self.messages is None:
            ordered = self.js.stream(QUEUE, fetch_info=False).ordered_consumer(
                deliver_policy="by_start_sequence", opt_start_seq=self.after + 1
            )
            try:
                self.messages = ordered.messages(heartbeat=1.0)
            except errors.JsClientError:
                return
        try:
            message = self.messages.next(timeout=1)
        except errors.TimedOut:
            return
        except errors.JsClientError as error:
            self.history.surprises.append(f"{self.name}: {error!r}")
            self.messages = None
            return
        self.seen.append((message.stream_seq, message.data))
        self.progress()

    @property
    def after(self) -> int:
        return self.seen[-1][0] if self.seen else 0

    def end(self) -> None:
        if self.messages is not None:
            self.messages.stop()


class Watcher(Worker):
    """Watches the whole bucket: every revision once, in order."""

    pause = 0.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[KeyValueEntry] = []
        self.watcher: Any = None

    def step(self) -> None:
        try:
            if self.watcher is None:
                self.watcher = keyvalue.key_value(self.js, BUCKET, fetch_info=False).watch(include_history=True)
            entry = self.watcher.next(1)
        except (errors.TimedOut, errors.NoResponders, errors.ConnectionLost):
            return
        if entry is not None:
            self.seen.append(entry)
            self.progress()

    @property
    def after(self) -> int:
        return self.seen[-1].revision if self.seen else 0

    def end(self) -> None:
        if self.watcher is not None:
            self.watcher.stop()


def settle(history: History, workers: list[Worker], timeout: float) -> list[str]:
    """Stop them; returns the names of those that did not come back in time."""
    for worker in workers:
        worker.stopping.set()
    end = time.monotonic() + timeout
    for worker in workers:
        worker.thread.join(max(0.0, end - time.monotonic()))
    return [worker.name for worker in workers if worker.thread.is_alive()]
