"""Further users of a cluster, for the rolling upgrade: what an application may do beside plain publishing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.chaos import clients

from jsclient import errors, objectstore, services
from jsclient.jetstream import StreamConfig
from jsclient.workers import WorkerPool

OBJECTS, BATCHES, FAST = "chaos-objects", "BATCHES", "FAST"
SIZE = 200_000
BATCH = 10


class ConsumeUser(clients.Consumer):
    """A callback, which acks."""

    pause = 0.2

    def step(self) -> None:
        if self.messages is None:
            self.messages = self.consumer.consume(self.handle, heartbeat=1.0)

    def handle(self, message: Any) -> None:
        self.note(message)
        message.ack()

    def end(self) -> None:
        if self.messages is not None:
            self.messages.close()


class PushUser(ConsumeUser):
    """The same, and the server pushes."""

    def step(self) -> None:
        if self.messages is None:
            try:
                self.messages = self.js.push_consumer(clients.QUEUE, self.name).consume(self.handle)
            except errors.JsClientError as error:
                self.failures.append(repr(error))


class PoolUser(clients.Consumer):
    """A pool of two threads that keeps the order within each subject."""

    pause = 0.2

    def step(self) -> None:
        if self.messages is None:
            self.messages = WorkerPool(self.consumer, self.note, threads=2, key=lambda message: message.subject)

    def end(self) -> None:
        if self.messages is not None:
            self.messages.stop()


class ObjectUser(clients.Worker):
    """Stores an object, reads it back and compares."""

    pause = 0.3

    def step(self) -> None:
        try:
            store = objectstore.object_store(self.js, OBJECTS, fetch_info=False)
            body = self.value().ljust(SIZE, b".")
            store.put("object", body, timeout=60)
            found = store.get_bytes("object", timeout=60)
        except errors.JsClientError as error:
            self.failures.append(repr(error))
            return
        if found != body:
            self.history.surprises.append(f"{self.name}: read {found[:30]!r} after {body[:30]!r} was stored")
        self.progress()


class ServiceUser(clients.Worker):
    """Asks a service that runs on another connection."""

    def __init__(self, *args: Any, other: Any) -> None:
        super().__init__(*args)
        self.service = services.add_service(other, services.ServiceConfig(name="echo", version="1.0.0"))
        self.service.add_endpoint("echo", lambda request: request.respond(request.data))

    def step(self) -> None:
        value = self.value()
        try:
            answer = self.nc.request("echo", value, timeout=5).data
        except errors.JsClientError as error:
            self.failures.append(repr(error))
            return
        if answer != value:
            self.history.surprises.append(f"{self.name}: {value!r} was answered with {answer!r}")
        self.progress()

    def end(self) -> None:
        self.service.stop()


class BatchUser(clients.Worker):
    """Atomic batches, while the servers have them."""

    pause = 0.1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stored = 0

    def make(self) -> None:
        config = StreamConfig(name=BATCHES, subjects=["batches"], num_replicas=3, allow_atomic=True)
        self.js.get_or_create_stream(config, timeout=20)

    def step(self) -> None:
        try:
            with self.js.atomic_batch() as batch:
                for _ in range(BATCH):
                    batch.add("batches", self.value())
        except errors.JsClientError as error:
            self.failures.append(repr(error))
            return
        self.stored += BATCH
        self.progress()

    def check(self) -> str:
        """What was stored against what was said; "" when it agrees."""
        state = self.js.stream(BATCHES).info().state
        unknown = sum("PublishUnknown" in text for text in self.failures)
        if not self.stored <= state.messages <= self.stored + unknown * BATCH or state.messages % BATCH:
            return (
                f"{state.messages} messages of batches are stored, {self.stored} were acknowledged, {unknown} unknown"
            )
        return ""


class FastUser(clients.Worker):
    """Fast batches, while the servers have them."""

    pause = 0.1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()

    def make(self) -> None:
        config = StreamConfig(name=FAST, subjects=["fast"], num_replicas=3, allow_batched=True)
        self.js.get_or_create_stream(config, timeout=20)

    def step(self) -> None:
        values = [self.value() for _ in range(BATCH)]
        self.sent.update(values)
        batch = self.js.fast_batch()
        try:
            with batch:
                for value in values:
                    batch.add("fast", value)
        except errors.JsClientError as error:
            self.failures.append(repr(error))
            self.acked.update(values[: batch.acked])
            return
        self.acked.update(values)
        self.progress()

    def check(self, stored: Sequence[bytes]) -> str:
        """What is stored against what was said; "" when it agrees."""
        lost, strange = self.acked - set(stored), set(stored) - self.sent
        twice = [value for value, times in Counter(stored).items() if times > 1]
        if not lost and not strange and not twice:
            return ""
        return (
            f"of fast batches {len(lost)} acknowledged messages are missing, {len(twice)} twice, {len(strange)} strange"
        )
