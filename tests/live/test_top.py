"""What a look of `jsclient top` costs: requests, and CPU."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.test_cli import environ

import jsclient
from jsclient.cli.top import CONSUMERS, STREAMS, layout
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.monitor import Monitor
from jsclient.testing import NatsServer, wait_until

Count = Callable[[int, int], int]

INTERVAL = 2.0
"""Seconds between two looks of `jsclient top`."""


def test_a_look_costs_few_requests_and_little_cpu(server: NatsServer, count: Count) -> None:
    """100 streams and 1,000 consumers: below 20 requests, and below 2 % of a core.

    The cheapest look counts of those that know all consumers (the first do not): a loaded machine takes up to twice
    the CPU for the same work.
    """
    streams = count(100, 10)
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for number in range(streams):
            stream = js.create_stream(StreamConfig(name=f"T{number}", storage="memory"))
            for name in "abcdefghij":
                stream.create_consumer(ConsumerConfig(durable_name=name))
        monitor = Monitor(js)
        monitor.snapshot()
        looks, sent, used = 30, nc.stats().messages_out, []
        for _ in range(looks):
            start = time.process_time()
            monitor.first = [f"T{number}" for number in range(5)]
            snapshot = monitor.snapshot()
            assert snapshot.requests < 20
            layout(snapshot.streams, STREAMS, 0, "", 50)
            layout(snapshot.consumers, CONSUMERS, 2, "", 50)
            if len(snapshot.consumers) == 10 * streams:
                used.append(time.process_time() - start)
        per_look = min(used)
        sent = nc.stats().messages_out - sent
        assert sent < 20 * looks, "counted on the connection, too"
        assert len(snapshot.streams) == streams
        assert len(used) >= 20, "all consumers are known soon"
        print(f"{sent / looks:.1f} requests and {per_look * 1000:.1f} ms of CPU per look")
        assert per_look < 0.02 * INTERVAL


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc")
def test_the_command_on_a_terminal_uses_little_cpu(server: NatsServer, count: Count) -> None:
    """The same of the whole process: what it draws, and what it asks as the server sees it."""
    looks = count(20, 5)
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        for number in range(100):
            stream = js.create_or_update_stream(StreamConfig(name=f"T{number}", storage="memory"))
            for name in "abcdefghij":
                stream.create_or_update_consumer(ConsumerConfig(durable_name=name))
        asked: Counter[str] = Counter()
        nc.subscribe("$JS.API.>", lambda message: asked.update([message.subject]))
        nc.flush()

        def seen() -> int:
            return asked["$JS.API.STREAM.LIST"]

        child, terminal = pty.fork()
        if child == 0:
            command = [sys.executable, "-m", "jsclient", "top", "--interval", str(INTERVAL)]
            os.execve(
                sys.executable, command, {**environ(server.url), "TERM": "xterm", "LINES": "50", "COLUMNS": "160"}
            )
        reading = threading.Thread(target=drain, args=(terminal,))
        reading.start()
        try:
            wait_until(lambda: seen() > 1, 30)
            os.write(terminal, b"2")  # the consumers: the larger of the two views
            first, requests, cpu, start = seen(), sum(asked.values()), cpu_of(child), time.monotonic()
            wait_until(lambda: seen() >= first + looks, 20 + 2 * INTERVAL * looks)
            share = (cpu_of(child) - cpu) / (time.monotonic() - start)
            per_look = (sum(asked.values()) - requests) / (seen() - first)
        finally:
            os.write(terminal, b"q")
            reading.join(20)
            assert os.waitpid(child, 0)[1] == 0
            os.close(terminal)
        print(f"{per_look:.1f} requests per look, {share:.2%} of a core")
        assert per_look < 20
        assert share < 0.02


def drain(terminal: int) -> None:
    """Read what is drawn, as a terminal does, until its program has ended."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


def cpu_of(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
