"""Streaming reading: offsets are stream sequences, so every batch can be planned and read again.

The reader lives in a process of its own for as long as the query runs and is killed with it: `stop()` is never
called, and nothing here depends on it.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from jsclient.arrow.ranges import Range, StreamState
from jsclient.durations import Deadline
from jsclient.spark.access import SparkAccess
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.offsets import Offset, shape_of, start_of
from jsclient.spark.options import SparkOptions
from jsclient.spark.planner import admit, check_head
from jsclient.spark.pool import lease
from jsclient.spark.progress import put_progress
from jsclient.spark.reader import begins_softly, limits_of, load_of, mark_of, plan, read_batches, starting
from jsclient.spark.reports import Ear
from jsclient.spark.schema import check_source
from jsclient.spark.telling import tell
from jsclient.spark.workqueue import check_retention, claim

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("jsclient.spark")

CATCH_UP: Final = 2.0  # seconds for a stream that ends before the checkpoint
IDLE: Final = 600.0  # seconds after which the offset moves over what no filter matches, in a batch without rows
CLOSE: Final = 0.1  # it also moves when the head of the stream is closer to it than this part of the stream


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("jetstream")`."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns = check_source(schema, options)
        if options.value_format != "binary":
            from jsclient.spark.documents import check_documents

            check_documents(schema, options)
        self.label = uuid.uuid4().hex[:8]
        self.shape = shape_of(options.subjects, options.partition_by)
        self.lost = self.expired = 0  # sequences, of this run; shown in every progress
        self._initial: dict[str, Any] | None = None
        self._target: int | None = None  # AvailableNow: nothing at or after it is read in this run
        self._end: StreamState | None = None
        self._planned: Offset | None = None
        self._moved_at = -math.inf  # when a batch was planned last
        self._nothing_below = 0  # from the offset up to here nothing matches, as the leader has said
        self._nothing_since: float | None = None  # when that was said first
        self._checked = False
        self._claimed = ""  # the id of the query whose work queue this process has claimed
        self._ear = Ear(options)

    # --- offsets ----------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Spark asks twice, and the answer must not change."""
        if self._initial is None:
            with lease(self.options) as nc:
                access = SparkAccess(nc, self.options)
                state = self._state(access)
                # What lies below a committed offset is purged, so such a query leaves nothing out at its beginning.
                soft = self.options.ack_mode == "purge" or self.options.starting_offsets == "earliest"
                seq = starting(self.options, access, state, state.first if soft else state.end)
            if seq > state.end:
                raise JetStreamSparkError(
                    "JETSTREAM_BAD_OPTION",
                    f"option 'startingOffsets': {seq} lies behind the end of stream {state.name!r}, which ends at "
                    f"{state.last}; give at most {state.end}, or latest",
                )
            if self._target is not None:
                seq = min(seq, self._target)
            soft = soft and begins_softly(self.options)
            self._initial = Offset(state.name, state.created, seq, start=seq, soft=soft, shape=self.shape).to_dict()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; the very `start` when there is none (Spark compares the text)."""
        begin = self._same_shape(Offset.from_dict(start, self.options.stream))
        with lease(self.options) as nc:
            access = SparkAccess(nc, self.options)
            state = self._state(access, begin)
            begin = self._same_stream(access, begin, state)
            available = state.end if self._target is None else min(state.end, self._target)
            self._end, self._planned = state, begin
            if available <= begin.next or self._too_little(available - begin.next, limit):
                return start
            soft = begin.soft and begin.unread
            head = self._head(begin.next, available, state, soft)
            first = self._first(access, state, head, available)
            if first is None:
                if not self._may_move(begin.next, state):
                    return start
                first = end = available
            else:
                # What is lost or not there does not count against the limits of the trigger.
                end = admit(first, available, state, *self._limits(limit))
            self._moved_at, self._nothing_since = time.monotonic(), None
            self._planned = attrs.evolve(
                begin,
                start=first,
                next=end,
                parts=limits_of(self.options).count(load_of(state, Range(0, first, end))),
                by_subject=self.options.partition_by == "subject",
                mark=mark_of(access, state, first, end),
                soft=soft,
                shape=self.shape,
                base=None,
            )
        return self._planned.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit at a time; the other one is applied on top of it."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the stream, for `lag()` and the listener, with what Spark has no other place for."""
        if self._end is None or self._planned is None:
            return None
        for report in self._ear.take():
            self.lost, self.expired = self.lost + report.lost, self.expired + report.expired
        state = self._end
        newest = Offset(state.name, state.created, state.end, start=state.end, id=self._planned.id, shape=self.shape)
        behind = {state.name: max(0, state.end - self._planned.next)}
        return {**newest.to_dict(), "metrics": {"lost": self.lost, "expired": self.expired, "behind": behind}}

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything that is there now will be read in this run, and nothing that comes later."""
        with lease(self.options) as nc:
            self._target = self._state(SparkAccess(nc, self.options)).end

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            return self.options.max_offsets_per_trigger, limit.max_bytes
        return None, None

    def _too_little(self, span: int, limit: ReadLimit) -> bool:
        """minOffsetsPerTrigger: wait for more, but no longer than maxTriggerDelay.

        Neither AvailableNow nor the first batch of a run waits.
        """
        least = self.options.min_offsets_per_trigger
        if least is None or span >= least or self._target is not None:
            return False
        return time.monotonic() - self._moved_at < self.options.max_trigger_delay

    def _head(self, start: int, available: int, state: StreamState, soft: bool) -> int:
        """Where the next batch begins: `start`, unless the head of the stream has passed it."""
        known = max(start, min(self._nothing_below, available))  # nothing was lost that would not have been read
        if soft:
            head = max(start, min(state.first, available))
            self.expired += max(0, head - known)
            return head
        head, warning = check_head(state, known, available, self.options.fail_on_data_loss)
        if warning:
            self.lost += head - known
            tell(f"going on, because failOnDataLoss=false: {warning}")
        return head

    def _first(self, access: SparkAccess, state: StreamState, head: int, available: int) -> int | None:
        """The first message to read in [head, available); None when nothing matches. Holes make no batches."""
        dense = state.messages == state.end - state.first
        if head >= available or (dense and not self.options.subjects):
            return head if head < available else None
        found = access.next_on_leader(head, self.options.subjects)
        if found is not None and found < available:
            return found
        # The leader that said so must be one that has the whole range.
        now = access.state()
        if now.created == state.created and now.end >= available:
            self._nothing_below = available
            return None
        return head

    def _may_move(self, start: int, state: StreamState) -> bool:
        """Nothing matches up to the end: is it time for a batch without rows, which only moves the offset?

        An offset that stays behind for ever would be taken for a loss when the head of the stream passes it.
        """
        now = time.monotonic()
        self._nothing_since = self._nothing_since or now
        near = start - state.first < CLOSE * (state.end - state.first)
        return near or self._target is not None or now - self._nothing_since >= IDLE

    def _same_shape(self, offset: Offset) -> Offset:
        """Check that the offset was made with the same filters; with readOptionsChanged=accept others go on from it."""
        if offset.shape in ("", self.shape) or self.options.read_options_changed == "accept":
            return offset
        what = "subjects" if offset.shape[:-1] != self.shape[:-1] else "partitionBy"
        raise JetStreamSparkError(
            "JETSTREAM_CONFLICTING_OPTIONS",
            f"the checkpoint of stream {offset.stream!r} was made with another option {what!r}: a batch that was "
            "planned could not be read again as it was. Use another checkpointLocation, or readOptionsChanged=accept "
            f"to go on from {offset.next} with the new one",
        )

    def _same_stream(self, access: SparkAccess, offset: Offset, state: StreamState) -> Offset:
        """Check that the checkpoint belongs to this stream; with failOnDataLoss=false a new one is begun."""
        recreated = offset.made != state.created
        if recreated:
            what = f"was created at {state.created}, the checkpoint belongs to one of {offset.made}"
        elif offset.next > state.end:
            what = f"ends at {state.last}, before the checkpoint: its store was set back"
        elif offset.mark is not None and access.stored_at(offset.mark[0]) not in (None, offset.mark[1]):
            what = f"has another message {offset.mark[0]} than the checkpoint: its store was set back and filled again"
        else:
            return offset
        text = (
            f"stream {state.name!r} {what}: the range from {offset.next} on cannot be what it was (stream now: "
            f"[{state.first}, {state.end}))"
        )
        if self.options.fail_on_data_loss:
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_RECREATED" if recreated else "JETSTREAM_DATA_LOSS",
                f"{text}; use another checkpointLocation, or failOnDataLoss=false to go on at the head of the new one",
            )
        tell(f"going on at {state.first}, because failOnDataLoss=false: {text}")
        self._nothing_below = 0
        return attrs.evolve(offset, made=state.created, next=state.first, start=None, mark=None, soft=False)

    # --- planning and reading ---------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of one batch; the same for every replay, because `end` holds the plan."""
        options = self.options
        first, last = (Offset.from_dict(offset, options.stream) for offset in (start, end))
        self._same_shape(last)
        with lease(options) as nc:
            access = SparkAccess(nc, options)
            access.check_filters()
            state = self._state(access, last)
            if self._claimed != last.id:
                claim(access, state.retention, last.id)
                self._claimed = last.id
            begin = start_of(first, last)
            if self._same_stream(access, last, state).made != last.made:
                self.lost += last.next - begin
                return []  # nothing of this batch is left
            if last.start is None and first.made != last.made:
                begin = state.first  # version 1: the batch begins in the stream that replaced the one of the checkpoint
            if begin >= last.next:
                return []
            if not last.soft:
                head, warning = check_head(state, begin, last.next, options.fail_on_data_loss)
                if warning:
                    self.lost += head - begin
                    tell(f"going on, because failOnDataLoss=false: {warning}")
            if not options.fail_on_data_loss:
                self._ear.listen(last.id)
            query = "" if options.fail_on_data_loss else last.id
            whole = Range(0, begin, last.next, options.subjects, None, state.created, last.mark, last.soft, query)
            by_subject = last.by_subject if last.shape else options.partition_by == "subject"
            return plan(access, state, whole, last.parts, f"{self.label}_{last.next}", by_subject)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_batches(self.options, self.schema, self.columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has made the batch that ends here durable. The last batch of a run is committed at the next start."""
        offset = Offset.from_dict(end, self.options.stream)
        if self.options.ack_mode == "none" and self.options.progress_bucket is None:
            return
        with lease(self.options) as nc:
            access = SparkAccess(nc, self.options)
            if self.options.ack_mode == "purge":
                state = self._state(access)
                if state.created == offset.made:
                    access.purge_below(offset.next)
                else:
                    tell(f"stream {state.name!r} was made again since the last batch; nothing is purged")
            if self.options.progress_bucket is not None:
                key = self.options.progress_key or f"{offset.id}.{offset.stream}"
                put_progress(access, self.options.progress_bucket, key, json.dumps(end).encode())

    def stop(self) -> None:
        """Never called by Spark 4.3: the process is killed."""
        self._ear.close()

    def _state(self, access: SparkAccess, known: Offset | None = None) -> StreamState:
        """The stream now. A new leader may not have applied yet what its predecessor told us of; it gets a moment."""
        info = access.info()
        if not self._checked:
            check_retention(access, info)
            self._checked = True
        state, deadline = access.state(info), Deadline(CATCH_UP)
        while known is not None and state.created == known.made and state.end < known.next:
            if deadline.expired():
                break
            time.sleep(deadline.at_most(0.1))
            state = access.state()
        return state
