"""Batch reading. One STREAM.INFO per stream fixes the messages to read, which are cut into ranges of sequences."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import Range, StreamState
from jsclient.arrow.reading import choose_method, read_chunks
from jsclient.planning.planner import Limits, Load, check_head, cut
from jsclient.planning.selection import Selection, no_stream
from jsclient.planning.subjects import by_subject
from jsclient.planning.survey import Survey, survey_of
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.schema import check_source, needs_payloads
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import StreamInfo


BATCH_ROWS: Final = 10_000  # An Arrow batch ends at whichever comes first.
BATCH_BYTES: Final = 8 << 20
SMALL_BYTES: Final = 64 << 10  # of a partition; up to it direct gets cost less than a consumer without payloads


class RangePartition(InputPartition):
    """One range of a stream and how to read it; `label` becomes part of the consumer's name on the server."""

    def __init__(self, stream: str, part: Range, method: str, label: str) -> None:
        super().__init__((stream, part.index, part.start, part.end))
        self.stream = stream
        self.range = part
        self.method = method
        self.label = label


def checked_columns(schema: StructType, options: SparkOptions) -> list[str]:
    """The columns to deliver. Raises JETSTREAM_SCHEMA_MISMATCH for a schema that cannot be read."""
    names = check_source(schema, options)
    if options.value_format != "binary":
        from jsclient.spark.documents import check_documents

        check_documents(schema, options)
    return names


def read_batches(
    options: SparkOptions, schema: StructType, columns: list[str], partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """The record batches of one partition; runs in a task. None stands for an empty plan."""
    if not isinstance(partition, RangePartition) or not partition.range.span:
        return
    from jsclient.arrow.columns import BatchBuilder
    from jsclient.spark.bare import BareBuilder
    from jsclient.spark.documents import DeadLetters, documents_of
    from jsclient.spark.entries import EntryBuilder
    from jsclient.spark.schema import schema_of

    options = options.of(partition.stream)
    arrow, rows, nbytes = schema_of(schema), BATCH_ROWS, BATCH_BYTES
    with lease(options) as nc:
        letters = DeadLetters(nc, options) if options.bad_records == "dead-letter" else None
        builder: BatchBuilder
        if options.compacted:
            builder = EntryBuilder(options.stream.removeprefix("KV_"), columns, arrow, rows, nbytes)
        elif partition.range.headers_only:
            builder = BareBuilder(options.stream, columns, arrow, rows, nbytes)
        else:
            documents = documents_of(schema, options, letters)
            builder = BatchBuilder(options.stream, columns, arrow, rows, nbytes, documents)
        label = f"{partition.label}_{partition.range.index}"
        part = attrs.evolve(partition.range, numbered=builder.numbered)
        with closing(read_chunks(nc, options, part, partition.method, label)) as chunks:  # type: ignore[type-var]
            for chunk in chunks:
                yield from builder.add(chunk, chunk.nbytes())
        yield from builder.finish()
        if letters is not None:
            letters.finish()


class JetStreamReader(DataSourceReader):
    """`spark.read.format("jetstream")`. Rows published after planning are not seen."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns: list[str] = checked_columns(schema, options)
        self.job: str = uuid.uuid4().hex[:8]
        self.payloads: bool = needs_payloads(self.columns, options)

    def partitions(self) -> Sequence[InputPartition]:
        with lease(self.options) as nc:
            wholes = [self._whole(StreamAccess(nc, self.options.of(name)), info) for name, info in self._streams(nc)]
            worth = self.options.records_per_partition
            surveys = [survey_of(access, state, whole.start, whole.end, worth) for access, state, whole in wholes]
            loads = [load_of(state, survey) for (_, state, _), survey in zip(wholes, surveys, strict=True)]
            counts = limits_of(self.options).spread(loads)
            by_subject = self.options.partition_by == "subject"
            planned: list[InputPartition] = []
            for (access, state, whole), survey, parts in zip(wholes, surveys, counts, strict=True):
                cuts = () if by_subject else survey.cuts(whole.end, parts)
                planned += plan(access, state, whole, parts, self.job, by_subject, len(planned), cuts, self.payloads)
            return planned

    def _streams(self, nc: Connection) -> list[tuple[str, StreamInfo]]:
        """The streams to read, with the information of each; all of them must exist."""
        selection = Selection(self.options)
        found = selection.look(nc, complete=True)
        for name, info in found.items():
            if info is None:
                raise no_stream(self.options, name)
        if not found:
            raise no_stream(self.options, self.options.stream)
        return [(name, info) for name, info in found.items() if info]

    def _whole(self, access: StreamAccess, info: StreamInfo) -> tuple[StreamAccess, StreamState, Range]:
        """The range to read of one stream."""
        access.check_filters()
        state = access.state(info)
        options = self.options.of(access.stream)
        start = starting(options, access, state, state.first)
        end = max(start, ending(options, access, state))
        soft = begins_softly(options)
        if not soft:
            start, warning = check_head(state, start, end, self.options)
            if warning:
                tell(f"going on, because failOnDataLoss=false: {warning}")
        mark = access.mark(state, start, end)
        return access, state, Range(0, start, end, options.subjects, None, state.created, mark, soft)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_batches(self.options, self.schema, self.columns, partition)


def starting(options: SparkOptions, access: StreamAccess, state: StreamState, otherwise: int) -> int:
    """The first sequence that the options ask for; `otherwise` if they name none."""
    if options.starting_timestamp is not None:
        at = access.sequence_at(options.starting_timestamp, state)
        if at >= state.end and options.starting_timestamp > time.time_ns():
            raise JetStreamSparkError(
                "JETSTREAM_TIMESTAMP_BEYOND_END",
                f"stream {state.name!r} has no message at or after startingTimestamp, which is in the future; give an "
                "earlier one",
            )
        return at
    offsets = options.starting_offsets
    if isinstance(offsets, int):
        return max(offsets, 1)
    if offsets == "earliest":
        return state.first
    if offsets == "latest":
        return state.end
    return otherwise


def begins_softly(options: SparkOptions) -> bool:
    """True if the query begins with the oldest stored message.

    Then it is not a loss if the oldest messages go away.
    """
    return options.starting_timestamp is None and options.starting_offsets in (None, "earliest")


def ending(options: SparkOptions, access: StreamAccess, state: StreamState) -> int:
    if options.ending_timestamp is not None:
        return access.sequence_at(options.ending_timestamp, state)
    if isinstance(options.ending_offsets, int):
        if options.ending_offsets > state.end:
            tell(
                f"stream {state.name!r}: endingOffsets {options.ending_offsets} lies behind the end; the read ends "
                f"with the last stored message, before {state.end}"
            )
        return min(options.ending_offsets, state.end)
    return state.end


def plan(
    access: StreamAccess,
    state: StreamState,
    whole: Range,
    parts: int,
    label: str,
    subjects_apart: bool,
    number: int = 0,
    cuts: Sequence[int] = (),
    payloads: bool = True,
) -> list[InputPartition]:
    """The partitions of one stream. The same plan always gives the same partitions and numbers (from `number` on).

    Without `payloads` the server sends none. `cuts` are the inner boundaries; without them all partitions have the same
    number of sequences.

    Message ids contain the number of a partition, so empty partitions stay in the plan. For the same reason lost
    sequences are removed from the partitions after the cut, and not before it.
    """
    options = access.options
    if whole.span <= 0:
        return []
    subjects_apart = subjects_apart and parts > 1
    # By subject each task has the complete span, and direct gets return every message in it.
    span = whole.span if subjects_apart else -(-whole.span // parts)
    method = choose_method(access, state, span)
    if not payloads and method != "direct":
        # Only a consumer can leave them out. It costs more than a few small messages.
        whole = attrs.evolve(whole, headers_only=method == "consumer" or span * state.mean_size() > SMALL_BYTES)
        method = "consumer" if whole.headers_only else method
    if subjects_apart:
        ranges = by_subject(access, whole, parts)
    else:
        inner = [whole.start, *cuts, whole.end]
        edges = list(itertools.pairwise(inner)) if cuts else cut(whole.start, whole.end, parts)
        ranges = [attrs.evolve(whole, index=i, start=a, end=b) for i, (a, b) in enumerate(edges)]
    if not options.fail_on_data_loss:
        ranges = [clip(part, state) for part in ranges]
    ranges = [attrs.evolve(part, index=number + part.index) for part in ranges]
    return [RangePartition(access.stream, part, method, label) for part in ranges]


def clip(part: Range, state: StreamState) -> Range:
    """The part of a range that still exists; its number stays."""
    start = part.start if part.soft else max(part.start, min(part.end, state.first))
    return attrs.evolve(part, start=start, end=max(start, min(part.end, state.end)))


def empty_plan(stream: str, parts: int, number: int) -> list[InputPartition]:
    """Empty partitions for a stream that has nothing left, so the partitions behind them keep their numbers."""
    return [RangePartition(stream, Range(number + at, 1, 1), "consumer", "") for at in range(parts)]


def load_of(state: StreamState, survey: Survey, end: int | None = None) -> Load:
    """The load of a survey, or of its part before `end`."""
    messages = survey.messages if end is None else survey.passed(end)
    span = (survey.end if end is None else end) - survey.first
    return Load(span, messages, int(messages * state.mean_size()))


def limits_of(options: SparkOptions) -> Limits:
    return Limits(options.records_per_partition, options.min_partitions)
