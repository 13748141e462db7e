"""Forked and spawned processes: the child has no part in the parent's connections, and can have its own."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests import strict

import jsclient
from jsclient import ConnectOptions, coordination, errors, groups
from jsclient.connection import engine_of
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until
from jsclient.workers import WorkerPool

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Python 3.12 and later warn whenever a process with threads forks: that is what is tested here.
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]

Count = Callable[[int, int], int]


def in_child(work: Callable[[], Any]) -> str:
    """Run `work` in a forked child; what it returned as text, or the class name of what it raised."""
    read, write = os.pipe()
    # The tracer of `make coverage` has a lock, which another thread may hold: the child would wait for it for ever.
    tracer = sys.gettrace()
    sys.settrace(None)
    pid = os.fork()
    if pid != 0:
        sys.settrace(tracer)
    else:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not that of pytest-timeout
        signal.alarm(10)
        try:
            try:
                answer = str(work())
            except BaseException as error:
                answer = type(error).__name__
            os.write(write, answer.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with status {status} (14: it hung)"
    return answer


def test_every_call_of_a_child_raises_forked_connection(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("fork")
        inbox = engine_of(nc).open_inbox()
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="FORK", subjects=["fork.js"]))
        consumer = stream.create_consumer(ConsumerConfig(durable_name="c"))
        nc.publish("fork", b"1")
        message = nc.subscribe("fork")
        nc.flush()
        wait_until(lambda: sub.pending == 1)
        calls: dict[str, Callable[[], Any]] = {
            "publish": lambda: nc.publish("fork", b"x"),
            "request": lambda: nc.request("fork"),
            "flush": lambda: nc.flush(),
            "rtt": lambda: nc.rtt(),
            "subscribe": lambda: nc.subscribe("fork"),
            "drain": lambda: nc.drain(),
            "health": lambda: nc.health(),
            "stats": lambda: nc.stats(),
            "state": lambda: nc.state,
            "next": lambda: sub.next(timeout=5),
            "iteration": lambda: next(iter(message)),
            "unsubscribe": lambda: sub.unsubscribe(),
            "inbox": lambda: inbox.next(5),
            "js publish": lambda: js.publish("fork.js", b"x"),
            "publish_async": lambda: js.publish_async("fork.js", b"x"),
            "fetch": lambda: list(consumer.fetch(1, timeout=1)),
            "js info": lambda: js.account_info(),
        }
        for name, call in calls.items():
            assert in_child(call) == "ForkedConnection", name
        assert in_child(lambda: nc.closed) == "True"
        assert in_child(lambda: nc.options == ConnectOptions(servers=server.url)) == "True"
        assert "parent" in in_child(lambda: repr(nc))

        def close() -> str:
            nc.close()
            nc.close()
            nc.close(wait=False)
            return "closed"

        def leave() -> str:
            nc.__exit__(None, None, None)
            return "left"

        assert in_child(close) == "closed"
        assert in_child(leave) == "left"
        assert sub.next(timeout=5).data == b"1", "the parent still has what it had received"
        js.delete_stream("FORK")


def test_whoever_handles_messages_in_the_parent_does_not_hold_up_a_child(server: NatsServer) -> None:
    """A child that leaves the `with` blocks of its parent: nobody waits for threads that it does not have."""
    release = threading.Event()
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="HANDLE", subjects=["handle.js"]))
        js.publish("handle.js", b"x")
        js.publish("handle.js", b"x")
        started: queue.SimpleQueue[str] = queue.SimpleQueue()

        def handler(message: Any) -> None:
            started.put(message.subject)
            release.wait(20)

        sub = nc.subscribe("handle.core", handler)
        nc.publish("handle.core")
        running = stream.create_consumer(ConsumerConfig(durable_name="c")).consume(handler)
        pool = WorkerPool(stream.create_consumer(ConsumerConfig(durable_name="w")), handler, threads=2)
        for _ in range(4):
            started.get(timeout=5)
        try:
            for name, leave, answer in (
                ("subscription", sub.close, "None"),
                ("consume", lambda: running.__exit__(None, None, None), "None"),
                ("wait for consume", running.wait, "ForkedConnection"),
                ("pool", lambda: pool.__exit__(None, None, None), "None"),
                ("stop the pool", lambda: pool.stop(wait=False), "None"),
                ("stop the pool and wait", pool.stop, "ForkedConnection"),
                ("wait for pool", pool.wait, "ForkedConnection"),
            ):
                start = time.monotonic()
                assert in_child(leave) == answer, name
                assert time.monotonic() - start < 1, name
        finally:
            release.set()
            pool.stop()
            running.close()
        js.delete_stream("HANDLE")


def test_a_child_leaves_the_blocks_of_its_parent_quietly(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="LEAVE", subjects=["leave.js"]))
        consumer = stream.create_consumer(ConsumerConfig(durable_name="c"))
        leases = coordination.lease_bucket(js, "LEAVE", ttl=6.0)
        election = coordination.Election(leases, "leader", ttl=6.0)
        wait_until(lambda: election.leading)
        lease = coordination.Lock(leases, "lock", ttl=6.0).acquire(5)
        blocks: dict[str, Any] = {"iterator": consumer.messages(), "election": election, "lease": lease}
        if server.version >= (2, 11):
            group = groups.create_elastic(js, "LEAVE", "work", partitions=2)
            pool = groups.GroupPool(group, lambda message: None)
            blocks["group"] = pool
            assert in_child(lambda: pool.stop(wait=False)) == "None"
            assert in_child(pool.stop) == "ForkedConnection"
        for name, block in blocks.items():
            start = time.monotonic()
            assert in_child(lambda block=block: block.__exit__(None, None, None)) == "None", name  # type: ignore[misc]
            assert time.monotonic() - start < 3, name
        assert election.leading, "the parent still has it"
        assert lease.valid
        for block in blocks.values():
            block.__exit__(None, None, None)
        for name in list(js.stream_names()):
            js.delete_stream(name)


def test_no_byte_of_the_children_reaches_the_parents_socket(proxy: Proxy, count: Count) -> None:
    with jsclient.connect(proxy.url) as nc:
        sub = nc.subscribe("parent")
        nc.flush()
        for _ in range(count(8, 4)):
            nc.publish("parent", b"coalesced")  # a child must not send it a second time
            sent = proxy.up.bytes

            def child(nc: Any = nc) -> str:
                try:
                    nc.publish("parent", b"from the child")
                except errors.ForkedConnection:
                    nc.close()
                    return "forked"
                return "published"

            assert in_child(child) == "forked"
            assert sub.next(timeout=5).data == b"coalesced"
            wait_until(lambda before=sent: proxy.up.bytes - before <= 40)  # type: ignore[misc]
        assert sub.pending == 0
        for number in range(1000):
            nc.publish("parent", b"%d" % number)
        assert [int(sub.next(timeout=5).data) for _ in range(1000)] == list(range(1000))
        assert nc.stats().reconnects == 0


def test_fork_while_threads_are_busy(server: NatsServer, count: Count) -> None:
    """Locks may be held by threads that the child does not have: it must not hang on any of them."""
    stop = threading.Event()
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="BUSY", subjects=["busy.js"], max_msgs=1000))
        nc.subscribe("busy.echo", lambda message: message.respond(b""))
        nc.flush()

        def publish() -> None:
            while not stop.is_set():
                nc.publish("busy.x", b"x" * 500)

        def request() -> None:
            while not stop.is_set():
                nc.request("busy.echo", timeout=10)

        def publish_async() -> None:
            while not stop.is_set():
                js.publish_async("busy.js", b"x")

        def churn() -> None:
            while not stop.is_set():
                nc.subscribe("busy.churn").close()

        threads = [threading.Thread(target=run, daemon=True) for run in (publish, request, publish_async, churn)]
        for thread in threads:
            thread.start()

        def child() -> str:
            names = []
            for call in (
                lambda: nc.publish("busy.x", b"x"),
                lambda: nc.request("busy.echo"),
                lambda: nc.subscribe("busy.y"),
                lambda: js.publish_async("busy.js", b"x"),
                lambda: js.publish("busy.js", b"x"),
            ):
                try:
                    call()
                except errors.JsClientError as error:
                    names.append(type(error).__name__)
            nc.close()
            return " ".join(names)

        for _ in range(count(100, 15)):
            assert in_child(child) == " ".join(["ForkedConnection"] * 5)
        stop.set()
        for thread in threads:
            thread.join(10)
        nc.flush()
        assert nc.stats().reconnects == 0
        js.delete_stream("BUSY")


def test_a_child_opens_its_own_with_shared(server: NatsServer) -> None:
    options = ConnectOptions(servers=server.url)
    mine = jsclient.shared(options)
    try:
        assert jsclient.shared(options) is mine
        assert jsclient.shared(ConnectOptions(servers=server.url)) is mine
        assert jsclient.shared(ConnectOptions(servers=server.url, name="other")) is not mine

        def child() -> str:
            theirs = jsclient.shared(mine.options)
            theirs.flush()
            answer = f"{theirs is not mine} {theirs.client_id != client_id}"
            theirs.close()
            return answer

        client_id = mine.client_id
        assert in_child(child) == "True True"
        mine.flush()
        assert mine.stats().reconnects == 0
        mine.close()
        again = jsclient.shared(options)
        assert again is not mine
        again.flush()
    finally:
        for live in jsclient.live_connections():
            live.close()


def test_shared_from_many_threads_makes_one(server: NatsServer) -> None:
    options = ConnectOptions(servers=server.url, name="once")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(jsclient.shared(options)), daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len({id(nc) for nc in found}) == 1
    assert len(found) == 16
    found[0].close()


def _use_shared(url: str, number: int) -> int:
    nc = jsclient.shared(ConnectOptions(servers=url))
    nc.publish("mp.out", b"%d" % number)
    nc.flush()
    return os.getpid()


def _say_class(nc: Any) -> str:
    try:
        nc.flush()
    except errors.ForkedConnection as error:
        return type(error).__name__
    return "worked"


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("spawn", "forkserver"))]
)
def test_multiprocessing(server: NatsServer, method: str) -> None:
    context = multiprocessing.get_context(method)
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("mp.out")
        nc.flush()
        with context.Pool(2) as pool:
            pids = pool.starmap(_use_shared, [(server.url, number) for number in range(10)])
            pool.close()
            pool.join()
        assert os.getpid() not in pids
        assert sorted(int(sub.next(timeout=5).data) for _ in range(10)) == list(range(10))
        assert nc.stats().reconnects == 0
        with context.Pool(1) as pool, pytest.raises(TypeError, match="ConnectOptions"):
            pool.apply(_say_class, (nc,))


def test_inboxes_of_parent_and_child_differ(server: NatsServer) -> None:
    def child() -> str:
        with jsclient.connect(server.url) as own:
            return own.new_inbox()

    with jsclient.connect(server.url) as nc:
        assert len({nc.new_inbox(), in_child(child), in_child(child)}) == 3


def test_a_child_that_exits_normally_is_silent(server: NatsServer) -> None:
    """sys.exit in a forked child runs atexit and destructors: nothing is sent, nothing printed, nothing hangs."""
    script = """
import os, sys, jsclient
nc = jsclient.connect(sys.argv[1])
sub = nc.subscribe("exit", lambda message: None)
nc.publish("exit", b"x")
pid = os.fork()
if pid == 0:
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0
nc.flush()
assert nc.stats().reconnects == 0
nc.close()
print("fine")
"""
    done = subprocess.run(
        [*strict.PYTHON, "-W", "ignore::DeprecationWarning", "-c", script, server.url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


WAITS: dict[str, Callable[[jsclient.Connection], Any]] = {
    "next": lambda nc: nc.subscribe("wait.none").next(timeout=2),
    "request": lambda nc: nc.request("wait.deaf", timeout=2),
    "request_many": lambda nc: list(nc.request_many("wait.deaf", timeout=2)),
    "flush": lambda nc: nc.flush(timeout=2),
    "events": lambda nc: nc.events().next(timeout=2),
}


@pytest.mark.parametrize("call", WAITS)
def test_a_call_beneath_a_handler_that_forks_ends_in_the_child(server: NatsServer, call: str) -> None:
    """In the child nothing comes that it could wait for. Without a timeout it waited for ever."""
    main = threading.get_ident()
    read, write = os.pipe()
    with jsclient.connect(server.url) as nc:
        nc.subscribe("wait.deaf", lambda message: None)
        nc.flush()
        children: list[int] = []

        def fork(*_: object) -> None:
            children.append(os.fork())
            if not children[0]:
                signal.alarm(10)

        def strike() -> None:
            wait_until(lambda: sys._current_frames()[main].f_globals["__name__"] == "jsclient.waiting", 10)
            os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, fork)
        helper = threading.Thread(target=strike)
        if call == "flush":
            server.pause()
        try:
            helper.start()
            WAITS[call](nc)
            ended = ""
        except errors.JsClientError as error:
            ended = type(error).__name__
        finally:
            if children == [0]:
                os.write(write, ended.encode())
                os._exit(0)
            signal.signal(signal.SIGUSR1, before)
            server.resume()
        helper.join(10)
        _, status = os.waitpid(children[0], 0)
        assert status == 0
        assert os.read(read, 100) == b"ForkedConnection"
        assert ended != "ForkedConnection"
        nc.flush()
        assert nc.stats().reconnects == 0
    os.close(read)
    os.close(write)


def test_what_a_subscription_still_holds_is_the_parents(server: NatsServer) -> None:
    """Also when it has got all that it will get: each child handled the same messages once more."""
    with jsclient.connect(server.url) as nc:
        sub = nc.subscribe("held", max_messages=3)
        for number in range(3):
            nc.publish("held", b"%d" % number)
        wait_until(lambda: sub.closed, 10)
        assert in_child(lambda: [message.data for message in sub]) == "ForkedConnection"
        assert [message.data for message in sub] == [b"0", b"1", b"2"]


def test_a_child_that_returns_from_a_callback_handles_nothing(server: NatsServer) -> None:
    """It ends with its thread, without a word; what came behind the message is handled by the parent alone."""
    script = """
import os, sys, threading, jsclient
parent = os.getpid()
def handle(message):
    os.write(1, (message.data.decode() if os.getpid() == parent else "CHILD").encode() + b" ")
    if message.data == b"0":
        children.append(os.fork())
children = []
with jsclient.connect(sys.argv[1]) as nc:
    sub = nc.subscribe("fork", handle, max_messages=3)
    for number in range(3):
        nc.publish("fork", b"%d" % number)
    nc.flush()
    nc.barrier()
    os.waitpid(children[0], 0)
"""
    done = subprocess.run(
        [*strict.PYTHON, "-W", "ignore::DeprecationWarning", "-c", script, server.url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1 2 ", "")


def test_the_end_of_a_block_leaves_a_shared_connection_open(server: NatsServer) -> None:
    options = ConnectOptions(servers=server.url, name="block")
    with jsclient.connect(server.url) as other:
        sub = other.subscribe("block.>")
        other.flush()
        with jsclient.shared(options) as nc:
            nc.publish("block.parent")

            def inherited() -> str:
                nc.__exit__(None, None, None)
                with jsclient.shared(options) as own:
                    own.publish("block.child")  # os._exit follows: the block has sent it
                return f"{own.closed} {nc.closed}"

            assert in_child(inherited) == "False True"
        assert {sub.next(5).subject for _ in range(2)} == {"block.parent", "block.child"}
        nc.flush()
        assert jsclient.shared(options) is nc
        with pytest.raises(KeyError), nc:
            raise KeyError
        with nc:
            nc.close()
        assert nc.closed, "an explicit close closes"
        assert jsclient.shared(options) is not nc
        jsclient.shared(options).close()
