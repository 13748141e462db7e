"""Publishing while disconnected: bounded by bytes, failing at once by default, in order afterwards."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

import pytest

import jsclient
from jsclient import ReconnectPolicy, errors
from jsclient.testing import NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]


def test_publishing_while_disconnected_is_bounded(server: NatsServer) -> None:
    """The limit counts frame + 64 B; a full buffer raises at once; what was accepted arrives, in order."""
    limit = 4 << 20
    with Proxy(server.port) as proxy, jsclient.connect(server.url) as other:
        subscription = other.subscribe("kept", pending_messages=1_000_000)
        other.flush()
        with jsclient.connect(
            f"nats://127.0.0.1:{proxy.port}", pending_buffer=limit, reconnect=ReconnectPolicy(delay=lambda n: 0.05)
        ) as nc:
            nc.flush()
            proxy.refuse()
            wait_until(lambda: not nc.is_connected)
            gc.collect()
            tracemalloc.start()
            base = tracemalloc.get_traced_memory()[0]
            accepted = 0
            with pytest.raises(errors.BufferFull):
                for number in range(100_000):
                    nc.publish("kept", b"%06d" % number + b"x" * 94)
                    accepted += 1
            grown = tracemalloc.get_traced_memory()[1] - base
            tracemalloc.stop()
            frame = len(b"PUB kept 100\r\n\r\n") + 100
            assert accepted == limit // (frame + 64)
            assert grown < limit + (2 << 20)
            assert nc.health().buffered_bytes == accepted * frame
            started = time.monotonic()
            with pytest.raises(errors.BufferFull):
                nc.publish("kept", b"x" * 100)
            assert time.monotonic() - started < 0.5
            proxy.accept()
            for number in range(accepted):
                assert subscription.next(timeout=20).payload.startswith(b"%06d" % number)


def test_no_buffer_means_failing_at_once(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}", pending_buffer=0) as nc:
        proxy.refuse()
        wait_until(lambda: not nc.is_connected)
        with pytest.raises(errors.BufferFull):
            nc.publish("a", b"")
        with pytest.raises((errors.TimedOut, errors.ConnectionLost)):
            nc.request("a", timeout=0.2)
