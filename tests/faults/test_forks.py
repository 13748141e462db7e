"""fork: the child's calls raise ForkedConnection, no byte of it reaches the parent's server, the parent works on."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # Python 3.12 warns when a process with threads forks: that is what is tested here.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns (or raises) in a forked child; the child ends without cleaning up."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer: Any = work()
        except BaseException as error:
            answer = error
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


CALLS: dict[str, Callable[[jsclient.Connection], Any]] = {
    "publish": lambda nc: nc.publish("a", b"from the child"),
    "request": lambda nc: nc.request("a", b"from the child", timeout=5),
    "subscribe": lambda nc: nc.subscribe("a"),
    "flush": lambda nc: nc.flush(),
    "drain": lambda nc: nc.drain(),
    "stats": lambda nc: nc.stats(),
    "health": lambda nc: nc.health(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_every_call_in_the_child_raises(server: NatsServer, call: Callable[[jsclient.Connection], Any]) -> None:
    with jsclient.connect(server.url) as nc:
        nc.flush()
        answer = in_child(lambda: call(nc))
        assert isinstance(answer, errors.ForkedConnection), answer
        assert "jsclient.shared" in str(answer)
        nc.flush()


def test_closing_in_the_child_is_silent(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
        subscription = nc.subscribe("a")
        nc.flush()
        sent = proxy.up.bytes

        def leave() -> str:
            with nc:
                pass
            nc.close()
            subscription.close()
            gc.collect()
            return "left"

        answer = in_child(leave)
        assert answer == "left" or isinstance(answer, errors.ForkedConnection)
        assert proxy.up.bytes == sent
        nc.publish("a", b"still here")
        assert subscription.next(timeout=5).payload == b"still here"
        assert nc.stats().reconnects == 0


def test_a_subscription_in_the_child_does_not_hang(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        subscription = nc.subscribe("a")
        nc.flush()
        answer = in_child(lambda: subscription.next(timeout=5))
        assert isinstance(answer, (errors.ForkedConnection, errors.SubscriptionClosed)), answer


def test_eight_children_while_the_parent_works(server: NatsServer) -> None:
    """The proxy counts: every byte on the wire is the parent's."""
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
        subscription = nc.subscribe("own", pending_messages=100_000)
        nc.flush()
        stop = threading.Event()
        sent: queue.SimpleQueue[int] = queue.SimpleQueue()

        def work() -> None:
            number = 0
            while not stop.is_set() or number < 1000:
                nc.publish("own", b"%d" % number)
                number += 1
                if number % 100 == 0:
                    nc.flush()
            sent.put(number)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(8):
                assert isinstance(in_child(lambda: nc.publish("own", b"child")), errors.ForkedConnection)
        finally:
            stop.set()
            thread.join(30)
        total = sent.get(timeout=5)
        for number in range(total):
            assert subscription.next(timeout=5).payload == b"%d" % number
        assert nc.stats().reconnects == 0


def test_shared_gives_every_process_its_own(server: NatsServer) -> None:
    options = jsclient.ConnectOptions(servers=server.url, name="shared")
    mine = jsclient.shared(options)
    try:
        assert jsclient.shared(options) is mine
        assert jsclient.shared(pickle.loads(pickle.dumps(options))) is mine
        identity = mine.client_id

        def child() -> tuple[int, float]:
            nc = jsclient.shared(options)
            return nc.client_id, nc.rtt()

        other, rtt = in_child(child)
        assert other != identity
        assert rtt >= 0
        mine.flush()
        wait_until(lambda: len(server.monitor("connz")["connections"]) == 1)
    finally:
        mine.close()
    again = jsclient.shared(options)
    assert again is not mine
    again.close()


def _use_shared(options: jsclient.ConnectOptions) -> int:
    nc = jsclient.shared(options)
    nc.publish("pool", b"x")
    nc.flush()
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(server: NatsServer, method: str) -> None:
    options = jsclient.ConnectOptions(servers=server.url)
    with jsclient.connect(options) as nc:
        subscription = nc.subscribe("pool")
        nc.flush()
        with multiprocessing.get_context(method).Pool(2) as pool:
            pids = pool.map(_use_shared, [options] * 8, chunksize=1)
            pool.close()
            pool.join()
        assert os.getpid() not in pids
        for _ in range(8):
            assert subscription.next(timeout=10).payload == b"x"


def test_pickling_live_objects_is_refused(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        subscription = nc.subscribe("a")
        for live in (nc, subscription):
            with pytest.raises(TypeError, match="ConnectOptions"):
                pickle.dumps(live)
        assert pickle.loads(pickle.dumps(nc.options)) == nc.options


def test_ids_differ_after_fork() -> None:
    from jsclient.nuid import inbox_id, next_nuid

    assert in_child(next_nuid)[:12] != next_nuid()[:12]
    assert in_child(inbox_id) != inbox_id()


def test_a_child_that_exits_normally_leaves_the_parent_alone(server: NatsServer) -> None:
    """sys.exit runs atexit handlers in the child: they must not touch the parent's session."""
    with jsclient.connect(server.url) as nc:
        nc.flush()
        child = os.fork()
        if child == 0:
            try:
                sys.exit(0)
            except SystemExit:
                import atexit

                atexit._run_exitfuncs()
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        nc.flush()
        assert nc.stats().reconnects == 0
