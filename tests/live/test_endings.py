"""Every way to take messages x every way to end: the pull is withdrawn, no handler starts any more, what is held goes
back, and why it ended is said.

A row is a `Way`: it begins to take with a handler, and knows how to stop. The stream holds `COUNT` messages; the
handler lets `FREE` of them pass and is then held at the next ones, so that every end finds each worker with a message
in its hands, and messages that wait behind it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until
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

    def __call__(self, message: Any) -> None:
        for one in message if isinstance(message, list) else [message]:
            self._handle(one)

    def _handle(self, message: JetStreamMsg) -> None:
        self.begun.append(int(message.data))
        if len(self.begun) > FREE:
            assert self.release.wait(20)
            if self.raises is not None:
                raise self.raises
        if not message.reply:
            return  # an ordered consumer
        try:
            message.ack()
            self.acked.append(int(message.data))
        except errors.JsClientError as error:
            self.failed.append(error)

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
        self.taking = self.begin()

    def begin(self) -> Any:
        raise NotImplementedError

    def consumer(self) -> Any:
        config = ConsumerConfig(durable_name="C", ack_wait=60.0, max_ack_pending=1000)
        return self.js.create_consumer("E", config)

    def push_consumer(self) -> Any:
        config = ConsumerConfig(durable_name="C", ack_wait=60.0, deliver_subject=self.js.nc.new_inbox())
        return self.js.create_push_consumer("E", config)

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
            for message in self.taking:
                self.work(message)
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


HANDLED = [Consume, ConsumeOfFour, OrderedConsume, PushConsume, OrderedPushConsume]
POOLS = [Pool, PoolOfOne, PoolByKey, PoolOfBatches]
ITERATED = [Messages, OrderedMessages, PushMessages, OrderedPushMessages]
WAYS: list[type[Way]] = [*HANDLED, *POOLS, *ITERATED]


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
        at_once = 1 if way is PoolOfBatches else way.hands
        wait_until(lambda: self.work.is_held(at_once), 10)
        if begun.own and not isinstance(begun, Pool):
            wait_until(lambda: begun.taking.messages.buffered > 0, 10)
        return begun

    def nothing_starts(self) -> None:
        """What is published from now on reaches no handler."""
        begun = list(self.work.begun)
        for _ in range(NEW):
            self.published += 1
            self.observer.publish("e.new", b"%d" % self.published)
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


@pytest.fixture
def proxy(server: NatsServer) -> Iterator[Proxy]:
    with Proxy(server.port) as running:
        yield running


@pytest.fixture
def scene(server: NatsServer, proxy: Proxy) -> Iterator[Scene]:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="E", subjects=["e.>"], storage="memory"))
        for number in range(1, COUNT + 1):
            nc.publish("e.a", b"%d" % number)
        nc.flush()
        made = Scene(js, proxy.url)
        try:
            yield made
        finally:
            made.work.release.set()
            if made.nc is not None:
                made.nc.close()
            if "E" in js.stream_names():
                js.delete_stream("E")


def in_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


#: Close relatives of others: for the full tier.
RELATIVES = (OrderedPushConsume, OrderedPushMessages, PoolOfOne, PoolOfBatches)


def named(ways: list[type[Way]]) -> Any:
    rows = [pytest.param(way, marks=pytest.mark.slow) if way in RELATIVES else way for way in ways]
    return pytest.mark.parametrize("way", rows, ids=lambda way: way.__name__)


# --- the application ends it ------------------------------------------------------------------------------------


@named(WAYS)
@pytest.mark.parametrize("how", ["stop", "close"])
def test_stop_and_close(scene: Scene, way: type[Way], how: str) -> None:
    taking = scene.begin(way)
    thread, _ = in_background(getattr(taking, how))
    wait_until(lambda: taking.taking.closed if how == "close" and not taking.own else True, 5)
    scene.work.release.set()
    thread.join(10)
    assert taking.ended() is None
    if not taking.own:
        taking.close()  # what was stopped gives back when it is closed, or asked once more
    scene.nothing_starts()
    assert scene.work.failed == []
    assert scene.work.told == []
    if taking.acks:
        assert scene.nc is not None
        scene.nc.flush()
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


@pytest.mark.slow
@named(WAYS)
@pytest.mark.parametrize("how", ["in order", "by an exception"])
def test_the_with_block_is_left(scene: Scene, way: type[Way], how: str) -> None:
    taking = scene.begin(way)
    with contextlib.suppress(ValueError), taking.taking:
        scene.work.release.set()
        if how == "by an exception":
            raise ValueError("of the application")
    assert taking.ended() is None
    scene.nothing_starts()
    assert scene.work.failed == []
    if taking.acks:
        assert scene.nc is not None
        scene.nc.flush()
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


@named(WAYS)
def test_drain(scene: Scene, way: type[Way]) -> None:
    """What was received is handled (a pool gives back what it has not begun), every ack arrives."""
    taking = scene.begin(way)
    thread, result = in_background(taking.drain)
    scene.work.release.set()
    thread.join(10)
    assert not any(isinstance(end, BaseException) for end in result)
    assert taking.ended() is None
    scene.nothing_starts()
    assert scene.work.failed == []
    if not isinstance(taking, Pool):
        assert scene.work.begun[:COUNT] == list(range(1, COUNT + 1)) or way is ConsumeOfFour
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


# --- the connection ends ----------------------------------------------------------------------------------------


@named(WAYS)
def test_the_connection_is_closed(scene: Scene, way: type[Way]) -> None:
    taking = scene.begin(way)
    assert scene.nc is not None
    scene.nc.close()
    scene.work.release.set()
    error = taking.ended()
    if taking.own:
        assert error is None, "the application closed it itself"
    else:
        assert isinstance(error, errors.ConnectionClosed)
        assert error.reason is None
    assert scene.work.told == []
    scene.nothing_starts()
    assert len(scene.work.begun) <= FREE + taking.hands
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(len(scene.work.failed))


@named(WAYS)
def test_the_connection_is_drained(scene: Scene, way: type[Way]) -> None:
    """With 20 messages it returned after 0.00 s; 17 handlers ran afterwards, and their acks raised."""
    taking = scene.begin(way)
    nc = scene.nc
    assert nc is not None
    thread, result = in_background(lambda: nc.drain(timeout=20))
    wait_until(lambda: nc.is_draining, 5)
    assert not nc.closed
    scene.work.release.set()
    thread.join(15)
    assert result == [None]
    assert taking.ended() is None
    scene.nothing_starts()
    assert scene.work.failed == []
    assert scene.work.told == []
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(0)


@named(WAYS)
def test_the_connection_is_lost_for_good(scene: Scene, proxy: Proxy, way: type[Way]) -> None:
    """A revoked password, used-up attempts: `wait` returned True, `error` was None, and nothing reached `on_error`."""
    taking = scene.begin(way, reconnect=jsclient.ReconnectPolicy(max_attempts=1, delay=lambda attempt: 0.0))
    assert scene.nc is not None
    proxy.refuse()
    wait_until(lambda: scene.nc is not None and scene.nc.closed, 10)
    scene.work.release.set()
    error = taking.ended()
    if taking.own:
        assert isinstance(error, errors.NatsConnectionError)
        assert not isinstance(error, errors.ConnectionClosed)
        assert taking.taking.error is error
        wait_until(lambda: scene.work.told, 5)
        assert scene.work.told == [error]
        with pytest.raises(type(error)):
            taking.taking.wait(timeout=1)
    else:
        assert isinstance(error, errors.ConnectionClosed)
        assert isinstance(error.reason, errors.NatsConnectionError)
    begun = list(scene.work.begun)
    proxy.accept()
    scene.nothing_starts()
    assert scene.work.begun == begun


# --- the server ends it -----------------------------------------------------------------------------------------

ENDLESS = [way for way in WAYS if way.acks]  # an ordered consumer that is deleted is made again


@named([way for way in ENDLESS if "Push" not in way.__name__])
@pytest.mark.parametrize("what", ["consumer", "stream"])
def test_it_is_deleted(scene: Scene, way: type[Way], what: str) -> None:
    taking = scene.begin(way)
    if what == "consumer":
        scene.observer.delete_consumer("E", "C")
    else:
        scene.observer.delete_stream("E")
    scene.work.release.set()
    error = taking.ended()
    assert isinstance(error, errors.ConsumerDeleted if what == "consumer" else errors.StreamNotFound)
    if taking.own:
        wait_until(lambda: scene.work.told, 5)
        assert [type(told) for told in scene.work.told] == [type(error)]


# --- the handler ends it ----------------------------------------------------------------------------------------


@named(HANDLED)
def test_sys_exit_in_a_handler(scene: Scene, way: type[Way]) -> None:
    """A consume with one worker was over without a word, one with four went on with three."""
    scene.work.raises = SystemExit(3)
    taking = scene.begin(way)
    scene.work.release.set()
    error = taking.ended()
    assert error is scene.work.raises
    assert scene.work.told == [error]
    scene.nothing_starts()
    if taking.acks:
        scene.no_pull_is_left()
        scene.others_get_the_rest(taking.hands)
