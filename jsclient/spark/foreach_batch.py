"""`foreachBatch` with the guarantees of the sink, in every output mode and for several sinks in one batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from jsclient.exactly.journal import Job
from jsclient.spark import options as known
from jsclient.spark.buckets import sink_options
from jsclient.spark.context import BATCH_ID, QUERY_ID, partition_id, running_batch
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.sinks import BucketSink, StreamSink

if TYPE_CHECKING:
    import pyarrow as pa


def batch_writer(options: Mapping[str, str], *, name: str = "") -> Callable[[Any, int], None]:
    """A function for `writeStream.foreachBatch(...)` that stores each row of a batch once, in every output mode.

    `options` are the options of `writeStream.format("jetstream")`, or of `jetstream-kv` if they name a `bucket`. A
    replayed batch finds its rows in the same journal, so the same conditions hold.

    The function returns after every row was acknowledged. You can also call it inside your own function, for several
    sinks in one batch. `persist()` a frame that you write more than once. Sinks with the same subject option or bucket
    need a different `name` each; keep the name across restarts.

    Raises JetStreamSparkError. It reports bad options immediately, and other errors when a batch is written.
    """
    given = {key.lower(): value for key, value in options.items()}
    if "bucket" in given:
        return _Writer(BucketSink(sink_options(given, known.WRITE_STREAM)), name)
    return _Writer(StreamSink(known.parse(given, known.WRITE_STREAM)), name)


@attrs.frozen
class _Writer:
    sink: StreamSink | BucketSink
    name: str

    def __call__(self, frame: Any, batch: int) -> None:
        sink = self.sink.checked(frame.schema)
        target = sink.target(self.name)
        key = _batch_of_driver(frame)
        if key is not None and _written.get((key[0], target)) == key:
            raise JetStreamSparkError(
                "JETSTREAM_CONFLICTING_OPTIONS",
                f"batch {batch} was written to this sink before in the same run; give each batch_writer of a batch its "
                "own name=",
            )
        rows = frame.mapInArrow(_Task(sink, target), "done binary").collect()
        sink.conclude([pickle.loads(row.done) for row in rows], True)
        if key is not None:
            _written[key[0], target] = key


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

    sink: StreamSink | BucketSink
    target: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        found = running_batch()
        if found is None:
            raise JetStreamSparkError(
                "JETSTREAM_CONFLICTING_OPTIONS",
                "batch_writer was called outside of foreachBatch; write a batch DataFrame with "
                'df.write.format("jetstream") or format("jetstream-kv")',
            )
        query, run, batch = found
        done = self.sink.write(batches, Job(f"{query}-{self.target}", run, batch, partition_id()), True)
        yield pa.record_batch([pa.array([pickle.dumps(done)], pa.binary())], names=["done"])
