"""Streaming reading: offsets are stream sequences, so every batch can be planned and read again.

The reader lives in a process of its own for as long as the query runs and is killed with it: `stop()` is never
called, and nothing here depends on it.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from jsclient.durations import Deadline
from jsclient.jetstream.models import StreamInfo
from jsclient.spark.access import StreamAccess
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.offsets import Offset, start_of
from jsclient.spark.options import SparkOptions, overlap
from jsclient.spark.planner import StreamState, admit, check_head
from jsclient.spark.pool import lease
from jsclient.spark.progress import put_progress
from jsclient.spark.reader import limits_of, plan, read_batches, starting
from jsclient.spark.schema import check_source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("jsclient.spark")

CATCH_UP: Final = 2.0  # seconds for a stream that ends before the checkpoint


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("jetstream")`."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns = check_source(schema)
        self.label = uuid.uuid4().hex[:8]
        self._initial: dict[str, Any] | None = None
        self._target: int | None = None  # AvailableNow: nothing at or after it is read in this run
        self._newest: Offset | None = None
        self._moved_at = time.monotonic()
        self._checked = False

    # --- offsets ----------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Spark asks twice, and the answer must not change."""
        if self._initial is None:
            with lease(self.options) as nc:
                access = StreamAccess(nc, self.options)
                state = self._state(access)
                # What lies below a committed offset is purged, so such a query leaves nothing out at its beginning.
                first = state.first if self.options.ack_mode == "purge" else state.end
                seq = starting(self.options, access, state, first)
            if seq > state.end:
                raise JetStreamSparkError(
                    "JETSTREAM_BAD_OPTION",
                    f"option 'startingOffsets': {seq} lies behind the end of stream {state.name!r}, which ends at "
                    f"{state.last}; give at most {state.end}, or latest",
                )
            if self._target is not None:
                seq = min(seq, self._target)
            self._initial = Offset(state.name, state.created, seq, seq, 1).to_dict()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; the very `start` when there is none (Spark compares the text)."""
        begin = Offset.from_dict(start, self.options.stream)
        with lease(self.options) as nc:
            state = self._state(StreamAccess(nc, self.options), begin)
        begin = self._same_stream(begin, state)
        available = state.end if self._target is None else min(state.end, self._target)
        self._newest = Offset(state.name, state.created, begin.base, state.end, 1)
        if available <= begin.seq or self._too_little(available - begin.seq, limit):
            return start
        head, _ = check_head(state, begin.seq, available, self.options.fail_on_data_loss)
        # What is lost (failOnDataLoss=false) does not count against the limits of the trigger.
        end = admit(head, available, state, *self._limits(limit))
        self._moved_at = time.monotonic()
        parts = limits_of(self.options).count(end - head)
        return Offset(begin.stream, begin.created, begin.base, end, parts).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit at a time; the other one is applied on top of it."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the stream, for `lag()` and the listener."""
        return None if self._newest is None else self._newest.to_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything that is there now will be read in this run, and nothing that comes later."""
        with lease(self.options) as nc:
            self._target = self._state(StreamAccess(nc, self.options)).end

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            return self.options.max_offsets_per_trigger, limit.max_bytes
        return None, None

    def _too_little(self, span: int, limit: ReadLimit) -> bool:
        """minOffsetsPerTrigger: wait for more, but no longer than maxTriggerDelay; AvailableNow never waits."""
        least = self.options.min_offsets_per_trigger
        if least is None or span >= least or self._target is not None:
            return False
        return time.monotonic() - self._moved_at < self.options.max_trigger_delay

    def _same_stream(self, offset: Offset, state: StreamState) -> Offset:
        """Check that the checkpoint belongs to this stream; with failOnDataLoss=false a new one is begun."""
        recreated = offset.created != state.created
        if not recreated and offset.seq <= state.end:
            return offset
        what = (
            f"was created at {state.created}, the checkpoint belongs to one of {offset.created}"
            if recreated
            else f"ends at {state.last}, before the checkpoint"
        )
        text = (
            f"stream {state.name!r} {what}: the range from {offset.seq} on cannot be what it was (stream now: "
            f"[{state.first}, {state.end}))"
        )
        if self.options.fail_on_data_loss:
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_RECREATED",
                f"{text}; use another checkpointLocation, or failOnDataLoss=false to go on at the head of the new one",
            )
        log.warning("%s; going on at %d, because failOnDataLoss=false", text, state.first)
        return Offset(state.name, state.created, offset.base, state.first, 1)

    # --- planning and reading ---------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of one batch; the same for every replay, because `end` holds their number and the base."""
        options = self.options
        first, last = Offset.from_dict(start, options.stream), Offset.from_dict(end, options.stream)
        begin = start_of(first, last)
        with lease(options) as nc:
            access = StreamAccess(nc, options)
            access.check_filters()
            state = self._state(access, last)
            self._same_stream(last, state)
            if first.created != last.created:
                begin = state.first  # the batch begins in the stream that replaced the one of the checkpoint
            if begin >= last.seq:
                return []
            begin, warning = check_head(state, begin, last.seq, options.fail_on_data_loss)
            if warning:
                log.warning("%s; going on, because failOnDataLoss=false", warning)
            label = f"{self.label}_{last.seq}"
            return plan(access, state, begin, last.seq, last.parts, options.subjects, label)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_batches(self.options, self.schema, self.columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has made the batch that ends here durable. The last batch of a run is committed at the next start."""
        offset = Offset.from_dict(end, self.options.stream)
        if self.options.ack_mode == "none" and self.options.progress_bucket is None:
            return
        with lease(self.options) as nc:
            access = StreamAccess(nc, self.options)
            if self.options.ack_mode == "purge":
                state = self._state(access)
                if state.created == offset.created:
                    access.purge_below(offset.seq)
                else:
                    log.warning("stream %r was made again since the last batch; nothing is purged", state.name)
            if self.options.progress_bucket is not None:
                key = self.options.progress_key or f"{offset.stream}.{offset.base}"
                put_progress(access, self.options.progress_bucket, key, json.dumps(end).encode())

    def stop(self) -> None:
        """Never called by Spark 4.3: the process is killed."""

    def _state(self, access: StreamAccess, known: Offset | None = None) -> StreamState:
        """The stream now. A new leader may not have applied yet what its predecessor told us of; it gets a moment."""
        info = access.info()
        if not self._checked:
            self._check_retention(access, info)
            self._checked = True
        state, deadline = access.state(info), Deadline(CATCH_UP)
        while known is not None and state.created == known.created and state.end < known.seq:
            if deadline.expired():
                break
            time.sleep(deadline.at_most(0.1))
            state = access.state()
        return state

    def _check_retention(self, access: StreamAccess, info: StreamInfo) -> None:
        """A stream that is consumed by reading can only be read twice by direct get, and must be purged by us."""
        retention = info.config.retention or "limits"
        if retention == "limits":
            return
        name = self.options.stream
        if self.options.ack_mode == "none":
            raise JetStreamSparkError(
                "JETSTREAM_WORKQUEUE_NEEDS_ACKMODE",
                f"stream {name!r} has retention {retention}: messages go away when they are consumed. Set "
                "ackMode=purge to read it by direct get and purge what Spark has committed",
            )
        if retention != "workqueue" or not info.state.consumer_count:
            return
        for other in access.api.items(f"CONSUMER.LIST.{name}", "consumers"):
            config = other.get("config") or {}
            filters = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
            if any(overlap(a, b) for a in filters for b in self.options.subjects or (">",)):
                raise JetStreamSparkError(
                    "JETSTREAM_WORKQUEUE_SHARED",
                    f"stream {name!r} has a consumer {other.get('name')!r} on {', '.join(filters)}: what it takes "
                    "would be missing here, and a purge would take from it; give Spark a stream or subjects of its own",
                )
