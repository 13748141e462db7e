"""One local Spark session for all tests of this folder; pyspark is imported only when a test runs."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import our_threads

import jsclient
from jsclient.jetstream.api.requests import Api
from jsclient.testing import NatsServer, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))
            # Py4J and Spark's own workers leave sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore"))


def settings(folder: Path) -> dict[str, str]:
    """What every session of the tests needs: loopback only, no UI, all files below `folder`."""
    # The quick compiler alone and the simple collector: these sessions are short.
    java = "-Xss4m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{java} -Dderby.system.home={folder} -Djava.io.tmpdir={folder}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30s",
    }


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of drivers and workers; returns a folder for their files.

    `pyspark_jetstream` is laid out as a wheel would install it: Spark has to find the data source by itself.
    """
    folder = tmp_path_factory.mktemp("spark")
    for name in ("", "_kv", "_objects"):
        shutil.copytree(ROOT / "jsclient" / "spark" / f"_autoload{name}", folder / "site" / f"pyspark_jetstream{name}")
    path = os.pathsep.join([str(folder / "site"), str(ROOT)])
    sys.path.insert(0, str(folder / "site"))
    os.environ.update(
        {
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    )
    return folder


# For many small queries: no second planning, no classes compiled per query, no checksum files. The other modes run with
# Spark's defaults.
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.ui.retainedExecutions": "1",
}


@pytest.fixture(scope="package")
def spark(spark_environment: Path) -> Iterator[Any]:
    """local[2,2]: two tasks at a time, one retry each (plain local[2] never retries)."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    interrupt = signal.getsignal(signal.SIGINT)

    builder = SparkSession.builder.master("local[2,2]").appName("jsclient-tests")
    events = spark_environment / "events"
    events.mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events), "spark.eventLog.compress": "false"}
    for name, value in {**settings(spark_environment), **QUICK, **log}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    # Other tests may follow in this process: Py4J opens sockets when it likes, and Spark keeps a handler of SIGINT.
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None
    signal.signal(signal.SIGINT, interrupt)


@pytest.fixture(autouse=True)
def readers_are_stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spark stops the stream readers that it makes; so are those that a test makes itself."""
    from jsclient.spark.versions import SOURCES, running

    if running()[1] < SOURCES:
        yield
        return
    from jsclient.spark.datasource import JetStreamDataSource

    made: list[Any] = []
    make = JetStreamDataSource.streamReader

    def remember(source: JetStreamDataSource, schema: Any) -> Any:
        made.append(make(source, schema))
        return made[-1]

    monkeypatch.setattr(JetStreamDataSource, "streamReader", remember)
    yield
    for reader in made:
        reader.stop()


@pytest.fixture(autouse=True, scope="module")
def no_connection_is_left() -> Iterator[None]:
    """A connection to the server of a module would go on dialling, and the tests of other modules find its threads."""
    from jsclient.spark import close_idle

    older = our_threads()
    yield
    close_idle()
    wait_until(lambda: not our_threads() - older, 10)


@contextmanager
def refused_before(server: NatsServer, release: tuple[int, int], token: str) -> Iterator[None]:
    """On a server older than `release` the body has to end with our refusal, which names what is needed."""
    if server.version >= release:
        yield
        return
    with pytest.raises(Exception, match=rf"JETSTREAM_{token}\].*{release[0]}\.{release[1]}"):
        yield


@pytest.fixture
def in_portions(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes this process read in small batches and pulls."""

    def portions(rows: int, pulled: int | None = None, prefetch: int = 1) -> None:
        monkeypatch.setattr("jsclient.spark.reader.BATCH_ROWS", rows)
        monkeypatch.setattr("jsclient.arrow.pulling.PREFETCH", prefetch)
        for module in ("pulling", "direct"):
            monkeypatch.setattr(f"jsclient.arrow.{module}.PULL_MESSAGES", pulled or rows)

    return portions


NEEDS = {"fast": (2, 14)}


def mode_works(server: NatsServer, mode: str) -> AbstractContextManager[None]:
    """`refused_before` for a publishMode."""
    return refused_before(server, NEEDS.get(mode, (2, 9)), "SERVER_TOO_OLD")


class Js:
    """The few things tests do with JetStream beside Spark."""

    def __init__(self, nc: jsclient.Connection) -> None:
        self.nc = nc
        self.api = Api(nc)

    def create(self, name: str, **config: Any) -> None:
        self.api.request(
            f"STREAM.CREATE.{name}",
            {"name": name, "subjects": [f"{name}.>"], "storage": "file", **config},
            timeout=30,  # three replicas on a busy machine
        )

    def state(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = self.api.request(f"STREAM.INFO.{name}", read=True)["state"]
        return state

    def fill(self, name: str, count: int, first: int = 0, subject: Callable[[int], str] | None = None) -> None:
        """`count` messages with the numbers from `first` on as payload, on <name>.<number mod 4> unless told."""
        before = self.state(name)["last_seq"]
        for number in range(first, first + count):
            self.nc.publish(subject(number) if subject else f"{name}.{number % 4}", b"%d" % number)
            if number % 2000 == 1999:
                # The server stores what core publishes bring in its own time; never outrun it.
                self.settle(name, before + number + 1 - first)
        self.settle(name, before + count)

    def settle(self, name: str, last: int) -> None:
        from jsclient.testing import wait_until

        self.nc.flush()
        wait_until(lambda: self.state(name)["last_seq"] >= last, 20, f"{name} to hold {last} messages")

    def consumers(self, name: str) -> list[str]:
        return list(self.api.items(f"CONSUMER.NAMES.{name}", "consumers"))


@pytest.fixture
def js(server: NatsServer) -> Iterator[Js]:
    with jsclient.connect(server.url) as nc:
        yield Js(nc)


@pytest.fixture
def stream_name(request: pytest.FixtureRequest) -> str:
    """A name of its own for every test, so that they can share a server."""
    return "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]


@pytest.fixture
def reading(spark: Any, server: NatsServer) -> Callable[..., Any]:
    """reading(stream, option=value) -> DataFrame of the batch source."""

    def read(stream: str, schema: str | None = None, **options: Any) -> Any:
        reader = spark.read.format("jetstream").option("servers", server.url)
        if schema is not None:
            reader = reader.schema(schema)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(stream)

    return read


@pytest.fixture
def contents(server: NatsServer) -> Callable[[str], list[int]]:
    """contents(stream) -> the payloads of a stream as numbers, in the order of the stream."""
    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.ranges import Range
    from jsclient.arrow.reading import read_chunks
    from jsclient.spark import options, pool

    def read(stream: str) -> list[int]:
        checked = options.parse({"servers": server.url, "stream": stream}, options.READ)
        found: list[int] = []
        with pool.connection(checked) as nc:
            state = StreamAccess(nc, checked).state()
            for chunk in read_chunks(nc, checked, Range(0, state.first, state.end), "consumer", "test"):
                found += map(int, chunk.payloads)
        return found

    return read


class Pipeline:
    """A streaming query from one stream into another, restarted from the same checkpoint as often as wanted."""

    def __init__(self, spark: Any, url: str, source: str, target: str, checkpoint: Path) -> None:
        self.spark, self.url, self.source, self.target, self.checkpoint = spark, url, source, target, checkpoint
        self.sink: dict[str, Any] = {}
        self.change: Callable[[Any], Any] = lambda frame: frame

    def start(self, trigger: dict[str, Any] | None = None, **options: Any) -> Any:
        """Start the query; AvailableNow unless told otherwise. `options` are those of the source."""
        reader = self.spark.readStream.format("jetstream").option("servers", self.url)
        reader = reader.option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, value)
        frame = self.change(reader.load(self.source).selectExpr("value"))
        writer = frame.writeStream.format("jetstream").option("servers", self.url).option("subject", f"{self.target}.x")
        for name, value in self.sink.items():
            writer = writer.option(name, value)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, **options: Any) -> Any:
        """Run until everything that is there now is through; raises what the query raised."""
        query = self.start(**options)
        assert query.awaitTermination(180), "the query did not end"
        return query


@pytest.fixture
def pipeline(spark: Any, server: NatsServer, js: Js, stream_name: str, tmp_path: Path) -> Pipeline:
    """A source <name> and a target <name>_out, both empty."""
    js.create(stream_name)
    js.create(f"{stream_name}_out")
    return Pipeline(spark, server.url, stream_name, f"{stream_name}_out", tmp_path / "checkpoint")
