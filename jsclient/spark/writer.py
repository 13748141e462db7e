"""Batch and streaming writers. A task returns only when every row of it is acknowledged by its stream."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from jsclient import errors
from jsclient.spark.access import StreamAccess
from jsclient.spark.ids import ContentIds, key_of
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.progress import read_ledger, write_ledger
from jsclient.spark.publishing import TaskPublisher
from jsclient.spark.rows import RowMaker
from jsclient.spark.schema import check_sink
from jsclient.spark.sending import Totals, publish_failed
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("jsclient.spark")

# Local properties that Spark sets for the tasks of a streaming query; the writer API itself tells neither.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class Published(WriterCommitMessage):
    """What one task tells the driver."""

    def __init__(
        self,
        partition: int,
        totals: Totals,
        query: str = "",
        revision: int = 0,
        skipped: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self.partition = partition
        self.totals = totals
        self.query = query
        self.revision = revision  # of the ledger entry, as it was before the task wrote
        self.skipped = skipped  # the ledger said that the batch is committed
        self.notes = list(notes)  # what the user has to see although nothing failed


def partition_id() -> int:
    """The number of this task's partition; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def write_task(
    options: SparkOptions, batches: Iterator[pa.RecordBatch], job: str, batch: int, query: str = ""
) -> Published:
    """Publish the record batches of one task. `job` and `batch` make the ids that a replay repeats."""
    partition = partition_id()
    where = f"partition {partition} of batch {batch}" if query else f"partition {partition}"
    with lease(options) as nc:
        revision = 0
        if options.ledger_bucket is not None and query:
            access = StreamAccess(nc, options, stream="(sink)")
            committed, revision = read_ledger(access, options.ledger_bucket, query)
            if batch <= committed:
                log.info("%s was committed before (ledger %r); nothing is published", where, options.ledger_bucket)
                return Published(partition, Totals(), query, revision, skipped=True)
        ids = options.delivery_semantics == "exactly-once" and options.publish_mode != "atomic"
        rows = RowMaker(options, ContentIds(key_of(job, batch), str(partition)) if ids else None)
        try:
            with TaskPublisher(nc, options, job, batch, partition) as publisher:
                for record_batch in batches:
                    publisher.publish(rows.of_batch(record_batch))
                totals = publisher.finish()
        except errors.JsClientError as error:
            raise publish_failed(options, where, error) from error
    return Published(partition, totals, query, revision, notes=publisher.notes)


def tell_notes(messages: list[Any]) -> None:
    """What the tasks had to say, once each; called on the driver."""
    for note in sorted({note for message in messages if isinstance(message, Published) for note in message.notes}):
        tell(note)


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
        self.job = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(self.options, iterator, self.job, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log.info("jetstream write committed: %s", summary(messages))
        tell_notes(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # What was published cannot be taken back; a task that failed may have published, too, and is not in here.
        log.warning("jetstream write aborted; already published: %s", summary(messages))


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("jetstream")`. Made anew for every call, so it keeps no state."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        check_sink(schema, options)
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, batch = streaming_batch()
        return write_task(self.options, iterator, query, batch, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.info("jetstream batch %d committed: %s", batchId, summary(messages))
        tell_notes(messages)
        done = [message for message in messages if isinstance(message, Published)]
        if self.options.ledger_bucket is None or not done or all(message.skipped for message in done):
            return
        with lease(self.options) as nc:
            access = StreamAccess(nc, self.options, stream="(sink)")
            # All tasks saw the same entry unless another driver committed in between: then the oldest one loses.
            revision = min(message.revision for message in done)
            write_ledger(access, self.options.ledger_bucket, done[0].query, batchId, revision)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("jetstream batch %d aborted; already published: %s", batchId, summary(messages))


def streaming_batch() -> tuple[str, int]:
    """Query id and batch number of the running task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return uuid.uuid4().hex, 0  # not inside a streaming query of Spark: nothing will be replayed
    return query, int(batch)
