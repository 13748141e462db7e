"""What becomes of a connection that the program drops without `close`, and what keeps one that is in use."""

from __future__ import annotations

import gc
import queue
import subprocess
import sys
import textwrap
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.coordination import Lock, lease_bucket
from jsclient.instruments import Instrumentation, Operation
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.jetstream.advisories import StreamAction
from jsclient.keyvalue import create_key_value, key_value
from jsclient.objectstore import create_object_store, object_store
from jsclient.services import ServiceConfig, add_service
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import WorkerPool

Caught = list[warnings.WarningMessage]


@pytest.fixture
def caught() -> Iterator[Caught]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        yield found


@pytest.fixture(scope="module", autouse=True)
def quick_collector() -> Iterator[None]:
    """What earlier tests have left is not looked at each time: a collection took up to a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def stored(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        js.create_consumer("S", ConsumerConfig(durable_name="C"))
        create_key_value(js, bucket="B")
        lease_bucket(js, "L")
        create_object_store(js, bucket="O")
        for number in range(300):
            js.publish_async(f"s.{number % 3}", b"x")
        js.publish_async_complete(10)


def unclosed(caught: Caught, number: int | str = "") -> list[str]:
    start = f"unclosed <jsclient.Connection {number}".rstrip() + " " * bool(number)
    return [str(one.message) for one in caught if str(one.message).startswith(start)]


def test_a_dropped_connection_warns_sends_what_is_buffered_and_is_closed(server: NatsServer, caught: Caught) -> None:
    with jsclient.connect(server.url) as other, other.subscribe("last.words") as heard:
        other.flush()
        ends: queue.Queue[jsclient.Connection] = queue.Queue()
        nc = jsclient.connect(server.url, on_closed=lambda nc: ends.put(nc))
        engine = engine_of(nc)
        nc.publish("last.words", b"bye")
        del nc
        gc.collect()
        assert heard.next(5).data == b"bye"
        wait_until(lambda: engine.session.closed.is_set(), 5)
        assert ends.get(timeout=5).closed
    (found,) = [one for one in caught if one.category is ResourceWarning]
    assert "call close(), or use a with block" in str(found.message)
    assert found.filename == __file__  # where it was dropped


def closed(nc: jsclient.Connection) -> None:
    nc.close()


def closed_without_waiting(nc: jsclient.Connection) -> None:
    nc.close(wait=False)


def drained_without_waiting(nc: jsclient.Connection) -> None:
    nc.drain(wait=False)


def left(nc: jsclient.Connection) -> None:
    with nc:
        pass


@pytest.mark.parametrize("end", [closed, closed_without_waiting, drained_without_waiting, left])
def test_one_that_was_ended_does_not_warn(server: NatsServer, caught: Caught, end: Callable[[Any], None]) -> None:
    nc = jsclient.connect(server.url)
    engine = engine_of(nc)
    end(nc)
    del nc
    gc.collect()
    wait_until(lambda: engine.session.closed.is_set(), 5)
    assert unclosed(caught, engine.number) == []


def test_one_that_never_connected_does_not_warn(caught: Caught) -> None:
    with pytest.raises(jsclient.errors.NatsConnectionError):
        jsclient.connect("nats://127.0.0.1:1", connect_timeout=0.2)
    jsclient.Connection(jsclient.ConnectOptions())
    gc.collect()
    assert unclosed(caught) == []


def one_of(iterator: Any) -> Any:
    """It has begun."""
    next(iterator)
    return iterator


def core_message(nc: jsclient.Connection) -> jsclient.Msg:
    with nc.subscribe("m") as messages:
        nc.publish("m", reply="back")
        return messages.next(5)


def fetched(nc: jsclient.Connection) -> Any:
    return nc.jetstream().consumer("S", "C").fetch(2)[0]


HELD: dict[str, tuple[Callable[[jsclient.Connection], Any], Callable[[Any], object]]] = {
    "JetStream": (JetStream, lambda js: js.account_info()),
    "publish": (lambda nc: nc.jetstream().publish, lambda publish: publish("s.0", b"x")),
    "Stream": (lambda nc: nc.jetstream().stream("S"), lambda stream: stream.info()),
    "Consumer": (lambda nc: nc.jetstream().consumer("S", "C"), lambda consumer: consumer.fetch(1)[0].ack()),
    "Messages": (lambda nc: one_of(nc.jetstream().consumer("S", "C").messages()), lambda taken: next(taken).ack()),
    "a fetched message": (fetched, lambda message: message.double_ack()),
    "an ordered consumer": (lambda nc: nc.jetstream().ordered_consumer("S"), lambda ordered: ordered.next(5)),
    "KeyValue": (lambda nc: key_value(nc.jetstream(), "B"), lambda kv: kv.put("k", b"v")),
    "a watch": (lambda nc: key_value(nc.jetstream(), "B").watch(), lambda watch: next(iter(watch))),
    "a lock": (lambda nc: Lock(key_value(nc.jetstream(), "L"), "l"), lambda lock: lock.acquire().release()),
    "ObjectStore": (lambda nc: object_store(nc.jetstream(), "O"), lambda store: store.status()),
    "a message": (core_message, lambda message: message.respond(b"x")),
    "answers": (lambda nc: nc.request_many("$JS.API.INFO", max_messages=2), next),
    "a reply": (
        lambda nc: nc.request("$JS.API.INFO"),
        lambda reply: reply.connection.publish("m"),
    ),
    "events": (lambda nc: nc.events(), lambda events: events.closed),
}


#: Each takes two seconds: most of them are for the full tier.
SOON = ("JetStream", "KeyValue", "a message")


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in HELD]
)
def test_what_is_in_use_keeps_its_connection(server: NatsServer, caught: Caught, name: str) -> None:
    make, use = HELD[name]
    nc = jsclient.connect(server.url)
    known, engine = weakref.ref(nc), engine_of(nc)
    held = make(nc)
    del nc
    gc.collect()
    assert known() is not None
    use(held)
    gc.collect()
    assert not engine.closed
    del held

    def gone() -> bool:
        gc.collect()
        return engine.session.closed.wait(0.5)

    wait_until(gone, 30)
    assert len(unclosed(caught, engine.number)) == 1


def callback(nc: jsclient.Connection) -> None:
    nc.subscribe("still.here", lambda message: message.respond(b"yes"))


def service(nc: jsclient.Connection) -> None:
    group = add_service(nc, ServiceConfig(name="svc", version="1.0.0"))
    group.add_endpoint("still", lambda request: request.respond(b"yes"), subject="still.here")


def consume(nc: jsclient.Connection) -> None:
    js = nc.jetstream()
    js.create_consumer("S", ConsumerConfig(durable_name="K", deliver_policy="new"))
    js.consumer("S", "K").consume(lambda message: nc.publish(message.data.decode(), b"yes"))


def pool(nc: jsclient.Connection) -> None:
    js = nc.jetstream()
    js.create_consumer("S", ConsumerConfig(durable_name="W", deliver_policy="new"))
    WorkerPool(js.consumer("S", "W"), lambda message: nc.publish(message.data.decode(), b"yes"))


@pytest.mark.parametrize("handle", [callback, service, consume, pool])
def test_what_has_a_handler_keeps_its_connection_until_it_ends(
    server: NatsServer, caught: Caught, handle: Callable[[Any], None]
) -> None:
    nc = jsclient.connect(server.url)
    known = weakref.ref(nc)
    handle(nc)
    nc.flush()
    del nc
    gc.collect()
    with jsclient.connect(server.url) as other:
        if handle in (callback, service):
            assert other.request("still.here", timeout=5).data == b"yes"
        else:
            with other.subscribe("done") as done:
                other.flush()
                other.jetstream().publish("s.new", b"done")
                assert done.next(5).data == b"yes"
    found = known()
    assert found is not None
    assert unclosed(caught, engine_of(found).number) == []
    found.close()


def run(server: NatsServer, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", textwrap.dedent(script), server.url],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "script",
    [
        "import sys, jsclient\nwith jsclient.connect(sys.argv[1]) as nc: nc.flush()",
        "import sys, jsclient\nnc = jsclient.connect(sys.argv[1]); nc.publish('a')",  # the exit closes it
        """
        import gc, os, sys, jsclient
        with jsclient.connect(sys.argv[1]) as nc:
            child = os.fork()
            if not child:
                del nc
                gc.collect()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            nc.flush()
        """,
    ],
    ids=["with", "exit", "fork"],
)
def test_exits_and_forks_do_not_warn(server: NatsServer, script: str) -> None:
    assert "unclosed" not in run(server, script)


def test_dropped_events_are_collected(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        known = weakref.ref(nc.events())
        gc.collect()
        assert known() is None
        nc.force_reconnect()
        wait_until(lambda: nc.is_connected, 5)


def table(nc: jsclient.Connection) -> int:
    return nc.stats().subscriptions


class Silent(Instrumentation):
    def begin(self, operation: Operation) -> Any:
        return None


@pytest.mark.parametrize("instrumentation", [None, Silent()], ids=["plain", "instrumented"])
def test_a_dropped_subscription_unsubscribes(server: NatsServer, instrumentation: Instrumentation | None) -> None:
    with jsclient.connect(server.url, instrumentation=instrumentation) as nc:
        before = table(nc)
        sub = nc.subscribe("dropped")
        nc.publish("dropped", b"1")
        assert sub.next(5).data == b"1"
        nc.publish("dropped", b"2")
        nc.publish("dropped", b"3")
        for message in sub:
            assert message.data == b"2"
            break
        assert table(nc) == before + 1
        del sub
        wait_until(lambda: table(nc) == before, 5)
        nc.flush()
        with pytest.raises(errors.NoResponders), jsclient.connect(server.url) as other:
            other.request("dropped", b"", timeout=5)


def test_a_dropped_subscription_with_a_callback_goes_on(server: NatsServer) -> None:
    got: queue.Queue[bytes] = queue.Queue()
    with jsclient.connect(server.url) as nc:
        nc.subscribe("called", lambda message: got.put(message.data))
        gc.collect()
        nc.publish("called", b"x")
        assert got.get(timeout=5) == b"x"


def test_what_takes_from_a_subscription_keeps_it(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        before = table(nc)
        take = nc.subscribe("kept").next
        messages = iter(nc.subscribe("kept"))
        gc.collect()
        nc.publish("kept", b"x")
        assert take(5).data == next(messages).data == b"x"
        del take, messages
        wait_until(lambda: table(nc) == before, 5)


def test_dropped_advisories_unsubscribe(server: NatsServer) -> None:
    got: queue.Queue[Any] = queue.Queue()
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream()
        js.account_info()  # opens the inbox of requests
        before = table(nc)
        advisories = js.advisories(StreamAction)
        js.advisories(StreamAction, callback=got.put)
        js.create_stream(StreamConfig(name="A", subjects=["a.>"], storage="memory"))
        assert advisories.next(5).stream == "A"
        del advisories
        wait_until(lambda: table(nc) == before + 1, 5)
        gc.collect()
        js.delete_stream("A")
        assert [got.get(timeout=5).action for _ in range(2)] == ["create", "delete"]


def test_events_name_the_subscription_that_the_program_holds(server: NatsServer) -> None:
    told: queue.Queue[Any] = queue.Queue()
    with jsclient.connect(server.url, on_error=lambda nc, error, sub: told.put(sub)) as nc:
        sub = nc.subscribe("slow", pending_messages=1)
        for _ in range(3):
            nc.publish("slow", b"x")
        assert told.get(timeout=5) is sub
        sub.when_closed(told.put)
        sub.close()
        assert told.get(timeout=5) is sub


def test_a_subscription_that_is_dropped_while_it_is_told_of_is_named(server: NatsServer) -> None:
    """Its error is told on another thread, when it may be gone."""
    told: queue.Queue[Any] = queue.Queue()
    with jsclient.connect(server.url, on_error=lambda nc, error, sub: told.put(sub.subject)) as nc:
        before = table(nc)
        sub = nc.subscribe("gone", pending_messages=1)
        with jsclient.connect(server.url) as other:
            for _ in range(3):
                other.publish("gone", b"x")
            del sub
        assert told.empty() or told.get(timeout=5) == "gone"
        wait_until(lambda: table(nc) == before, 5)


def test_subscriptions_that_the_garbage_collector_takes_unsubscribe(server: NatsServer) -> None:
    """Each in a circle, so that their finalizers run wherever the collector does."""
    with jsclient.connect(server.url) as nc:
        before = table(nc)
        for number in range(500):
            circle: list[Any] = [nc.subscribe(f"circle.{number}")]
            circle.append(circle)
        del circle
        gc.collect()
        wait_until(lambda: table(nc) == before, 10)
        assert nc.is_connected
