"""Kills under a running Spark job: of the server, executors, Python workers, the driver. Exact sets afterwards."""

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
from typing import Any, Final

import pytest

import jsclient
from jsclient import keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig
from jsclient.testing import Cluster, NatsServer, wait_until

from .conftest import Js, settings
from .test_versions import RELEASE

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


def fill(server: NatsServer, stream: str, total: int) -> None:
    with jsclient.connect(server.url) as nc:
        js = Js(nc)
        js.create(stream)
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


# --- a query that writes while its processes die ----------------------------------------------------------------------

KEYS: Final = 6_000
BATCH: Final = 2 * KEYS  # rows
FILES: Final = 6  # of a batch; all rows of a key are in one of them

DRIVER = """
import sys
from pyspark.sql import SparkSession
import jsclient.spark
from jsclient.spark import batch_writer
url, folder, checkpoints = sys.argv[1:4]
builder = SparkSession.builder.master("local-cluster[3,1,1024]")
for pair in sys.argv[4:]:
    builder = builder.config(*pair.split("=", 1))
spark = builder.getOrCreate()
if hasattr(spark, "dataSource"):
    jsclient.spark.register(spark)
def numbers(rows):
    return rows.selectExpr("n", "concat('k', n % 6000) AS key", "cast(n AS string) AS value")
def files():
    return numbers(spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 6).json(folder))
def stream():
    source = spark.readStream.format("jetstream").options(servers=url, startingOffsets="earliest")
    source = source.options(maxOffsetsPerTrigger=12000, minPartitions=6)
    return numbers(source.load("S").selectExpr("cast(cast(value AS string) AS bigint) AS n"))
def counts():
    return files().groupBy("key").count().selectExpr("key", "cast(count AS string) AS value")
def started(target, writing):
    return writing.option("checkpointLocation", checkpoints + target).trigger(availableNow=True).start()
ways = WAYS
running = {target: started(target, way()) for target, way in ways.items()}
for target, query in running.items():
    while query is not None:
        try:
            query = query.awaitTermination()
        except Exception as error:
            # Spark gives the process of a source 10 s to start, and a busy machine may need more.
            if "failed to connect back" not in str(error):
                raise
            query = started(target, ways[target]())
"""

WAYS: Final[dict[str, dict[str, str]]] = {
    # what is written: {its name: how it is written}
    "streams": {
        "SINK": 'files().select("value").writeStream.format("jetstream").options(servers=url, subject="SINK.x")',
        "WRITER": 'files().select("value").writeStream.outputMode("append")'
        '.foreachBatch(batch_writer({"servers": url, "subject": "WRITER.x"}))',
        "COPY": 'stream().select("value").writeStream.format("jetstream").options(servers=url, subject="COPY.x")',
    },
    "buckets": {
        "SINK": 'files().select("key", "value").writeStream.format("jetstream-kv").options(servers=url, bucket="SINK")',
        "COUNTS": 'counts().writeStream.outputMode("update")'
        '.foreachBatch(batch_writer({"servers": url, "bucket": "COUNTS"}))',
        "FENCED": 'files().selectExpr("value AS key", "value", "cast(0 AS bigint) AS expected_revision")'
        '.writeStream.format("jetstream-kv").options(servers=url, bucket="FENCED")',
    },
}
OLDEST: Final = {"WRITER": (3, 5), "COUNTS": (3, 5), "COPY": (4, 2)}  # PySpark; 4.0 for the others

KILLS: Final = ("executor", "server", "driver", "executor", "server", "executor")

DYNAMIC: Final = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.sql.files.minPartitionNum": "6",
    "spark.sql.shuffle.partitions": "3",
}


class Driver:
    """A process that runs the query. How long it takes depends on the machine; what counts is that it goes on."""

    STANDS_STILL = 200.0  # seconds without a new row; a driver on a busy machine needs a minute to start

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=log.parent, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
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

    def kill_executor(self) -> None:
        def kill_first() -> bool:
            found = self._processes("CoarseGrainedExecutorBackend")
            for pid in found[:1]:
                os.kill(pid, signal.SIGKILL)
            return bool(found)

        wait_until(kill_first, 60, "an executor to kill")

    def kill_driver(self) -> None:
        """Its executors find out by themselves."""
        for pid in (self._process.pid, *self._processes("SparkSubmit")):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _processes(self, word: str) -> list[int]:
        """Processes of this driver's session with `word` in their command."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                command = (path / "cmdline").read_bytes()
                if word.encode() in command and os.getsid(int(path.name)) == self._process.pid:
                    found.append(int(path.name))
        return found

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def source_files(folder: Path, total: int) -> None:
    """The numbers below `total`; a file has every sixth number of its batch."""
    folder.mkdir()
    for number in range(total // BATCH * FILES):
        first = number // FILES * BATCH + number % FILES
        path = folder / f"{number:04}.json"
        path.write_text("".join(f'{{"n":{n}}}\n' for n in range(first, first - first % BATCH + BATCH, FILES)))
        os.utime(path, (1_000_000_000 + number,) * 2)  # Spark takes the oldest file first


def entries(nc: jsclient.Connection, bucket: str) -> dict[str, bytes]:
    found = {}
    with keyvalue.key_value(JetStream(nc), bucket).watch(ignore_deletes=True) as watcher:
        while (entry := watcher.next()) is not None:
            found[entry.key] = entry.value
    return found


def expected_entries(name: str, total: int) -> dict[str, bytes]:
    """Key -> value when all rows are written."""
    if name == "FENCED":
        return {str(n): b"%d" % n for n in range(total)}
    if name == "COUNTS":
        return {f"k{key}": b"%d" % (total // KEYS) for key in range(KEYS)}
    return {f"k{n % KEYS}": b"%d" % n for n in range(total - KEYS, total)}


@pytest.mark.timeout(1800)  # each restart waits for the tasks of the run before
@pytest.mark.parametrize("kind", list(WAYS))
def test_executors_server_and_driver_are_killed(
    spark_environment: Path, own_server: NatsServer, tmp_path: Path, count: Callable[[int, int], int], kind: str
) -> None:
    """Queries on three executors with dynamic allocation. Each kill comes in the middle of a batch of one of them."""
    ways = {name: way for name, way in WAYS[kind].items() if OLDEST.get(name, (4, 0)) <= RELEASE}
    total = count(10 * BATCH, 5 * BATCH)
    stored = {name: total // BATCH * KEYS if name == "COUNTS" else total for name in ways}
    source_files(tmp_path / "in", total)
    written = "{" + ", ".join(f"{name!r}: lambda: {way}" for name, way in ways.items()) + "}"
    command = [sys.executable, "-c", DRIVER.replace("WAYS", written), own_server.url, str(tmp_path / "in")]
    command.append(f"{tmp_path}/checkpoint-")
    command += [f"{name}={value}" for name, value in {**settings(spark_environment), **DYNAMIC}.items()]
    with jsclient.connect(own_server.url) as nc:
        js = Js(nc)
        for name in ways:
            if kind == "buckets":
                keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket=name))
            else:
                js.create(name)
        if "COPY" in ways:
            js.create("S")
            js.fill("S", total)

        def rows(*names: str) -> int:
            try:
                return sum(js.state(f"KV_{name}" if kind == "buckets" else name)["last_seq"] for name in names or ways)
            except jsclient.errors.JsClientError:
                return 0  # the server was killed

        drivers = [Driver(command, tmp_path / "driver.log")]
        try:
            for number, victim in enumerate(KILLS):
                name = list(ways)[number % len(ways)]
                mark = stored[name] * (2 * number + 1) // (2 * len(KILLS))
                drivers[-1].run_until(lambda name=name, mark=mark: rows(name) >= mark, rows)  # type: ignore[misc]
                if victim == "server":
                    own_server.kill()
                    own_server.start()
                elif victim == "executor":
                    drivers[-1].kill_executor()
                else:
                    drivers[-1].kill_driver()
                    drivers.append(Driver(command, tmp_path / "driver.log"))
            drivers[-1].run_to_its_end(rows)
        finally:
            for driver in drivers:
                driver.kill()
        for name in ways:
            if kind == "buckets":
                assert entries(nc, name) == expected_entries(name, total), name
            else:
                exact(own_server, name, total)
        if "COPY" in ways:
            wait_until(lambda: js.consumers("S") == [], 90, "the consumers of killed tasks to vanish")
