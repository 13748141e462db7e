"""`format("jetstream-kv")`: a key-value bucket as a table, as a history, as a change feed, and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from jsclient.exactly.sending import context
from jsclient.keyvalue.entry import KeyValueEntry, Operation
from jsclient.spark import buckets
from jsclient.spark import options as known
from jsclient.spark.buckets import KV_ROOT, BucketOptions, check_columns, named_errors, sink_options
from jsclient.spark.datasource import Given, require_streaming_read
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.pool import lease
from jsclient.spark.schema import KV_COLUMNS, schema_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from jsclient.keyvalue.watch import KeyWatcher

READING: Final = {"keys", "mode"}
RANGES: Final = {"minpartitions", "recordsperpartition", "readmethod"}
"""Options for ranges of streams; a history and a change feed are such ranges."""

FEED: Final = {
    *RANGES,
    *("startingoffsets", "startingtimestamp", "maxoffsetspertrigger", "maxbytespertrigger", "readoptionschanged"),
    "failondataloss",
}


class KeyValueDataSource(DataSource):
    """Options and columns: jsclient/spark/README.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options: Any = Given({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        return "jetstream-kv"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in KV_COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        from jsclient.spark.reader import JetStreamReader

        options = buckets.parse(self.options, known.READ, KV_ROOT, READING, RANGES)
        return JetStreamReader(options.stream, schema) if options.history else LatestReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        require_streaming_read()
        from jsclient.spark.stream import JetStreamStreamReader

        given = {"startingoffsets": "earliest", **self.options}
        if "startingtimestamp" in given:
            given.pop("startingoffsets")
        options = buckets.parse(given, known.READ_STREAM, KV_ROOT, {"keys"}, FEED)
        return JetStreamStreamReader(options.stream, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from jsclient.spark.sinks import BucketSink
        from jsclient.spark.writer import SinkWriter

        if overwrite:
            raise JetStreamSparkError(
                "JETSTREAM_OVERWRITE_UNSUPPORTED",
                'write.mode("overwrite") would have to remove all other keys of the bucket; use append, which replaces '
                "the values of the keys that are written",
            )
        return SinkWriter(BucketSink(sink_options(self.options, known.WRITE)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from jsclient.spark.sinks import BucketSink
        from jsclient.spark.writer import SinkStreamWriter

        # With outputMode("complete") every batch puts all rows of the result again.
        return SinkStreamWriter(BucketSink(sink_options(self.options, known.WRITE_STREAM)), schema)


class KeysPartition(InputPartition):
    """The keys that one task reads: those that match one filter."""

    def __init__(self, pattern: str | None) -> None:
        super().__init__(pattern)
        self.pattern = pattern


class LatestReader(DataSourceReader):
    """The latest value of each key, once. There is one task per filter of `keys`.

    Ranges of sequences do not work here. A key that is written during the read leaves its range and appears in no
    other.
    """

    def __init__(self, options: BucketOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns: list[str] = check_columns(schema, {name: (kind,) for name, kind in KV_COLUMNS.items()})

    def partitions(self) -> Sequence[InputPartition]:
        return [KeysPartition(pattern) for pattern in self.options.keys or (None,)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, KeysPartition):
            with named_errors(self.options.stream, "JETSTREAM_READ_FAILED", f"bucket {self.options.bucket!r}"):
                yield from self._batches(partition)

    def _batches(self, partition: KeysPartition) -> Iterator[pa.RecordBatch]:
        from jsclient.keyvalue.manager import key_value
        from jsclient.spark.reader import BATCH_BYTES, BATCH_ROWS

        options, stream = self.options, self.options.stream
        schema = schema_of(self.schema)
        with lease(stream) as nc:
            bucket = key_value(context(nc, stream), options.bucket)
            patterns = () if partition.pattern is None else (partition.pattern,)
            meta_only = "value" not in self.columns
            with bucket.watch(
                *patterns, ignore_deletes=True, meta_only=meta_only, timeout=stream.reconnect_timeout
            ) as watcher:
                for entries in _portions(watcher, BATCH_ROWS, BATCH_BYTES):
                    arrays = [_column(name, entries, schema.field(name).type) for name in self.columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _portions(watcher: KeyWatcher, rows: int, nbytes: int) -> Iterator[list[KeyValueEntry]]:
    """The current entries, each key once, in lists for one record batch each."""
    seen: set[str] = set()
    portion: list[KeyValueEntry] = []
    size = 0
    while (entry := watcher.next()) is not None:
        if entry.key in seen:
            continue  # written meanwhile, after its value was returned
        seen.add(entry.key)
        portion.append(entry)
        size += len(entry.value)
        if len(portion) >= rows or size >= nbytes:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _column(name: str, entries: list[KeyValueEntry], kind: pa.DataType) -> pa.Array:
    """A column of a table. Its entries are puts."""
    if name == "bucket":
        return pa.repeat(pa.scalar(entries[0].bucket), len(entries))
    if name == "operation":
        return pa.repeat(pa.scalar(Operation.PUT.value), len(entries))
    if name == "time":
        return pa.array([entry.stamp for entry in entries], pa.timestamp("ns", tz="UTC")).cast(kind, safe=False)
    return pa.array([getattr(entry, name) for entry in entries], kind)
