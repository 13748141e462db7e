"""For code that Spark runs on executors: `foreachPartition`, `mapInArrow`, `foreachBatch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jsclient import errors
from jsclient.spark import options as known
from jsclient.spark.access import StreamAccess
from jsclient.spark.chunks import iterate_rows
from jsclient.spark.ids import id_prefix
from jsclient.spark.options import SparkOptions
from jsclient.spark.planner import Range
from jsclient.spark.pool import connection
from jsclient.spark.publishing import TaskPublisher
from jsclient.spark.ranges import choose_method, read_chunks
from jsclient.spark.rows import RowMaker
from jsclient.spark.sending import Totals, publish_failed
from jsclient.spark.writer import partition_id
from protocol import Headers

ACK_WINDOW = 500  # acknowledgements under way at once


class Record(NamedTuple):
    """One message of `read_range`."""

    subject: str
    seq: int
    timestamp_ns: int
    headers: Headers | None
    value: bytes


def publish_partition(
    rows: Iterable[Any], options: Mapping[str, str] | SparkOptions, *, job: str | None = None, batch: int = 0
) -> Totals:
    """Publish the rows of a partition and wait for all acks; returns rows, bytes, duplicates, streams.

    `rows`: Rows, dicts or record batches with the columns of the sink. `options`: those of `write`.
    Ids come from `job` and `batch` (in `foreachBatch` pass the query's id and the batch id); without a job from
    application and stage, so that a retried task publishes nothing twice. Raises JetStreamSparkError.
    """
    checked = options if isinstance(options, SparkOptions) else known.parse(options, known.WRITE)
    partition = partition_id()
    ids = checked.delivery_semantics == "exactly-once" and checked.publish_mode != "atomic"
    job = job or _stage()
    maker = RowMaker(checked, id_prefix(job, batch, partition) if ids else None)
    with connection(checked) as nc:
        try:
            with TaskPublisher(nc, checked, job, batch, partition) as publisher:
                for made in _grouped(rows, maker):
                    publisher.publish(made)
                return publisher.finish()
        except errors.JsClientError as error:
            raise publish_failed(checked, f"partition {partition}", error) from error


def _grouped(rows: Iterable[Any], maker: RowMaker) -> Iterator[Iterator[Any]]:
    """Record batches one by one, Rows and dicts in one go."""
    iterator = iter(rows)
    for first in iterator:
        if hasattr(first, "num_rows"):
            yield maker.of_batch(first)
            continue
        yield maker.of_rows([first])
        yield maker.of_rows(iterator)


def _stage() -> str:
    """The same for every attempt of a task, another one for every run of a stage."""
    import hashlib
    import uuid

    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return uuid.uuid4().hex
    from pyspark import SparkFiles

    # The folder of the application's files is the one thing a worker knows that names the application.
    application = context.getLocalProperty("spark.app.id") or SparkFiles.getRootDirectory()
    return hashlib.sha256(f"{application}/{context.stageId()}".encode()).hexdigest()


def read_range(options: Mapping[str, str] | SparkOptions, start: int, end: int) -> Iterator[Record]:
    """The messages of the sequences [start, end), in order, as records; `options` are those of `read`."""
    checked = options if isinstance(options, SparkOptions) else known.parse(options, known.READ)
    with connection(checked) as nc:
        access = StreamAccess(nc, checked)
        access.check_filters()
        state = access.state()
        consumed = state.retention in ("workqueue", "interest")
        method = choose_method(checked, end - start, access.direct_works(state), consumed)
        for chunk in read_chunks(nc, checked, Range(0, start, end, checked.subjects), method, "range"):
            for subject, seq, ns, block, value in iterate_rows(chunk):
                headers = None if block is None else Headers.decode(block)
                yield Record(subject.decode("utf-8", "surrogateescape"), seq, ns, headers, value)


def ack_partition(rows: Iterable[Any], options: Mapping[str, str] | SparkOptions, *, column: str = "reply") -> int:
    """Acknowledge messages by their reply subjects and wait until the server has confirmed each; returns how many.

    For work queues shared with others, where messages were fetched by a consumer with explicit acks: at least once.
    """
    checked: Any = options
    done = 0
    with connection(checked) as nc:
        window: list[str] = []
        for row in rows:
            reply = row if isinstance(row, str) else row[column]
            if reply:
                window.append(reply)
            if len(window) >= ACK_WINDOW:
                done += _ack(nc, window)
                window = []
        done += _ack(nc, window)
    return done


def _ack(nc: Any, replies: list[str]) -> int:
    """Send acks together and wait for all confirmations (an empty answer each)."""
    from jsclient.spark.acking import confirm_all

    return confirm_all(nc, replies)
