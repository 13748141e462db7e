"""A process that has no more of something: descriptors, threads, memory.

Descriptors run out for real. So does memory, under RLIMIT_AS in a process of its own. Threads are refused by a patch
that raises what the interpreter raises, or die as they do for want of memory: RLIMIT_NPROC does not bind the superuser,
so it would test nothing in most containers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import threads_rig

import jsclient
from jsclient import coordination, errors, groups
from jsclient.jetstream import ConsumerConfig, JetStream, JetStreamMsg, StreamConfig
from jsclient.services import ServiceConfig, add_service
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import WorkerPool

resource = pytest.importorskip("resource")

MIB = 1 << 20

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def js(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        made = JetStream(nc)
        made.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        yield made
        made.delete_stream("S")


# --- descriptors ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_descriptors() -> Iterator[Callable[[], int]]:
    """Every descriptor that this process may have is in use; what is yielded takes those that were freed meanwhile,
    and tells how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    taken: list[int] = []

    def fill() -> int:
        before = len(taken)
        with pytest.raises(OSError) as raised:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        assert raised.value.errno == errno.EMFILE
        return len(taken) - before

    try:
        fill()
        yield fill
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_descriptor_for_a_new_connection(server: NatsServer, host: str) -> None:
    url = f"nats://{host}:{server.port}"
    with no_descriptors(), pytest.raises(errors.NatsConnectionError) as raised:
        jsclient.connect(url, connect_timeout=3)
    assert isinstance(raised.value, errors.ConnectFailed)
    with jsclient.connect(url) as nc:
        nc.flush()


def test_no_descriptor_for_the_link_that_was_lost(js: JetStream, server: NatsServer) -> None:
    """What stands goes on; a lost link comes back as soon as there is a descriptor."""
    fills: list[Callable[[], int]] = []

    def choose(servers: list[jsclient.PoolServer], info: object) -> None:
        while fills:
            wait_until(fills.pop(), 20)  # the lost link gives its descriptor back

    with jsclient.connect(server.url, reconnect=jsclient.ReconnectPolicy(choose=choose)) as nc:
        lose_it(JetStream(nc), nc, fills)


def lose_it(js: JetStream, nc: jsclient.Connection, fills: list[Callable[[], int]]) -> None:
    consumer = js.create_consumer("S", ConsumerConfig(durable_name="C"))
    taken: list[bytes] = []

    def take(message: JetStreamMsg) -> None:
        taken.append(message.data)
        message.ack()

    with consumer.consume(take):
        with no_descriptors() as fill:
            fills.append(fill)
            js.publish("s.a", b"1")
            wait_until(lambda: taken == [b"1"])
            reconnects = nc.stats().reconnects
            nc.force_reconnect()
            wait_until(lambda: not nc.is_connected)
            with pytest.raises((errors.NotStored, errors.RequestTimeout)):
                js.publish("s.a", b"never", timeout=0.3)
            future = js.publish_async("s.a", b"2", msg_id="2")
            nc.publish("s.a", b"3")
            assert not nc.is_connected, "there was a descriptor after all"
        wait_until(lambda: nc.is_connected and nc.stats().reconnects > reconnects, 20)
        assert future.result(20).duplicate is False
        wait_until(lambda: sorted(taken) == [b"1", b"2", b"3"], 20)


# --- threads ----------------------------------------------------------------------------------------------------


NoThreads = Callable[[], contextlib.AbstractContextManager[list[str]]]


@pytest.fixture(params=threads_rig.HOWS)
def no_threads(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> NoThreads:
    """`with no_threads() as refused:` no thread of the library begins; the names of those refused."""
    return lambda: threads_rig.no_threads(monkeypatch, request.param)


def test_no_thread_for_what_is_begun(js: JetStream, server: NatsServer, no_threads: NoThreads) -> None:
    """Each raises NoThread, leaves nothing behind, and works when there are threads again."""
    nc = js.nc
    consumer = js.create_consumer("S", ConsumerConfig(durable_name="C"))
    leases = coordination.lease_bucket(js, ttl=None if nc.server_info.at_least(2, 11) else 10.0)
    service = add_service(nc, ServiceConfig(name="echo", version="1.0.0"))

    def take_lock() -> None:
        coordination.Lock(leases, "lock", ttl=10).acquire(5).release()

    begin: dict[str, Callable[[], Any]] = {
        "connect": lambda: jsclient.connect(server.url).close(),
        "consume": lambda: consumer.consume(lambda message: None).close(),
        "pool": lambda: WorkerPool(consumer, lambda message: None).stop(),
        "endpoint": lambda: service.add_endpoint("e", lambda request: None),
        "watch": lambda: leases.watch("x", callback=lambda entry: None).stop(),
        "lock": take_lock,
        "election": lambda: coordination.Election(leases, "election").close(),
    }
    if nc.server_info.at_least(2, 11):
        group = groups.create_elastic(js, "S", "group", partitions=2)
        begin["group pool"] = lambda: groups.GroupPool(group, lambda message: None, ack_wait=2, lease=2).stop()
    for name, call in begin.items():
        with no_threads() as refused, pytest.raises(errors.NoThread):
            call()
        assert refused, name
        call()
    assert [endpoint.name for endpoint in service.info().endpoints] == ["e"]
    service.stop()
    for stream in list(js.stream_names()):
        if stream != "S":
            js.delete_stream(stream)


def test_no_thread_for_a_callback_is_for_the_moment(js: JetStream, no_threads: NoThreads) -> None:
    """Callbacks, events and a way back to the server that need a thread get it as soon as there is one."""
    nc, taken = js.nc, []
    with no_threads() as refused:
        nc.subscribe("callback", lambda message: taken.append(message.data))
        nc.publish("callback", b"1")
        nc.flush()
        wait_until(lambda: len(refused) > 0)
        assert not taken
        assert js.publish("s.a", b"").seq == 1, "what needs no thread works"
        future = js.publish_async("s.a", b"")
        assert future.result(10).seq == 2
        before = len(refused)
        nc.force_reconnect()
        wait_until(lambda: any("connect" in name for name in refused[before:]))
        assert not nc.is_connected
    wait_until(lambda: nc.is_connected, 20)
    wait_until(lambda: taken == [b"1"])
    nc.publish("callback", b"2")
    wait_until(lambda: taken == [b"1", b"2"])


# --- memory -----------------------------------------------------------------------------------------------------

PRELUDE = """
import resource, sys, threading
import jsclient, jsclient.jetstream, jsclient.services, jsclient.workers
from jsclient import errors
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import wait_until

MIB = 1 << 20
told, lost = [], []

def in_use():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

def limit(more):
    "So much more address space than now; None: no limit"
    most = resource.RLIM_INFINITY if more is None else in_use() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

nc = jsclient.connect(
    sys.argv[1],
    on_error=lambda nc, error, sub: told.append(error),
    on_disconnected=lambda nc, error: lost.append(str(error)),
)
js = JetStream(nc)
"""


def run(server: NatsServer, code: str) -> str:
    """What a process of its own prints."""
    program = PRELUDE + textwrap.dedent(code) + "\nnc.close()\n"
    command = [sys.executable, "-c", program, server.url]
    environ = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # each arena is 64 MiB of address space that is there already
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_no_memory_in_a_handler(server: NatsServer) -> None:
    """The handler's message is not acked, everything else goes on, and the next attempt has the memory."""
    run(
        server,
        """
        js.create_stream(StreamConfig(name="M", subjects=["m.>"]))
        plenty = False
        taken = []

        def hungry(message):
            needed = bytearray(2048 * MIB if not plenty else MIB)
            taken.append(message.data)
            return needed

        service = jsclient.services.add_service(nc, jsclient.services.ServiceConfig(name="s", version="1.0.0"))
        service.add_endpoint("hungry", lambda request: request.respond(b"%d" % len(hungry(request))))
        nc.subscribe("core", hungry)
        consumer = js.create_consumer("M", ConsumerConfig(durable_name="C", ack_wait=2))
        pooled = js.create_consumer("M", ConsumerConfig(durable_name="P"))
        running = consumer.consume(
            lambda message: (hungry(message), message.ack()), on_error=lambda error, message: told.append(error)
        )
        pool = jsclient.workers.WorkerPool(pooled, hungry, threads=1)
        nc.flush()
        limit(512 * MIB)
        nc.publish("core", b"core")
        js.publish("m.a", b"stored")
        wait_until(lambda: sum(isinstance(error, MemoryError) for error in told) >= 2, 20, told)
        answer = nc.request("hungry", b"x", timeout=10)
        assert answer.headers["Nats-Service-Error-Code"] == "500", answer
        wait_until(lambda: pool.snapshot().failed >= 1, 20, pool.snapshot())
        assert not taken
        plenty = True
        nc.publish("core", b"again")
        wait_until(lambda: sorted(taken) == [b"again", b"stored", b"stored"], 30, taken)
        assert nc.request("hungry", b"x", timeout=10).data == b"%d" % MIB
        assert nc.stats().reconnects == 0
        wait_until(lambda: consumer.info().num_ack_pending == 0 == pooled.info().num_ack_pending, 10)
        running.close()
        pool.stop()
        js.delete_stream("M")
        """,
    )


def test_no_memory_for_what_arrives() -> None:
    """The link is given up, since its stream of bytes has a hole; another one is made, and what a stream keeps comes
    again when there is room."""
    with NatsServer("max_payload: 32MB\nmax_pending: 256MB\n") as server:
        with jsclient.connect(server.url) as nc:  # here, so that the other process has never had that much
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="M", subjects=["m.>"]))
            js.create_consumer("M", ConsumerConfig(durable_name="C", ack_wait=1))
            js.publish("m.a", bytes(24 * MIB), timeout=60)
        run(
            server,
            """
            consumer = js.consumer("M", "C")
            limit(12 * MIB)
            try:
                assert not consumer.fetch(1, timeout=5), "there was room"
            except errors.JsClientError:
                pass
            assert any("MemoryError" in text for text in lost), lost
            limit(None)
            wait_until(lambda: nc.is_connected, 20)
            message = consumer.fetch(1, timeout=30)[0]
            assert len(message.data) == 24 * MIB
            message.double_ack(10)
            js.delete_stream("M")
            """,
        )
