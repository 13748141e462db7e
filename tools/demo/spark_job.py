"""Leg 2: Spark. Each partition reads its part of the stream with blocking jsclient code on an executor; DataFrames
add it up per carrier; the results go back into JetStream from foreachPartition.

What runs on executors is `Reader` and `Publisher`: they travel with their ConnectOptions, never with a connection.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream
from tools.demo.flights import DemoError, Flight, fingerprint
from tools.demo.publish import STREAM

PARTITIONS = 4
FETCH = 2_000
PROGRESS = "demo.progress"  #: core NATS: executors tell the driver how many rows they have read
COLUMNS = "row long, carrier string, dep_delay long, arr_delay long, cancelled boolean, fingerprint long"
ARROW = pa.schema(
    [
        ("row", pa.int64()),
        ("carrier", pa.string()),
        ("dep_delay", pa.int64()),
        ("arr_delay", pa.int64()),
        ("cancelled", pa.bool_()),
        ("fingerprint", pa.int64()),
    ]
)


class Reader:
    """Reads one range of the stream per partition: a pull consumer of its own, from the first to the last sequence."""

    def __init__(self, options: jsclient.ConnectOptions, messages: int) -> None:
        self.options = options
        self.messages = messages

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                first = self.messages * number // PARTITIONS + 1
                last = self.messages * (number + 1) // PARTITIONS
                yield from self.read(first, last)

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if last < first:
            return
        nc = jsclient.shared(self.options)
        stream = JetStream(nc).stream(STREAM)
        config = ConsumerConfig(
            deliver_policy="by_start_sequence", opt_start_seq=first, ack_policy="none", inactive_threshold=30.0
        )
        consumer = stream.create_consumer(config)
        decode = msgspec.json.Decoder(Flight).decode
        following = first
        while following <= last:
            messages = consumer.fetch(min(FETCH, last - following + 1), timeout=20)
            if not messages:
                raise DemoError(f"the stream ended before message {following} ({messages.ended}, {messages.error})")
            following = messages[-1].metadata.stream_seq + 1
            nc.publish(PROGRESS, str(len(messages)))
            yield to_arrow([decode(message.data) for message in messages])
        stream.delete_consumer(consumer.name)
        nc.flush()


def to_arrow(flights: list[Flight]) -> pa.RecordBatch:
    columns = [
        [flight.row for flight in flights],
        [flight.carrier for flight in flights],
        [flight.dep_delay for flight in flights],
        [flight.arr_delay for flight in flights],
        [flight.dep_time is None for flight in flights],
        [fingerprint(flight) for flight in flights],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


class Publisher:
    """Publishes result rows: one message per carrier, acknowledged before the task ends."""

    def __init__(self, options: jsclient.ConnectOptions) -> None:
        self.options = options

    def __call__(self, rows: Iterable[Row]) -> None:
        js = JetStream(jsclient.shared(self.options))
        for row in rows:
            # The id makes a repeated task harmless: the server drops what it has already.
            js.publish(
                f"results.{row['carrier']}", msgspec.json.encode(row.asDict()), msg_id=f"result-{row['carrier']}"
            )


@contextlib.contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """A local Spark with two cores; what Java says goes into a file, which is shown only when Spark does not start."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = folder / "spark.log"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    try:
        with java_output_to(log):
            builder = SparkSession.builder.master("local[2]").appName("jsclient demo")
            for name, value in settings.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
    except Exception as error:
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise DemoError(f"Spark did not start: {error}\n{tail}") from None
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def java_output_to(log: Path) -> Iterator[None]:
    """The Java process inherits descriptor 2 when it is started: hand it the log file for that moment."""
    saved = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def aggregate(spark: SparkSession, options: jsclient.ConnectOptions, messages: int) -> Any:
    """The DataFrame with one row per carrier."""
    parts = spark.range(0, PARTITIONS, 1, PARTITIONS)
    flights = parts.mapInArrow(Reader(options, messages), COLUMNS)
    return flights.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.avg("arr_delay").alias("mean_arr_delay"),
        F.sum(F.col("cancelled").cast("int")).alias("cancelled"),
        F.countDistinct("row").alias("distinct"),
        F.sum("fingerprint").alias("fingerprints"),
    )


def collect(results: Any) -> Any:
    """Run the job and keep its rows; an error on an executor becomes one line instead of a Java stack."""
    try:
        results = results.cache()
        results.count()
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise DemoError(f"the Spark job failed: {lines[-1] if lines else error}") from None
    return results


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="jsclient-demo-", ignore_cleanup_errors=True)
