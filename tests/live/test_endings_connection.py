"""The end of a connection, and what core subscriptions, services and callbacks have to do with it.

The ways to take from a stream are in test_endings.
"""

from __future__ import annotations

import queue
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import strict

import jsclient
from jsclient import errors
from jsclient._connection import callbacks
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.services import ServiceConfig, add_service
from jsclient.testing import NatsServer, Proxy, wait_until
from jsclient.workers import WorkerPool

CONFIG = ServiceConfig(name="endings", version="1.0.0")


@pytest.fixture
def other(server: NatsServer) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url) as nc:
        yield nc


class Slow:
    """A callback that is held at its first message until `release` is set, and answers each."""

    def __init__(self, nc: jsclient.Connection) -> None:
        self.nc = nc
        self.begun = 0
        self.failed: list[BaseException] = []
        self.started, self.release = threading.Event(), threading.Event()

    def __call__(self, message: Any) -> None:
        self.begun += 1
        self.started.set()
        assert self.release.wait(20)
        try:
            self.nc.publish("slow.answers", message.data)
        except errors.JsClientError as error:
            self.failed.append(error)


# --- callbacks --------------------------------------------------------------------------------------------------


def test_a_drain_waits_for_a_subscription_that_has_all_its_messages(
    server: NatsServer, other: jsclient.Connection
) -> None:
    """It has left the table of subscriptions: drain returned after a millisecond, with none of 10 handled."""
    answers = other.subscribe("slow.answers")
    other.flush()
    nc = jsclient.connect(server.url)
    slow = Slow(nc)
    sub = nc.subscribe("slow", slow, max_messages=10)
    nc.flush()
    for number in range(12):
        other.publish("slow", b"%d" % number)
    wait_until(lambda: sub.closed, 5)
    assert slow.started.wait(5)
    threading.Timer(0.1, slow.release.set).start()
    nc.drain(timeout=10)
    assert slow.failed == []
    assert [answers.next(timeout=5).data for _ in range(10)] == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("before", ["open", "all received", "unsubscribed", "draining"])
def test_no_callback_begins_after_close(server: NatsServer, other: jsclient.Connection, before: str) -> None:
    nc = jsclient.connect(server.url)
    slow = Slow(nc)
    sub = nc.subscribe("slow", slow, max_messages=10 if before == "all received" else None)
    nc.flush()
    for number in range(10):
        other.publish("slow", b"%d" % number)
    wait_until(lambda: sub.received == 10, 5)
    assert slow.started.wait(5)
    if before == "unsubscribed":
        sub.unsubscribe()
    elif before == "draining":
        with pytest.raises(errors.DrainTimeout):
            nc.drain(timeout=0.05)
    nc.close()
    slow.release.set()
    wait_until(lambda: slow.failed, 5)
    wait_until(lambda: not engine_of(nc).callback_pool.workers, 5)
    assert slow.begun == 1


def test_every_episode_of_a_slow_consumer_is_told(server: NatsServer, other: jsclient.Connection) -> None:
    """Of 5 bursts 3 were told: one that overflowed at once was taken for the one before it."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with jsclient.connect(server.url, on_error=lambda nc, error, sub: told.put(error)) as nc:
        sub = nc.subscribe("burst", pending_messages=10)
        nc.flush()
        for burst in range(1, 6):
            for _ in range(200):
                other.publish("burst")
            other.flush()
            nc.flush()
            assert sub.dropped == 190 * burst
            error = told.get(timeout=5)
            assert isinstance(error, errors.SlowConsumer)
            assert told.empty(), "one burst, one telling"
            while sub.pending:
                sub.next(timeout=0)


def test_on_closed_is_called_however_many_callbacks_wait(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "LIMIT", 10)
    release, closed, stopped = threading.Event(), threading.Event(), threading.Event()
    nc = jsclient.connect(server.url, on_closed=lambda nc: closed.set())
    add_service(nc, ServiceConfig(name="last", version="1.0.0", on_stop=lambda service: stopped.set()))
    engine_of(nc).run_callback(release.wait, 20)
    for _ in range(20):
        engine_of(nc).run_callback(lambda: None)
    assert nc.stats().callbacks_dropped > 0
    nc.close()
    release.set()
    assert closed.wait(5)
    assert stopped.wait(5)


# --- drains of a connection without a link ----------------------------------------------------------------------


def offline(proxy: Proxy, nc: jsclient.Connection) -> None:
    proxy.refuse()
    wait_until(lambda: nc.state is jsclient.ConnectionState.RECONNECTING, 10)


FAST = jsclient.ReconnectPolicy(delay=lambda attempt: 0.02)


def test_a_drain_while_reconnecting_waits_for_the_link(proxy: Proxy, other: jsclient.Connection) -> None:
    """It returned, and what was kept was thrown away with a line in the log."""
    kept = other.subscribe("kept")
    other.flush()
    nc = jsclient.connect(proxy.url, reconnect=FAST)
    offline(proxy, nc)
    for number in range(10):
        nc.publish("kept", b"%d" % number)
    threading.Timer(0.2, proxy.accept).start()
    nc.drain(timeout=10)
    assert nc.closed
    assert [kept.next(timeout=5).data for _ in range(10)] == [b"%d" % number for number in range(10)]


def test_a_drain_while_reconnecting_says_what_it_throws_away(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url, reconnect=FAST)
    offline(proxy, nc)
    for _ in range(10):
        nc.publish("kept")
    begun = time.monotonic()
    with pytest.raises(errors.DrainTimeout, match="10 messages"):
        nc.drain(timeout=0.3)
    assert time.monotonic() - begun < 2
    assert nc.closed


def test_a_drain_while_reconnecting_delivers_the_acks(proxy: Proxy, other: jsclient.Connection) -> None:
    js = JetStream(other)
    js.create_stream(StreamConfig(name="D", subjects=["d"], storage="memory"))
    for _ in range(5):
        js.publish("d", b"")
    consumer = js.create_consumer("D", ConsumerConfig(durable_name="C"))
    nc = jsclient.connect(proxy.url, reconnect=FAST)
    release = threading.Event()

    def handler(message: JetStreamMsg) -> None:
        release.wait(20)
        message.ack()

    running = JetStream(nc).consumer("D", "C").consume(handler)
    wait_until(lambda: running.messages.delivered and running.messages.buffered == 4, 5)
    offline(proxy, nc)
    release.set()
    threading.Timer(0.2, proxy.accept).start()
    nc.drain(timeout=10)
    assert running.wait(timeout=1)
    wait_until(lambda: consumer.info().ack_floor.stream_seq == 5, 5)
    js.delete_stream("D")


# --- iterators of the application -------------------------------------------------------------------------------


def test_a_drain_in_the_loop_of_an_iterator_does_not_wait_for_it(
    server: NatsServer, other: jsclient.Connection
) -> None:
    js = JetStream(other)
    js.create_stream(StreamConfig(name="L", subjects=["l"], storage="memory"))
    for number in range(10):
        js.publish("l", b"%d" % number)
    consumer = js.create_consumer("L", ConsumerConfig(durable_name="C"))
    nc = jsclient.connect(server.url)
    begun = time.monotonic()
    for message in JetStream(nc).consumer("L", "C").messages():
        message.ack()
        nc.drain(timeout=10)
    assert time.monotonic() - begun < 3
    assert nc.closed
    assert sorted(int(message.data) for message in consumer.fetch(9, timeout=5)) == list(range(1, 10))
    js.delete_stream("L")


def test_a_drain_gives_back_what_nobody_comes_for(server: NatsServer, other: jsclient.Connection) -> None:
    js = JetStream(other)
    js.create_stream(StreamConfig(name="L", subjects=["l"], storage="memory"))
    for number in range(10):
        js.publish("l", b"%d" % number)
    consumer = js.create_consumer("L", ConsumerConfig(durable_name="C"))
    nc = jsclient.connect(server.url)
    messages = JetStream(nc).consumer("L", "C").messages()
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(messages.next(timeout=5)))
    thread.start()
    thread.join(5)
    with pytest.raises(errors.DrainTimeout, match="9 messages"):
        nc.drain(timeout=0.3)
    assert sorted(int(message.data) for message in consumer.fetch(9, timeout=5)) == list(range(1, 10))
    js.delete_stream("L")


@pytest.mark.parametrize("end", ["close", "drain"])
def test_what_a_fetch_holds_goes_back(server: NatsServer, other: jsclient.Connection, end: str) -> None:
    """It waits for more, and acks of what it has could not be sent any more."""
    js = JetStream(other)
    js.create_stream(StreamConfig(name="L", subjects=["l"], storage="memory"))
    for number in range(10):
        js.publish("l", b"%d" % number)
    consumer = js.create_consumer("L", ConsumerConfig(durable_name="C"))
    nc = jsclient.connect(server.url)
    mine = JetStream(nc).consumer("L", "C")
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def fetch() -> None:
        try:
            ended.put(mine.fetch(20, timeout=30))
        except errors.JsClientError as error:
            ended.put(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    wait_until(lambda: consumer.info().num_pending == 0, 5)
    nc.flush()
    (nc.close if end == "close" else nc.drain)()
    assert isinstance(ended.get(timeout=5), errors.ConnectionClosed)
    thread.join(5)
    assert len({message.data for message in consumer.fetch(10, timeout=5)}) == 10
    js.delete_stream("L")


def test_the_interpreter_exits(server: NatsServer, other: jsclient.Connection) -> None:
    """What waits in the process goes back at once; only what handlers had in hand waits for ack_wait."""
    js = JetStream(other)
    js.create_stream(StreamConfig(name="X", subjects=["x"], storage="memory"))
    for number in range(10):
        js.publish("x", b"%d" % number)
    names = ["consume", "messages", "pool", "push"]
    script = """
        import sys, threading, jsclient
        from jsclient.jetstream import ConsumerConfig, JetStream
        from jsclient.workers import WorkerPool
        js = JetStream(jsclient.connect(sys.argv[1]))
        begun, never = threading.Semaphore(0), threading.Event()
        def handler(message):
            begun.release()
            never.wait()
        def made(name):
            return js.create_consumer("X", ConsumerConfig(durable_name=name, ack_wait=60.0))
        config = ConsumerConfig(durable_name="push", ack_wait=60.0, deliver_subject=js.nc.new_inbox())
        running = [made("consume").consume(handler), js.create_push_consumer("X", config).consume(handler),
                   WorkerPool(made("pool"), handler, threads=1)]
        messages = made("messages").messages()
        messages.next()
        for _ in running:
            assert begun.acquire(timeout=10)
        js.nc.flush()
    """
    done = subprocess.run(
        [*strict.PYTHON, "-c", textwrap.dedent(script), server.url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for name in names[:3]:
        messages = js.consumer("X", name).fetch(9, timeout=5)
        assert sorted(int(message.data) for message in messages) == list(range(1, 10)), name
    with js.push_consumer("X", "push").messages() as pushed:
        assert {int(pushed.next(timeout=5).data) for _ in range(9)} == set(range(1, 10))
    js.delete_stream("X")


# --- services ---------------------------------------------------------------------------------------------------


def test_a_drain_waits_for_the_requests_of_a_service(server: NatsServer, other: jsclient.Connection) -> None:
    nc = jsclient.connect(server.url)
    started, release = threading.Event(), threading.Event()
    service = add_service(nc, CONFIG)

    def handler(request: Any) -> None:
        started.set()
        release.wait(20)
        request.respond(request.data)

    service.add_endpoint("echo", handler)
    asked = [engine_of(other).open_inbox() for _ in range(5)]
    for number, inbox in enumerate(asked):
        other.publish("echo", b"%d" % number, reply=inbox.subject)
    other.flush()
    assert started.wait(5)
    threading.Timer(0.1, release.set).start()
    nc.drain(timeout=10)
    assert [inbox.next(5).data for inbox in asked] == [b"0", b"1", b"2", b"3", b"4"]  # type: ignore[union-attr]
    assert service.wait(timeout=5)
    assert service.error is None


def test_no_handler_of_a_service_begins_after_close(server: NatsServer, other: jsclient.Connection) -> None:
    nc = jsclient.connect(server.url)
    begun: list[bytes] = []
    started, release = threading.Event(), threading.Event()
    service = add_service(nc, CONFIG)

    def handler(request: Any) -> None:
        begun.append(request.data)
        started.set()
        release.wait(20)

    endpoint = service.add_endpoint("echo", handler)
    for _ in range(5):
        other.publish("echo", b"x")
    other.flush()
    assert started.wait(5)
    subscription: Any = endpoint._subscription
    wait_until(lambda: subscription.pending == 4, 5)
    nc.close()
    release.set()
    for thread in endpoint._threads:
        thread.join(5)
    assert begun == [b"x"]
    assert service.wait(timeout=5), "the application closed it itself"


def test_sys_exit_in_an_endpoint_is_an_error_for_the_caller(server: NatsServer, other: jsclient.Connection) -> None:
    with jsclient.connect(server.url) as nc, add_service(nc, CONFIG) as service:

        def handler(request: Any) -> None:
            if request.data == b"exit":
                raise SystemExit(3)
            request.respond(b"here")

        endpoint = service.add_endpoint("exit", handler)
        assert other.request("exit", b"exit").headers["Nats-Service-Error-Code"] == "500"
        assert other.request("exit", b"").data == b"here"
        assert endpoint.stats().num_errors == 1


# --- threads that cannot be had ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["consume", "pool", "endpoint"])
def test_a_start_that_gets_too_few_threads_leaves_nothing_running(
    server: NatsServer, other: jsclient.Connection, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It raised a bare RuntimeError while two workers went on, with no handle to stop them."""
    js = JetStream(other)
    js.create_stream(StreamConfig(name="T", subjects=["t"], storage="memory"))
    consumer = js.create_consumer("T", ConsumerConfig(durable_name="C", max_ack_pending=100))
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("jsclient-worker-") and "-release" not in thread.name:
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    service = add_service(other, CONFIG)
    begin: dict[str, Callable[[], Any]] = {
        "consume": lambda: consumer.consume(lambda message: None, workers=4),
        "pool": lambda: WorkerPool(consumer, lambda message: None, threads=4),
        "endpoint": lambda: service.add_endpoint("many", lambda request: None, workers=4),
    }
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(errors.NoThread, match="4 threads and got 2") as raised:
            begin[what]()
    assert isinstance(raised.value, RuntimeError)
    for thread in started:
        thread.join(5)
        assert not thread.is_alive()
    assert service.info().endpoints == []
    other.flush()
    assert consumer.info().num_waiting == 0
    js.publish("t", b"later")
    assert consumer.next(timeout=5).metadata.num_delivered == 1
    service.stop()
    js.delete_stream("T")


# --- an end that is told ----------------------------------------------------------------------------------------

USERS = """
accounts: { A: { jetstream: enabled, users: [
  { user: admin, password: a }
  { user: app, password: "%s", permissions: { subscribe: { deny: "refused.>" } } }
] } }
"""


@pytest.fixture
def guarded() -> Iterator[NatsServer]:
    with NatsServer(config=USERS % "p") as running:
        yield running


def test_an_endpoint_that_the_server_refuses(guarded: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    """Its worker died through threading.excepthook, and INFO listed it as if it served."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with (
        jsclient.connect(guarded.url, user="app", password="p", on_error=lambda _, error, sub: told.put(error)) as nc,
        add_service(nc, CONFIG) as service,
    ):
        service.add_endpoint("good", lambda request: request.respond(b""))
        with pytest.raises(errors.PermissionViolation):
            service.add_endpoint("bad", lambda request: None, subject="refused.bad")
        assert isinstance(told.get(timeout=5), errors.PermissionViolation)
        assert [endpoint.name for endpoint in service.info().endpoints] == ["good"]
        assert nc.request("good").data == b""


def test_an_endpoint_that_is_refused_on_a_later_link(guarded: NatsServer) -> None:
    with (
        jsclient.connect(guarded.url, user="app", password="p", reconnect=FAST, on_error=lambda *told: None) as nc,
        add_service(nc, CONFIG) as service,
    ):
        endpoint = service.add_endpoint("later", lambda request: None, subject="later.x")
        guarded.reload((USERS % "p").replace("refused.>", "later.>"))
        wait_until(lambda: endpoint.error, 10)
        assert isinstance(endpoint.error, errors.PermissionViolation)
        assert service.info().endpoints == []
        assert endpoint.stats().num_errors == 1
        assert "later.x" in endpoint.stats().last_error


@pytest.mark.slow
def test_a_revoked_password_ends_everything_with_its_reason(guarded: NatsServer) -> None:
    """`wait` returned True, `error` was None, nothing reached `on_error`, and the service exited with 0."""
    with jsclient.connect(guarded.url, user="admin", password="a") as admin:
        js = JetStream(admin)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        nc = jsclient.connect(guarded.url, user="app", password="p", reconnect=FAST)
        mine = JetStream(nc)
        told: list[BaseException] = []
        push = ConsumerConfig(durable_name="P", deliver_subject=nc.new_inbox())
        endings: dict[str, Any] = {
            "consume": mine.create_consumer("S", ConsumerConfig(durable_name="C")).consume(print, on_error=told.append),
            "ordered": mine.ordered_consumer("S").consume(print, on_error=told.append),
            "push": mine.create_push_consumer("S", push).consume(print, on_error=told.append),
            "pool": WorkerPool(mine.create_consumer("S", ConsumerConfig(durable_name="W")), print),
            "service": add_service(nc, CONFIG),
        }
        guarded.reload(USERS % "another")
        for name, ending in endings.items():
            with pytest.raises(errors.AuthError):
                ending.wait(timeout=20)
            assert isinstance(ending.error, errors.AuthError), name
        wait_until(lambda: len(told) == 3, 5)
        assert {type(error) for error in told} == {type(endings["consume"].error)}
        with pytest.raises(errors.AuthError):
            endings["pool"].run_until_signal()
        with pytest.raises(errors.ConnectionClosed) as closed:
            nc.publish("x")
        assert isinstance(closed.value.reason, errors.AuthError)
        nc.close()


# --- a drain that a handler asks for ------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["consume", "pool", "endpoint"])
def test_a_handler_may_drain_its_connection(server: NatsServer, other: jsclient.Connection, what: str) -> None:
    """It is not waited for there: it waits for that handler, and its ack or answer still goes out."""
    js = JetStream(other)
    js.create_stream(StreamConfig(name="H", subjects=["h"], storage="memory"))
    consumer = js.create_consumer("H", ConsumerConfig(durable_name="C", ack_wait=60.0))
    nc = jsclient.connect(server.url)
    begun = time.monotonic()

    def handler(message: Any) -> None:
        nc.drain(timeout=20)
        wait_until(lambda: nc.is_draining, 5)
        if what == "endpoint":
            message.respond(b"answer")
        elif what == "consume":
            message.ack()

    if what == "endpoint":
        add_service(nc, CONFIG).add_endpoint("drains", handler)
        assert other.request("drains").data == b"answer"
    else:
        for _ in range(3):
            js.publish("h", b"")
        mine = JetStream(nc).consumer("H", "C")
        running = mine.consume(handler) if what == "consume" else WorkerPool(mine, handler, threads=1)
        assert running.wait(timeout=10)
        wait_until(lambda: consumer.info().ack_floor.stream_seq >= (3 if what == "consume" else 1), 5)
        if what == "pool":
            assert len(consumer.fetch(2, timeout=5)) == 2
    wait_until(lambda: nc.closed, 10)
    assert time.monotonic() - begun < 8
    js.delete_stream("H")
