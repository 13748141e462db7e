"""Permission errors reach the call that waits, and on_error."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer

CONFIG = """
accounts: { A: { users: [
  { user: all, password: x }
  { user: some, password: x, permissions: {
      publish: { deny: ["no.>"] }, subscribe: { deny: ["secret.>", "shared.* q1"] } } }
  { user: noinbox, password: x, permissions: { publish: ">", subscribe: { deny: "_INBOX.>" } } }
  { user: prefixed, password: x, permissions: {
      publish: ">", subscribe: { allow: ["_INBOX.mine.>", "open.>"] } } }
] } }
"""


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer(CONFIG, jetstream=False) as running:
        yield running


@pytest.fixture
def told() -> queue.SimpleQueue[Any]:
    return queue.SimpleQueue()


def user(server: NatsServer, name: str, told: queue.SimpleQueue[Any] | None = None, **options: Any) -> Any:
    if told is not None:
        options["on_error"] = lambda _, error, sub: told.put((error, sub))
    return jsclient.connect(f"nats://{name}:x@127.0.0.1:{server.port}", **options)


def test_subscribing_where_it_is_denied(server: NatsServer, told: queue.SimpleQueue[Any]) -> None:
    with user(server, "some", told) as nc:
        sub = nc.subscribe("secret.plans")
        with pytest.raises(errors.PermissionViolation) as caught:
            sub.next(timeout=5)
        assert (caught.value.subject, caught.value.operation) == ("secret.plans", "subscribe")
        error, which = told.get(timeout=5)
        assert isinstance(error, errors.PermissionViolation)
        assert which is sub
        with pytest.raises(errors.PermissionViolation):
            list(nc.subscribe("secret.>"))
        with pytest.raises(errors.PermissionViolation):
            engine_of(nc).open_inbox("secret.inbox").next(5)
        assert nc.stats().subscriptions == 0
        assert nc.stats().reconnects == 0


def test_only_the_refused_one_of_several_subscriptions_fails(server: NatsServer) -> None:
    with user(server, "some") as nc:
        good, bad, grouped = nc.subscribe("open.a"), nc.subscribe("secret.a"), nc.subscribe("shared.a", queue="q2")
        with pytest.raises(errors.PermissionViolation):
            bad.next(timeout=5)
        with pytest.raises(errors.PermissionViolation):
            nc.subscribe("shared.a", queue="q1").next(timeout=5)
        nc.publish("open.a", b"1")
        nc.publish("shared.a", b"2")
        assert good.next(timeout=5).data == b"1"
        assert grouped.next(timeout=5).data == b"2"


def test_publishing_where_it_is_denied(server: NatsServer, told: queue.SimpleQueue[Any]) -> None:
    with user(server, "some", told) as nc:
        nc.publish("no.way", b"x")
        nc.flush()
        error, which = told.get(timeout=5)
        assert isinstance(error, errors.PermissionViolation)
        assert (error.subject, error.operation, which) == ("no.way", "publish", None)


def test_a_request_that_may_not_be_published_fails_at_once(server: NatsServer) -> None:
    with user(server, "some") as nc:
        start = time.monotonic()
        with pytest.raises(errors.PermissionViolation) as caught:
            nc.request("no.way", timeout=30)
        assert caught.value.subject == "no.way"
        with pytest.raises(errors.PermissionViolation):
            list(nc.request_many("no.way", timeout=30))
        assert time.monotonic() - start < 2


def test_a_denied_inbox_fails_the_request_at_once(server: NatsServer) -> None:
    with user(server, "noinbox") as nc, user(server, "all") as other:
        other.subscribe("ask", lambda message: message.respond(b"x"))
        other.flush()
        start = time.monotonic()
        for _ in range(3):
            with pytest.raises(errors.PermissionViolation) as caught:
                nc.request("ask", timeout=30)
            assert caught.value.subject.startswith("_INBOX.")
        assert time.monotonic() - start < 2


def test_a_denied_inbox_fails_an_async_publish_at_once(server: NatsServer) -> None:
    """No ack could ever come; and every attempt asks for the inbox again."""
    with user(server, "noinbox") as nc:
        js = JetStream(nc)
        start = time.monotonic()
        for _ in range(3):
            with pytest.raises(errors.PermissionViolation, match="_INBOX"):
                js.publish_async("some.subject", b"x")
        assert js.publish_async_pending() == 0
        assert time.monotonic() - start < 2


def test_a_permitted_inbox_prefix_works(server: NatsServer) -> None:
    with user(server, "prefixed", inbox_prefix="_INBOX.mine") as nc, user(server, "all") as other:
        other.subscribe("ask", lambda message: message.respond(b"x"))
        other.flush()
        assert nc.request("ask").data == b"x"
        assert [message.data for message in nc.request_many("ask", max_messages=1)] == [b"x"]


def test_other_calls_of_the_same_connection_go_on(server: NatsServer) -> None:
    with user(server, "some") as nc, user(server, "all") as other:
        asked = other.subscribe("open.ask")
        other.subscribe("open.ask", lambda message: (nc.publish("no.x", b""), nc.flush(), message.respond(b"fine")))
        other.flush()
        assert nc.request("open.ask", timeout=10).data == b"fine"
        assert asked.next(timeout=5)


def test_requests_whose_inbox_is_refused_leave_nothing(server: NatsServer, told: queue.SimpleQueue[Any]) -> None:
    """Each opens an inbox of its own; the number of every one of them was kept."""
    with user(server, "noinbox", told) as nc:
        for _ in range(20):
            with pytest.raises(errors.PermissionViolation):
                nc.request("anything", timeout=5)
        engine: Any = engine_of(nc)
        assert len(engine.requests.sids) == 1
        assert nc.stats().subscriptions == 0


@pytest.mark.parametrize("slow", ["open_sink", "_open_inbox"])
def test_an_inbox_that_is_denied_before_the_request_waits(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """The server's refusal overtakes the request that made the inbox."""
    refused = threading.Event()
    with user(server, "noinbox", on_error=lambda *args: refused.set()) as nc:
        owner: Any = engine_of(nc) if slow == "open_sink" else engine_of(nc).requests
        real = getattr(owner, slow)

        def late(*args: Any) -> Any:
            made = real(*args)
            assert refused.wait(5)
            return made

        monkeypatch.setattr(owner, slow, late)
        for _ in range(2):
            with pytest.raises(errors.PermissionViolation):
                nc.request("anything", timeout=2)
            with pytest.raises(errors.PermissionViolation):
                list(nc.request_many("anything", timeout=2))
        assert not engine_of(nc).requests.waiting
