"""Core NATS against a real server: headers, wildcards, queues, requests, options of CONNECT, permissions, counters."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.sockets import ProxySocket

import jsclient
from jsclient import ConnectionState, errors
from jsclient.connection import engine_of
from jsclient.testing import NatsServer


@pytest.fixture
def nc(server: NatsServer) -> Iterator[jsclient.Connection]:
    with jsclient.connect(server.url, name="core") as connection:
        yield connection


def take(subscription: jsclient.Subscription) -> list[bytes]:
    return [subscription.next(timeout=0).data for _ in range(subscription.pending)]


# --- messages


@pytest.mark.parametrize("payload", [b"", b"\r\n", b"MSG a 1 1\r\nx\r\n", bytes(range(256)), "text é", b"x" * 1048576])
def test_payloads_round_trip(nc: jsclient.Connection, payload: bytes | str) -> None:
    subscription = nc.subscribe("payload")
    nc.publish("payload", payload)
    expected = payload.encode() if isinstance(payload, str) else payload
    message = subscription.next(timeout=10)
    assert message.data == expected
    assert (message.subject, message.reply, dict(message.headers)) == ("payload", "", {})


def test_headers_keep_case_order_and_repeats(nc: jsclient.Connection) -> None:
    subscription = nc.subscribe("headers")
    sent = jsclient.Headers([("Key", "one"), ("key", "two"), ("Key", "three"), ("Empty", ""), ("Text", "żółw")])
    nc.publish("headers", b"x", headers=sent, reply="answer.here")
    message = subscription.next(timeout=5)
    assert message.headers == sent
    assert message.headers is not None
    assert message.headers["Key"] == "one"
    assert message.headers.get_all("Key") == ["one", "three"]
    assert message.headers["key"] == "two"
    assert message.reply == "answer.here"
    assert message.status is None


def test_a_header_called_status_is_no_status(nc: jsclient.Connection) -> None:
    subscription = nc.subscribe("forged")
    nc.publish("forged", b"", headers={"Status": "503"})
    assert subscription.next(timeout=5).status is None


@pytest.mark.parametrize(
    ("pattern", "subjects", "expected"),
    [
        ("w.*", ["w.a", "w.b", "w.a.b", "w"], [b"w.a", b"w.b"]),
        ("w.>", ["w.a", "w.a.b", "w"], [b"w.a", b"w.a.b"]),
        ("w.*.c", ["w.a.c", "w.c", "w.a.b"], [b"w.a.c"]),
    ],
)
def test_wildcards(nc: jsclient.Connection, pattern: str, subjects: list[str], expected: list[bytes]) -> None:
    with nc.subscribe(pattern) as subscription:
        for subject in subjects:
            nc.publish(subject, subject)
        nc.flush()
        assert take(subscription) == expected


def test_unsubscribe_after_what_was_received(nc: jsclient.Connection) -> None:
    subscription = nc.subscribe("later")
    nc.publish("later", b"0")
    subscription.next(timeout=5)
    subscription.unsubscribe(max_messages=3)
    for number in range(1, 6):
        nc.publish("later", b"%d" % number)
    nc.flush()
    assert [message.data for message in subscription] == [b"1", b"2"]


# --- requests


def test_request(nc: jsclient.Connection) -> None:
    nc.subscribe("add", lambda message: message.respond(message.data + b"!", headers={"A": "b"}))
    reply = nc.request("add", b"hello", headers={"X": "y"})
    assert reply.data == b"hello!"
    assert reply.headers is not None
    assert reply.headers["A"] == "b"


def test_no_responders_and_timeouts(nc: jsclient.Connection) -> None:
    started = time.monotonic()
    with pytest.raises(errors.NoResponders) as caught:
        nc.request("nobody", timeout=5)
    assert caught.value.subject == "nobody"
    assert time.monotonic() - started < 1
    nc.subscribe("silent", lambda message: None)
    with pytest.raises(errors.RequestTimeout):
        nc.request("silent", timeout=0.1)
    with pytest.raises(ValueError, match="timeout"):
        nc.request("silent", timeout=-1)


def test_a_late_reply_reaches_nobody(nc: jsclient.Connection) -> None:
    asked: queue.SimpleQueue[jsclient.Msg] = queue.SimpleQueue()
    nc.subscribe("late", asked.put)
    with pytest.raises(errors.RequestTimeout):
        nc.request("late", b"first", timeout=0.1)
    first = asked.get(timeout=5)
    nc.subscribe("quick", lambda message: message.respond(b"quick"))
    first.respond(b"too late")
    assert nc.request("quick", timeout=5).data == b"quick"


def test_request_many(nc: jsclient.Connection) -> None:
    def answer(message: jsclient.Msg) -> None:
        for number in range(5):
            message.respond(b"%d" % number)
        message.respond(b"")

    nc.subscribe("many", answer)
    by_count = [message.data for message in nc.request_many("many", max_messages=3)]
    by_sentinel = [message.data for message in nc.request_many("many", sentinel=jsclient.empty_payload)]
    by_stall = [message.data for message in nc.request_many("many", stall=0.1)]
    by_time = [message.data for message in nc.request_many("many", timeout=0.3)]
    five = [b"%d" % number for number in range(5)]
    assert by_count == five[:3]
    assert by_sentinel == five
    assert by_stall == by_time == [*five, b""]
    with pytest.raises(errors.NoResponders):
        list(nc.request_many("nobody"))


def test_the_inbox_prefix_is_used_for_every_inbox(server: NatsServer) -> None:
    with jsclient.connect(server.url, inbox_prefix="_MINE.app") as nc:
        nc.subscribe("ask", lambda message: message.respond(message.reply))
        assert nc.request("ask").data.startswith(b"_MINE.app.")
        assert nc.new_inbox().startswith("_MINE.app.")
        assert engine_of(nc).open_inbox().subject.startswith("_MINE.app.")
        assert len(nc.new_inbox().rsplit(".", 1)[1]) == 22


# --- options of CONNECT


def test_the_name_is_shown_by_the_server(server: NatsServer, nc: jsclient.Connection) -> None:
    [connection] = server.monitor("connz")["connections"]
    assert (connection["name"], connection["cid"]) == ("core", nc.client_id)
    assert connection["version"] == jsclient.__version__


# --- limits and permissions


PERMISSIONS = """
authorization { users: [
  { user: limited, password: p, permissions: {
      publish: { allow: [ "open.>", "_INBOX.>" ] }
      subscribe: { allow: [ "open.>", "_INBOX.>" ], deny: [ "open.denied" ] } } }
  { user: deaf, password: p, permissions: { publish: ">", subscribe: { deny: [ "_INBOX.>" ] } } }
] }
"""


@pytest.fixture(scope="module")
def strict_server() -> Iterator[NatsServer]:
    with NatsServer(PERMISSIONS, jetstream=False) as server:
        yield server


def test_permission_errors_reach_the_waiting_call(strict_server: NatsServer) -> None:
    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with jsclient.connect(
        strict_server.url, user="limited", password="p", on_error=lambda nc, error, sub: told.put(error)
    ) as nc:
        denied = nc.subscribe("open.denied")
        with pytest.raises(errors.PermissionViolation) as caught:
            denied.next(timeout=5)
        assert (caught.value.subject, caught.value.operation) == ("open.denied", "subscribe")
        assert isinstance(told.get(timeout=5), errors.PermissionViolation)
        with pytest.raises(errors.PermissionViolation) as caught:
            nc.request("closed.subject", timeout=5)
        assert caught.value.operation == "publish"
        nc.publish("closed.subject", b"x")
        told.get(timeout=5)
        assert isinstance(told.get(timeout=5), errors.PermissionViolation)
        fine = nc.subscribe("open.fine")
        nc.publish("open.fine", b"x")
        assert fine.next(timeout=5).data == b"x"
        assert nc.stats().reconnects == 0


def test_an_inbox_that_is_denied_is_no_timeout(strict_server: NatsServer) -> None:
    with jsclient.connect(strict_server.url, user="deaf", password="p", on_error=lambda *args: None) as nc:
        started = time.monotonic()
        with pytest.raises(errors.PermissionViolation):
            nc.request("anything", timeout=10)
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("slow", ["open_sink", "_open_inbox"])
def test_an_inbox_that_is_denied_before_the_request_waits(
    strict_server: NatsServer, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """The server's refusal overtakes the request that made the inbox."""
    refused = threading.Event()
    with jsclient.connect(strict_server.url, user="deaf", password="p", on_error=lambda *args: refused.set()) as nc:
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


# --- looking at it


def test_counters_and_health(server: NatsServer, nc: jsclient.Connection) -> None:
    subscription = nc.subscribe("count")
    for _ in range(10):
        nc.publish("count", b"12345")
    nc.flush()
    stats = nc.stats()
    assert (stats.messages_out, stats.messages_in, stats.reconnects) == (10, 10, 0)
    assert stats.bytes_out >= 10 * len(b"PUB count 5\r\n12345\r\n")
    assert stats.bytes_in >= 10 * len(b"MSG count 1 5\r\n12345\r\n")
    assert (subscription.pending, subscription.dropped, subscription.pending_bytes > 50) == (10, 0, True)
    health = nc.health()
    assert health.state is ConnectionState.CONNECTED
    assert health.server == server.url
    assert health.last_frame_age is not None
    assert health.last_frame_age < 5
    assert (health.pings_outstanding, health.slow_consumers, health.last_error) == (0, 0, "")
    assert nc.rtt() > 0
    assert nc.server_info.version == ".".join(map(str, server.version))


def test_a_socket_that_sends_in_python_may_be_full(server: NatsServer) -> None:
    def dial(host: str, port: int, timeout: float | None) -> socket.socket:
        made = ProxySocket()
        made.settimeout(timeout)
        made.connect((host, port))
        return made

    with jsclient.connect(server.url) as reader, jsclient.connect(server.url, socket_factory=dial) as nc:
        taken = reader.subscribe("full.>", pending_messages=10**6, pending_bytes=10**9)
        reader.flush()
        for number in range(20_000):
            nc.publish("full.x", b"%08192d" % number)
        nc.flush(timeout=30)
        assert [int(taken.next(timeout=10).data[-8:]) for _ in range(20_000)] == list(range(20_000))
        assert nc.stats().reconnects == 0
