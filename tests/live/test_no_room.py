"""A server that has no room for another subscription: what needs one learns it at once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, services
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import FakeClient, FakeServer, NatsServer

LIMIT = 4


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer(f"max_subscriptions: {LIMIT}\n") as running:
        with jsclient.connect(running.url) as nc:
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
            js.create_consumer("S", ConsumerConfig(durable_name="C"))
            js.publish("s.a", b"x")
        yield running


def full(nc: jsclient.Connection, room: int = 0) -> list[jsclient.Subscription]:
    """All but so many places are taken."""
    taken = [nc.subscribe(f"taken.{number}") for number in range(LIMIT - room)]
    nc.flush()
    return taken


def service(nc: jsclient.Connection) -> None:
    with services.add_service(nc, services.ServiceConfig(name="full", version="1.0.0")) as made:
        made.add_endpoint("full", lambda request: request.respond(b""))


def consume(nc: jsclient.Connection) -> None:
    with JetStream(nc).consumer("S", "C", fetch_info=False).consume(lambda message: message.ack()) as running:
        running.wait(timeout=20)


DOORS: dict[str, Callable[[jsclient.Connection], Any]] = {
    "next": lambda nc: nc.subscribe("another").next(timeout=20),
    "request": lambda nc: nc.request("nobody", timeout=20),
    "request_many": lambda nc: list(nc.request_many("nobody", timeout=20)),
    "JetStream API": lambda nc: JetStream(nc).consumer_info("S", "C"),
    "fetch": lambda nc: list(JetStream(nc).consumer("S", "C", fetch_info=False).fetch(1, timeout=20)),
    "consume": consume,
    "publish_async": lambda nc: JetStream(nc).publish_async("s.a", b"x").result(20),
    "service": service,
}


@pytest.mark.parametrize("door", DOORS)
def test_what_needs_another_subscription_is_told_at_once(server: NatsServer, door: str) -> None:
    with jsclient.connect(server.url, on_error=lambda *_: None) as nc:
        held = full(nc)
        start = time.monotonic()
        with pytest.raises(errors.MaxSubscriptionsExceeded):
            DOORS[door](nc)
        assert time.monotonic() - start < 5
        assert len(held) == LIMIT


def test_publishes_and_requests_work_again_once_there_is_room(server: NatsServer) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with jsclient.connect(server.url, on_error=lambda _, error, sub: told.put((error, sub))) as nc:
        taken = full(nc)
        js = JetStream(nc)
        for options in ({}, {"msg_id": "an-id"}):
            start = time.monotonic()
            with pytest.raises(errors.PublishUnknown, match="refused the inbox"):
                js.publish("s.a", b"x", timeout=20, **options)  # type: ignore[arg-type]
            assert time.monotonic() - start < 5
        error, subscription = told.get(timeout=20)
        assert isinstance(error, errors.MaxSubscriptionsExceeded)
        assert subscription.subject.startswith("_INBOX.")
        taken.pop().close()
        assert js.publish("s.a", b"x", timeout=20).seq > 1
        assert nc.stats().reconnects == 0
        for sub in taken:  # they were there before, and are not taken for the refused ones
            nc.publish(sub.subject, b"y")
            assert sub.next(timeout=20).data == b"y"


def test_of_many_that_are_made_at_once_the_last_ones_are_refused(server: NatsServer) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with jsclient.connect(server.url, on_error=lambda _, error, sub: told.put(sub)) as nc:
        made = [nc.subscribe(f"many.{number}") for number in range(3 * LIMIT)]
        nc.flush()
        assert [sub.closed for sub in made] == [False] * LIMIT + [True] * (2 * LIMIT)
        assert {told.get(timeout=20) for _ in range(2 * LIMIT)} == set(made[LIMIT:])
        for sub in made[:LIMIT]:
            nc.publish(sub.subject, b"z")
            assert sub.next(timeout=20).data == b"z"


def test_a_request_inbox_that_may_be_the_refused_one_is_replaced() -> None:
    """A subscription that has ended in between made room: no one can tell which ones were refused."""

    def script(client: FakeClient) -> None:
        client.handshake()
        client.expect(b"ask")
        client.send(b"-ERR 'Maximum Subscriptions Exceeded'\r\n" * 2)
        client.expect(b"PING\r\n")
        client.send(b"PONG\r\n")
        client.expect(b"SUB _INBOX.")
        client.hold()

    with FakeServer(script) as fake, jsclient.connect(fake.url, on_error=lambda *_: None) as nc:
        nc.subscribe("short").close()
        with pytest.raises(errors.MaxSubscriptionsExceeded, match="may have refused"):
            nc.request("ask", timeout=20)
        with pytest.raises(errors.RequestTimeout):
            nc.request("again", timeout=0.2)
