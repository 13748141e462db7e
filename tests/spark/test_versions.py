"""The core of the connector, on every PySpark from 3.5 on: `tools/sparks.py` runs this file with each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient import keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig
from jsclient.spark import JetStreamSparkError, batch_writer, connection, from_spark, publish_partition, read_range
from jsclient.spark.versions import running
from jsclient.testing import NatsServer

from .conftest import Js

pytestmark = pytest.mark.slow  # `make test-sparks` runs all of it, on each version

RELEASE = running()[1] if find_spec("pyspark") else (0, 0)
sources = pytest.mark.skipif(RELEASE < (4, 0), reason="Python data sources need PySpark 4.0")
streaming_read = pytest.mark.skipif(RELEASE < (4, 2), reason="readStream needs PySpark 4.2")


def documents(folder: Path, first: int, count: int) -> None:
    """One file of JSON lines for a streaming query over files."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"n": n, "tags": {"even": str(n % 2 == 0)}}) for n in range(first, first + count)]
    (folder / f"{first:06}.json").write_text("\n".join(lines))


def stream_of(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema("n bigint, tags map<string,string>").json(str(folder))


def finish(writing: Any, checkpoint: Path) -> None:
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


# --- 3.5 and later: helpers and foreachBatch ------------------------------------------------------------------


def test_helpers_on_executors(spark: Any, server: NatsServer, js: Js, stream_name: str) -> None:
    js.create(stream_name)
    options = {"servers": server.url}
    subject = f"{stream_name}.a"

    def publish(rows: Iterator[Any]) -> Iterator[int]:
        named = ({"subject": subject, "value": str(row.id)} for row in rows)
        yield publish_partition(named, options, job="q", batch=1).rows

    frame = spark.range(0, 300, 1, 2)
    for _ in range(2):
        assert sum(frame.rdd.mapPartitions(publish).collect()) == 300
    assert js.state(stream_name)["messages"] == 300

    def read(bounds: Iterator[tuple[int, int]]) -> Iterator[int]:
        for start, end in bounds:
            for record in read_range({**options, "stream": stream_name}, start, end):
                yield int(record.value)

    found = spark.sparkContext.parallelize([(1, 151), (151, 301)], 2).mapPartitions(read).collect()
    assert sorted(found) == list(range(300))

    def ask(rows: Iterator[Any]) -> Iterator[int]:
        with connection(options) as nc:
            for _ in rows:
                yield len(nc.servers)

    assert spark.range(1).rdd.mapPartitions(ask).collect() == [1]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_batch_writer(spark: Any, server: NatsServer, js: Js, stream_name: str, tmp_path: Path, mode: str) -> None:
    js.create(stream_name, duplicate_window=100_000_000)
    write = batch_writer({"servers": server.url, "subject": f"{stream_name}.x", "valueFormat": "json"})
    broken = True

    def each(frame: Any, batch: int) -> None:
        write(frame, batch)
        if broken:
            raise RuntimeError("the driver dies here")

    def run() -> None:
        frame = stream_of(spark, tmp_path / "in")
        frame = frame.groupBy("tags.even").count() if mode == "update" else frame
        finish(frame.writeStream.outputMode(mode).foreachBatch(each), tmp_path / "checkpoint")

    documents(tmp_path / "in", 0, 100)
    with pytest.raises(Exception, match="the driver dies here"):
        run()
    rows = 100 if mode == "append" else 2
    assert js.state(stream_name)["messages"] == rows
    broken = False
    run()
    assert js.state(stream_name)["messages"] == rows


@pytest.mark.skipif(RELEASE >= (4, 0), reason="4.0 has them")
def test_sources_are_refused_in_one_sentence(spark: Any) -> None:
    with pytest.raises(JetStreamSparkError, match=r"needs PySpark 4\.0 or later, and this is PySpark 3\.5"):
        jsclient.spark.register(spark)


# --- 4.0 and later: batch reads, sinks, key-value ----------------------------------------------------------------


@sources
def test_batch_read_and_write(spark: Any, server: NatsServer, js: Js, stream_name: str) -> None:
    js.create(stream_name)
    jsclient.spark.register(spark)
    options = {"servers": server.url}
    made = spark.range(0, 1000, 1, 3).selectExpr(
        f"concat('{stream_name}.', id % 4) AS subject", "cast(id AS string) AS value", "map('A', 'b') AS headers"
    )
    made.write.format("jetstream").mode("append").options(**options).save()
    frame = spark.read.format("jetstream").options(**options, recordsPerPartition="300").load(stream_name)
    rows = frame.orderBy("seq").collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(1000))
    assert [row.seq for row in rows] == list(range(1, 1001))
    assert rows[0].headers["A"] == ["b"]
    assert 0 <= rows[-1].timestamp.timestamp() - rows[0].timestamp.timestamp() < 60
    some = spark.read.format("jetstream").options(**options, subjects=f"{stream_name}.1").load(stream_name)
    assert some.count() == 250
    typed = spark.read.format("jetstream").options(**options, valueFormat="json", badRecords="null")
    assert typed.schema("seq bigint, value bigint, _corrupt string").load(stream_name).agg({"value": "sum"}).first()[
        0
    ] == sum(range(1000))


@sources
@pytest.mark.parametrize("form", ["binary", "json"])
def test_streaming_sink(spark: Any, server: NatsServer, js: Js, stream_name: str, tmp_path: Path, form: str) -> None:
    js.create(stream_name)
    jsclient.spark.register(spark)

    def run() -> None:
        frame = stream_of(spark, tmp_path / "in")
        if form == "binary":
            frame = frame.selectExpr("cast(n AS string) AS value", "map('A', cast(n AS string)) AS headers")
        writing = frame.writeStream.format("jetstream").options(servers=server.url, subject=f"{stream_name}.x")
        finish(writing.option("valueFormat", form), tmp_path / "checkpoint")

    for first in (0, 50):
        documents(tmp_path / "in", first, 50)
        run()
    assert js.state(stream_name)["messages"] == 100
    values = []
    for record in read_range({"servers": server.url, "stream": stream_name}, 1, 101):
        values.append(int(record.value) if form == "binary" else json.loads(record.value)["n"])
        assert form == "json" or record.headers["A"] == str(values[-1])
        assert form == "binary" or json.loads(record.value)["tags"] == {"even": str(values[-1] % 2 == 0)}
    assert sorted(values) == list(range(100))


@sources
def test_key_value_source_and_sink(spark: Any, server: NatsServer, stream_name: str, tmp_path: Path) -> None:
    jsclient.spark.register(spark)
    options = {"servers": server.url, "bucket": stream_name}
    with jsclient.connect(server.url) as nc:
        bucket = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket=stream_name, history=2))
        frame = spark.range(20).coalesce(1).selectExpr("concat('k', id) AS key", "cast(id AS string) AS value")
        frame.write.format("jetstream-kv").mode("append").options(**options).save()
        read: Callable[[], Any] = lambda: spark.read.format("jetstream-kv").options(**options).load()  # noqa: E731
        assert {row.key: bytes(row.value) for row in read().collect()} == {f"k{n}": b"%d" % n for n in range(20)}
        documents(tmp_path / "in", 5, 3)
        changes = stream_of(spark, tmp_path / "in").selectExpr(
            "concat('k', n) AS key", "if(n = 5, null, 'new') AS value", "n + 1 AS expected_revision"
        )
        finish(changes.writeStream.format("jetstream-kv").options(**options), tmp_path / "checkpoint")
        assert bucket.get("k6").value == b"new"
        assert read().count() == 19


@sources
@pytest.mark.skipif(RELEASE >= (4, 2), reason="4.2 has it")
@pytest.mark.parametrize("form", ["jetstream", "jetstream-kv"])
def test_a_streaming_read_is_refused_in_one_sentence(spark: Any, server: NatsServer, tmp_path: Path, form: str) -> None:
    jsclient.spark.register(spark)
    frame = spark.readStream.format(form).options(servers=server.url).load("ORDERS")
    with pytest.raises(Exception, match=r"readStream needs PySpark 4\.2 or later, and this is PySpark 4\.") as caught:
        finish(frame.writeStream.format("noop"), tmp_path)
    error = from_spark(caught.value)
    assert error is not None
    assert error.token == "JETSTREAM_SPARK_TOO_OLD"


@streaming_read
def test_a_streaming_read(spark: Any, server: NatsServer, js: Js, stream_name: str, tmp_path: Path) -> None:
    js.create(stream_name)
    js.create(f"{stream_name}_out")
    js.fill(stream_name, 500)
    jsclient.spark.register(spark)
    read = spark.readStream.format("jetstream").options(servers=server.url, startingOffsets="earliest")
    for count in (500, 700):
        js.fill(stream_name, count - js.state(stream_name)["messages"], 500)
        writing = read.load(stream_name).select("value").writeStream.format("jetstream")
        finish(writing.options(servers=server.url, subject=f"{stream_name}_out.x"), tmp_path)
        assert js.state(f"{stream_name}_out")["messages"] == count
