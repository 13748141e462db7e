"""`foreachBatch` with the guarantees of the sink, in every output mode and for several sinks in one batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from jsclient.exactly.journal import Job
from jsclient.exactly.partition import write_partition
from jsclient.spark import options as known
from jsclient.spark.committing import conclude_batch
from jsclient.spark.context import BATCH_ID, QUERY_ID, partition_id, running_batch
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.schema import check_sink

if TYPE_CHECKING:
    import pyarrow as pa


def batch_writer(options: Mapping[str, str], *, name: str = "") -> Callable[[Any, int], None]:
    """A function for `writeStream.foreachBatch(...)` that stores each row of a batch once, in every output mode.

    `options` are the options of `writeStream.format("jetstream")`. A replayed batch finds its rows in the same journal,
    so the same conditions hold. The function returns after every row was acknowledged. You can also call it inside your
    own function, for several sinks in one batch. `persist()` a frame that you write more than once. Sinks with the same
    subject option need a different `name` each; keep the name across restarts.

    Raises JetStreamSparkError. It reports bad options immediately, and other errors when a batch is written.
    """
    return _Writer(known.parse({key.lower(): value for key, value in options.items()}, known.WRITE_STREAM), name)


@attrs.frozen
class _Writer:
    options: SparkOptions
    name: str

    def __call__(self, frame: Any, batch: int) -> None:
        check_sink(frame.schema, self.options)
        sink = self._sink()
        key = _batch_of_driver(frame)
        if key is not None and _written.get((key[0], sink)) == key:
            raise JetStreamSparkError(
                "JETSTREAM_CONFLICTING_OPTIONS",
                f"batch {batch} was written to this sink before in the same run; give each batch_writer of a batch its "
                "own name=",
            )
        rows = frame.mapInArrow(_Task(self.options, sink), "done binary").collect()
        conclude_batch(self.options, [pickle.loads(row.done) for row in rows], True)
        if key is not None:
            _written[key[0], sink] = key

    def _sink(self) -> str:
        """The name of the sink in the journal."""
        return self.options.target(self.name)


_written: dict[tuple[str, str], tuple[str, str, str]] = {}  # (query, sink) -> the batch of the driver that was written


def _batch_of_driver(frame: Any) -> tuple[str, str, str] | None:
    """Query, batch and run of `frame`; None if this process does not know (Spark Connect)."""
    try:
        context = frame.sparkSession.sparkContext
    except Exception:
        return None
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    return None if query is None else (query, batch, context.getLocalProperty("spark.job.description") or "")


@attrs.frozen
class _Task:
    """Publishes one partition; its only row is the result for the driver."""

    options: SparkOptions
    sink: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        found = running_batch()
        if found is None:
            raise JetStreamSparkError(
                "JETSTREAM_CONFLICTING_OPTIONS",
                "batch_writer was called outside of foreachBatch; write a batch DataFrame with "
                'df.write.format("jetstream")',
            )
        query, run, batch = found
        job = Job(f"{query}-{self.sink}", run, batch, partition_id())
        with lease(self.options) as nc:
            journaled = self.options.keeps_journal(streaming=True)
            outcome = write_partition(nc, self.options, job, batches, journaled, job.where)
        yield pa.record_batch([pa.array([pickle.dumps((job, outcome))], pa.binary())], names=["done"])
