"""Key-value buckets as tables, histories, change feeds and sinks; object stores as sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import jsclient
from jsclient import keyvalue, objectstore
from jsclient.exactly import task as exactly_task
from jsclient.exactly.journal import Job
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.spark import batch_writer, from_spark
from jsclient.spark.buckets import sink_options
from jsclient.spark.committing import record_of
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.sinks import BucketSink
from jsclient.testing import NatsServer

from .journal_rig import pass_the_window


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


def test_rows_with_a_revision_are_in_the_record(bucket: KeyValue, server: NatsServer) -> None:
    import pyarrow as pa

    bucket.put("a", b"1")
    options = sink_options({"servers": server.url, "bucket": bucket.bucket, "onConflict": "skip"}, "T")
    batch = entries(key=["a", "b"], value=["12", "34"], expected_revision=pa.array([7, 0], pa.int64()))
    done = BucketSink(options, True).write(iter([batch]), Job("q", "q", 0, 0), False)
    record = record_of(options.stream, [done], False, done.outcome.notes)
    assert (record["rows"], record["bytes"], record["streams"]) == (1, 2, {f"KV_{bucket.bucket}": [2, 2]})
    (note,) = record["notes"]
    assert note.startswith(f"bucket '{bucket.bucket}': 1 row not written")
    assert note.endswith("(onConflict=skip): a")


@pytest.mark.usefixtures("forgetful")
def test_a_task_knows_its_own_rows(bucket: KeyValue, options: Any) -> None:
    """A second attempt after the duplicate window finds its keys at other revisions: by its own rows."""
    import pyarrow as pa

    batch = entries(key=["a", "b", "a"], value=["1", "2", "3"], expected_revision=pa.array([0, 0, None], pa.int64()))
    assert write(options, batch, "job") == 3
    pass_the_window()
    assert write(options, batch, "job") == 1, "the row without a revision; the others are stored already"
    assert bucket.get("b").revision == 2
    assert bucket["a"] == b"3"
    with pytest.raises(Exception, match="'a' is not at its expected_revision"):
        write(options, batch, "another job")


def write(options: Any, batch: Any, query: str, number: int = 1, run: str = "run") -> int:
    """One task of a streaming query."""
    conditional = "expected_revision" in batch.schema.names
    totals = BucketSink(options, conditional).write(iter([batch]), Job(query, run, number, 0), True).totals
    return totals.rows - totals.duplicates


@pytest.fixture
def options(bucket: KeyValue, server: NatsServer) -> Any:
    return sink_options({"servers": server.url, "bucket": bucket.bucket}, "T")


def entries(**columns: Any) -> Any:
    import pyarrow as pa

    return pa.record_batch(columns)


@pytest.fixture
def forgetful(bucket: KeyValue, server: NatsServer) -> None:
    """The bucket has the shortest duplicate window that a server takes."""
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        config = js.stream(bucket.stream_name).info().config
        js.delete_stream(bucket.stream_name)
        js.create_stream(msgspec.structs.replace(config, duplicate_window=0.1))


@pytest.mark.usefixtures("forgetful")
def test_a_task_that_runs_again_keeps_what_another_writer_stored(bucket: KeyValue, options: Any) -> None:
    """It had written all rows: the receipt in the journal says so, long after the bucket forgot the ids."""
    batch = entries(key=["a", "b"], value=["1", "1"])
    assert write(options, batch, bucket.bucket) == 2
    bucket.put("a", b"newer")
    pass_the_window()
    assert write(options, batch, bucket.bucket) == 0
    assert write(options, batch, bucket.bucket, run="driver started again") == 0
    assert {key: bucket[key] for key in bucket} == {"a": b"newer", "b": b"1"}


def test_a_task_of_an_older_batch_is_stopped(bucket: KeyValue, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that its driver has given up still has rows of batch 1 when batch 2 is written."""
    import pyarrow as pa

    monkeypatch.setattr(exactly_task, "LOOK_EVERY", 0.0)
    rows = [entries(key=["a"], value=["old"]), entries(key=["b"], value=["old"])]

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows[0]
        assert write(options, entries(key=["a", "b"], value=["new", "new"]), bucket.bucket, 2, "second run") == 2
        yield rows[1]

    with pytest.raises(JetStreamSparkError, match="JETSTREAM_FENCED"):
        BucketSink(options).write(batches(), Job(bucket.bucket, "run", 1, 0), True)
    assert {key: bucket[key] for key in bucket} == {"a": b"new", "b": b"new"}
    with pytest.raises(JetStreamSparkError, match="JETSTREAM_JOURNAL_AHEAD"):
        write(options, rows[1], bucket.bucket)


@pytest.mark.usefixtures("forgetful")
def test_a_task_that_did_not_end_puts_its_rows_again(
    bucket: KeyValue, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_task, "SETTLED", 0.0)

    def batches() -> Iterator[Any]:
        yield entries(key=["a", "b"], value=["1", "1"])
        raise ConnectionAbortedError("the task dies here")

    with pytest.raises(ConnectionAbortedError):
        BucketSink(options).write(batches(), Job(bucket.bucket, "run", 1, 0), True)
    pass_the_window()
    assert write(options, entries(key=["b", "c"], value=["2", "2"]), bucket.bucket) == 2
    assert {key: bucket[key] for key in bucket} == {"a": b"1", "b": b"2", "c": b"2"}


def test_a_replay_with_other_partitions_ends_with_the_newest_value(bucket: KeyValue, options: Any) -> None:
    """Row 2 was in partition 1, where it is again, and row 1 in another one: the server knows the ids of row 2."""
    first, second = entries(key=["a"], value=["old"]), entries(key=["a"], value=["new"])
    for partition, batch in enumerate((first, second)):
        BucketSink(options).write(iter([batch]), Job(bucket.bucket, "run", 1, partition), True)
    both = [first, second]
    BucketSink(options).write(iter(both), Job(bucket.bucket, "driver started again", 1, 1), True)
    assert bucket["a"] == b"new"


def test_revisions_of_one_key_keep_their_order(bucket: KeyValue, options: Any) -> None:
    keys = [f"k{number % 7}" for number in range(500)] + ["hot"] * 20
    values = [b"%d" % number for number in range(len(keys))]
    assert write(options, entries(key=keys, value=values), bucket.bucket) == len(keys)
    last = dict(zip(keys, values, strict=True))
    assert {key: bucket[key] for key in bucket} == last
    history = [entry.value for entry in bucket.history("hot")]
    assert history == values[-3:]


@pytest.mark.parametrize("conditional", [False, True])
def test_removing_keys_by_a_column(bucket: KeyValue, options: Any, conditional: bool) -> None:
    """`operation` has the words of the reader, so that a history or a feed can be copied."""
    import pyarrow as pa

    for key in "abcdef":
        bucket.put(key, b"1")
    columns = {
        "key": list("abcdef"),
        "value": ["2", "2", None, "2", "2", ""],
        "operation": ["PUT", "DEL", None, "PURGE", None, "PUT"],
    }
    more = {"expected_revision": pa.array([1, 2, None, 4, None, 6], pa.int64())} if conditional else {}
    assert write(options, entries(**columns, **more), bucket.bucket) == 6
    assert {key: bucket[key] for key in bucket} == {"a": b"2", "e": b"2", "f": b""}
    assert [str(entry.operation) for entry in bucket.history("b")] == ["PUT", "DEL"]
    assert [str(entry.operation) for entry in bucket.history("c")] == ["PUT", "DEL"]
    assert [str(entry.operation) for entry in bucket.history("d")] == ["PURGE"]
    with pytest.raises(JetStreamSparkError, match="'del'; write PUT, DEL or PURGE"):
        write(options, entries(key=["a"], value=["1"], operation=["del"]), bucket.bucket, 2)
    for wrong in ("", "a b", "a..b", None):
        with pytest.raises(JetStreamSparkError, match="PUBLISH_FAILED.*key"):
            write(options, entries(key=pa.array([wrong], pa.string()), value=["1"]), bucket.bucket, 2)


@pytest.mark.spark_modes
@pytest.mark.parametrize("mode", ["complete", "update"])
def test_counts_by_key(
    spark: Any, bucket: KeyValue, kv: dict[str, str], server: NatsServer, tmp_path: Path, mode: str
) -> None:
    """Upserts: a batch in complete mode puts all counts, one in update mode those that changed."""
    options = {**kv, "bucket": bucket.bucket}
    with jsclient.connect(server.url) as nc:
        source = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket=f"{bucket.bucket}_from", history=64))

        def run() -> dict[str, bytes]:
            feed = spark.readStream.format("jetstream-kv").options(**kv).load(source.bucket)
            writing = feed.groupBy("key").count().selectExpr("key", "cast(count AS string) AS value").writeStream
            if mode == "complete":
                writing = writing.format("jetstream-kv").options(**options)
            else:
                writing = writing.foreachBatch(batch_writer(options))
            query = writing.outputMode(mode).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
            assert query.start().awaitTermination(120)
            return {key: bucket[key] for key in bucket}

        for number in range(10):
            source.put(f"k{number % 3}", b"")
        assert run() == {"k0": b"4", "k1": b"3", "k2": b"3"}
        source.put("k0", b"")
        assert run() == {"k0": b"5", "k1": b"3", "k2": b"3"}
        assert bucket.get("k2").revision < bucket.get("k0").revision
        written = 6 if mode == "complete" else 4
        assert JetStream(nc).stream(bucket.stream_name).info().state.last_seq == written


@pytest.mark.spark_modes
@pytest.mark.usefixtures("forgetful")
def test_a_replayed_batch_keeps_newer_values(
    spark: Any, bucket: KeyValue, kv: dict[str, str], server: NatsServer, tmp_path: Path
) -> None:
    to_bucket = batch_writer({**kv, "bucket": bucket.bucket})
    broken = True

    def store(frame: Any, batch: int) -> None:
        to_bucket(frame.select("key", "value"), batch)
        if broken:
            raise RuntimeError("the driver dies here")

    with jsclient.connect(server.url) as nc:
        source = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket=f"{bucket.bucket}_from"))

        def run() -> dict[str, bytes]:
            feed = spark.readStream.format("jetstream-kv").options(**kv).load(source.bucket)
            writing = feed.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path))
            assert writing.trigger(availableNow=True).start().awaitTermination(120)
            return {key: bucket[key] for key in bucket}

        source.put("a", b"1")
        source.put("b", b"1")
        with pytest.raises(Exception, match="the driver dies here"):
            run()
        bucket.put("a", b"newer")
        pass_the_window()
        broken = False
        assert run() == {"a": b"newer", "b": b"1"}
        source.put("a", b"2")
        assert run() == {"a": b"2", "b": b"1"}


def test_modes_that_the_format_does_not_have(spark: Any, bucket: KeyValue, kv: dict[str, str], tmp_path: Path) -> None:
    options = {**kv, "bucket": bucket.bucket}
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    frame = counts.selectExpr("cast(value AS string) AS key", "cast(count AS string) AS value")
    writing = frame.writeStream.format("jetstream-kv").options(**options).outputMode("update")
    with pytest.raises(Exception, match="does not support Update mode") as caught:
        writing.option("checkpointLocation", str(tmp_path)).start().processAllAvailable()
    error = from_spark(caught.value)
    assert error is not None
    assert error.token == "JETSTREAM_UPDATE_UNSUPPORTED"
    assert "batch_writer" in error.message
    with pytest.raises(Exception, match="use append, which replaces"):
        spark.sql("SELECT 'a' AS key, 'b' AS value").write.format("jetstream-kv").mode("overwrite").options(
            **options
        ).save()


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
