"""One connection, many threads: nothing lost, nothing mixed up, the order of each thread kept."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.connection import engine_of
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

Count = Callable[[int, int], int]


def run_all(*targets: Callable[[], Any], timeout: float = 55) -> None:
    failures: list[BaseException] = []

    def guarded(target: Callable[[], Any]) -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def test_64_threads_do_everything_on_one_connection(server: NatsServer, count: Count) -> None:
    """64 x 500 publishes stored in the order of each thread, 64 x 100 requests, subscriptions that come and go."""
    publishes, requests = count(500, 100), count(100, 20)
    with jsclient.connect(server.url) as nc, jsclient.connect(server.url) as helper:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="ORDER", subjects=["order.*"]))
        helper.subscribe("echo", lambda message: message.respond(message.data))
        helper.flush()

        def publish(name: int) -> Callable[[], None]:
            def run() -> None:
                for number in range(publishes):
                    nc.publish(f"order.{name}", b"%d" % number)

            return run

        def request(name: int) -> Callable[[], None]:
            def run() -> None:
                for number in range(requests):
                    text = b"%d.%d" % (name, number)
                    assert nc.request("echo", text, timeout=30).data == text

            return run

        def churn(name: int) -> Callable[[], None]:
            def run() -> None:
                for number in range(30):
                    with nc.subscribe(f"churn.{name}") as sub:
                        nc.publish(f"churn.{name}", b"%d" % number)
                        assert sub.next(timeout=30).data == b"%d" % number

            return run

        def drain() -> None:
            for _ in range(10):
                sub = nc.subscribe("order.*", lambda message: None)
                sub.drain(timeout=30)

        run_all(*map(publish, range(64)), *map(request, range(64)), *map(churn, range(8)), drain)
        nc.flush(timeout=30)
        stream = js.stream("ORDER")
        wait_until(lambda: stream.info().state.messages == 64 * publishes, 20)
        helper_sub = nc.subscribe("check.nothing")
        helper_sub.close()
        consumer = stream.ordered_consumer()
        last = dict.fromkeys((f"order.{name}" for name in range(64)), -1)
        total = 0
        while total < 64 * publishes:
            for message in consumer.fetch(1000, timeout=5):
                assert int(message.data) == last[message.subject] + 1
                last[message.subject] += 1
                total += 1
        assert nc.stats().reconnects == 0
        assert not engine_of(nc).requests.waiting
        log = server.log_text()
        assert "arser" not in log
        js.delete_stream("ORDER")


@pytest.mark.slow
def test_subscriptions_come_and_go_while_links_break(server: NatsServer) -> None:
    """Threads subscribe and unsubscribe while the connection reconnects: the table is never read while it changes."""
    stop = threading.Event()
    with jsclient.connect(server.url) as nc:
        keep = [nc.subscribe(f"keep.{number}") for number in range(500)]

        def churn() -> None:
            limited: list[jsclient.Subscription] = []
            while not stop.is_set():
                subs = [nc.subscribe(f"go.{random.random()}") for _ in range(20)]
                for sub in [*limited, *subs[6:]]:
                    sub.close()
                limited = subs[:6]
                for sub in limited:
                    sub.unsubscribe(max_messages=5)

        def reconnect() -> None:
            try:
                for number in range(10):
                    nc.force_reconnect()
                    wait_until(lambda least=number + 1: nc.stats().reconnects >= least, 20)  # type: ignore[misc]
            finally:
                stop.set()

        run_all(churn, churn, churn, reconnect)
        wait_until(lambda: flushes(nc), 20)
        for number, sub in enumerate(keep):
            nc.publish(f"keep.{number}", b"%d" % number)
            assert not sub.closed
        for number, sub in enumerate(keep):
            assert sub.next(timeout=10).data == b"%d" % number


def flushes(nc: jsclient.Connection) -> bool:
    try:
        nc.flush(timeout=10)
    except errors.ConnectionLost:
        return False
    return True
