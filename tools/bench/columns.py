"""`python -m tools.bench.columns`: a stream of 128-byte messages as an Arrow table and back, in one process.

A private nats-server and this process share the machine, so both are measured: rows per second, and the CPU of each
per row. The gate is the rate of the best reading. BENCH_ROWS (1000000) changes the number of rows, BENCH_ROUNDS (5)
how often they are read; rates are worth something only on a machine that does nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import jsclient
from jsclient import arrow
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer
from tools.bench.measure import Timed

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SIZE = 128
READ_RATE = 400_000.0  # rows a second
TICKS = os.sysconf("SC_CLK_TCK")
WAYS: dict[str, dict[str, Any]] = {
    "all columns": {},
    "seq and value": {"columns": ["seq", "value"]},
    "values": {"columns": ["value"]},
}


def main() -> int:
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="ROWS", subjects=["rows.>"], allow_direct=True))
        subjects = pa.array([f"rows.{number % 8}" for number in range(ROWS)])
        table = pa.table({"subject": subjects, "value": pa.array([b"%0*d" % (SIZE, n) for n in range(ROWS)])})
        print(f"{ROWS} rows of {SIZE} B; server {nc.server_info.version}, load {os.getloadavg()[0]:.1f}")
        measured("write", server.pid, 1, lambda: arrow.write_table(js, table).rows)
        best = 0.0
        for name, arguments in WAYS.items():
            rate = measured(f"read, {name}", server.pid, ROUNDS, lambda given=arguments: _read(js, given))  # type: ignore[misc]
            best = max(best, rate) if name == "all columns" else best
    missed = best < READ_RATE
    print(f"{'MISSED' if missed else 'ok'}: {best:,.0f} rows/s read with all columns, must be {READ_RATE:,.0f}")
    return int(missed)


def _read(js: JetStream, arguments: dict[str, Any]) -> int:
    return arrow.read_table(js, "ROWS", **arguments).num_rows


def measured(name: str, pid: int, rounds: int, call: Callable[[], int]) -> float:
    """The rate of the best of some rounds."""
    best = 0.0
    for number in range(rounds):
        result: dict[str, float] = {}
        with _timed(pid, result):
            rows = call()
        assert rows == ROWS
        us = 1e6 / ROWS
        print(
            f"{name:22} {number + 1}: {ROWS / result['wall']:9,.0f} rows/s, CPU per row: "
            f"client {result['cpu'] * us:.2f}, server {result['server'] * us:.2f} us"
        )
        best = max(best, ROWS / result["wall"])
    return best


@contextmanager
def _timed(pid: int, result: dict[str, float]) -> Iterator[None]:
    before, timed = _cpu(pid), Timed()
    with timed:
        yield
    result.update(timed.result, server=_cpu(pid) - before)


def _cpu(pid: int) -> float:
    """Seconds that a process has used; 0 where /proc does not tell."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    started = time.monotonic()
    status = main()
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(status)
