"""spark.read: exact contents, partitions, filters, schema, refusals."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient.spark.errors import from_spark
from jsclient.testing import NatsServer, wait_until

from .conftest import Js, refused_before

Reading = Callable[..., Any]


def numbers(frame: Any) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def test_every_message_once_with_all_columns(js: Js, reading: Reading, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 5000)
    js.nc.publish(f"{stream_name}.h", b"5000", headers={"A": ["1", "2"], "B": "x"})
    js.settle(stream_name, 5001)
    frame = reading(stream_name, minPartitions=3, recordsPerPartition=2500)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.orderBy("seq").collect()
    assert [int(bytes(r.value)) for r in rows] == list(range(5001))
    assert [r.seq for r in rows] == list(range(1, 5002))
    assert {r.stream for r in rows} == {stream_name}
    assert rows[5].subject == f"{stream_name}.1"
    assert rows[5].headers is None
    assert rows[5000].headers == {"A": ["1", "2"], "B": ["x"]}
    assert abs(rows[5000].timestamp.timestamp() - rows[0].timestamp.timestamp()) < 60
    wait_until(lambda: js.consumers(stream_name) == [], 10, "the consumers to be deleted")


@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_gaps_and_filters(js: Js, server: NatsServer, reading: Reading, stream_name: str, method: str) -> None:
    js.create(stream_name, allow_direct=True)
    js.fill(stream_name, 400)
    gone = {1, 2, 50, 51, 52, 200, 399, 400}
    for seq in gone:
        js.api.request(f"STREAM.MSG.DELETE.{stream_name}", {"seq": seq, "no_erase": True})
    left = [n for n in range(400) if n + 1 not in gone]
    with refused_before(server, (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE"):
        assert numbers(reading(stream_name, readMethod=method, recordsPerPartition=60)) == left
        one = reading(stream_name, readMethod=method, subjects=f"{stream_name}.1", minPartitions=3)
        assert numbers(one) == [n for n in left if n % 4 == 1]
        with refused_before(server, (2, 10), "SERVER_TOO_OLD"):
            two = reading(stream_name, readMethod=method, subjects=f"{stream_name}.1,{stream_name}.2")
            assert numbers(two) == [n for n in left if n % 4 in (1, 2)]
        # a range that is wholly deleted, and one without any match
        gaps = reading(stream_name, readMethod=method, startingOffsets='{"seq": 50}', endingOffsets='{"seq": 53}')
        assert numbers(gaps) == []
        assert numbers(reading(stream_name, readMethod=method, subjects="nothing.here")) == []


def test_partition_by_subject_keeps_each_subject_together(js: Js, reading: Reading, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 1000)
    frame = reading(stream_name, partitionBy="subject", minPartitions=3)
    from pyspark.sql.functions import spark_partition_id

    places = frame.withColumn("p", spark_partition_id()).select("subject", "p").distinct().collect()
    assert len(places) == 4
    assert numbers(frame) == list(range(1000))


def test_user_schema_chooses_the_columns(js: Js, reading: Reading, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    frame = reading(stream_name, "size int, seq bigint, timestamp_ns bigint")
    row = frame.orderBy("seq").first()
    assert row.size == 1
    assert row.seq == 1
    assert row.timestamp_ns > 1_700_000_000_000_000_000
    with pytest.raises(Exception, match="JETSTREAM_SCHEMA_MISMATCH") as caught:
        reading(stream_name, "seq string").count()
    error = from_spark(caught.value)
    assert error is not None
    assert "cast it after loading" in error.message


def test_limit_leaves_nothing_behind(js: Js, reading: Reading, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 20_000)
    assert len(reading(stream_name, readMethod="consumer").limit(5).collect()) == 5
    wait_until(lambda: js.consumers(stream_name) == [], 10, "the consumers to be deleted")


def test_filters_are_right_whether_spark_pushes_them_or_not(
    spark: Any, js: Js, reading: Reading, stream_name: str
) -> None:
    from pyspark.sql.functions import col

    js.create(stream_name)
    js.fill(stream_name, 1000)
    for pushed in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        assert numbers(reading(stream_name).where((col("seq") > 100) & (col("seq") <= 200))) == list(range(100, 200))


def test_sql_view(spark: Any, js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    options = f"servers '{server.url}', stream '{stream_name}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING jetstream OPTIONS({options})")
    assert spark.sql("SELECT max(seq) FROM v").first()[0] == 10


@pytest.mark.parametrize(
    ("options", "token", "part"),
    [
        ({"maxOffsetPerTrigger": "1", "recordPerPartition": "1"}, "UNKNOWN_OPTION", "did you mean"),
        ({"readMethod": "direct"}, "STREAM_NOT_FOUND", "NOPE"),
    ],
)
def test_refusals_reach_the_user(reading: Reading, options: dict[str, str], token: str, part: str) -> None:
    """Through Spark, which keeps the text of an exception only; the refusals themselves: test_refusals.py."""
    with pytest.raises(Exception, match=f"JETSTREAM_{token}") as caught:
        reading("NOPE", **options).count()
    error = from_spark(caught.value)
    assert error is not None
    assert error.token == f"JETSTREAM_{token}"
    assert part in error.message


def test_only_a_worker_of_spark_leaves_its_modules_out_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import TaskContext

    from jsclient.spark import context

    frozen: list[bool] = []
    fake = SimpleNamespace(get_freeze_count=lambda: len(frozen), freeze=lambda: frozen.append(True))
    monkeypatch.setattr(context, "gc", fake)
    context.freeze_modules()
    assert frozen == []
    monkeypatch.setattr(TaskContext, "get", object)
    context.freeze_modules()
    context.freeze_modules()
    assert frozen == [True]
