"""A job to try a cluster with: it checks, reads a stream in a batch, and copies it with a streaming query.

Start it with one of the scripts in this folder: `sh packed.sh MASTER job.py SERVERS STREAM SUBJECT CHECKPOINT`.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import jsclient.spark


def main(servers: str, stream: str, subject: str, checkpoint: str) -> int:
    spark = SparkSession.builder.appName("jsclient-deploy").getOrCreate()
    jsclient.spark.register(spark)
    nats = {"servers": servers}
    report = jsclient.spark.check(spark, {**nats, "stream": stream}, "readStream")
    print(report)
    if not report.ok:
        return 1
    print(spark.read.format("jetstream").options(**nats).load(stream).count(), "rows")
    source = spark.readStream.format("jetstream").options(**nats).option("startingOffsets", "earliest").load(stream)
    sink = source.select("value").writeStream.format("jetstream").options(**nats, subject=subject)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    print("copied in", query.lastProgress["batchId"] + 1, "batches")
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
