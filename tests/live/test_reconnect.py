"""Reconnecting to real servers: what survives, in which order, and which callbacks hear of it.

Most tests flush before they cut: a link over which nothing came is one that flaps, and the next dial waits two seconds.
test_kindness.py is about that rule.
"""

from __future__ import annotations

import queue
import random
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import ConnectionState, LinkEvent, errors
from jsclient._connection import ReplySink
from jsclient.connection import engine_of
from jsclient.testing import NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]


def offline(nc: jsclient.Connection) -> bool:
    """The loss was noticed and what was queued is set aside: from now on publishes are counted."""
    return nc.state is ConnectionState.RECONNECTING and engine_of(nc).outbox.sender is None


def reconnected(nc: jsclient.Connection, times: int, within: float = 5) -> None:
    wait_until(lambda: nc.stats().reconnects >= times and nc.is_connected, within, f"{nc.health()}")


# --- cuts -----------------------------------------------------------------------------------------------


def first_line(server: NatsServer) -> int:
    """How many bytes the INFO has with which the server greets."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as lines:
        return len(lines.readline())


@pytest.mark.timeout(400)
def test_cuts_at_random_byte_offsets(proxy: Proxy, server: NatsServer, full: bool, count: Count) -> None:
    """Anywhere in the stream or in the handshake of the next connection: connected again within 2.5 s each."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    slowest = 0.0
    with jsclient.connect(proxy.url, name="cuts") as nc:
        greeting = {"up": proxy.up.bytes, "down": proxy.down.bytes}
        if not full:  # a cut between the PONG and the INFO behind it costs two seconds: nothing has served us
            greeting["down"] = first_line(server) + len(b"PONG\r\n") - 2
        echo = nc.subscribe("cut.>", pending_messages=1_000_000)
        nc.flush()
        for number in range(count(200, 20)):
            before = proxy.cuts
            direction: Any = chance.choice(("up", "down"))
            if number % 3 == 0:
                proxy.cut()
                proxy.cut_after(chance.randrange(1, greeting[direction]), direction)
                _publish_until(nc, proxy, before + 2)  # or nothing passes, if it was connected again between the two
            else:
                proxy.cut_after(chance.randrange(1, 6000), direction)
                _publish_until(nc, proxy, before + 1)
            start = time.monotonic()
            wait_until(lambda: _flushes(nc), 10, f"seed {seed}, cut {number}: {nc.health()}")
            slowest = max(slowest, time.monotonic() - start)
            nc.publish("cut.end", b"%d" % number)
            while echo.next(timeout=5).subject != "cut.end":
                pass
        # Two seconds where it was cut before the server had served us: then it could be one that flaps.
        assert slowest < 2.5, f"seed {seed}: {slowest:.2f} s"


def _publish_until(nc: jsclient.Connection, proxy: Proxy, cuts: int) -> None:
    while proxy.cuts < cuts:
        nc.publish("cut.data", b"x" * 200)
        _flushes(nc)


def _flushes(nc: jsclient.Connection) -> bool:
    try:
        nc.flush(timeout=5)
    except errors.ConnectionLost:
        return False
    return True


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("where", ["INFO", "CONNECT", "PING", "PONG"])
def test_a_cut_inside_the_handshake(proxy: Proxy, server: NatsServer, where: str, reset: bool) -> None:
    info = first_line(server)
    with jsclient.connect(proxy.url) as nc:
        up = proxy.up.bytes
        sub = nc.subscribe("shake")
        nc.flush()
        proxy.cut(reset=reset)
        before = proxy.cuts
        direction: Any = "down" if where in ("INFO", "PONG") else "up"
        offset = {"INFO": 50, "CONNECT": 60, "PING": up - 3, "PONG": info + 3}[where]
        proxy.cut_after(offset, direction, reset=reset)
        wait_until(lambda: proxy.cuts == before + 1)
        wait_until(lambda: _flushes(nc), 5)
        nc.publish("shake", b"1")
        assert sub.next(timeout=5).data == b"1"


@pytest.mark.timeout(120)
def test_ten_thousand_subscriptions_survive_cuts(proxy: Proxy, server: NatsServer, count: Count) -> None:
    number = count(10_000, 1_000)
    with jsclient.connect(proxy.url) as nc, jsclient.connect(server.url) as other:
        subs = [nc.subscribe(f"many.{n}") for n in range(number)]
        for cut in range(5):
            proxy.cut()
            reconnected(nc, cut + 1, 10)
            nc.flush(timeout=10)
            for n in range(number):
                other.publish(f"many.{n}", b"%d" % cut)
            other.flush(timeout=10)
            for sub in subs:
                assert sub.next(timeout=10).data == b"%d" % cut


# --- what is kept ---------------------------------------------------------------------------------------


CUT_ORDER = re.compile(rb"PUB (cutorder\.\d) \d+\r\n(\d+)\r\n")


def test_threads_that_publish_through_cuts_keep_their_order(proxy: Proxy, server: NatsServer) -> None:
    """Messages on their way when a link breaks may be lost; none is doubled, none leaves us before an earlier one.

    The order is looked at on the wire: a server that is busy still reads what came over the old link when the new one
    has begun, and then passes on both side by side.
    """
    stop = threading.Event()
    wire: dict[int, bytearray] = defaultdict(bytearray)  # by the number of the link

    def tap(link: int, direction: str, piece: bytes) -> None:
        if direction == "up":
            wire[link] += piece

    proxy.tap = tap
    with jsclient.connect(proxy.url) as nc, jsclient.connect(server.url) as other:
        sub = other.subscribe("cutorder.*", pending_messages=10**7, pending_bytes=1 << 30)
        other.flush()
        failures: list[BaseException] = []

        def publish(name: int) -> None:
            number = 0
            try:
                while not stop.is_set():
                    if number % 100 == 99:
                        stop.wait(0.002)  # what is read at the end is less, and the buffers are full all the same
                    try:
                        nc.publish(f"cutorder.{name}", b"%d" % number)
                        number += 1
                    except errors.BufferFull:
                        stop.wait(0.01)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for cut in range(5):
            wait_until(lambda least=1000 * (cut + 1): sub.pending > least)  # type: ignore[misc]
            proxy.cut()
            reconnected(nc, cut + 1)
            nc.flush(timeout=10)  # or the server counts as one that flaps: then it is dialled every two seconds only
        stop.set()
        for thread in threads:
            thread.join(5)
        assert not failures
        nc.flush(timeout=10)
        other.flush(timeout=10)
        came = [(message.subject, int(message.data)) for message in (sub.next(timeout=0) for _ in range(sub.pending))]
    assert len(came) == len(set(came)), "doubled"
    left = [found.groups() for _, sent in sorted(wire.items()) for found in CUT_ORDER.finditer(bytes(sent))]
    for name in {name for name, _ in left}:
        numbers = [int(number) for each, number in left if each == name]
        assert numbers == sorted(set(numbers)), "doubled, or out of order"
    assert len(left) >= len(came)


def test_a_full_buffer_may_block_until_the_link_is_back(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url, pending_buffer=1000, pending_block=10) as nc:
        nc.flush()
        proxy.refuse()
        wait_until(lambda: offline(nc))
        done: queue.SimpleQueue[str] = queue.SimpleQueue()

        def publish() -> None:
            for _ in range(50):
                nc.publish("full", b"x" * 50)
            done.put("done")

        threading.Thread(target=publish, daemon=True).start()
        wait_until(lambda: nc.health().buffered_bytes > 400)
        assert done.empty()
        proxy.accept()
        assert done.get(timeout=5) == "done"


def test_auto_unsubscribe_counts_over_reconnects(proxy: Proxy, server: NatsServer) -> None:
    with jsclient.connect(proxy.url) as nc, jsclient.connect(server.url) as other:
        early = nc.subscribe("auto", max_messages=10)
        late = nc.subscribe("auto")
        nc.flush()
        for n in range(4):
            other.publish("auto", b"%d" % n)
        assert [early.next(timeout=5).data for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        proxy.cut()
        reconnected(nc, 1)
        late.unsubscribe(max_messages=10)
        nc.flush()
        for n in range(4, 20):
            other.publish("auto", b"%d" % n)
        assert [int(message.data) for message in early] == list(range(4, 10))
        assert [int(message.data) for message in late] == list(range(10))
        nc.flush()
        assert nc.stats().subscriptions == 0
        subs = server.monitor(f"connz?subs=1&cid={nc.client_id}")["connections"][0]["subscriptions"]
        assert subs == 0, "the server has forgotten them too"


def test_requests_under_way_fail_and_later_ones_wait(proxy: Proxy, server: NatsServer) -> None:
    with jsclient.connect(proxy.url) as nc, jsclient.connect(server.url) as other:
        asked = other.subscribe("ask")
        other.flush()
        nc.flush()
        caught: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def ask() -> None:
            try:
                caught.put(nc.request("ask", b"", timeout=30))
            except errors.JsClientError as error:
                caught.put(error)

        threading.Thread(target=ask, daemon=True).start()
        asked.next(timeout=5)
        proxy.refuse()
        assert isinstance(caught.get(timeout=2), errors.ConnectionLost)
        threading.Thread(target=ask, daemon=True).start()
        wait_until(lambda: offline(nc))
        with pytest.raises(errors.RequestTimeout, match="not connected"):
            nc.request("ask", b"", timeout=0.05)
        with pytest.raises(errors.FlushTimeout):
            nc.flush(timeout=0.05)
        proxy.accept()
        asked.next(timeout=5).respond(b"late")
        assert caught.get(timeout=5).data == b"late"


def test_a_flush_under_way_fails_with_the_link(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url) as nc:
        nc.flush()
        proxy.stall()
        caught: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def flush() -> None:
            try:
                nc.flush(timeout=30)
                caught.put(None)
            except errors.JsClientError as error:
                caught.put(error)

        threading.Thread(target=flush, daemon=True).start()
        wait_until(lambda: len(engine_of(nc).session.pings.waiters) == 1)
        proxy.cut()
        assert isinstance(caught.get(timeout=2), errors.ConnectionLost)
        proxy.resume()


# --- what is told ----------------------------------------------------------------------------------------


def test_events_come_serially_on_their_own_thread(proxy: Proxy) -> None:
    told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def note(what: str) -> Callable[..., None]:
        return lambda *args: told.put((what, threading.current_thread().name))

    nc = jsclient.connect(
        proxy.url, on_disconnected=note("down"), on_reconnected=note("up"), on_closed=note("closed"), on_error=note("!")
    )
    nc.flush()
    for number in (1, 2):
        proxy.cut()
        reconnected(nc, number)
        nc.flush()
    seen = [told.get(timeout=5) for _ in range(4)]  # before close: what is to be told just then may be lost with it
    nc.close()
    seen += [told.get(timeout=5) for _ in range(2)]
    assert [what for what, _ in seen] == ["down", "up", "down", "up", "down", "closed"]
    assert {name.rpartition("-")[0] for _, name in seen} == {"jsclient-events"}


def test_a_layer_that_fails_does_not_keep_the_link_down(proxy: Proxy) -> None:
    class Broken(ReplySink):
        def deliver(self, messages: list[Any], nbytes: int) -> None:
            raise LookupError("in deliver")

        def link_event(self, event: LinkEvent) -> None:
            raise LookupError("in link_event")

        def withdrawn(self, frames: list[Any]) -> None:
            raise LookupError("in withdrawn")

        def under_way(self) -> list[bytes]:
            return []

    with jsclient.connect(proxy.url) as nc:
        sub = nc.subscribe("fine")
        engine_of(nc).open_sink("broken", Broken())
        engine_of(nc).add_link_listener(Broken().link_event)
        nc.flush()
        proxy.cut()
        reconnected(nc, 1)
        nc.publish("broken", b"x")  # costs the link, and no more
        reconnected(nc, 2)
        nc.flush()
        nc.publish("fine", b"x")
        assert sub.next(timeout=5).data == b"x"


def test_link_listeners_and_inboxes_hear_of_the_link(proxy: Proxy) -> None:
    with jsclient.connect(proxy.url) as nc:
        heard: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
        engine_of(nc).add_link_listener(heard.put)
        inbox = engine_of(nc).open_inbox()
        nc.publish(inbox.subject, b"before")
        nc.flush()
        proxy.cut()
        reconnected(nc, 1)
        nc.publish(inbox.subject, b"after")
        items = [inbox.next(timeout=5) for _ in range(4)]
        assert items[1:3] == [LinkEvent.DISCONNECTED, LinkEvent.RECONNECTED]
        assert [items[0].data, items[3].data] == [b"before", b"after"]  # type: ignore[union-attr]
        assert [heard.get(timeout=2) for _ in range(2)] == [LinkEvent.DISCONNECTED, LinkEvent.RECONNECTED]


def test_force_reconnect(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        first = nc.client_id
        sub = nc.subscribe("force")
        nc.force_reconnect()
        nc.publish("force", b"x")
        assert sub.next(timeout=5).data == b"x"
        assert nc.client_id != first


def test_force_reconnect_from_many_threads_never_strands_the_connection(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:

        def force() -> None:
            for _ in range(5):
                nc.force_reconnect()

        threads = [threading.Thread(target=force, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        wait_until(lambda: _flushes(nc), 10, str(nc.health()))
