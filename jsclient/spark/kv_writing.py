"""Writes rows into a key-value bucket. Keys are replaced, so an aggregation can write its complete result each time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from jsclient.exactly.journal import Job
from jsclient.spark.buckets import BucketOptions
from jsclient.spark.context import partition_id, streaming_batch
from jsclient.spark.kv_task import Stored, check_sink, conclude, write_task
from jsclient.spark.stream_writer import HANDS_OVER_ROWS, StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROWS_AT_ONCE: Final = 2_000


@attrs.frozen
class Written(WriterCommitMessage):
    """The result that one task returns to the driver."""

    stored: Stored


class KeyValueWriter(DataSourceArrowWriter):
    """`df.write.format("jetstream-kv")`. Every run of the same code is a new job: it puts its rows again."""

    def __init__(self, options: BucketOptions, schema: StructType) -> None:
        self.conditional: bool = check_sink(schema)
        self.options = options
        self.job: str = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        job = Job(self.job, self.job, 0, partition_id())
        return Written(write_task(self.options, iterator, job, False, self.conditional))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        conclude(self.options, [each.stored for each in messages if isinstance(each, Written)], False)


class KeyValueStreamWriter(StreamWriter):
    """`df.writeStream.format("jetstream-kv")`. Spark makes a new one for every call."""

    def __init__(self, options: BucketOptions, schema: StructType) -> None:
        self.conditional: bool = check_sink(schema)
        self.options = options
        self.names: list[str] = [field.name for field in schema.fields]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, run, batch = streaming_batch()
        if HANDS_OVER_ROWS:
            iterator = _batches_of(iterator, self.names)
        job = Job(query, run, batch, partition_id())
        return Written(write_task(self.options, iterator, job, True, self.conditional))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        conclude(self.options, [each.stored for each in messages if isinstance(each, Written)], True)


def _batches_of(rows: Iterator[Any], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows of PySpark 4.0 as record batches; all columns of a bucket are plain."""
    import pyarrow as pa

    while some := list(islice(rows, ROWS_AT_ONCE)):
        columns = zip(*some, strict=True)
        yield pa.RecordBatch.from_pydict({n: pa.array(c) for n, c in zip(names, columns, strict=True)})
