"""The columns of the source and of the sink, and the Arrow batches that Spark gets. No JVM, no server."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from jsclient.arrow.chunks import Chunk
from jsclient.exactly.rows import COLUMNS
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import WRITE, SparkOptions, parse
from jsclient.spark.schema import SINK_COLUMNS


def test_the_sink_has_the_columns_that_rows_are_made_of() -> None:
    assert SINK_COLUMNS.keys() == COLUMNS


def chunk(first: int, payloads: list[bytes], headers: list[bytes | None] | None = None) -> Chunk:
    n = len(payloads)
    return Chunk(
        [b"a.%d" % i for i in range(n)],
        list(range(first, first + n)),
        [1_700_000_000_123_456_789 + i for i in range(n)],
        payloads,
        headers,
        first_delivery=1,
        last_delivery=n,
        pending=0,
    )


@pytest.mark.spark
def test_batches_are_what_spark_expects() -> None:
    from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

    from jsclient.arrow.columns import BatchBuilder
    from jsclient.spark.schema import check_source, schema_of

    headers = MapType(StringType(), ArrayType(StringType()))
    schema = StructType().add("stream", "string").add("subject", "string").add("seq", "long")
    schema = schema.add("timestamp", "timestamp").add("headers", headers).add("value", "binary")
    schema = schema.add("timestamp_ns", LongType()).add("size", "integer")
    builder = BatchBuilder("S", check_source(schema), schema_of(schema), 4, 1000)
    assert list(builder.add(chunk(1, [b"x", b"yy"]), 3)) == []
    block = b"NATS/1.0\r\nA: 1\r\nB:2\r\nA: 3\r\n\r\n"
    (batch,) = builder.add(chunk(3, [b"", b"z"], [None, block]), 1)
    assert batch.schema.equals(schema_of(schema))
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert [r["value"] for r in rows] == [b"x", b"yy", b"", b"z"]
    assert [r["size"] for r in rows] == [1, 2, 0, 1]
    assert [r["seq"] for r in rows] == [1, 2, 3, 4]
    assert rows[0]["subject"] == "a.0"
    assert rows[0]["stream"] == "S"
    assert rows[0]["timestamp_ns"] == 1_700_000_000_123_456_789
    assert rows[0]["timestamp"].microsecond == 123_456
    assert [r["headers"] for r in rows[:3]] == [None] * 3
    assert rows[3]["headers"] == [("A", ["1", "3"]), ("B", ["2"])]
    assert list(builder.finish()) == []


@pytest.mark.spark
def test_batches_are_flushed_by_bytes_and_subjects_need_not_be_utf8() -> None:
    from pyspark.sql.types import StructType

    from jsclient.arrow.columns import BatchBuilder
    from jsclient.spark.schema import schema_of

    schema = StructType().add("subject", "string").add("value", "binary")
    builder = BatchBuilder("S", ["subject", "value"], schema_of(schema), 1000, 10)
    big = chunk(1, [b"0123456789"])
    big.subjects = [b"caf\xe9"]
    (batch,) = builder.add(big, 10)
    assert batch.to_pylist() == [{"subject": "caf\ufffd", "value": b"0123456789"}]


@pytest.mark.spark
@pytest.mark.parametrize(("name", "kind"), [("nonsense", "string"), ("seq", "string"), ("value", "string")])
def test_columns_the_source_does_not_have(name: str, kind: str) -> None:
    from pyspark.sql.types import StructType

    from jsclient.spark.schema import check_source

    with pytest.raises(JetStreamSparkError, match="SCHEMA_MISMATCH"):
        check_source(StructType().add(name, kind))


@pytest.mark.spark
def test_columns_of_the_sink() -> None:
    from pyspark.sql.types import StructType

    from jsclient.spark.schema import check_sink

    value = StructType().add("value", "string")

    def options(**given: str) -> SparkOptions:
        return parse({"servers": "nats://h", **given}, WRITE)

    check_sink(value, options(subject="orders.new"))
    with pytest.raises(JetStreamSparkError, match="option 'subject'"):
        check_sink(value, options())
    with pytest.raises(JetStreamSparkError, match="no column 'key'"):
        check_sink(value.add("key", "string"), options(subject="x"))
