"""The sinks of a DataFrame, a stream or a bucket: a task writes one partition, and the driver concludes the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient.exactly.journal import Job
from jsclient.exactly.partition import write_partition
from jsclient.spark.buckets import BucketOptions, check_columns, named_errors
from jsclient.spark.committing import Written, conclude_batch
from jsclient.spark.kv_revisions import ConditionalTask
from jsclient.spark.kv_rows import EntryRows
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.rows import ROWS_AT_ONCE, record_batches
from jsclient.spark.schema import check_sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

KV_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "key": ("string",),
    "value": ("binary", "string"),
    "operation": ("string",),
    "expected_revision": ("bigint", "int"),
}


@attrs.frozen
class StreamSink:
    """A sink that adds rows to streams."""

    options: SparkOptions

    def checked(self, schema: StructType) -> StreamSink:
        """The sink for a DataFrame; refuses one that it cannot store."""
        check_sink(schema, self.options)
        return self

    def target(self, name: str) -> str:
        """The name of the sink in the journal."""
        return self.options.target(name)

    def of_rows(self, rows: Iterable[Any]) -> tuple[StreamSink, Iterator[pa.RecordBatch]]:
        """Single rows as record batches, and the sink for them."""
        documents_made = attrs.evolve(self.options, value_format="binary")
        return StreamSink(documents_made), record_batches(rows, self.options)

    def write(self, batches: Iterator[pa.RecordBatch], job: Job, streaming: bool) -> Written:
        where = job.where if streaming else f"partition {job.partition}"
        journaled = self.options.keeps_journal(streaming)
        with lease(self.options) as nc:
            return Written(job, write_partition(nc, self.options, job, batches, journaled, where))

    def conclude(self, done: list[Written], streaming: bool) -> None:
        """Runs on the driver when all tasks have written."""
        conclude_batch(self.options, done, streaming)


@attrs.frozen
class BucketSink:
    """A sink that replaces the values of keys. `conditional` rows have expected revisions, and no journal."""

    options: BucketOptions
    conditional: bool = False

    def checked(self, schema: StructType) -> BucketSink:
        columns = check_columns(schema, KV_COLUMNS, ("key", "value"))
        return attrs.evolve(self, conditional="expected_revision" in columns)

    def target(self, name: str) -> str:
        return self.options.stream.target(f"{name}\0{self.options.bucket}")

    def of_rows(self, rows: Iterable[Any]) -> tuple[BucketSink, Iterator[pa.RecordBatch]]:
        import pyarrow as pa

        made = (row.asDict() for row in rows)
        portions = iter(lambda: list(islice(made, ROWS_AT_ONCE)), [])
        return self, map(pa.RecordBatch.from_pylist, portions)

    def write(self, batches: Iterator[pa.RecordBatch], job: Job, streaming: bool) -> Written:
        options = self.options.stream
        where = f"bucket {self.options.bucket!r}"
        with named_errors(options, "JETSTREAM_PUBLISH_FAILED", where):
            with lease(options) as nc:
                if self.conditional:
                    return Written(job, ConditionalTask(nc, self.options, job).write(batches))
                make = partial(EntryRows, self.options)
                journaled = options.keeps_journal(streaming)
                return Written(job, write_partition(nc, options, job, batches, journaled, where, make))

    def conclude(self, done: list[Written], streaming: bool) -> None:
        conclude_batch(self.options.stream, done, streaming)
