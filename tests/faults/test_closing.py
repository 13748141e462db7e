"""close(), drain() and failed connects: every blocked call is released, nothing is left behind."""

from __future__ import annotations

import gc
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import FakeServer, Hold, NatsServer, Proxy, free_port, info_line, wait_until

Count = Callable[[int, int], int]


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("jsclient-")]


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")


@needs_proc
def test_connect_and_close_leave_nothing(server: NatsServer, count: Count) -> None:
    with jsclient.connect(server.url):
        pass
    wait_until(lambda: not ours())
    before = descriptors()
    for _ in range(count(200, 50)):
        with jsclient.connect(server.url) as nc:
            nc.subscribe("x", lambda message: None)
            nc.publish("x", b"")
            nc.flush()
    wait_until(lambda: not ours())
    wait_until(lambda: descriptors() <= before)


@needs_proc
def test_failed_connects_leave_nothing(count: Count) -> None:
    port = free_port()
    before = descriptors()
    with FakeServer([Hold()]) as silent:
        for number in range(count(200, 50)):
            with pytest.raises(errors.ConnectFailed):
                if number % 10:
                    jsclient.connect(f"nats://127.0.0.1:{port}")
                else:
                    jsclient.connect(silent.url, connect_timeout=0.05)
    wait_until(lambda: not ours())
    wait_until(lambda: descriptors() <= before)


def test_close_releases_every_blocked_call(server: NatsServer) -> None:
    """From another thread, in under a second."""
    with Proxy(server.port) as proxy:
        nc = jsclient.connect(f"nats://127.0.0.1:{proxy.port}")
        other = nc.subscribe("other")
        nc.subscribe("slow", lambda message: None)
        many = nc.subscribe("iterated")
        nc.flush()
        ended: queue.SimpleQueue[tuple[str, BaseException | None, float]] = queue.SimpleQueue()

        def blocked(name: str, call: Callable[[], object]) -> threading.Thread:
            def run() -> None:
                error: BaseException | None = None
                try:
                    call()
                except BaseException as caught:
                    error = caught
                ended.put((name, error, time.monotonic()))

            thread = threading.Thread(target=run, name=f"blocked-{name}")
            thread.start()
            return thread

        requested = nc.stats().messages_in
        threads = [
            blocked("next", lambda: other.next(timeout=60)),
            blocked("iterate", lambda: list(many)),
            blocked("request", lambda: nc.request("slow", timeout=60)),
            blocked("request_many", lambda: list(nc.request_many("slow", timeout=60))),
        ]
        wait_until(lambda: nc.stats().messages_in >= requested + 2)
        proxy.stall()
        threads.append(blocked("flush", lambda: nc.flush(timeout=60)))
        wait_until(lambda: nc._session._pings, 5, "the flush has not begun to wait")
        started = time.monotonic()
        nc.close()
        outcomes = {}
        for _ in threads:
            name, error, when = ended.get(timeout=5)
            outcomes[name] = error
            assert when - started < 1, f"{name} took {when - started:.1f} s"
        for thread in threads:
            thread.join(5)
        assert {name: type(error) for name, error in outcomes.items()} == dict.fromkeys(
            outcomes, errors.ConnectionClosed
        )


def test_close_during_an_outage_and_during_a_dial() -> None:
    with FakeServer([Hold()]) as silent:
        nc = jsclient.connect(silent.url, retry_on_failed_connect=True, connect_timeout=30)
        wait_until(lambda: silent.clients)
        started = time.monotonic()
        nc.close()
        assert time.monotonic() - started < 2
        with pytest.raises(errors.ConnectionClosed):
            nc.publish("a", b"")
        # Not only after connect_timeout: the dial is ended, too.
        wait_until(lambda: not any(name.startswith("jsclient-connect") for name in ours()), 2)


def test_close_while_the_delay_hook_waits(server: NatsServer) -> None:
    asked = threading.Event()

    def delay(number: int) -> float:
        asked.set()
        return 3600

    with Proxy(server.port) as proxy:
        with jsclient.connect(f"nats://127.0.0.1:{proxy.port}", reconnect=jsclient.ReconnectPolicy(delay=delay)) as nc:
            proxy.refuse()
            assert asked.wait(10)
            started = time.monotonic()
            nc.close()
            assert time.monotonic() - started < 2


def test_ctrl_c_ends_a_connect() -> None:
    """A silent server and a long timeout: Ctrl-C is not held up by it."""
    with FakeServer([Hold()]) as silent:

        def interrupt() -> None:
            wait_until(lambda: silent.clients)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            jsclient.connect(silent.url, connect_timeout=30)
        thread.join(5)
        assert time.monotonic() - started < 5
    wait_until(lambda: not ours())


@pytest.mark.parametrize("call", ["next", "request", "flush"])
def test_ctrl_c_ends_a_wait_and_the_connection_goes_on(server: NatsServer, call: str) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
        subscription = nc.subscribe("a")
        nc.subscribe("slow", lambda message: None)
        nc.flush()
        waiting = {
            "next": lambda: subscription.next(timeout=30),
            "request": lambda: nc.request("slow", timeout=30),
            "flush": lambda: nc.flush(timeout=30),
        }
        if call == "flush":
            proxy.stall()
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            waiting[call]()
        timer.join()
        proxy.resume()
        nc.publish("a", b"goes on")
        assert subscription.next(timeout=10).payload == b"goes on"
        assert nc.stats().reconnects == 0


EXIT_SCRIPT = """
import sys, jsclient
nc = jsclient.connect(sys.argv[1])
nc.subscribe("idle", lambda message: None)
for number in range(100):
    nc.publish("exit", b"%d" % number)
"""


def test_a_normal_exit_flushes(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        subscription = nc.subscribe("exit")
        nc.flush()
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", EXIT_SCRIPT, server.url], check=True, timeout=30)
        assert time.monotonic() - started < 20
        assert [subscription.next(timeout=5).payload for _ in range(100)] == [b"%d" % n for n in range(100)]


def test_a_normal_exit_does_not_hang_on_a_dead_server() -> None:
    def script(client: object) -> None:
        client.handshake()  # type: ignore[attr-defined]
        client.hold()  # type: ignore[attr-defined]

    with FakeServer(script) as fake:
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", EXIT_SCRIPT, fake.url], check=True, timeout=30)
        assert time.monotonic() - started < 10


def test_a_port_that_answers_itself_is_no_server() -> None:
    """With the server down, a dial of an ephemeral port may meet itself; that counts as refused."""
    port = free_port()
    with pytest.raises(errors.ConnectFailed):
        jsclient.connect(f"nats://127.0.0.1:{port}", local_address="127.0.0.1", connect_timeout=1)


def test_lame_duck_moves_on_before_it_is_cut() -> None:
    """ldm in INFO: another server at once, with the event for the application."""
    moved: queue.SimpleQueue[str] = queue.SimpleQueue()

    def dying(client: object) -> None:
        client.handshake()  # type: ignore[attr-defined]
        client.send(info_line(ldm=True))  # type: ignore[attr-defined]
        client.hold()  # type: ignore[attr-defined]

    def good(client: object) -> None:
        client.handshake()  # type: ignore[attr-defined]
        client.expect(b"PING\r\n")  # type: ignore[attr-defined]
        client.send(b"PONG\r\n")  # type: ignore[attr-defined]
        client.hold()  # type: ignore[attr-defined]

    with FakeServer(dying) as one, FakeServer(good) as two:
        with jsclient.connect(
            [one.url, two.url], randomize=False, on_lame_duck=lambda nc: moved.put("lame duck")
        ) as nc:
            assert moved.get(timeout=5) == "lame duck"
            wait_until(lambda: nc.connected_url == two.url)
            nc.flush()


def test_ipv6(server: NatsServer) -> None:
    """The loopback of IPv6 in front of the server, where this machine has it."""
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        with pytest.raises(errors.ConnectFailed):
            jsclient.connect(f"nats://[::1]:{free_port()}", connect_timeout=1)
        return
    with listener:
        thread = threading.Thread(target=_forward_once, args=(listener, server.port), daemon=True)
        thread.start()
        with jsclient.connect(f"nats://[::1]:{listener.getsockname()[1]}") as nc:
            nc.flush()
            assert nc.connected_url.startswith("nats://[::1]:")
        thread.join(10)


def _forward_once(listener: socket.socket, port: int) -> None:
    client, _ = listener.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as target:

        def pump(source: socket.socket, sink: socket.socket) -> None:
            try:
                while data := source.recv(65536):
                    sink.sendall(data)
            except OSError:
                pass
            for sock in (source, sink):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        back = threading.Thread(target=pump, args=(target, client), daemon=True)
        back.start()
        pump(client, target)
        back.join(5)
