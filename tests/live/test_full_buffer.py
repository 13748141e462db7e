"""Publishing while disconnected: bounded by bytes, failing at once by default, in order afterwards."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import jsclient
from jsclient import ReconnectPolicy, errors
from jsclient.jetstream import JetStream
from jsclient.testing import Certificates, NatsServer, Proxy, certificates, wait_until

Count = Callable[[int, int], int]


def test_publishing_while_disconnected_is_bounded(server: NatsServer) -> None:
    """The limit counts frame + 64 B; a full buffer raises at once; what was accepted arrives, in order."""
    limit = 1 << 20
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
            assert grown < limit + (1 << 20)
            assert nc.health().buffered_bytes == accepted * frame
            started = time.monotonic()
            with pytest.raises(errors.BufferFull):
                nc.publish("kept", b"x" * 100)
            assert time.monotonic() - started < 0.5
            proxy.accept()
            for number in range(accepted):
                assert subscription.next(timeout=20).data.startswith(b"%06d" % number)


def test_no_buffer_means_failing_at_once(server: NatsServer) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}", pending_buffer=0) as nc:
        proxy.refuse()
        wait_until(lambda: not nc.is_connected)
        with pytest.raises(errors.BufferFull):
            nc.publish("a", b"")
        with pytest.raises((errors.TimedOut, errors.ConnectionLost)):
            nc.request("a", timeout=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["nats", "tls", "ws", "wss"])
def test_a_server_that_takes_nothing_fills_no_memory(scheme: str, tmp_path: Path) -> None:
    """Requests and publishes of all kinds on a stalled link: they end in their time, and what waits stays bounded."""
    certs = certificates(tmp_path)
    ours = certs.server_config() if scheme in ("tls", "wss") else "no_tls: true"
    config = {"nats": "", "tls": ours}.get(scheme, f"websocket {{ port: -1, {ours} }}")
    with NatsServer(config) as server:
        port = int(server.websocket_url.rsplit(":", 1)[1]) if "ws" in scheme else server.port
        stall_it(scheme, port, certs)


def stall_it(scheme: str, port: int, certs: Certificates) -> None:
    with Proxy(port) as proxy:
        tls = jsclient.TLSOptions(ca_file=certs.ca) if scheme in ("tls", "wss") else None
        nc = jsclient.connect(f"{scheme}://127.0.0.1:{proxy.port}", tls=tls, write_timeout=0.1)
        js = JetStream(nc)
        nc.flush()
        proxy.stall()
        unsent = outcomes = 0
        slowest = 0.0
        for number in range(60):
            started = time.monotonic()
            try:
                if number % 3 == 0:
                    nc.publish("full.core", bytes(500_000))
                elif number % 3 == 1:
                    js.publish("full.js", bytes(500_000), timeout=0.05)
                else:
                    nc.request("full.request", bytes(500_000), timeout=0.05)
            except (errors.BufferFull, errors.NotStored):
                unsent += 1
            except errors.RequestTimeout as error:
                unsent += not error.sent
                outcomes += error.sent
            except errors.PublishUnknown:
                outcomes += 1
            slowest = max(slowest, time.monotonic() - started)
            assert nc.health().buffered_bytes < 4 << 20
        assert slowest < 1
        assert unsent > 20
        assert outcomes > 0, "the first ones may have been sent"
        proxy.resume()
        nc.flush(timeout=20)
        nc.close()
