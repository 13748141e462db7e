"""What a look of `jsclient top` costs: requests, and CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import jsclient
from jsclient.cli.top import CONSUMERS, STREAMS, layout
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.monitor import Monitor
from jsclient.testing import NatsServer

Count = Callable[[int, int], int]

INTERVAL = 2.0
"""Seconds between two looks of `jsclient top`."""


def test_a_look_costs_few_requests_and_little_cpu(server: NatsServer, count: Count) -> None:
    """100 streams and 1,000 consumers: below 20 requests, and below 2 % of a core."""
    streams = count(100, 10)
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for number in range(streams):
            stream = js.create_stream(StreamConfig(name=f"T{number}", storage="memory"))
            for name in "abcdefghij":
                stream.create_consumer(ConsumerConfig(durable_name=name))
        monitor = Monitor(js)
        monitor.snapshot()
        looks, sent = 20, nc.stats().messages_out
        start = time.process_time()
        for _ in range(looks):
            monitor.first = [f"T{number}" for number in range(5)]
            snapshot = monitor.snapshot()
            assert snapshot.requests < 20
            layout(snapshot.streams, STREAMS, 0, "", 50)
            layout(snapshot.consumers, CONSUMERS, 2, "", 50)
        per_look = (time.process_time() - start) / looks
        sent = nc.stats().messages_out - sent
        assert sent < 20 * looks, "counted on the connection, too"
        assert len(snapshot.streams) == streams
        assert len(snapshot.consumers) == 10 * streams
        print(f"{sent / looks:.1f} requests and {per_look * 1000:.1f} ms of CPU per look")
        assert per_look < 0.02 * INTERVAL
