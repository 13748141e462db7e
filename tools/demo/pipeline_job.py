"""The Spark program of the pipeline: flights out of JetStream, added up per day and carrier, results into JetStream.

Started by `tools.demo.pipeline` as a process of its own, so that it can be killed and started again; everything it
must remember is in the checkpoint and in JetStream. Ends when all flights are through and the table is written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jsclient.spark import JetStreamListener, register
from tools.demo.flights import Flight, fingerprint

SOURCE, RESULTS = "FLIGHTS", "RESULTS"
COLUMNS = "time timestamp, carrier string, dep_delay long, arr_delay long, cancelled boolean, fingerprint long"
ARROW = pa.schema([
    ("time", pa.timestamp("us", tz="UTC")),
    ("carrier", pa.string()),
    ("dep_delay", pa.int64()),
    ("arr_delay", pa.int64()),
    ("cancelled", pa.bool_()),
    ("fingerprint", pa.int64()),
])  # fmt: skip
SUMS = ("flights", "dep_sum", "dep_count", "arr_sum", "arr_count", "cancelled", "fingerprints")


def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """JSON payloads -> the columns that are added up, and a fingerprint over every column of the record."""
    import datetime as dt

    decode_json = msgspec.json.Decoder(Flight).decode
    for batch in batches:
        flights = [decode_json(value) for value in batch.column("value").to_pylist()]
        columns = [
            [dt.datetime.fromisoformat(f.time_hour.replace("Z", "+00:00")) for f in flights],
            [f.carrier for f in flights],
            [f.dep_delay for f in flights],
            [f.arr_delay for f in flights],
            [f.dep_time is None for f in flights],
            [fingerprint(f) for f in flights],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def per_day(flights: DataFrame) -> DataFrame:
    """Sums per day and carrier; a day is final, and goes out, when the watermark has passed its end."""
    grouped = flights.withWatermark("time", "1 hour").groupBy(F.window("time", "1 day").alias("day"), "carrier")
    return grouped.agg(
        F.count("*").alias("flights"),
        F.sum("dep_delay").alias("dep_sum"),
        F.count("dep_delay").alias("dep_count"),
        F.sum("arr_delay").alias("arr_sum"),
        F.count("arr_delay").alias("arr_count"),
        F.sum(F.col("cancelled").cast("int")).alias("cancelled"),
        F.sum("fingerprint").alias("fingerprints"),
    )


def stream(spark: SparkSession, url: str, checkpoint: Path, per_trigger: int) -> Any:
    """Start the query; its rows carry a message id, so whatever is repeated after a crash is stored once."""
    source = spark.readStream.format("jetstream").option("servers", url).option("startingOffsets", "earliest")
    messages = source.option("maxOffsetsPerTrigger", per_trigger).option("minPartitions", 2).load(SOURCE)
    days = per_day(messages.select("value").mapInArrow(decode, COLUMNS))
    rows = days.select(
        F.concat(F.lit("results."), "carrier").alias("subject"),
        F.to_json(F.struct(F.col("day.start").alias("day"), "carrier", *SUMS)).alias("value"),
        F.concat_ws("-", F.col("day.start").cast("string"), "carrier").alias("msg_id"),
    )
    sink = rows.writeStream.format("jetstream").option("servers", url).option("checkpointLocation", str(checkpoint))
    return sink.outputMode("append").trigger(availableNow=True).start()


def table(spark: SparkSession, url: str) -> list[dict[str, Any]]:
    """Read the results stream as a batch and add the days up; one dict per carrier."""
    stored = spark.read.format("jetstream").option("servers", url).load(RESULTS)
    schema = "carrier string, " + ", ".join(f"{name} long" for name in SUMS)
    days = stored.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")
    carriers = days.groupBy("carrier").agg(*(F.sum(name).alias(name) for name in SUMS))
    return [row.asDict() for row in carriers.collect()]


def say(numbers: dict[str, Any]) -> None:
    """Progress for the process that started us, one JSON line per batch."""
    print(json.dumps({"batch": numbers["batch"], "behind": numbers["behind"]}), flush=True)


def session(master: str, folder: Path) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("jsclient flights")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Xss4m -Djava.io.tmpdir={folder}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    if not master.startswith("local"):
        settings["spark.executor.cores"] = "1"
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    return spark


def main() -> int:
    url, folder, master, per_trigger, result = sys.argv[1:6]
    spark = session(master, Path(folder))
    spark.streams.addListener(JetStreamListener(say))
    query = stream(spark, url, Path(folder) / "checkpoint", int(per_trigger))
    query.awaitTermination()
    Path(result).write_text(json.dumps(table(spark, url)))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
