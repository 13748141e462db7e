"""Servers that are far away: windows follow the round trip, so that a long line costs no throughput.

The proxy delays every chunk and passes as many as come. Rates are compared within one run; the comparison with nats-py
over 30 to 200 ms is `python -m tools.bench --cases far`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy

ROUND_TRIP = 0.2
"""Long, so that the window and not the machine decides a rate: with 60 ms, three times the rate of a fixed window of
500 was 25,000 messages a second, which a busy machine, with the proxy in the same process, did not always reach. Now it
is 7,500."""


@pytest.fixture(scope="module")
def far(server: NatsServer) -> Iterator[JetStream]:
    with Proxy(server.port) as proxy:
        proxy.delay(ROUND_TRIP / 2)
        with jsclient.connect(proxy.url) as nc:
            yield JetStream(nc)


def read(far: JetStream, count: int, **options: Any) -> float:
    """Messages per second."""
    config = ConsumerConfig(ack_policy="none", inactive_threshold=60)
    consumer = far.create_consumer("FAR", config)
    start = time.monotonic()
    with consumer.messages(stop_after=count, **options) as messages:
        assert sum(1 for _ in messages) == count
    return count / (time.monotonic() - start)


@pytest.mark.slow
def test_messages_reads_as_fast_as_from_a_near_server(
    server: NatsServer, far: JetStream, count: Callable[[int, int], int]
) -> None:
    number = count(100_000, 20_000)
    with jsclient.connect(server.url) as nc:
        JetStream(nc).create_stream(StreamConfig(name="FAR", subjects=["far"], storage="memory"))
        for _ in range(number):
            nc.publish("far", bytes(128))
        nc.flush(30)
    fixed = read(far, 2_000, max_messages=500)
    assert fixed < 1_000 / ROUND_TRIP  # that is what the window is for
    assert read(far, number) > 3 * fixed


def publish(far: JetStream, count: int, **options: int) -> float:
    """Messages per second."""
    settings: dict[str, Any] = {f"publish_async_{name}": value for name, value in options.items()}
    js = JetStream(far.nc, **settings)
    start = time.monotonic()
    for _ in range(count):
        js.publish_async("far.stored", bytes(128))
    js.publish_async_complete(60)
    return count / (time.monotonic() - start)


@pytest.mark.slow
def test_publish_async_has_more_under_way_on_a_long_line(far: JetStream, count: Callable[[int, int], int]) -> None:
    number = count(200_000, 30_000)
    far.create_stream(StreamConfig(name="STORED", subjects=["far.stored"], storage="memory"))
    fixed = publish(far, 1_500, max_pending=500)
    assert fixed < 500 / ROUND_TRIP
    assert publish(far, number) > 3 * fixed
    assert far.stream("STORED").info().state.messages == number + 1_500
