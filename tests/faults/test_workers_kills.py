"""A worker service through kills of the server and of itself, and through SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

SERVICE = Path(__file__).with_name("worker_service.py")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as running:
        yield running


def start(server: NatsServer, log: Path, threads: int, fail: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(SERVICE), server.url, "WORK", "pool", str(log)]
    process = subprocess.Popen(
        [*command, str(threads), str(fail), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for the signal by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def set_up(nc: jsclient.Connection, count: int) -> Any:
    js = JetStream(nc, timeout=20)
    stream = js.create_stream(StreamConfig(name="WORK", subjects=["work.>"]))
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"], duplicate_window=600.0))
    consumer = stream.create_consumer(ConsumerConfig(durable_name="pool", ack_wait=3.0, max_ack_pending=-1))
    for index in range(count):
        js.publish_async("work.x", b"%d" % index)
    js.publish_async_complete(30)
    return js, consumer


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_every_message_is_handled_or_dead_through_kills(
    server: NatsServer, tmp_path: Path, count: Callable[[int, int], int]
) -> None:
    """6 kill -9 of the server, 3 of the worker process, handlers that fail 10 % of the time."""
    total, log = count(10_000, 2_000), tmp_path / "handled"
    with jsclient.connect(server.url) as nc:
        js, consumer = set_up(nc, total)
        process = start(server, log, threads=16, fail=10, seconds=0.005)
        try:
            for kill in range(9):
                progress = _handled(log)
                wait_until(lambda progress=progress: _handled(log) > progress + total // 30, 60)  # type: ignore[misc]
                if kill % 3 == 2:
                    process.kill()
                    process.wait(10)
                    assert process.stdout is not None
                    process.stdout.close()
                    process = start(server, log, threads=16, fail=10, seconds=0.005)
                else:
                    server.kill()
                    server.restart()
            wait_until(lambda: _floor(consumer) >= total, 120)
        finally:
            process.terminate()
            assert process.wait(30) == 0
            assert process.stdout is not None
            process.stdout.close()
        letters = [js.stream("DEAD").get_msg(seq) for seq in range(1, js.stream("DEAD").info().state.last_seq + 1)]
    handled = {int(line) for line in log.read_text().split()}
    dead = Counter(int(letter.data) for letter in letters)
    assert handled | set(dead) == set(range(total))
    assert max(dead.values(), default=1) == 1
    assert all("dice" in letter.headers["Dead-Letter-Reason"] or "without" in letter.headers["Dead-Letter-Reason"]
               for letter in letters)  # fmt: skip


def _handled(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _floor(consumer: Any) -> int:
    try:
        return int(consumer.info().ack_floor.stream_seq)
    except jsclient.errors.JsClientError:
        return 0


@pytest.mark.faults
def test_sigterm_with_busy_handlers(server: NatsServer, tmp_path: Path) -> None:
    """16 busy handlers: it ends in time with status 0, and what was buffered is with another worker in a second."""
    with jsclient.connect(server.url) as nc:
        _, consumer = set_up(nc, 200)
        process = start(server, tmp_path / "handled", threads=16, fail=0, seconds=3.0)
        wait_until(lambda: (tmp_path / "handled.begun").stat().st_size >= 16, 10)
        wait_until(lambda: catches(process.pid, signal.SIGTERM), 10)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: consumer.info().num_ack_pending <= 16, 5)
        got = consumer.fetch(184, timeout=3)
        assert process.wait(10) == 0
        assert time.monotonic() - begun < 10
        assert process.stdout is not None
        process.stdout.close()
        assert len(got) >= 184
        assert _handled(tmp_path / "handled") == 16
        for message in got:
            message.ack()
        wait_until(lambda: consumer.info().ack_floor.stream_seq == 200, 10)
