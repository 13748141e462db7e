"""`make bench-spark`: the Spark data source on this machine: rows per second, Python CPU per row, and the gates.

One local[2] session, a private nats-server, messages of 128 bytes. CPU is what all Python workers used, taken from
/proc; wall figures of a shared machine say little. BENCH_ROWS (300000) changes the number of rows.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jsclient
from jsclient import keyvalue
from jsclient.jetstream import JetStream
from jsclient.jetstream.api.requests import Api
from jsclient.keyvalue import KeyValueConfig
from jsclient.testing import NatsServer

ROOT = Path(__file__).resolve().parents[2]
ROWS = int(os.environ.get("BENCH_ROWS", "300000"))
SIZE = 128
ROUNDS = 3
ROW_BY_ROW = 3000  # rows of the baseline that waits for every ack
BATCHES = 12  # micro-batches per source; their median counts

# 2.6 and 4.7 us of CPU, as measured before the journal on the machine that this is developed on, by 0.95.
READ_US, WRITE_US = 2.74, 4.95
VALUE_US = 2.2  # 1.6 on an idle machine
JOURNAL = 1.3  # what a write with a journal may cost against one with ids alone
TIMES, EXTRA_MS = 10.0, 150.0
FROM_JSON = {6: 0.8, 2: 0.4}  # columns of six -> the time of decoding for valueFormat=json against that of from_json
DOCUMENTS = max(ROWS * 10, 200_000)  # decoding is much faster than reading
TICKS = os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    name: str
    rows: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def us(self) -> float:
        return self.cpu / self.rows * 1e6


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, NatsServer() as server:
        spark = session(Path(folder))
        try:
            missed = run(spark, server.url, Path(folder))
        finally:
            spark.stop()
    print("\n".join(missed) if missed else "every gate holds")
    return 1 if missed else 0


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    from jsclient.spark import register

    os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT), SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("jsclient-bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Xss4m -Djava.io.tmpdir={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def run(spark: Any, url: str, folder: Path) -> list[str]:
    with jsclient.connect(url) as nc:
        api = Api(nc)
        create(api, "IN", allow_direct=True)
        frame = spark.range(0, ROWS, 1, 2).selectExpr(f"cast(lpad(id, {SIZE}, '0') AS binary) AS value").cache()
        frame.count()
        write(frame, url, "IN.x", publishMode="async", deliverySemantics="at-least-once")
        print(f"{ROWS} rows of {SIZE} B, local[2], best of {ROUNDS}; CPU is that of the Python workers")
        reads = measure("read, all columns", ROWS, lambda: noop(read(spark, url)))
        few = measure("read, seq and value", ROWS, lambda: noop(read(spark, url, "seq bigint, value binary")))
        alone = measure("read, value alone", ROWS, lambda: noop(read(spark, url, "value binary")))
        outs = {way: measure(f"write, {way}", ROWS, writing(api, frame, url, way)) for way in WRITES}
        once, least = outs["async, journal"], outs["at least once"]
        by_rate, by_cpu = once.rate / least.rate, least.us / once.us
        print(f"exactly once against at least once: {by_rate:.2f} in rows/s, {by_cpu:.2f} in CPU")
        measure("read, all columns, with an id", ROWS, lambda: noop(read(spark, url, stream="OUT_async")))
        slow = measure("foreachPartition, row by row", ROW_BY_ROW, lambda: row_by_row(frame, url), rounds=1)
        buckets(spark, nc, url)
        documents(spark, api, url)
        shares = decoding(spark)
        rate = micro_batches(rate_source(spark), folder / "rate", None)
        ours = micro_batches(jetstream_source(spark, url), folder / "jetstream", lambda: one_row(nc))
    print(f"one-row micro-batch into noop: rate {rate:.0f} ms, jetstream {ours:.0f} ms (medians of {BATCHES})")
    checks = [
        ("CPU per row read", min(reads.us, few.us), READ_US, "us"),
        ("CPU per row read, value alone", alone.us, VALUE_US, "us"),
        ("CPU per row written with ids", outs["async"].us, WRITE_US, "us"),
        ("a write with a journal against ids alone", outs["async, journal"].us / outs["async"].us, JOURNAL, ""),
        ("rows/s of row-by-row against ours, x 10", slow.rate * TIMES / outs["async"].rate, 1.0, ""),
        ("one-row micro-batch beyond the rate source", ours - rate, EXTRA_MS, "ms"),
        *(
            (f"decoding JSON, {n} of 6 columns, against from_json", shares[n], most, "")
            for n, most in FROM_JSON.items()
        ),
    ]
    return [
        f"MISSED {name}: {value:.2f} {unit}, at most {most:g}" for name, value, most, unit in checks if value > most
    ]


# --- cases ------------------------------------------------------------------------------------------------------

# Name -> options of the sink. A journal is what `writeStream` has.
WRITES = {
    "at least once": {"publishMode": "async", "deliverySemantics": "at-least-once"},
    "async": {"publishMode": "async"},
    "fast": {"publishMode": "fast"},
    "async, journal": {"publishMode": "async", "deliverySemantics": "exactly-once"},
}


def create(api: Api, name: str, **config: Any) -> None:
    api.request(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "file", **config})


def read(spark: Any, url: str, schema: str | None = None, stream: str = "IN") -> Any:
    reader = spark.read.format("jetstream").option("servers", url).option("minPartitions", 2)
    return (reader.schema(schema) if schema else reader).load(stream)


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def write(frame: Any, url: str, subject: str, **options: str) -> None:
    frame.write.format("jetstream").mode("append").options(servers=url, subject=subject, **options).save()


def writing(api: Api, frame: Any, url: str, way: str) -> Callable[[], None]:
    name = f"OUT_{way}".replace(" ", "_").replace(",", "")
    create(api, name, allow_batched=True)

    def once() -> None:
        api.request(f"STREAM.PURGE.{name}")
        write(frame, url, f"{name}.x", **WRITES[way])

    return once


def buckets(spark: Any, nc: jsclient.Connection, url: str) -> None:
    """A bucket with a key per row."""
    keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="KEYS"))
    value = f"cast(lpad(id, {SIZE}, '0') AS binary) AS value"
    frame = spark.range(0, ROWS, 1, 2).selectExpr("concat('user.', id) AS key", value).cache()
    frame.count()
    options = {"servers": url, "bucket": "KEYS"}
    writing = frame.write.format("jetstream-kv").mode("append").options(**options)
    measure("write into a bucket", ROWS, writing.save)
    measure(
        "read the values of a bucket", ROWS, lambda: noop(spark.read.format("jetstream-kv").options(**options).load())
    )


def row_by_row(frame: Any, url: str) -> None:
    """What people write first: one publish per row, and wait for its ack."""

    def publish(rows: Iterator[Any]) -> None:
        from jsclient.jetstream import JetStream
        from jsclient.spark import connection

        with connection({"servers": url}) as nc:
            js = JetStream(nc)
            for row in rows:
                js.publish("IN.slow", bytes(row.value))

    frame.limit(ROW_BY_ROW).repartition(2).foreachPartition(publish)


SIX = "id bigint, customer string, price double, quantity int, paid boolean, city string"


def decoding(spark: Any) -> dict[int, float]:
    """Columns -> the time of decoding JSON in the Python worker, as a share of that of from_json in the JVM.

    The documents come out of memory, so that there is nothing else to measure; `documents` has whole reads.
    """
    spark.dataSource.register(from_memory())
    source = spark.read.format("bench-documents").option("rows", DOCUMENTS)
    shares = {}
    raw = source.schema("value binary").load()
    measure("documents from memory, bytes alone", DOCUMENTS, partial(noop, raw))
    for count in FROM_JSON:
        names = ", ".join(SIX.split(", ")[:count])
        parsed = raw.selectExpr(f"from_json(cast(value AS string), '{names}') AS d").select("d.*")
        ours = measure(f"decoded by us, {count} of 6 columns", DOCUMENTS, partial(noop, source.schema(names).load()))
        theirs = measure(f"decoded by from_json, {count} of 6", DOCUMENTS, partial(noop, parsed))
        shares[count] = ours.seconds / theirs.seconds
    print("decoding against from_json: " + ", ".join(f"{each:.2f} ({n} of 6 columns)" for n, each in shares.items()))
    return shares


def from_memory() -> Any:
    """A data source of documents: as they are, or decoded as `valueFormat=json` does."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, schema: Any, rows: int) -> None:
            self.schema, self.rows = schema, rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(2)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import json

            import pyarrow as pa
            from pyspark.sql.pandas.types import to_arrow_schema

            from jsclient.arrow.documents import DocumentColumns

            schema = to_arrow_schema(self.schema)
            made: list[dict[str, Any]] = [
                {"id": n, "customer": f"customer-{n}", "price": n / 7, "quantity": n % 9, "paid": n % 2 == 0}
                for n in range(10_000)
            ]
            texts = [json.dumps({**each, "city": f"city-{each['id'] % 300}"}).encode() for each in made]
            decoder = None if schema.names == ["value"] else DocumentColumns("json", list(schema))
            for _ in range(self.rows // 2 // len(texts)):
                if decoder is None:
                    yield pa.record_batch([pa.array(texts, pa.binary())], schema=schema)
                else:
                    columns, _ = decoder.columns(texts, None)  # type: ignore[arg-type]
                    yield pa.record_batch(list(columns.values()), schema=schema)

    class Documents(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bench-documents"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(schema, int(self.options["rows"]))

    return Documents


def documents(spark: Any, api: Api, url: str) -> None:
    """Whole reads: with valueFormat=json, and of bytes with from_json."""
    create(api, "JSON")
    few = "id % 10000"
    fields = f"{few} AS id, concat('customer-', {few}) AS customer, {few} / 7 AS price, cast(id % 9 AS int) AS quantity"
    fields += ", id % 2 = 0 AS paid, concat('city-', id % 300) AS city"
    frame = spark.range(0, ROWS, 1, 2).selectExpr(f"cast(to_json(struct({fields})) AS binary) AS value")
    write(frame, url, "JSON.x", publishMode="async", deliverySemantics="at-least-once")
    shares = {}
    for count in FROM_JSON:
        names = SIX.split(", ")[:count]
        decoded = spark.read.format("jetstream").options(servers=url, minPartitions=2, valueFormat="json")
        typed = decoded.schema(", ".join(names)).load("JSON")
        raw = read(spark, url, "value binary", stream="JSON")
        parsed = raw.selectExpr(f"from_json(cast(value AS string), '{', '.join(names)}') AS d").select("d.*")
        ours = measure(f"JSON, {count} of 6 columns", ROWS, partial(noop, typed))
        theirs = measure(f"from_json, {count} of 6 columns", ROWS, partial(noop, parsed))
        shares[count] = ours.seconds / theirs.seconds
    print("reads against from_json: " + ", ".join(f"{share:.2f} ({n} of 6 columns)" for n, share in shares.items()))


def rate_source(spark: Any) -> Any:
    return spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()


def jetstream_source(spark: Any, url: str) -> Any:
    return spark.readStream.format("jetstream").options(servers=url, startingOffsets="latest").load("IN")


def one_row(nc: Any) -> None:
    nc.request("IN.one", b"x" * SIZE)


def micro_batches(frame: Any, folder: Path, feed: Callable[[], None] | None) -> float:
    """The median milliseconds of a trigger that brought one row."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(folder)).start()
    seen: dict[int, float] = {}
    end = time.monotonic() + 60
    try:
        while len(seen) < BATCHES and time.monotonic() < end:
            if feed is not None:
                feed()
            time.sleep(0.7)
            for progress in query.recentProgress:
                if progress["numInputRows"] == 1:
                    seen[progress["batchId"]] = float(progress["durationMs"]["triggerExecution"])
    finally:
        query.stop()
    # The first ones pay for what is loaded and compiled.
    return statistics.median(list(seen.values())[2:] or [float("nan")])


# --- measuring --------------------------------------------------------------------------------------------------


def measure(name: str, rows: int, action: Callable[[], Any], rounds: int = ROUNDS) -> Figure:
    figures = []
    for _ in range(rounds):
        before, started = workers_cpu(), time.monotonic()
        action()
        seconds = time.monotonic() - started
        # By process: one that was idle for a minute ends meanwhile, and what it used before is none of this.
        used = sum(cpu - before.get(pid, 0.0) for pid, cpu in workers_cpu().items())
        figures.append(Figure(name, rows, seconds, used))
    fastest, cheapest = min(f.seconds for f in figures), min(f.cpu for f in figures)
    figure = Figure(name, rows, fastest, cheapest)
    print(f"{name:32} {figure.rate / 1000:8.1f} k rows/s  {figure.us:6.2f} us/row", flush=True)
    return figure


def workers_cpu() -> dict[int, float]:
    """Process id -> seconds of CPU that it has used so far, of the Python processes below this one."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, fields = entry.joinpath("stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        parts = fields.split()
        parents[int(entry.name)] = int(parts[1])
        if "python" in name:
            used[int(entry.name)] = sum(map(int, parts[11:13])) / TICKS
    return {pid: seconds for pid, seconds in used.items() if pid != os.getpid() and _below(pid, parents)}


def _below(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        pid = parents.get(pid, 0)
        if pid == os.getpid():
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
