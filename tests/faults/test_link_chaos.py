"""Everything at once: threads that publish, request, subscribe and drain, over a link that breaks in every way."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

EXPECTED = (errors.NatsConnectionError, errors.TimedOut, errors.SubscriptionClosed)


def flushes(nc: jsclient.Connection) -> bool:
    try:
        nc.flush(timeout=2)
    except (errors.ConnectionLost, errors.FlushTimeout):
        return False
    return True


class Chaos:
    """Threads that use one connection until `stop`; whatever they raise beside `EXPECTED` is a failure."""

    def __init__(self, nc: jsclient.Connection) -> None:
        self.nc = nc
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.replies = 0
        self.threads: list[threading.Thread] = []

    def start(self, *steps: Callable[[], None]) -> None:
        for step in steps:
            thread = threading.Thread(target=self.run, args=(step,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def run(self, step: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                step()
            except EXPECTED:
                self.stop.wait(0.002)
            except BaseException as error:
                self.failures.append(error)
                return

    def publish(self) -> None:
        for _ in range(50):
            self.nc.publish("chaos.data", b"x" * random.choice((10, 200, 40_000)))

    def request(self) -> None:
        text = b"%d" % random.randrange(1 << 30)
        assert self.nc.request("chaos.echo", text, timeout=2).data == text
        self.replies += 1

    def churn(self) -> None:
        with self.nc.subscribe(f"chaos.{random.random()}") as sub:
            sub.unsubscribe(max_messages=3) if random.random() < 0.3 else None
            self.nc.publish(sub.subject, b"1")
            sub.next(timeout=0.1)

    def drain(self) -> None:
        sub = self.nc.subscribe("chaos.data", lambda message: None)
        self.stop.wait(0.05)
        sub.drain(timeout=5)


@pytest.mark.parametrize("seed", range(4))
def test_chaos(server: NatsServer, seed: int, count: Callable[[int, int], int]) -> None:
    chance = random.Random(seed)
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as helper:
        helper.subscribe("chaos.echo", lambda message: message.respond(message.data))
        helper.flush()
        nc = jsclient.connect(proxy.url, ping_interval=0.3, write_timeout=1, connect_timeout=1)
        chaos = Chaos(nc)
        keep = nc.subscribe("chaos.keep")
        chaos.start(*[chaos.publish] * 4, *[chaos.request] * 4, *[chaos.churn] * 3, chaos.drain)
        for number in range(count(60, 20)):
            kind = chance.choice(("cut", "reset", "offset", "stall", "force", "refuse", "tiny"))
            if kind in ("cut", "reset"):
                proxy.cut(reset=kind == "reset")
            elif kind == "offset":
                proxy.cut_after(chance.randrange(1, 100_000), chance.choice(("up", "down")))
            elif kind == "stall":
                proxy.stall(chance.choice(("up", "down", "both")))
                chaos.stop.wait(chance.random() * 0.5)
                proxy.resume()
            elif kind == "force":
                nc.force_reconnect()
            elif kind == "refuse":
                proxy.refuse()
                chaos.stop.wait(chance.random() * 0.3)
                proxy.accept()
            else:
                proxy.limit(chance.choice((1, 100, 1000)), "down")
                chaos.stop.wait(0.05)
                proxy.limit()
            chaos.stop.wait(chance.random() * 0.1)
            assert not chaos.failures, (number, kind, chaos.failures)
        proxy.heal()
        wait_until(lambda: flushes(nc), 20, f"stranded: {nc.health()}")
        before = chaos.replies
        wait_until(lambda: chaos.replies > before + 20, 20, f"no replies any more: {nc.health()}")
        chaos.stop.set()
        for thread in chaos.threads:
            thread.join(20)
            assert not thread.is_alive(), "a thread hangs"
        assert not chaos.failures
        assert not engine_of(nc).requests.waiting
        wait_until(lambda: flushes(nc), 20)
        helper.publish("chaos.keep", b"x")
        assert keep.next(timeout=5).data == b"x"
        start = time.monotonic()
        nc.close()
        assert time.monotonic() - start < 4
