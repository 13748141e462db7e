"""Batch and streaming writers. A task returns only when every row of it is acknowledged by its stream."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from jsclient import errors
from jsclient.jetstream.publishing.rows import Totals
from jsclient.spark.audit import keep, record_of
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.exactly import JournaledTask, Outcome, conclude, purge_receipts
from jsclient.spark.ids import ContentIds, key_of
from jsclient.spark.journal import Job, Journal, open_journal, refuse_journal
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.publishing import TaskPublisher
from jsclient.spark.rows import RowMaker
from jsclient.spark.schema import check_sink
from jsclient.spark.sending import publish_failed
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jsclient.connection import Connection

log: logging.Logger = logging.getLogger("jsclient.spark")

# Local properties that Spark sets for the tasks of a streaming query; the writer API itself tells neither.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"  # holds the id of the run, among others
_RUN_ID = re.compile(r"runId = ([0-9a-f-]{36})")


class Published(WriterCommitMessage):
    """What one task tells the driver."""

    def __init__(self, job: Job, outcome: Outcome, journaled: bool) -> None:
        self.job = job
        self.outcome = outcome
        self.totals: Totals = outcome.totals
        self.journaled = journaled


def partition_id() -> int:
    """The number of this task's partition; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def write_task(options: SparkOptions, batches: Iterator[pa.RecordBatch], job: Job, streaming: bool) -> Published:
    """Publish the record batches of one task. Query and batch make the ids that a replay repeats."""
    where = job.where if streaming else f"partition {job.partition}"
    with lease(options) as nc:
        try:
            journal = _journal(nc, options, job, streaming)
            if isinstance(journal, Journal):
                return Published(job, JournaledTask(nc, options, journal, job).write(batches), True)
            outcome = _write_plainly(nc, options, batches, job)
        except errors.JsClientError as error:
            raise publish_failed(options, where, error) from error
    outcome.notes += [journal] if journal else []
    return Published(job, outcome, False)


def _journal(nc: Connection, options: SparkOptions, job: Job, streaming: bool) -> Journal | str:
    """The journal, which has begun; or a text why there is none, empty when none is wanted."""
    if not options.keeps_journal(streaming):
        return ""
    kv = open_journal(nc, options)
    if not isinstance(kv, str):
        journal = Journal(nc, options, kv, job)
        try:
            journal.begin()
            return journal
        except JetStreamSparkError as error:
            if not isinstance(error.__cause__, errors.PermissionViolation):
                raise
            kv = refuse_journal(nc, options, f"the journal cannot be written: {options.hide(str(error.__cause__))}")
    if options.delivery_semantics == "exactly-once":
        raise JetStreamSparkError(
            "JETSTREAM_JOURNAL_UNAVAILABLE", f"deliverySemantics=exactly-once needs a journal: {kv}"
        )
    if options.publish_mode == "atomic":
        return f"{kv}. Rows are stored once only if a replay has the same rows in the same partitions and order"
    return f"{kv}. Rows are stored once only while their stream recognises repeated messages (deliverySemantics=window)"


def _write_plainly(nc: Connection, options: SparkOptions, batches: Iterator[pa.RecordBatch], job: Job) -> Outcome:
    ids = options.delivery_semantics != "at-least-once" and options.publish_mode != "atomic"
    rows = RowMaker(options, ContentIds(key_of(job.query, job.batch), str(job.partition)) if ids else None)
    with TaskPublisher(nc, options, job.query, job.batch, job.partition) as publisher:
        for record_batch in batches:
            publisher.publish(rows.of_batch(record_batch))
        return Outcome(publisher.finish(), publisher.notes)


def finish(options: SparkOptions, messages: list[Any], streaming: bool) -> None:
    """On the driver, when all tasks have written: its part of the batch, and what the tasks had to say, once each."""
    done = [message for message in messages if isinstance(message, Published)]
    notes = {note for message in done for note in message.outcome.notes}
    journaled = [message for message in done if message.journaled]
    if journaled:
        with lease(options) as nc:
            job = journaled[0].job
            kv = open_journal(nc, options)
            if isinstance(kv, str):
                raise JetStreamSparkError("JETSTREAM_JOURNAL_UNAVAILABLE", kv)
            journal = Journal(nc, options, kv, job)
            notes.update(conclude(nc, options, journal, job, [message.outcome for message in journaled]))
            if not streaming:
                purge_receipts(nc, options, job)
    for note in sorted(notes):
        tell(note)
    if done:
        record = record_of(options, done[0].job, [message.outcome for message in done], bool(journaled), notes)
        keep(options, record)


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
