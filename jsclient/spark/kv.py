"""`format("jetstream-kv")`: a key-value bucket as a table, as a history, as a change feed, and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from jsclient.exactly.sending import context
from jsclient.spark import buckets
from jsclient.spark import options as known
from jsclient.spark.buckets import BucketOptions, check_columns, named_errors
from jsclient.spark.datasource import Given, refuse_overwrite, require_streaming_read
from jsclient.spark.pool import lease
from jsclient.spark.schema import KV_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

ROOT: Final = "KV_"
READING: Final = {"keys", "mode"}
WRITING: Final = {"onconflict"}
RANGES: Final = {
    *("minpartitions", "recordsperpartition", "maxpartitions", "batchrows", "batchbytes", "pullrecords", "pullbytes"),
    *("prefetch", "readmethod", "consumerinactivethreshold"),
}
"""Options for ranges of streams; a history and a change feed are such ranges."""

FEED: Final = {
    *RANGES,
    *("startingoffsets", "startingtimestamp", "startingtimestampstrategy", "maxoffsetspertrigger"),
    *("maxbytespertrigger", "minoffsetspertrigger", "maxtriggerdelay", "readoptionschanged"),
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

        options = buckets.parse(self.options, known.READ, ROOT, READING, RANGES)
        return JetStreamReader(options.stream, schema) if options.history else LatestReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        require_streaming_read()
        from jsclient.spark.stream import JetStreamStreamReader

        given = {"startingoffsets": "earliest", **self.options}
        if "startingtimestamp" in given:
            given.pop("startingoffsets")
        options = buckets.parse(given, known.READ_STREAM, ROOT, {"keys"}, FEED)
        return JetStreamStreamReader(options.stream, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from jsclient.spark.kv_writing import KeyValueWriter

        refuse_overwrite(overwrite, 'write.mode("overwrite")')
        return KeyValueWriter(buckets.parse(self.options, known.WRITE, ROOT, WRITING, set()), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from jsclient.spark.kv_writing import KeyValueStreamWriter

        refuse_overwrite(overwrite, 'outputMode("complete")')
        return KeyValueStreamWriter(buckets.parse(self.options, known.WRITE_STREAM, ROOT, WRITING, set()), schema)


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

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, KeysPartition):
            with named_errors(self.options.stream, "JETSTREAM_READ_FAILED", f"bucket {self.options.bucket!r}"):
                yield from self._entries(partition)

    def _entries(self, partition: KeysPartition) -> Iterator[tuple[Any, ...]]:
        from jsclient.keyvalue.manager import key_value

        options, stream = self.options, self.options.stream
        seen: set[str] = set()
        with lease(stream) as nc:
            bucket = key_value(context(nc, stream), options.bucket)
            patterns = () if partition.pattern is None else (partition.pattern,)
            meta_only = "value" not in self.columns
            with bucket.watch(
                *patterns, ignore_deletes=True, meta_only=meta_only, timeout=stream.reconnect_timeout
            ) as watcher:
                while (entry := watcher.next()) is not None:
                    if entry.key in seen:
                        continue  # written meanwhile, after its value was returned
                    seen.add(entry.key)
                    row = {
                        "bucket": entry.bucket,
                        "key": entry.key,
                        "value": entry.value,
                        "revision": entry.revision,
                        "time": entry.created,
                        "operation": str(entry.operation),
                    }
                    yield tuple(row[name] for name in self.columns)
