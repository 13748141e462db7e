"""Which servers a connection dials, how often, and what is told of the attempts that fail."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import ConnectionState, ReconnectPolicy, errors
from jsclient.testing import NatsServer, Proxy, free_port, wait_until

Count = Callable[[int, int], int]


def test_no_reconnect_when_switched_off(proxy: Proxy) -> None:
    nc = jsclient.connect(proxy.url, reconnect=ReconnectPolicy(enabled=False))
    sub = nc.subscribe("off")
    proxy.cut()
    with pytest.raises(errors.ConnectionClosed):
        sub.next(timeout=5)
    wait_until(lambda: nc.closed)

    def refused() -> bool:
        try:
            nc.publish("off", b"")  # its end may only have begun: the reader thread closes the queue a moment later
        except errors.ConnectionClosed:
            return True
        return False

    wait_until(refused)


def test_max_attempts_ends_the_connection(proxy: Proxy) -> None:
    caught: queue.SimpleQueue[Any] = queue.SimpleQueue()
    policy = ReconnectPolicy(max_attempts=3, delay=lambda number: 0.01)
    nc = jsclient.connect(proxy.url, reconnect=policy, on_error=lambda _, error, __: caught.put(error))
    proxy.refuse()
    error = caught.get(timeout=5)
    assert isinstance(error, errors.ConnectFailed)
    assert proxy.url in str(error)
    wait_until(lambda: nc.closed)
    with pytest.raises(errors.ConnectionClosed, match="no server could be reached"):
        nc.flush()
    proxy.accept()


def test_failed_attempts_are_told(proxy: Proxy) -> None:
    """Each one, while it is down; none for `connect` that raises itself, and none because of close()."""
    caught: queue.SimpleQueue[Any] = queue.SimpleQueue()
    policy = ReconnectPolicy(delay=lambda number: 0.01)
    nc = jsclient.connect(proxy.url, reconnect=policy, on_error=lambda _, error, sub: caught.put((error, sub)))
    proxy.refuse()
    for _ in range(3):
        error, sub = caught.get(timeout=5)
        assert isinstance(error, errors.ConnectFailed)
        assert sub is None
    proxy.accept()
    wait_until(lambda: nc.is_connected)
    nc.flush()
    while not caught.empty():
        caught.get()
    nc.close()
    with pytest.raises(errors.ConnectFailed):
        jsclient.connect(f"nats://127.0.0.1:{free_port()}", on_error=lambda *args: caught.put(args))
    assert caught.empty()


def test_attempts_are_told_when_the_first_one_is_retried() -> None:
    caught: queue.SimpleQueue[Any] = queue.SimpleQueue()
    url = f"nats://127.0.0.1:{free_port()}"
    with jsclient.connect(url, retry_on_failed_connect=True, on_error=lambda _, error, sub: caught.put(error)):
        assert isinstance(caught.get(timeout=5), errors.ConnectFailed)
        assert isinstance(caught.get(timeout=5), errors.ConnectFailed)


@pytest.mark.slow
def test_callables_that_raise_do_not_end_the_connection(proxy: Proxy) -> None:
    """The store of secrets is down for a while: that is one failed attempt, not the end."""
    asked: list[int] = []
    caught: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def token() -> str:
        asked.append(1)
        if 1 < len(asked) < 4:
            raise LookupError("the store of secrets does not answer")
        return "x"

    def delay(number: int) -> float:
        if len(asked) == 3:
            raise RuntimeError("a bug in the hook")
        return 0.01

    with jsclient.connect(
        proxy.url,
        token=token,
        reconnect=ReconnectPolicy(delay=delay),
        on_error=lambda _, error, sub: caught.put(error),
    ) as nc:
        proxy.cut()
        assert isinstance(caught.get(timeout=5), LookupError)
        assert isinstance(caught.get(timeout=5), LookupError)
        wait_until(lambda: len(asked) == 4 and nc.is_connected, 10)
        nc.flush()


@pytest.mark.parametrize("role", ["connect", "reader"])
def test_no_thread_to_reconnect_with_is_for_the_moment(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, role: str, count: Count
) -> None:
    """The system is out of threads when the link is lost: tried again, not stranded."""
    refused: list[str] = []
    times = count(2, 1)  # each costs a pause of one or two seconds
    start = threading.Thread.start

    def no_thread(thread: threading.Thread) -> None:
        if thread.name.startswith(f"jsclient-{role}-") and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    def flushed() -> bool:
        try:
            nc.flush()
        except errors.ConnectionLost:  # asked on the link that has no reader
            return False
        return True

    with jsclient.connect(proxy.url) as nc:
        sub = nc.subscribe("threads")
        nc.flush()
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        proxy.cut()
        wait_until(lambda: len(refused) == times and nc.is_connected, 10)
        wait_until(lambda: nc.stats().reconnects >= 1, 5)
        wait_until(flushed, 10)
        nc.publish("threads", b"x")
        assert sub.next(timeout=5).data == b"x"


def test_a_callable_that_raises_at_first_is_seen_as_it_is(server: NatsServer) -> None:
    def token() -> str:
        raise LookupError("no such secret")

    with pytest.raises(LookupError):
        jsclient.connect(server.url, token=token)


def test_the_delay_hook_is_asked_by_round(proxy: Proxy) -> None:
    rounds: list[int] = []

    def delay(number: int) -> float:
        rounds.append(number)
        return 0.01

    with jsclient.connect(proxy.url, reconnect=ReconnectPolicy(delay=delay)) as nc:
        proxy.refuse()
        wait_until(lambda: len(rounds) >= 4)
        proxy.accept()
        wait_until(lambda: nc.stats().reconnects >= 1 and nc.is_connected)
        assert rounds[:4] == sorted(rounds[:4])
        assert rounds[3] == rounds[0] + 3


def test_several_servers_and_one_is_down(server: NatsServer) -> None:
    urls = f"nats://127.0.0.1:{free_port()},{server.url}"
    for _ in range(5):
        with jsclient.connect(urls) as nc:
            assert nc.connected_url == server.url


def test_no_server_says_which_were_tried() -> None:
    ports = [free_port(), free_port()]
    with pytest.raises(errors.ConnectFailed) as caught:
        jsclient.connect([f"nats://127.0.0.1:{port}" for port in ports])
    assert {url for url, _ in caught.value.attempts} == {f"nats://127.0.0.1:{port}" for port in ports}
    assert all(str(port) in str(caught.value) for port in ports)


def test_all_addresses_of_a_name_are_tried(server: NatsServer) -> None:
    with jsclient.connect(f"nats://localhost:{server.port}") as nc:  # ::1 refuses, 127.0.0.1 answers
        nc.flush()


def test_retry_on_failed_connect(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as other:
        proxy.refuse()
        sub = other.subscribe("retry.*")
        other.flush()
        with jsclient.connect(proxy.url, retry_on_failed_connect=True) as nc:
            assert nc.state is ConnectionState.CONNECTING
            early = nc.subscribe("retry.in")
            nc.publish("retry.out", b"buffered")
            proxy.accept()
            assert sub.next(timeout=10).data == b"buffered"
            other.publish("retry.in", b"hi")
            assert early.next(timeout=5).data == b"hi"
            assert nc.stats().reconnects == 0


def test_a_server_that_restarts(count: Count) -> None:
    with NatsServer(jetstream=False) as server, jsclient.connect(server.url) as nc:
        sub = nc.subscribe("restart")
        nc.flush()
        for number in range(count(20, 3)):
            server.kill() if number % 2 else server.stop()
            server.start()
            # Until the client has noticed the loss, a publish may be written into the old link, and is lost with it.
            wait_until(lambda made=number + 1: nc.stats().reconnects >= made)  # type: ignore[misc]
            nc.publish("restart", b"%d" % number)
            assert sub.next(timeout=10).data == b"%d" % number
