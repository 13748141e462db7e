"""Every way to take messages, and the scene in which one of them ends.

A row of the table of endings is a `Way`: it begins to take with a handler, and knows how to stop. The stream holds
`COUNT` messages; the handler lets `FREE` of them pass and is then held at the next ones, so that every end finds each
worker with a message in its hands, and messages that wait behind it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.testing import wait_until
from jsclient.workers import WorkerPool

COUNT = 20
NEW = 5
FREE = 3
BEAT = 1.0


class Work:
    """The handler: what it began, and what it acked. After FREE messages it is held until `release` is set."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.acked: list[int] = []
        self.failed: list[BaseException] = []
        self.told: list[BaseException] = []
        self.release = threading.Event()
        self.raises: BaseException | None = None
        self.acks = True  # an ordered consumer needs none
        self.leaves = ""  # how the loop of an iterator is left after a message that was held: "break" or ""

    def __call__(self, message: Any) -> None:
        for one in message if isinstance(message, list) else [message]:
            self._handle(one)

    def _handle(self, message: JetStreamMsg) -> None:
        self.begun.append(int(message.data))
        if len(self.begun) > FREE:
            assert self.release.wait(20)
            if self.raises is not None:
                raise self.raises
        if not self.acks:
            return
        try:
            message.ack()
            self.acked.append(int(message.data))
        except errors.JsClientError as error:
            self.failed.append(error)

    def may_go_on(self) -> bool:
        return not (self.leaves and len(self.begun) > FREE)

    def is_held(self, hands: int) -> bool:
        return len(self.begun) >= FREE + hands


class Way:
    """A way to take. `acks`: what was not handled goes to others. `own`: handlers run on threads of jsclient's own.
    `hands`: messages that are being handled at once."""

    acks = True
    own = True
    hands = 1

    def __init__(self, js: JetStream, work: Work) -> None:
        self.js = js
        self.work = work
        work.acks = self.acks
        self.taking = self.begin()

    def begin(self) -> Any:
        raise NotImplementedError

    def consumer(self) -> Any:
        config = ConsumerConfig(durable_name="C", ack_wait=60.0, max_ack_pending=1000)
        return self.js.create_consumer("E", config)

    def push_consumer(self) -> Any:
        inbox = self.js.nc.new_inbox()
        config = ConsumerConfig(durable_name="C", ack_wait=60.0, deliver_subject=inbox, idle_heartbeat=BEAT)
        return self.js.create_push_consumer("E", config)

    @property
    def at_once(self) -> int:
        """Messages that the handler has begun when it is held."""
        return self.hands

    def stop(self) -> None:
        self.taking.stop()

    def close(self) -> None:
        self.taking.close()

    def drain(self) -> None:
        self.taking.drain(timeout=20)

    def ended(self) -> BaseException | None:
        """Wait for the end; what it raised."""
        try:
            assert self.taking.wait(timeout=10)
        except BaseException as error:
            return error
        return None


class Consume(Way):
    def begin(self) -> Any:
        return self.consumer().consume(self.work, on_error=self.work.told.append, heartbeat=BEAT)


class ConsumeOfFour(Way):
    hands = 4

    def begin(self) -> Any:
        return self.consumer().consume(self.work, workers=4, on_error=self.work.told.append, heartbeat=BEAT)


class OrderedConsume(Way):
    acks = False

    def begin(self) -> Any:
        return self.js.ordered_consumer("E").consume(self.work, on_error=self.work.told.append)


class PushConsume(Way):
    def begin(self) -> Any:
        return self.push_consumer().consume(self.work, on_error=self.work.told.append)


class OrderedPushConsume(Way):
    acks = False

    def begin(self) -> Any:
        return self.js.stream("E").ordered_push_consumer().consume(self.work, on_error=self.work.told.append)


class Pool(Way):
    hands = 4
    options: dict[str, Any] = {"threads": 4, "manual": True}

    def begin(self) -> Any:
        return WorkerPool(self.consumer(), self.work, on_event=self._note, **self.options)

    def _note(self, event: Any) -> None:
        if event.message is None and event.error is not None:
            self.work.told.append(event.error)

    def close(self) -> None:
        self.taking.stop(timeout=20)

    def drain(self) -> None:
        self.taking.stop(timeout=20)


class PoolByKey(Pool):
    hands = 1
    options = {"key": lambda message: "one", "threads": 2, "manual": True}


class PoolOfBatches(Pool):
    hands = 2
    options = {"batch": (2, 0.05), "threads": 1}
    at_once = 1


class PoolOfOne(Pool):
    hands = 1
    options = {"threads": 1, "manual": True}


class Iterated(Way):
    """A loop of the application's, in a thread of its own."""

    own = False

    def __init__(self, js: JetStream, work: Work) -> None:
        super().__init__(js, work)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        try:
            with self.taking if self.work.leaves else contextlib.nullcontext():
                for message in self.taking:
                    self.work(message)
                    if not self.work.may_go_on():
                        break
        except BaseException as error:
            self.error = error

    def drain(self) -> None:
        self.taking.drain()

    def ended(self) -> BaseException | None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self.error


class Messages(Iterated):
    def begin(self) -> Any:
        return self.consumer().messages(on_error=self.work.told.append, heartbeat=BEAT)


class OrderedMessages(Iterated):
    acks = False

    def begin(self) -> Any:
        return self.js.ordered_consumer("E").messages(on_error=self.work.told.append)


class PushMessages(Iterated):
    def begin(self) -> Any:
        return self.push_consumer().messages(on_error=self.work.told.append)


class OrderedPushMessages(Iterated):
    acks = False

    def begin(self) -> Any:
        return self.js.stream("E").ordered_push_consumer().messages(on_error=self.work.told.append)


class OrderedRead(Iterated):
    """It has all 20 in hand, and waits for more than there are."""

    acks = False

    def begin(self) -> Any:
        return self.js.ordered_consumer("E").read_until(end_seq=10 * COUNT, timeout=60)


HANDLED = [Consume, ConsumeOfFour, OrderedConsume, PushConsume, OrderedPushConsume]
POOLS = [Pool, PoolOfOne, PoolByKey, PoolOfBatches]
ITERATED = [Messages, OrderedMessages, PushMessages, OrderedPushMessages]
FINITE = [OrderedRead]
WAYS: list[type[Way]] = [*HANDLED, *POOLS, *ITERATED]
ALL: list[type[Way]] = [*WAYS, *FINITE]
ORDERED = [way for way in ALL if not way.acks]


class Scene:
    """A stream, somebody who takes from it (through a proxy), and an observer with a connection of its own."""

    def __init__(self, observer: JetStream, url: str) -> None:
        self.observer = observer
        self.url = url
        self.work = Work()
        self.published = COUNT
        self.nc: jsclient.Connection | None = None

    def begin(self, way: type[Way], **options: Any) -> Way:
        self.nc = jsclient.connect(self.url, **options)
        begun = way(JetStream(self.nc), self.work)
        wait_until(lambda: self.work.is_held(begun.at_once), 10)
        if begun.own and not isinstance(begun, Pool):
            wait_until(lambda: begun.taking.messages.buffered > 0, 10)
        return begun

    def publish_new(self) -> None:
        for _ in range(NEW):
            self.published += 1
            self.observer.publish("e.new", b"%d" % self.published)

    def leader(self) -> str:
        """The leader of the consumer; "" while there is none."""
        try:
            cluster = self.observer.consumer_info("E", "C", timeout=2).cluster
        except errors.JsClientError:
            return ""
        return (cluster.leader or "") if cluster is not None else ""

    def nothing_starts(self) -> None:
        """What is published from now on reaches no handler."""
        begun = list(self.work.begun)
        self.publish_new()
        assert self.work.begun == begun

    def no_pull_is_left(self) -> None:
        info = self.observer.consumer_info("E", "C")
        if info.config.is_push:
            wait_until(lambda: not self.observer.consumer_info("E", "C").push_bound, 5)
        else:
            assert info.num_waiting == 0

    def others_get_the_rest(self, in_hand: int) -> None:
        """At once, and not after ack_wait: all but what was acked, and what handlers still had."""
        info = self.observer.consumer_info("E", "C")
        rest = self.published - len(self.work.acked) - in_hand
        seen: list[int] = []
        if info.config.is_push:
            with self.observer.push_consumer("E", "C").messages() as messages:
                seen = [int(messages.next(timeout=5).data) for _ in range(rest)]
        else:
            while len(seen) < rest:
                batch = self.observer.consumer("E", "C").fetch(rest - len(seen), timeout=5)
                assert batch, f"{rest - len(seen)} messages are held back"
                seen += [int(message.data) for message in batch]
        assert len(set(seen)) == rest, "something came twice"
        assert not set(seen) & set(self.work.acked)


def set_up(observed: str, used: str, replicas: int = 1) -> Iterator[Scene]:
    with jsclient.connect(observed) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="E", subjects=["e.>"], storage="memory", num_replicas=replicas))
        # With acks: a stream with replicas that was just made may miss what is published without (2 of 600 missed all).
        for number in range(1, COUNT + 1):
            js.publish("e.a", b"%d" % number)
        made = Scene(js, used)
        try:
            yield made
        finally:
            made.work.release.set()
            if made.nc is not None:
                made.nc.close()
            if "E" in js.stream_names():
                js.delete_stream("E")
