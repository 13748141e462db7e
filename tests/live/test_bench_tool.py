"""`make bench`: one of its cases beyond a default of the library, and what is left after a signal: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import jsclient
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from tools.bench.decoding import received

ROOT = Path(__file__).resolve().parents[2]
MARK = "BENCH_THAT_IS_ENDED"


def of_this_bench(value: str) -> dict[str, str]:
    """The command lines of all processes that have inherited the mark, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={value}\0".encode() in (folder / "environ").read_bytes():
                found[folder.name] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def test_the_case_decode_receives_more_than_the_default_of_max_bytes(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        stream = JetStream(nc).create_stream(StreamConfig(name="BENCH", subjects=["bench"], storage="memory"))
        for _ in range(100):
            nc.publish("bench", bytes(100_000))
        nc.flush()
        with received(stream, 100) as messages:
            assert messages.buffered == 99


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it looks for the processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    env = {**os.environ, MARK: str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tools.bench", "--cases", "threads-request-4", "--peers", "nats-py"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        wait_until(lambda: "helper" in str(of_this_bench(str(tmp_path))), timeout=60)
        running = str(of_this_bench(str(tmp_path)))
        assert "client_jsclient" in running
        assert "nats-server" in running
        bench.send_signal(number)
        assert bench.wait(30) == 128 + number
        assert bench.stderr is not None
        assert bench.stderr.read() == b""
    wait_until(lambda: not of_this_bench(str(tmp_path)), timeout=10)
    assert list(tmp_path.iterdir()) == []
