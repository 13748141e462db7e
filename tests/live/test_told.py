"""What an application is told of its connection, and what it may choose: events, callbacks, servers, the link."""

from __future__ import annotations

import contextlib
import itertools
import queue
import ssl
import threading
from functools import partial
from typing import Any

import pytest

import jsclient
from jsclient import ConnectionState, ReconnectPolicy, TLSOptions, errors
from jsclient._connection import session
from jsclient.connection import engine_of
from jsclient.testing import (
    FakeClient,
    FakeServer,
    NatsServer,
    Proxy,
    certificates,
    free_port,
    info_line,
    wait_until,
)
from jsclient.threads import Thread


def kinds(events: jsclient.ConnectionEvents, until: str) -> list[str]:
    """The kinds of the events that come, up to this one."""
    found: list[str] = []
    while until not in found:
        found.append(events.next(timeout=20).kind)
    return found


def test_on_connected_tells_of_the_first_link_however_late_it_comes() -> None:
    told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    port = free_port()
    with jsclient.connect(
        f"nats://127.0.0.1:{port}",
        retry_on_failed_connect=True,
        on_connected=lambda nc: told.put(("connected", nc)),
        on_reconnected=lambda nc: told.put(("reconnected", nc)),
        on_error=lambda *_: None,
    ) as nc:
        with nc.events() as events, NatsServer(port=port, jetstream=False) as server:
            assert told.get(timeout=20) == ("connected", nc)
            assert kinds(events, "connected")[-1] == "connected"
            nc.flush()
            server.restart()
            assert told.get(timeout=20) == ("reconnected", nc)
    heard: list[Any] = []
    with NatsServer(jetstream=False) as server, jsclient.connect(server.url, on_connected=heard.append) as nc:
        wait_until(lambda: heard == [nc])


def test_events_beside_callbacks(server: NatsServer) -> None:
    """The same things, in the same order; the last one says that it has ended, and then the loop does."""
    called: list[str] = []
    with Proxy(server.port) as proxy:
        nc = jsclient.connect(proxy.url, on_disconnected=lambda *_: called.append("disconnected"))
        events = nc.events()
        late = nc.events()
        late.close()
        with pytest.raises(errors.SubscriptionClosed):
            late.next(timeout=0)
        with pytest.raises(errors.TimedOut):
            events.next(timeout=0)
        nc.flush()
        proxy.cut()
        assert kinds(events, "reconnected")[0] == "disconnected"
        nc.subscribe("_REFUSED.>").close()
        loop: list[jsclient.ConnectionEvent] = []
        thread = threading.Thread(target=lambda: loop.extend(events))
        thread.start()
        nc.close()
        thread.join(20)
        assert [event.kind for event in loop] == ["disconnected", "closed"]
        assert loop[-1].error is None
        wait_until(lambda: called == ["disconnected", "disconnected"])
        with pytest.raises(errors.ConnectionClosed):
            nc.events()


@pytest.mark.slow
def test_a_close_before_the_reader_of_a_new_link_has_started(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of that link is told before the end."""
    closing: list[threading.Event] = []

    class Late(Thread):
        def start(self) -> None:
            if closing and self.name.startswith("jsclient-reader"):
                assert closing[0].wait(20)
            super().start()

    monkeypatch.setattr(session, "Thread", Late)
    with Proxy(server.port) as proxy:
        nc = jsclient.connect(proxy.url)
        events = nc.events()
        closing.append(threading.Event())
        proxy.cut()
        assert kinds(events, "reconnected") == ["disconnected", "reconnected"]
        closer = threading.Thread(target=nc.close)
        closer.start()
        assert kinds(events, "closed") == ["disconnected", "closed"]
        closing[0].set()
        closer.join(20)
        assert not closer.is_alive()


def test_an_event_says_why_and_what(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc, nc.events() as events:
        slow = nc.subscribe("slow", pending_messages=1)
        for _ in range(20):
            nc.publish("slow", b"x")
        event = events.next(timeout=20)
        assert (event.kind, event.subscription) == ("error", slow)
        assert isinstance(event.error, errors.SlowConsumer)
        assert event.time > 1e9


def test_callbacks_may_be_set_later(server: NatsServer) -> None:
    heard: list[str] = []
    with jsclient.connect(server.url, on_error=lambda *_: heard.append("first")) as nc:
        with pytest.raises(errors.ConfigError):
            nc.set_callbacks(on_nothing=print)  # type: ignore[call-arg]
        with pytest.raises(errors.ConfigError):
            nc.set_callbacks(on_error=7)  # type: ignore[arg-type]

        def fail(_: object) -> None:
            raise RuntimeError("a handler that fails")

        nc.subscribe("fails", callback=fail)
        nc.publish("fails")
        wait_until(lambda: heard == ["first"])
        nc.set_callbacks(on_error=lambda *_: heard.append("second"), on_closed=lambda *_: heard.append("closed"))
        nc.publish("fails")
        wait_until(lambda: heard == ["first", "second"])
        nc.set_callbacks(on_error=None)
    wait_until(lambda: heard == ["first", "second", "closed"])


def test_the_application_chooses_the_server_of_a_reconnect(server: NatsServer) -> None:
    """From those of the pool only (ADR-40); what else it says is told to `on_error`, and the usual choice is made."""
    asked: list[list[jsclient.PoolServer]] = []
    refused: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    answers: list[Any] = []

    def choose(servers: list[jsclient.PoolServer], info: Any) -> Any:
        asked.append(servers)
        assert info.max_payload > 0
        return answers.pop(0) if answers else None

    with Proxy(server.port) as first, Proxy(server.port) as second, Proxy(server.port) as third:
        urls = [first.url, second.url, third.url]
        with jsclient.connect(
            urls,
            randomize=False,
            reconnect=ReconnectPolicy(choose=choose),
            on_error=lambda _, error, __: refused.put(error),
        ) as nc:
            assert asked == []  # the first connect is not asked about
            assert nc.connected_url == first.url
            for answer, expected in (((third.url, 0.01), third.url), (second.url, second.url)):
                nc.flush()
                answers[:] = [answer]
                before = nc.stats().reconnects
                nc.force_reconnect()
                wait_until(lambda before=before: nc.stats().reconnects > before and nc.is_connected)  # type: ignore[misc]
                assert nc.connected_url == expected
            assert sorted(choice.url for choice in asked[0]) == sorted(urls)
            assert not any(choice.discovered or choice.lame_duck or choice.attempts for choice in asked[0])
            for wrong in ("nats://elsewhere:4222", (first.url, -1), 7):
                nc.flush()
                answers[:] = [wrong]
                before = nc.stats().reconnects
                nc.force_reconnect()
                assert isinstance(refused.get(timeout=20), (errors.ConfigError, TypeError))
                wait_until(lambda before=before: nc.stats().reconnects > before and nc.is_connected)  # type: ignore[misc]


def test_the_link_tells_its_ends_and_its_tls(server: NatsServer, tmp_path: Any) -> None:
    with jsclient.connect(server.url) as nc:
        link = nc.link
        assert link is not None
        assert (link.url, link.peer_address, link.tls) == (server.url, f"127.0.0.1:{server.port}", None)
        assert link.local_address.startswith("127.0.0.1:")
        assert link.client_id == nc.client_id
        assert nc.discovered_servers == []
    assert nc.link is None
    certs = certificates(tmp_path)
    with NatsServer(certs.server_config(), jetstream=False) as secure:
        url = f"tls://127.0.0.1:{secure.port}"
        with jsclient.connect(url, tls=TLSOptions(ca_file=certs.ca)) as nc:
            assert nc.link is not None
            state = nc.link.tls
            assert state is not None
            assert state.version.startswith("TLSv1.")
            assert state.secret_bits >= 128
            assert state.cipher
            assert "BEGIN CERTIFICATE" in ssl.DER_cert_to_PEM_cert(state.peer_certificate)


def test_servers_that_the_cluster_has_named_are_told_apart() -> None:
    from jsclient.testing import Cluster

    with Cluster(2, jetstream=False) as cluster, jsclient.connect(cluster.servers[0].url) as nc:
        wait_until(lambda: len(nc.servers) == 2)
        assert nc.discovered_servers == [cluster.servers[1].url]


def test_too_many_connections_are_an_error_of_their_own() -> None:
    with NatsServer("max_connections: 1\n", jetstream=False) as full:
        with jsclient.connect(full.url) as nc, pytest.raises(errors.MaxConnectionsExceeded) as caught:
            nc.flush()
            jsclient.connect(full.url)
        assert isinstance(caught.value, (ConnectionError, errors.ServerError))


def test_a_refusal_in_one_piece_with_the_greeting_is_heard() -> None:
    """It was dropped: then it read "closed the connection before PONG". In clear, where TLS is to follow, anybody may
    have said it, so it counts against no credentials."""
    for text, wanted, tls in (
        ("maximum connections exceeded", errors.MaxConnectionsExceeded, False),
        ("Authorization Violation", errors.AuthError, False),
        ("maximum connections exceeded", errors.MaxConnectionsExceeded, True),
        ("Authorization Violation", errors.ConnectFailed, True),
    ):
        greeting = info_line(tls_required=tls) + f"-ERR '{text}'\r\n".encode()
        with FakeServer(partial(FakeClient.send, data=greeting)) as fake, pytest.raises(wanted) as caught:
            jsclient.connect(fake.url)
        assert type(caught.value) is wanted


def serve(client: FakeClient, *, before: bytes = b"", after: bytes = b"", close: bool = False) -> None:
    """A server that says something before its PONG to CONNECT, or after the first PING of the application."""
    client.send(info_line(max_payload=1000))
    client.expect(b"PING\r\n")
    client.send(before + b"PONG\r\n")
    client.expect(b"PING\r\n")
    client.send(after)
    if close:
        client.close()
        return
    client.send(b"PONG\r\n")
    client.expect(b"PUB last 1\r\nx\r\n")


NOTICE = b"-ERR 'Something Of A Newer Server'\r\n"


@pytest.mark.parametrize(("before", "after"), [(NOTICE, b""), (b"", NOTICE)])
def test_an_error_of_the_server_that_is_not_known_costs_no_link(before: bytes, after: bytes) -> None:
    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with FakeServer(lambda client: serve(client, before=before, after=after)) as fake:
        with jsclient.connect(fake.url, on_error=lambda _, error, __: told.put(error)) as nc:
            nc.flush()
            error = told.get(timeout=20)
            assert type(error) is errors.ServerError
            assert "Something Of A Newer Server" in str(error)
            nc.publish("last", b"x")
        assert nc.stats().reconnects == 0


def test_an_error_that_is_not_known_is_the_reason_if_the_server_closes() -> None:
    lost: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with FakeServer(lambda client: serve(client, after=NOTICE, close=True)) as fake:
        with jsclient.connect(fake.url, on_disconnected=lambda _, why: lost.put(why), on_error=lambda *_: None) as nc:
            with pytest.raises(errors.ConnectionLost, match="Newer Server"):
                nc.flush()
            assert "Something Of A Newer Server" in str(lost.get(timeout=20))

    def only_a_notice(client: FakeClient) -> None:
        client.send(info_line())
        client.expect(b"PING\r\n")
        client.send(NOTICE)

    with FakeServer(only_a_notice) as fake:
        with pytest.raises(errors.ServerError, match="Newer Server"):
            jsclient.connect(fake.url)


def test_too_many_subscriptions_are_an_error_of_their_own() -> None:
    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with NatsServer("max_subscriptions: 1\n", jetstream=False) as full:
        with jsclient.connect(full.url, on_error=lambda _, error, __: told.put(error)) as nc:
            held = [nc.subscribe("a"), nc.subscribe("b")]
            assert isinstance(told.get(timeout=20), errors.MaxSubscriptionsExceeded)
            assert [sub.subject for sub in held if not sub.closed] == ["a"]
            nc.flush()  # and the link stays


# --- subscriptions --------------------------------------------------------------------------------------


def test_a_subscription_tells_how_far_behind_it_was(server: NatsServer) -> None:
    with jsclient.connect(server.url, on_error=lambda *_: None) as nc:
        sub = nc.subscribe("s", pending_messages=4)
        assert (sub.status, sub.max_pending, sub.pending_limits) == ("active", (0, 0), (4, 64 << 20))
        for _ in range(10):
            nc.publish("s", b"x" * 100)
        wait_until(lambda: sub.dropped == 6)
        states = [sub.status]
        messages, nbytes = sub.max_pending
        assert messages == 4
        assert nbytes >= 400
        sub.set_pending_limits(100, 1 << 20)
        for _ in range(4):
            sub.next(timeout=5)
        states.append(sub.status)
        assert states == ["slow consumer", "active"]
        for _ in range(10):
            nc.publish("s", b"x")
        wait_until(lambda: sub.pending == 10)
        assert (sub.dropped, sub.max_pending[0]) == (6, 10)
        with pytest.raises(errors.ConfigError):
            sub.set_pending_limits(0, 1)
        sub.close()
        assert sub.status == "closed"


def test_a_subscription_tells_that_it_has_ended(server: NatsServer) -> None:
    """However it ends: by close, unsubscribe, its number of messages, or with the connection; once, or soon if late."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with jsclient.connect(server.url) as nc:
        subs = [nc.subscribe(f"ends.{name}") for name in "abcd"]
        last = nc.subscribe("ends.last", max_messages=1)
        for sub in (*subs, last):
            sub.when_closed(lambda sub: told.put(sub.subject))
        subs[0].close()
        assert told.get(timeout=20) == "ends.a"
        subs[1].unsubscribe()
        assert told.get(timeout=20) == "ends.b"
        nc.publish("ends.last")
        assert told.get(timeout=20) == "ends.last"
        subs[2].drain()
        assert told.get(timeout=20) == "ends.c"
        subs[0].close()
        subs[0].when_closed(lambda sub: told.put("late"))
        assert told.get(timeout=20) == "late"
    assert told.get(timeout=20) == "ends.d"
    assert told.empty()


def test_a_draining_subscription_says_so(server: NatsServer) -> None:
    may_return = threading.Event()
    seen: list[str] = []
    with jsclient.connect(server.url) as nc:

        def handle(_: object) -> None:
            assert may_return.wait(20)
            seen.append(sub.status)

        sub = nc.subscribe("drains", callback=handle)
        nc.publish("drains")
        nc.flush()
        drainer = threading.Thread(target=sub.drain)
        drainer.start()
        wait_until(lambda: sub.status in ("draining", "closed"))
        may_return.set()
        drainer.join(20)
        assert sub.status == "closed"
        assert len(seen) == 1


def test_a_barrier_waits_for_what_had_come_before_it(server: NatsServer) -> None:
    handled: list[int] = []
    gate = threading.Event()
    reentered: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    with jsclient.connect(server.url) as nc:
        nc.barrier(timeout=5)  # nothing to wait for

        def slowly(message: jsclient.Msg) -> None:
            assert gate.wait(20)
            handled.append(int(message.data))

        def inside(_: object) -> None:
            try:
                nc.barrier(timeout=5)
            except errors.Reentered as error:
                reentered.put(error)
            nc.barrier(lambda: done.put(len(handled)))

        subs = [nc.subscribe("slow", callback=slowly), nc.subscribe("own", callback=slowly, thread="own")]
        for number in range(200):
            nc.publish("slow", b"%d" % number)
            nc.publish("own", b"%d" % number)
        nc.flush()
        with pytest.raises(errors.TimedOut):
            nc.barrier(timeout=0.05)
        nc.barrier(lambda: done.put(len(handled)))
        gate.set()
        nc.barrier(timeout=20)
        assert len(handled) == 400
        assert done.get(timeout=20) == 400
        assert all(sub.dropped == 0 for sub in subs)
        nc.subscribe("inside", callback=inside)
        nc.publish("inside")
        reentered.get(timeout=20)
        assert done.get(timeout=20) == 400


@pytest.mark.parametrize("thread", ["shared", "own"])
@pytest.mark.parametrize("end", ["max_messages", "unsubscribe", "close"])
def test_a_barrier_waits_for_a_subscription_that_has_ended(server: NatsServer, end: str, thread: Any) -> None:
    """What it holds goes to its callback still; after `close` only the message that the callback is at."""
    handled: list[bytes] = []
    reentered: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    begun, gate = threading.Event(), threading.Event()

    def slowly(message: jsclient.Msg) -> None:
        begun.set()
        assert gate.wait(20)
        try:
            nc.barrier(timeout=5)
        except errors.Reentered as error:
            reentered.put(error)
        handled.append(message.data)

    with jsclient.connect(server.url) as nc:
        limit = 3 if end == "max_messages" else None
        sub = nc.subscribe("ends", callback=slowly, max_messages=limit, thread=thread)
        for number in range(3):
            nc.publish("ends", b"%d" % number)
        nc.flush()
        assert begun.wait(20)
        if end != "max_messages":
            getattr(sub, end)()
        assert sub.closed
        with pytest.raises(errors.TimedOut):
            nc.barrier(timeout=0.05)
        gate.set()
        nc.barrier(timeout=20)
        assert handled == [b"0", b"1", b"2"][: 1 if end == "close" else 3]
        assert reentered.get(timeout=20)


def test_a_barrier_ends_with_the_connection(server: NatsServer) -> None:
    gate = threading.Event()
    nc = jsclient.connect(server.url)
    nc.subscribe("stuck", callback=lambda _: gate.wait(20))
    for _ in range(3):
        nc.publish("stuck")
    nc.flush()
    closer = threading.Timer(0.2, nc.close)
    closer.start()
    with pytest.raises(errors.ConnectionClosed):
        nc.barrier(timeout=20)
    gate.set()
    closer.join()


@pytest.mark.parametrize("end", ["close", "drain"])
def test_the_call_of_a_barrier_runs_though_the_connection_ends(server: NatsServer, end: str) -> None:
    gate = threading.Event()
    begun = threading.Event()
    done: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def stuck(_: object) -> None:
        begun.set()
        gate.wait(20)

    nc = jsclient.connect(server.url)
    nc.subscribe("stuck", callback=stuck)
    for _ in range(3):
        nc.publish("stuck")
    nc.flush()
    assert begun.wait(20)
    nc.barrier(lambda: done.put(nc.state is ConnectionState.CLOSED))
    with contextlib.suppress(errors.DrainTimeout):
        nc.close() if end == "close" else nc.drain(0.1)
    assert done.get(timeout=5)
    gate.set()
    with pytest.raises(queue.Empty):
        done.get(timeout=0.1)


def test_a_barrier_costs_nothing_while_a_callback_runs(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flusher looked 500 times a second."""
    gate, begun = threading.Event(), threading.Event()
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def stuck(_: object) -> None:
        begun.set()
        gate.wait(20)

    with jsclient.connect(server.url) as nc:
        nc.subscribe("stuck", callback=stuck)
        nc.publish("stuck")
        nc.flush()
        assert begun.wait(20)
        nc.barrier(lambda: done.put(None))
        clock = engine_of(nc).clock
        timers = itertools.count()
        later = clock.call_later
        monkeypatch.setattr(clock, "call_later", lambda *args: (next(timers), later(*args))[1])
        with pytest.raises(errors.TimedOut):
            nc.barrier(timeout=0.3)
        assert next(timers) < 10
        gate.set()
        done.get(timeout=5)
        assert not engine_of(nc).callback_pool.barriers
