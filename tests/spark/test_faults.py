"""Kills under a running Spark job: of the server, of Python workers, of the driver. Exact sets afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient.testing import Cluster, NatsServer, wait_until

from .conftest import ROOT, Js, Pipeline

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


def fill(server: NatsServer, stream: str, total: int) -> None:
    with jsclient.connect(server.url) as nc:
        js = Js(nc)
        js.create(stream)
        js.create(f"{stream}_out")
        js.fill(stream, total)


def exact(server: NatsServer, stream: str, total: int) -> None:
    from jsclient.spark import close_idle, read_range

    found = [int(r.value) for r in read_range({"servers": server.url, "stream": stream}, 1, 10 * total)]
    close_idle()
    assert (len(found), len(set(found)), min(found), max(found)) == (total, total, 0, total - 1)


@contextlib.contextmanager
def when_stored(
    server: NatsServer | Cluster, stream: str, marks: list[int], action: Callable[[], None]
) -> Iterator[None]:
    """Runs the action each time the stream has grown past the next mark, in a thread."""
    stop = threading.Event()
    done: list[int] = []

    def last() -> int:
        try:
            with jsclient.connect(server.url) as nc:
                return int(Js(nc).state(stream)["last_seq"])
        except jsclient.errors.JsClientError:
            return 0

    def watch() -> None:
        for mark in marks:
            while not stop.is_set() and last() < mark:
                stop.wait(0.02)
            if not stop.is_set():
                action()
                done.append(mark)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
    assert done == marks


def test_server_killed_three_times_during_a_read_and_a_write(
    spark: Any, own_server: NatsServer, tmp_path: Path, count: Callable[[int, int], int]
) -> None:
    total = count(500_000, 50_000)
    fill(own_server, "S", total)

    def kill() -> None:
        own_server.kill()
        own_server.start()

    pipeline = Pipeline(spark, own_server.url, "S", "S_out", tmp_path / "checkpoint")
    with when_stored(own_server, "S_out", [total // 10, total // 3, total // 2], kill):
        pipeline.run(minPartitions=4, maxOffsetsPerTrigger=total // 2)
    exact(own_server, "S_out", total)


def spark_clients(server: NatsServer) -> dict[int, int]:
    """Process id -> messages sent to it, of the Python workers that are connected now."""
    with urllib.request.urlopen(f"{server.monitor_url}/connz?limit=1000", timeout=5) as answer:
        clients = json.load(answer)["connections"]
    return {
        int(c["name"].rpartition("-")[2]): c["out_msgs"]
        for c in clients
        if c.get("name", "").startswith("jsclient-spark-")
    }


def test_python_worker_killed_in_the_middle_of_a_read(
    spark: Any, own_server: NatsServer, count: Callable[[int, int], int]
) -> None:
    total = count(500_000, 100_000)
    fill(own_server, "S", total)
    frame = spark.read.format("jetstream").option("servers", own_server.url).option("readMethod", "consumer")
    frame = frame.option("recordsPerPartition", total // 2).load("S")
    assert frame.count() == total  # the workers are there now
    killed: list[int] = []
    stop = threading.Event()

    def kill_a_reader() -> None:
        before = spark_clients(own_server)
        while not stop.is_set() and not killed:
            for pid, sent in spark_clients(own_server).items():
                if pid != os.getpid() and sent > before.get(pid, 0) + total // 20:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
            stop.wait(0.01)

    killer = threading.Thread(target=kill_a_reader)
    killer.start()
    try:
        row = frame.selectExpr("count(*) AS n", "count(DISTINCT seq) AS d", "max(seq) AS m").first()
    finally:
        stop.set()
        killer.join()
    assert killed
    assert (row.n, row.d, row.m) == (total, total, total)


class Driver:
    """A process that runs the query. How long it takes depends on the machine; what counts is that it goes on."""

    STANDS_STILL = 200.0  # seconds without a new row; a driver on a busy machine needs a minute to start

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def run_until(self, done: Callable[[], bool], rows: Callable[[], int]) -> None:
        seen, since = -1, time.monotonic()

        def look() -> bool:
            nonlocal seen, since
            if done():
                return True
            if self._process.poll() is not None and not done():
                self._fail(f"ended with {self._process.returncode}")
            now = rows()
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > self.STANDS_STILL:
                self._fail("stands still")
            return False

        wait_until(look, 1700, "the driver to come so far")

    def run_to_its_end(self, rows: Callable[[], int]) -> None:
        self.run_until(lambda: self._process.poll() == 0, rows)

    def _fail(self, how: str) -> None:
        self.kill()
        pytest.fail(f"the driver {how}: {self._log.read_text(errors='replace')[-4000:]}")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


DRIVER = """
import sys
from pyspark.sql import SparkSession
url, checkpoint = sys.argv[1:3]
builder = SparkSession.builder.master("local[2,2]")
for pair in sys.argv[3:]:
    builder = builder.config(*pair.split("=", 1))
spark = builder.getOrCreate()
frame = (spark.readStream.format("jetstream").option("servers", url).option("startingOffsets", "earliest")
         .option("maxOffsetsPerTrigger", 20000).load("S").selectExpr("value"))
query = (frame.writeStream.format("jetstream").option("servers", url).option("subject", "S_out.x")
         .option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
"""


@pytest.mark.timeout(1800)  # each restart waits for the tasks of the run before
def test_driver_killed_and_started_again(
    spark_environment: Path, own_server: NatsServer, tmp_path: Path, count: Callable[[int, int], int]
) -> None:
    from .conftest import settings

    total = count(500_000, 100_000)
    fill(own_server, "S", total)
    configs = [f"{name}={value}" for name, value in settings(spark_environment).items()]
    command = [sys.executable, "-c", DRIVER, own_server.url, str(tmp_path / "checkpoint"), *configs]
    with jsclient.connect(own_server.url) as nc:

        def rows() -> int:
            return int(Js(nc).state("S_out")["messages"])

        for mark in (total // 10, total // 2):
            driver = Driver(command, tmp_path / f"driver-{mark}.log")
            try:
                driver.run_until(lambda mark=mark: rows() >= mark, rows)  # type: ignore[misc]
            finally:
                driver.kill()
        driver = Driver(command, tmp_path / "driver-last.log")
        try:
            driver.run_to_its_end(rows)
        finally:
            driver.kill()
        exact(own_server, "S_out", total)
        wait_until(lambda: Js(nc).consumers("S") == [], 90, "the consumers of killed tasks to vanish")
