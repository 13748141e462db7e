"""Key-value buckets as tables, histories, change feeds and sinks; object stores as sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import jsclient
from jsclient import keyvalue, objectstore
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.spark import from_spark, kv_writing
from jsclient.testing import NatsServer, wait_until


@pytest.fixture
def bucket(server: NatsServer, stream_name: str) -> Iterator[KeyValue]:
    with jsclient.connect(server.url) as nc:
        yield keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket=stream_name, history=3))


@pytest.fixture
def kv(server: NatsServer) -> dict[str, str]:
    """Without `register`: Spark finds the formats by their names."""
    return {"servers": server.url}


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_a_bucket_as_a_table(spark: Any, bucket: KeyValue, kv: dict[str, str]) -> None:
    for number in range(20):
        bucket.put(f"{'ab'[number % 2]}.{number % 5}", b"%d" % number)
    bucket.delete("a.0")
    bucket.purge("b.1")
    read = spark.read.format("jetstream-kv").options(**kv)
    table = read.load(bucket.bucket)
    found = {row.key: (bytes(row.value), row.revision, row.operation) for row in table.collect()}
    expected = {f"{'ab'[n % 2]}.{n % 5}": (b"%d" % n, n + 1, "PUT") for n in range(10, 20)}
    del expected["a.0"], expected["b.1"]
    assert found == expected
    some = read.option("keys", "a.>, b.2").schema("key string").load(bucket.bucket)
    assert some.rdd.getNumPartitions() == 2
    assert sorted(row.key for row in some.collect()) == sorted(k for k in expected if k[0] == "a" or k == "b.2")
    history = spark.read.format("jetstream-kv").options(**kv, mode="history", minPartitions=3).load(bucket.bucket)
    history = history.orderBy("revision")
    last = [(row.key, row.value, row.operation) for row in history.tail(2)]
    assert last == [("a.0", None, "DEL"), ("b.1", None, "PURGE")]
    assert history.where("operation = 'PUT'").count() == 20 - 2
    assert rows(history.selectExpr("bucket").distinct()) == [(bucket.bucket,)]


def test_a_change_feed_into_another_bucket(
    spark: Any, bucket: KeyValue, kv: dict[str, str], server: NatsServer, tmp_path: Path
) -> None:
    """Also over revisions that were replaced before they were read: the head of the stream has passed the offset."""
    with jsclient.connect(server.url) as nc:
        copy = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket=f"{bucket.bucket}_copy"))

        def run() -> dict[str, bytes]:
            feed = spark.readStream.format("jetstream-kv").options(**kv).load(bucket.bucket)
            query = (
                feed.select("key", "value").writeStream.format("jetstream-kv").options(**kv, bucket=copy.bucket)
                .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
            )  # fmt: skip
            assert query.awaitTermination(120)
            return {key: copy[key] for key in copy}

        for number in range(6):
            bucket.put(f"k{number % 3}", b"%d" % number)
        assert run() == {"k0": b"3", "k1": b"4", "k2": b"5"}
        for number in range(30):
            bucket.put(f"k{number % 3}", b"new %d" % number)
        bucket.delete("k1")
        assert run() == {"k0": b"new 27", "k2": b"new 29"}


def test_compare_and_set(spark: Any, bucket: KeyValue, kv: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("a", b"1")
    bucket.put("b", b"1")

    def write(values: str, **options: str) -> None:
        frame = spark.sql(f"SELECT * FROM VALUES {values} AS t(key, value, expected_revision)").coalesce(1)
        frame.write.format("jetstream-kv").mode("append").options(**kv, bucket=bucket.bucket, **options).save()

    write("('a', '2', 1), ('c', 'new', 0), ('b', cast(null AS string), 2)")
    assert {key: bucket[key] for key in bucket} == {"a": b"2", "c": b"new"}
    with pytest.raises(Exception, match="'a' is not at its expected_revision") as caught:
        write("('a', '3', 1)")
    error = from_spark(caught.value)
    assert error is not None
    assert error.token == "JETSTREAM_REVISION_MISMATCH"
    write("('a', '3', 1), ('c', '2', null)", onConflict="skip")
    assert {key: bucket[key] for key in bucket} == {"a": b"2", "c": b"2"}


def test_a_task_knows_its_own_rows(bucket: KeyValue, server: NatsServer) -> None:
    """A second attempt after the duplicate window finds its keys at other revisions: by its own rows."""
    import pyarrow as pa

    from jsclient.spark import buckets

    options = buckets.parse({"servers": server.url, "bucket": bucket.bucket}, "W", "KV_", set(), set())
    batch = pa.record_batch(
        {"key": ["a", "b", "a"], "value": ["1", "2", "3"], "expected_revision": pa.array([0, 0, None], pa.int64())}
    )
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        config = js.stream(bucket.stream_name).info().config
        js.delete_stream(bucket.stream_name)
        js.create_stream(msgspec.structs.replace(config, duplicate_window=0.1))  # the shortest that a server takes
        try_again(js, options, batch)


def try_again(js: JetStream, options: Any, batch: Any) -> None:
    def forgotten() -> bool:
        return not js.publish(f"$KV.{options.bucket}.marker", b"", msg_id="marker").duplicate

    assert kv_writing.write_task(options, iter([batch]), "job", 1).rows == 3
    forgotten()
    wait_until(forgotten, 10, "the window to be over")
    assert kv_writing.write_task(options, iter([batch]), "job", 1).rows == 3
    bucket = keyvalue.key_value(js, options.bucket)
    assert bucket.get("b").revision == 2
    assert bucket["a"] == b"3"
    with pytest.raises(Exception, match="'a' is not at its expected_revision"):
        kv_writing.write_task(options, iter([batch]), "another job", 1)


def test_objects(spark: Any, kv: dict[str, str], server: NatsServer, stream_name: str) -> None:
    with jsclient.connect(server.url) as nc:
        store = objectstore.create_object_store(JetStream(nc), ObjectStoreConfig(bucket=stream_name))
        for number in range(3):
            store.put(f"dir/{number}", bytes([number]) * 300_000)
        store.delete("dir/1")
        read = spark.read.format("jetstream-objects").options(**kv)
        found = read.load(stream_name).orderBy("name").collect()
        assert [(row.name, row.length) for row in found] == [("dir/0", 300_000), ("dir/2", 300_000)]
        assert found[0].digest == store.info("dir/0").digest
        assert found[0].modified is not None
        contents = read.schema("content binary, name string").load(stream_name).orderBy("name").collect()
        assert [bytes(row.content) for row in contents] == [bytes([n]) * 300_000 for n in (0, 2)]


@pytest.mark.parametrize(
    ("format_", "schema", "options", "text"),
    [
        ("jetstream-kv", None, {}, "a bucket is needed"),
        ("jetstream-kv", None, {"bucket": "NOBODY_HAS"}, "STREAM_NOT_FOUND"),
        ("jetstream-kv", None, {"bucket": "a.b"}, "BAD_OPTION"),
        ("jetstream-kv", None, {"bucket": "b", "subjects": "x"}, "'subjects' is not an option of buckets"),
        ("jetstream-kv", None, {"bucket": "b", "mode": "all"}, "latest or history"),
        ("jetstream-kv", "subject string", {"bucket": "b"}, "'subject' is none of bucket, key"),
        ("jetstream-kv", "seq bigint", {"bucket": "b", "mode": "history"}, "no column 'seq'"),
        ("jetstream-objects", "length int", {"bucket": "b"}, "'length' is bigint, not int"),
        ("jetstream-objects", None, {"bucket": "NOBODY_HAS"}, "STREAM_NOT_FOUND"),
    ],
)
def test_what_makes_no_sense(
    spark: Any, kv: dict[str, str], format_: str, schema: str | None, options: dict[str, str], text: str
) -> None:
    reader = spark.read.format(format_).options(**kv, **options)
    with pytest.raises(Exception, match=text):
        (reader if schema is None else reader.schema(schema)).load().collect()
