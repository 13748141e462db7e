"""Batch and streaming writers. A task returns only after the stream has acknowledged each of its rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from jsclient.exactly.journal import Job
from jsclient.exactly.row_publisher import Totals
from jsclient.exactly.task import Outcome
from jsclient.spark.committing import conclude_batch, write_task
from jsclient.spark.context import partition_id, streaming_batch
from jsclient.spark.options import SparkOptions
from jsclient.spark.rows import record_batches
from jsclient.spark.schema import check_sink
from jsclient.spark.stream_writer import HANDS_OVER_ROWS, StreamWriter
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Published(WriterCommitMessage):
    """The result that one task returns to the driver."""

    def __init__(self, job: Job, outcome: Outcome) -> None:
        self.job = job
        self.outcome = outcome
        self.totals: Totals = outcome.totals


def finish(options: SparkOptions, messages: list[Any], streaming: bool) -> None:
    """Runs on the driver when all tasks have written."""
    done = [(message.job, message.outcome) for message in messages if isinstance(message, Published)]
    conclude_batch(options, done, streaming)


def aborted(what: str, messages: list[Any]) -> None:
    """Published rows cannot be withdrawn. A failed task may have published, too, and its rows are missing here."""
    total = Totals()
    for message in messages:
        if isinstance(message, Published):
            total.add(message.totals)
    tell(f"{what} aborted; already published by the tasks that ended: {total.rows} rows to {sorted(total.streams)}")


class JetStreamWriter(DataSourceArrowWriter):
    """`df.write.format("jetstream")`. Every run of the same code is a new job: its rows are stored again."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        check_sink(schema, options)
        self.options = options
        self.job: str = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Published(*write_task(self.options, iterator, Job(self.job, self.job, 0, partition_id()), False))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        finish(self.options, messages, False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        aborted("write", messages)


class JetStreamStreamWriter(StreamWriter):
    """`df.writeStream.format("jetstream")`. Spark makes a new one for every call, so it keeps no state."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        check_sink(schema, options)
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, run, batch = streaming_batch()
        options = self.options
        if HANDS_OVER_ROWS:
            iterator = record_batches(iterator, options)
            options = attrs.evolve(options, value_format="binary")  # the documents are made
        return Published(*write_task(options, iterator, Job(query, run, batch, partition_id()), True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        finish(self.options, messages, True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        aborted(f"batch {batchId}", messages)
