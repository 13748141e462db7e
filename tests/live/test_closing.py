"""Connect and close, over and over: nothing is left behind, and nobody is held up by a dial or a delay."""

from __future__ import annotations

import gc
import linecache
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import FakeClient, FakeServer, NatsServer, Proxy, free_port, wait_until

Count = Callable[[int, int], int]


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def ours(kind: str = "") -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"jsclient-{kind}")]


def wait_until_gone(kind: str = "", seconds: float = 10.0) -> None:
    """Says where those are that stay, whichever test they are of: they are all of this process."""
    try:
        wait_until(lambda: not ours(kind), seconds)
    except TimeoutError:
        stacks = sys._current_frames()
        left = [
            f"{thread.name}:\n{''.join(traceback.format_stack(stacks[thread.ident]))}"
            for thread in ours(kind)
            if thread.ident in stacks
        ]
        raise AssertionError("\n".join(left)) from None


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")


@needs_proc
def test_connect_and_close_leave_nothing(server: NatsServer, count: Count) -> None:
    with jsclient.connect(server.url):
        pass
    wait_until_gone()
    before = descriptors()
    for _ in range(count(200, 50)):
        with jsclient.connect(server.url) as nc:
            nc.subscribe("x", lambda message: None)
            nc.publish("x", b"")
            nc.flush()
    wait_until_gone()
    wait_until(lambda: descriptors() <= before)


@needs_proc
def test_failed_connects_leave_nothing(count: Count) -> None:
    port = free_port()
    before = descriptors()
    with FakeServer(FakeClient.hold) as silent:
        for number in range(count(200, 50)):
            with pytest.raises(errors.ConnectFailed):
                if number % 10:
                    jsclient.connect(f"nats://127.0.0.1:{port}")
                else:
                    jsclient.connect(silent.url, connect_timeout=0.05)
    wait_until_gone()
    wait_until(lambda: descriptors() <= before)


def test_close_during_an_outage_and_during_a_dial() -> None:
    with FakeServer(FakeClient.hold) as silent:
        nc = jsclient.connect(silent.url, retry_on_failed_connect=True, connect_timeout=30)
        wait_until(lambda: silent.clients)
        started = time.monotonic()
        nc.close()
        assert time.monotonic() - started < 2
        with pytest.raises(errors.ConnectionClosed):
            nc.publish("a", b"")
        # Not only after connect_timeout: the dial is ended, too.
        wait_until_gone("connect", 2)


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
    with FakeServer(FakeClient.hold) as silent:

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
    wait_until_gone()


def test_a_port_that_answers_itself_is_no_server() -> None:
    """With the server down, a dial of an ephemeral port may meet itself; that counts as refused."""
    port = free_port()
    with pytest.raises(errors.ConnectFailed):
        jsclient.connect(f"nats://127.0.0.1:{port}", local_address="127.0.0.1", connect_timeout=1)


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


class Strike:
    """A trace function that raises KeyboardInterrupt at one line of the end of a connection, where signals strike, too.

    That is not so where a block begins or is left: there no call of the line has come back.
    """

    NO_CALLS = ("with ", "try:", "finally:", "if first:")

    def __init__(self, number: int) -> None:
        self.left = number
        self.line = ""

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        name = frame.f_code.co_name
        return self.strike if name in ("close_now", "_finish_close") and not self.line else None

    def strike(self, frame: FrameType, event: str, arg: object) -> Any:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not self.line and not line.startswith(self.NO_CALLS):
            self.left -= 1
            if self.left < 0:
                self.line = line
                raise KeyboardInterrupt
        return self.strike


def test_ctrl_c_anywhere_in_a_close_leaves_nothing(server: NatsServer) -> None:
    """Behind the first step it was never closed: no later close did anything, and what waited for ever went on."""
    tracer = sys.gettrace()
    number, struck = 0, True
    while struck:
        nc = jsclient.connect(server.url)
        strike = Strike(number)
        sys.settrace(strike)
        try:
            nc.close()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        begin = time.monotonic()
        nc.close()
        assert time.monotonic() - begin < 1, strike.line
        try:
            wait_until_gone(seconds=5)
        except AssertionError as error:
            raise AssertionError(f"after {strike.line}\n{error}") from None
        number, struck = number + 1, bool(strike.line)
    assert number > 20
