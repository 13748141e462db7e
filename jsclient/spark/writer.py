"""The writers that Spark calls, for every sink. A task returns only after the server has stored each of its rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from jsclient.exactly.journal import Job
from jsclient.exactly.row_publisher import Totals
from jsclient.spark.committing import Written
from jsclient.spark.context import partition_id, streaming_batch
from jsclient.spark.sinks import BucketSink, StreamSink
from jsclient.spark.telling import tell

HANDS_OVER_ROWS: bool = not hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")
"""PySpark 4.0 has rows for a streaming sink, later versions have Arrow batches."""

if TYPE_CHECKING or not HANDS_OVER_ROWS:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter
else:
    from pyspark.sql.datasource import DataSourceStreamWriter as StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Published(Written, WriterCommitMessage):
    """The result of a task as Spark wants it."""

    @classmethod
    def of(cls, written: Written) -> Published:
        return cls(written.job, written.outcome)


def _published(messages: list[Any]) -> list[Written]:
    return [message for message in messages if isinstance(message, Published)]


def _aborted(what: str, messages: list[Any]) -> None:
    """Published rows cannot be withdrawn. A failed task may have published, too, and its rows are missing here."""
    total = Totals()
    for each in _published(messages):
        total.add(each.totals)
    tell(f"{what} aborted; already published by the tasks that ended: {total.rows} rows to {sorted(total.streams)}")


class SinkWriter(DataSourceArrowWriter):
    """`df.write`. Every run of the same code is a new job: its rows are stored again."""

    def __init__(self, sink: StreamSink | BucketSink, schema: StructType) -> None:
        self.sink: StreamSink | BucketSink = sink.checked(schema)
        self.job: str = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        job = Job(self.job, self.job, 0, partition_id())
        return Published.of(self.sink.write(iterator, job, False))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.conclude(_published(messages), False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _aborted("write", messages)


class SinkStreamWriter(StreamWriter):
    """`df.writeStream`. Spark makes a new one for every call, so it keeps no state."""

    def __init__(self, sink: StreamSink | BucketSink, schema: StructType) -> None:
        self.sink: StreamSink | BucketSink = sink.checked(schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, run, batch = streaming_batch()
        sink, batches = self.sink.of_rows(iterator) if HANDS_OVER_ROWS else (self.sink, iterator)
        return Published.of(sink.write(batches, Job(query, run, batch, partition_id()), True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.conclude(_published(messages), True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _aborted(f"batch {batchId}", messages)
