"""The running task: its partition, and the streaming query and batch that it belongs to."""

from __future__ import annotations

import gc
import re
import uuid

# Local properties that Spark sets for the tasks of a streaming query; the writer API itself passes neither.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"  # holds the id of the run, among others
_RUN_ID = re.compile(r"runId = ([0-9a-f-]{36})")


def partition_id() -> int:
    """The number of this task's partition; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def freeze_modules() -> None:
    """Leave out of garbage collections what a worker of Spark has loaded before its first task.

    Spark runs a complete collection after each task, which took a fifth of the CPU of a read of 150,000 rows. Tasks
    call it when they lease a connection.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()


def running_batch() -> tuple[str, str, int] | None:
    """Query id, run id and batch number of the running task; None outside of a streaming query of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if context is None or query is None or batch is None:
        return None
    found = _RUN_ID.search(context.getLocalProperty(DESCRIPTION) or "")
    # Without it every stage is another run. Its partitions are read back, because it may be a later attempt.
    run = found[1] if found is not None else f"stage-{context.stageId()}"
    return query, run, int(batch)


def streaming_batch() -> tuple[str, str, int]:
    """The same. Outside of a streaming query it names a job that Spark will not replay."""
    job = uuid.uuid4().hex
    return running_batch() or (job, job, 0)
