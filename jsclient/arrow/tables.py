"""A range of a stream as an Arrow table or as record batches: complete, or an error."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import attrs
import pyarrow as pa

from jsclient import kinds
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.columns import BatchBuilder
from jsclient.arrow.documents import DocumentColumns
from jsclient.arrow.formats import CORRUPT, FORMATS, Unsupported
from jsclient.arrow.options import ReadOptions, typed_errors
from jsclient.arrow.ranges import Range, StreamState, head_moved
from jsclient.arrow.reading import choose_method, read_through
from jsclient.arrow.settings import Refused
from jsclient.durations import check_timeout, plain_or_none
from jsclient.errors import ConfigError
from jsclient.jetstream.context import JetStream
from jsclient.jetstream.message import timestamp_ns
from jsclient.protocol import subjects as names

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack


HEADERS: Final = pa.map_(pa.string(), pa.list_(pa.string()))
TYPES: Final = {
    "stream": pa.string(),
    "subject": pa.string(),
    "seq": pa.int64(),
    "timestamp": pa.timestamp("ns", tz="UTC"),
    "headers": HEADERS,
    "value": pa.binary(),
    "size": pa.int32(),
}
"""The available columns, with their types."""

COLUMNS: Final = ("subject", "seq", "timestamp", "headers", "value")
STREAM, CREATED, START, END = b"jetstream.stream", b"jetstream.created", b"jetstream.start", b"jetstream.end"


class ReadArguments(TypedDict, total=False):
    """The keyword arguments of `read_table` and `read_batches`.

    A value of another type or out of range raises ConfigError before anything is sent.

    Attributes:
        start: The first sequence. None means the oldest message that exists when the reading begins.
        end: The sequence behind the last one. None means all messages that exist when the reading begins.
        start_time: Use it instead of `start` to begin with the first message stored at or after it. Must have a zone.
        end_time: Use it instead of `end` to read messages stored before it.
        after: Use it instead of `start` to continue where this reading of the same stream ended.
        subjects: Filters with wildcards; several need nats-server 2.10.
        columns: The columns to return, in this order. Choose from stream, subject, seq, timestamp, headers, value,
            size.
        value_format: The format of values that are documents; `schema` has their fields.
        schema: The fields to decode, which become columns behind `columns` (by default subject, seq, timestamp).
        bad_records: Handling of values that do not fit the schema. "fail" raises BadRecord. "null" gives null fields
            and puts the value into a column `_corrupt`.
        batch_rows: The maximum number of rows in a record batch (10,000).
        batch_bytes: The size in bytes of values at which a record batch ends (8 MiB).
        timeout: Seconds for the complete reading; None sets no limit. After 60 s without any progress a reading fails
            anyway.
    """

    start: int | None
    end: int | None
    start_time: dt.datetime | None
    end_time: dt.datetime | None
    after: pa.Table | Batches | None
    subjects: Sequence[str] | str
    columns: Sequence[str]
    value_format: Literal["json", "msgpack"] | None
    schema: pa.Schema
    bad_records: Literal["fail", "null"]
    batch_rows: int
    batch_bytes: int
    timeout: float | dt.timedelta | None


def _check_kinds(arguments: Mapping[str, Any]) -> None:
    """Raises ConfigError for a value of another type."""
    whole, time, table = (int, None), (dt.datetime, None), (pa.Table, Batches, None)
    types: dict[str, tuple[Any, ...]] = {
        "start": whole,
        "end": whole,
        "start_time": time,
        "end_time": time,
        "after": table,
        "subjects": (str, kinds.TEXTS),
        "columns": (kinds.TEXTS,),
        "value_format": (str, None),
        "schema": (pa.Schema,),
        "bad_records": (str,),
        "batch_rows": (int,),
        "batch_bytes": (int,),
        "timeout": (float, dt.timedelta, None),
    }
    for name in types.keys() & arguments.keys():
        kinds.check(*types[name], **{name: arguments[name]})


def read_table(js: JetStream, stream: str, **arguments: Unpack[ReadArguments]) -> pa.Table:
    """The messages of a range of a stream as one table; see `ReadArguments`.

    The result is proven to be complete. It has all messages of the range that match and were not deleted before, in the
    order of the stream. Reading neither acknowledges nor consumes messages.

    It raises DataLost if the head of the stream has moved into the range, or if its store was set back. RangeIncomplete
    has the reason as its cause. Other errors are StreamRecreated, RangeTimeout, StreamNotFound, BadRecord and
    NotSupported (a filter or a work queue that needs a newer server).
    """
    with read_batches(js, stream, **arguments) as batches:
        return pa.Table.from_batches(batches, batches.schema)


def read_batches(js: JetStream, stream: str, **arguments: Unpack[ReadArguments]) -> Batches:
    """Read a range as record batches, one at a time, for ranges that do not fit into memory.

    The range is fixed before this returns. The proof comes last: the batches are only complete if the iteration ends
    without an error.

    The keyword arguments are the fields of ReadArguments, as for `read_table`.
    """
    _check_kinds(arguments)
    seconds = plain_or_none(arguments.get("timeout"))
    check_timeout(seconds)
    filters = arguments.get("subjects") or ()
    options = ReadOptions(
        stream=stream,
        api_prefix=js.api.prefix[:-1],
        subjects=(filters,) if isinstance(filters, str) else tuple(filters),
        task_timeout=seconds,
    )
    kind = arguments.get("value_format")
    columns = list(arguments.get("columns") or (COLUMNS if kind is None else COLUMNS[:3]))
    _check(options, columns, arguments)
    documents = None if kind is None else _Documents(kind, columns, arguments)
    with typed_errors():
        access = StreamAccess(js.nc, options, timeout=options.task_timeout)
        access.check_filters()
        state = access.state()
        part = _range(access, state, arguments)
        method = choose_method(access, state, part.span)
    marks = {STREAM: stream, CREATED: state.created, START: str(part.start), END: str(part.end)}
    fields = [pa.field(name, TYPES[name]) for name in columns] + (documents.fields if documents else [])
    schema = pa.schema(fields, marks)
    rows, nbytes = arguments.get("batch_rows", 10_000), arguments.get("batch_bytes", 8 << 20)
    builder = BatchBuilder(stream, schema.names, schema, rows, nbytes, documents.columns if documents else None)
    return Batches(schema, _read(access, attrs.evolve(part, numbered=builder.numbered), method, builder))


class _Documents:
    """The fields of documents, and the decoder that makes columns of them."""

    def __init__(self, kind: str, columns: list[str], arguments: ReadArguments) -> None:
        schema, bad = arguments.get("schema"), arguments.get("bad_records", "fail")
        if kind not in FORMATS or bad not in ("fail", "null") or not schema:
            raise ConfigError("value_format is json or msgpack, needs a schema, and bad_records is fail or null")
        inside = [schema.field(i).with_nullable(True) for i in range(len(schema))]
        if len({CORRUPT, *columns, *schema.names}) < 1 + len(columns) + len(inside):
            raise ConfigError(
                f"each column has a name of its own, and none is {CORRUPT}: got {[*columns, *schema.names]}"
            )
        self.fields = inside + ([pa.field(CORRUPT, pa.binary())] if bad == "null" else [])
        corrupt, refuse = (pa.binary(), None) if bad == "null" else (None, _bad_record)
        try:
            self.columns = DocumentColumns(kind, inside, corrupt=corrupt, refuse=refuse)
        except Unsupported as error:
            raise ConfigError(str(error)) from None


def _bad_record(text: str) -> Refused:
    return Refused("JETSTREAM_BAD_RECORD", f'{text}; with bad_records="null" it is in the column {CORRUPT}')


class Batches:
    """Record batches of a range, to be iterated once; `close` (or leaving a `with` block) ends the reading early.

    Pass it to anything that accepts Arrow streams, such as `pa.table(batches)` or `polars.from_arrow(batches)`. For
    DuckDB use `batches.to_reader()`.
    """

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def to_reader(self) -> pa.RecordBatchReader:
        """A pyarrow RecordBatchReader for these batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        self._batches.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _read(access: StreamAccess, part: Range, method: str, builder: BatchBuilder) -> Iterator[pa.RecordBatch]:
    if part.span <= 0:
        return
    with typed_errors(), closing(read_through(access, part, method, "read")) as chunks:  # type: ignore[type-var]
        for chunk in chunks:
            yield from builder.add(chunk, chunk.nbytes())
        yield from builder.finish()


# --- which range ------------------------------------------------------------------------------------------------


def _check(options: ReadOptions, columns: list[str], arguments: ReadArguments) -> None:
    from jsclient.jetstream.api.names import check_stream

    check_stream(options.stream)
    for subject in options.subjects:
        names.check_filter(subject)
    if arguments.get("bad_records", "fail") not in ("fail", "null"):
        raise ConfigError(f'bad_records is "fail" or "null", not {arguments.get("bad_records")!r}')
    unknown = [name for name in columns if name not in TYPES]
    if unknown or len(set(columns)) < len(columns):
        raise ConfigError(f"columns are, once each, of {', '.join(TYPES)}; got {columns}")
    given = [name for name in ("start", "start_time", "after") if arguments.get(name) is not None]
    ends = [name for name in ("end", "end_time") if arguments.get(name) is not None]
    if len(given) > 1 or len(ends) > 1:
        raise ConfigError(f"{' and '.join(given if len(given) > 1 else ends)} exclude each other")
    for name in ("start", "end", "batch_rows", "batch_bytes"):
        number: Any = arguments.get(name)
        if number is not None and (type(number) is not int or number < 1):
            raise ConfigError(f"{name} must be a whole number of 1 or more, got {number!r}")
    if arguments.get("batch_bytes", 0) > 1 << 30:
        raise ConfigError("batch_bytes must be at most 1 GiB: Arrow's offsets have 32 bits")


def _range(access: StreamAccess, state: StreamState, arguments: ReadArguments) -> Range:
    """The sequences [start, end), and the part of them that was promised, for the proof."""
    start, end = _start(access, state, arguments), arguments.get("end")
    end_time = arguments.get("end_time")
    if end_time is not None:
        end = access.sequence_at(_nanoseconds(end_time, "end_time"), state)
    if end is None:
        end = state.end
    if end > state.end:
        raise Refused("JETSTREAM_READ_FAILED", f"stream {state.name!r} ends at {state.last}, before end={end}")
    soft = all(arguments.get(name) is None for name in ("start", "start_time", "after"))
    if not soft and start < min(state.first, end):
        after = min(state.first, end)
        raise Refused("JETSTREAM_DATA_LOSS", head_moved(state, start, after, after - start, start, end))
    mark = access.mark(state, start, end)
    return Range(0, start, max(start, end), access.options.subjects, None, state.created, mark, soft)


def _start(access: StreamAccess, state: StreamState, arguments: ReadArguments) -> int:
    after, start_time, start = arguments.get("after"), arguments.get("start_time"), arguments.get("start")
    if after is not None:
        marks = after.schema.metadata or {}
        if marks.get(STREAM) != state.name.encode():
            raise ConfigError(f"`after` was not read from stream {state.name!r}: {marks.get(STREAM, b'').decode()!r}")
        if marks[CREATED].decode() != state.created:
            raise Refused(
                "JETSTREAM_STREAM_RECREATED",
                f"stream {state.name!r} was created at {state.created}, `after` was read from one of "
                f"{marks[CREATED].decode()}; begin again",
            )
        start = int(marks[END])
        if start > state.end:
            text = f"stream {state.name!r} ends at {state.last}, `after` was read up to {start - 1}: it was set back"
            raise Refused("JETSTREAM_DATA_LOSS", text)
        return start
    if start_time is not None:
        return access.sequence_at(_nanoseconds(start_time, "start_time"), state)
    return state.first if start is None else start


def _nanoseconds(when: dt.datetime, name: str) -> int:
    if when.tzinfo is None:
        raise ConfigError(f"{name} must have a time zone, got {when!r}")
    return timestamp_ns(when)
