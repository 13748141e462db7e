"""Batch and streaming writers. A task returns only when every row of it is acknowledged by its stream."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from jsclient.exactly.conclusion import conclude, purge_receipts
from jsclient.exactly.journal import Job
from jsclient.exactly.partition import write_partition
from jsclient.exactly.task import Outcome
from jsclient.jetstream.publishing.rows import Totals
from jsclient.spark.audit import keep, record_of
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.schema import check_sink
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log: logging.Logger = logging.getLogger("jsclient.spark")

# Local properties that Spark sets for the tasks of a streaming query; the writer API itself tells neither.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"  # holds the id of the run, among others
_RUN_ID = re.compile(r"runId = ([0-9a-f-]{36})")


class Published(WriterCommitMessage):
    """What one task tells the driver."""

    def __init__(self, job: Job, outcome: Outcome) -> None:
        self.job = job
        self.outcome = outcome
        self.totals: Totals = outcome.totals


def partition_id() -> int:
    """The number of this task's partition; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def write_task(options: SparkOptions, batches: Iterator[pa.RecordBatch], job: Job, streaming: bool) -> Published:
    """Publish the record batches of one task."""
    where = job.where if streaming else f"partition {job.partition}"
    with lease(options) as nc:
        return Published(job, write_partition(nc, options, job, batches, options.keeps_journal(streaming), where))


def finish(options: SparkOptions, messages: list[Any], streaming: bool) -> None:
    """On the driver, when all tasks have written: its part of the batch, and what the tasks had to say, once each."""
    done = [message for message in messages if isinstance(message, Published)]
    outcomes = [message.outcome for message in done]
    notes = {note for outcome in outcomes for note in outcome.notes}
    journaled = [message for message in done if message.outcome.journaled]
    if journaled:
        with lease(options) as nc:
            job = journaled[0].job
            notes.update(conclude(nc, options, job, [message.outcome for message in journaled]))
            if not streaming:
                purge_receipts(nc, options, job)
    for note in sorted(notes):
        tell(note)
    if done:
        keep(options, record_of(options, done[0].job, outcomes, bool(journaled), notes))


def summary(messages: list[Any]) -> str:
    total, tasks = Totals(), 0
    for message in messages:
        if isinstance(message, Published):
            total.add(message.totals)
            tasks += 1
    streams = ", ".join(f"{name} {first}-{last}" for name, (first, last) in sorted(total.streams.items())) or "none"
    return (
        f"{total.rows} rows, {total.bytes} bytes in {tasks} tasks, {total.duplicates} already there; streams: {streams}"
    )


class JetStreamWriter(DataSourceArrowWriter):
    """`df.write.format("jetstream")`. Every run of the same code is a new job: its rows are stored again."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        check_sink(schema, options)
        self.options = options
        self.job: str = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(self.options, iterator, Job(self.job, self.job, 0, partition_id()), False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        finish(self.options, messages, False)
        log.info("jetstream write committed: %s", summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # What was published cannot be taken back; a task that failed may have published, too, and is not in here.
        log.warning("jetstream write aborted; already published: %s", summary(messages))


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("jetstream")`. Made anew for every call, so it keeps no state."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        check_sink(schema, options)
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, run, batch = streaming_batch()
        return write_task(self.options, iterator, Job(query, run, batch, partition_id()), True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        finish(self.options, messages, True)
        log.info("jetstream batch %d committed: %s", batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("jetstream batch %d aborted; already published: %s", batchId, summary(messages))


def streaming_batch() -> tuple[str, str, int]:
    """Query id, run id and batch number of the running task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if context is None or query is None or batch is None:
        job = uuid.uuid4().hex
        return job, job, 0  # not inside a streaming query of Spark: nothing will be replayed
    found = _RUN_ID.search(context.getLocalProperty(DESCRIPTION) or "")
    # Without it every stage is another run: its partitions are read back instead of believed to be the first attempt.
    run = found[1] if found is not None else f"stage-{context.stageId()}"
    return query, run, int(batch)
