"""`make demo-archive`: a live stream archived into partitioned Parquet, and restored from it into another stream.

    python -m tools.demo.archive          (DEMO_ROWS=20000 for less)

Orders are published all the time while a streaming query writes them into Parquet, a folder per region; in the middle
the query is stopped and started again from its checkpoint. Then the archive is written into an empty stream, twice.
Numbers and checksums are compared at every step: a single order that is lost, doubled or changed shows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jsclient
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

ROWS = int(os.environ.get("DEMO_ROWS", "200000"))
SOURCE, RESTORED = "ORDERS", "RESTORED"
REGIONS = ("eu", "us", "asia")


class Sum(NamedTuple):
    """What identifies a set of orders: how many, and the sum of their checksums."""

    rows: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.rows:,} orders, checksum {self.checksum:x}"


class Publisher(threading.Thread):
    """Publishes orders, each with an id, and adds up what the stream has acknowledged."""

    def __init__(self, url: str, rows: int) -> None:
        super().__init__(name="publisher")
        self.sent = Sum(0, 0)
        self.error: BaseException | None = None
        self._url, self._rows = url, rows

    def run(self) -> None:
        try:
            with jsclient.connect(self._url, name="publisher") as nc:
                js = JetStream(nc)
                for first in range(0, self._rows, 1000):
                    self._block(js, range(first, min(first + 1000, self._rows)))
        except BaseException as error:
            self.error = error

    def _block(self, js: JetStream, numbers: range) -> None:
        checksum, futures = 0, []
        for number in numbers:
            value = json.dumps({"order": number, "amount": number * 7 % 10_000 / 100}).encode()
            checksum += zlib.crc32(value)
            subject = f"orders.{REGIONS[number % len(REGIONS)]}"
            futures.append(js.publish_async(subject, value, msg_id=f"order-{number}"))
        for future in futures:
            future.result(timeout=60)
        self.sent = Sum(self.sent.rows + len(numbers), self.sent.checksum + checksum)


class Archive:
    """The streaming query from the stream into Parquet."""

    def __init__(self, spark: Any, url: str, folder: Path) -> None:
        self._spark, self._url = spark, url
        self.path, self._checkpoint = str(folder / "archive"), str(folder / "checkpoint")

    def start(self, **trigger: Any) -> Any:
        source = self._spark.readStream.format("jetstream").option("servers", self._url)
        rows = (
            source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", max(ROWS // 5, 1)).load(SOURCE)
        )
        kept = rows.selectExpr("subject", "seq", "timestamp", "headers", "value", "split(subject, '[.]')[1] AS region")
        sink = kept.writeStream.format("parquet").option("path", self.path).partitionBy("region")
        return sink.option("checkpointLocation", self._checkpoint).trigger(**trigger).start()

    def read(self) -> Any:
        return self._spark.read.parquet(self.path)


def sum_of(frame: Any) -> Sum:
    row = frame.selectExpr("count(*) AS n", "coalesce(sum(crc32(value)), 0) AS c").first()
    return Sum(int(row.n), int(row.c))


def restore(archive: Archive, url: str) -> None:
    """The orders with their ids, in the order of the stream within each region."""
    rows = archive.read().repartition(len(REGIONS), "region").sortWithinPartitions("seq")
    orders = rows.selectExpr(
        "concat('restored.', region) AS subject", "value", "element_at(headers, 'Nats-Msg-Id')[0] AS msg_id"
    )
    orders.write.format("jetstream").mode("append").option("servers", url).save()


def check(what: str, found: Sum, expected: Sum) -> None:
    print(f"{what:<34} {found}", flush=True)
    if found != expected:
        raise SystemExit(f"{what}: expected {expected}")


def run(spark: Any, url: str, folder: Path) -> None:
    with jsclient.connect(url) as nc:
        js = JetStream(nc)
        # The window covers the run, so that the ids of a second restore are still known.
        for name, subjects in ((SOURCE, ["orders.>"]), (RESTORED, ["restored.>"])):
            js.create_stream(StreamConfig(name=name, subjects=subjects, duplicate_window=3600.0))
        publisher, archive = Publisher(url, ROWS), Archive(spark, url, folder)
        publisher.start()
        query = archive.start(processingTime="1 second")
        wait_until(lambda: query.lastProgress is not None and query.lastProgress["batchId"] >= 1, 300, "two batches")
        query.stop()
        print(f"stopped after batch {query.lastProgress['batchId']}, while orders are published; started again")
        query = archive.start(processingTime="1 second")
        publisher.join()
        if publisher.error is not None:
            raise publisher.error
        wait_until(lambda: query.exception() is not None or not behind(query), 300, "the archive to catch up")
        query.stop()
        archive.start(availableNow=True).awaitTermination()
        check("published and acknowledged", publisher.sent, publisher.sent)
        check("archived into Parquet", sum_of(archive.read()), publisher.sent)
        unique = archive.read().selectExpr("count(DISTINCT seq) AS n").first().n
        check("of these with different sequences", Sum(unique, publisher.sent.checksum), publisher.sent)
        stored = spark.read.format("jetstream").option("servers", url)
        for attempt in ("restored into a stream", "restored once more: nothing is new"):
            restore(archive, url)
            check(attempt, sum_of(stored.load(RESTORED)), publisher.sent)


def behind(query: Any) -> bool:
    from jsclient.spark import lag

    return query.lastProgress is None or any(lag(query.lastProgress).values()) or query.status["isTriggerActive"]


def main() -> int:
    from tools.demo.pipeline_job import session

    started = time.monotonic()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    with tempfile.TemporaryDirectory() as folder, NatsServer() as server:
        spark = session(os.environ.get("SPARK_MASTER", "local[2]"), Path(folder))
        try:
            run(spark, server.url, Path(folder))
        finally:
            spark.stop()
    print(f"every order is there once, in the archive and in the restored stream ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
