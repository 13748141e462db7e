"""Writes an Arrow table or record batches into streams. Every row is acknowledged, or an error names one without."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import pyarrow as pa

from jsclient import errors
from jsclient.arrow.formats import encode_columns
from jsclient.durations import Deadline, check_timeout, plain_or_none
from jsclient.jetstream.context import JetStream
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher

if TYPE_CHECKING:
    from jsclient.jetstream.publishing.future import PublishFuture

COLUMNS: Final = ("subject", "value", "headers", "msg_id", "expected_last_subject_seq", "expected_last_seq", "ttl")
OPTIONS: Final = COLUMNS[4:]
RESERVED: Final = ("nats-msg-id", "nats-batch-")
"""Headers that stored messages may have from the client that wrote them. On a copy they mean something else."""

AT_ONCE: Final = 2_000
"""Number of acks for which the writer waits when twice this number of rows is under way."""


@attrs.define
class Written:
    """The result of `write_table`: stored rows, bytes of their values, rows already stored before, sequences per
    stream.

    Attributes:
        rows: Number of stored rows.
        bytes: Bytes of their values.
        duplicates: Number of these rows that had been stored before.
        streams: The first and the last sequence of the rows in each stream.
    """

    rows: int = 0
    bytes: int = 0
    duplicates: int = 0
    streams: dict[str, tuple[int, int]] = attrs.field(factory=dict)


def write_table(
    js: JetStream,
    data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    *,
    subject: str | None = None,
    value_format: Literal["json", "msgpack"] | None = None,
    timeout: float | dt.timedelta | None = None,
) -> Written:
    """Publish the rows of a table in their order, and return when every row is stored.

    The column `value` is binary or string. Optional columns are `subject` (the argument `subject` wins), `headers` (a
    map of strings to strings or to lists of strings), `msg_id`, `expected_last_subject_seq`, `expected_last_seq` and
    `ttl` (seconds). With `value_format` every other column becomes a field of a document, which is the value.

    With `msg_id` a lost connection neither loses nor repeats rows. `timeout` is in seconds for the complete call. None
    means as long as it takes, with at most 30 s for each ack.

    Raises WriteIncomplete at the first row that is not known to be stored, and ConfigError for a table that cannot be
    written.
    """
    seconds = plain_or_none(timeout)
    check_timeout(seconds)
    deadline = Deadline(seconds)
    writer = _Writer(js, subject, value_format, deadline)
    if isinstance(data, pa.RecordBatch):
        data = [data]
    for batch in data.to_batches() if isinstance(data, pa.Table) else data:
        writer.publish(batch)
    return writer.finish()


class _Writer:
    def __init__(self, js: JetStream, subject: str | None, value_format: str | None, deadline: Deadline) -> None:
        self._publisher = AsyncPublisher(js, stall_wait=deadline.remaining())
        self._subject = subject
        self._format = value_format
        self._deadline = deadline
        self._written = Written()
        self._pending: deque[PublishFuture] = deque()

    def publish(self, batch: pa.RecordBatch) -> None:
        publish, pending = self._publisher.publish, self._pending
        rows = self._rows(batch)
        try:
            for subject, value, headers, msg_id, options in rows:
                pending.append(publish(subject, value, headers=headers, msg_id=msg_id, **options))
                if len(pending) >= 2 * AT_ONCE:
                    self._settle(AT_ONCE)
        except errors.WriteIncomplete:
            raise
        except errors.JsClientError as error:
            self._settle(len(pending))
            raise self._incomplete(error) from error

    def finish(self) -> Written:
        self._settle(len(self._pending))
        return self._written

    def _settle(self, count: int) -> None:
        """Wait for the acks of the first `count` rows under way."""
        written = self._written
        for _ in range(count):
            future = self._pending.popleft()
            try:
                ack = future.result(self._deadline.remaining())
            except errors.JsClientError as error:
                raise self._incomplete(error) from error
            written.rows += 1
            written.bytes += len(future.payload)
            written.duplicates += bool(ack.duplicate)
            first = written.streams.get(ack.stream, (ack.seq, 0))[0]
            written.streams[ack.stream] = (first, ack.seq)

    def _incomplete(self, error: errors.JsClientError) -> errors.WriteIncomplete:
        stored = self._written.rows
        return errors.WriteIncomplete(
            f"row {stored} (counted from 0) is not known to be stored: {type(error).__name__}: "
            f"{errors.brief(error)}. The {stored} "
            "rows before it are; rows after it may be. Written again with a column msg_id, rows are stored once "
            "within the stream's duplicate window.",
            stored,
        )

    # --- columns to rows --------------------------------------------------------------------------------

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, bytes, Any, str | None, dict[str, Any]]]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        unknown = [name for name in columns if name not in COLUMNS]
        if self._format is not None:
            if "value" in columns or not unknown:
                raise errors.ConfigError(
                    "with value_format a table has the columns of the documents, and none of value"
                )
            columns["value"] = pa.array(
                encode_columns(self._format, unknown, [columns.pop(name) for name in unknown]), pa.binary()
            )
        elif unknown or "value" not in columns:
            raise errors.ConfigError(
                f"a table to write has a column value, and of {', '.join(COLUMNS)}; got {list(columns)}"
            )
        return zip(
            self._subjects(columns.get("subject"), batch.num_rows),
            _full(columns["value"], "value", pa.binary()),
            _headers(columns.get("headers")),
            repeat(None) if "msg_id" not in columns else _full(columns["msg_id"], "msg_id", pa.string()),
            _options(columns),
            strict=False,
        )

    def _subjects(self, column: pa.Array | None, count: int) -> list[str]:
        if self._subject is not None:
            return [self._subject] * count
        if column is None:
            raise errors.ConfigError("the table has no column subject; give the argument subject")
        return _full(column, "subject", pa.string())


def _full(column: pa.Array, name: str, kind: pa.DataType) -> list[Any]:
    """The values of a column that must not be null."""
    if column.null_count:
        raise errors.ConfigError(f"column {name} has {column.null_count} nulls; filter such rows out, or fill them")
    return (column if column.type == kind else column.cast(kind)).to_pylist()  # type: ignore[no-any-return]


def _headers(column: pa.Array | None) -> Iterable[dict[str, Any] | None]:
    if column is None or column.null_count == len(column):
        return repeat(None)
    return [None if pairs is None else _header(dict(pairs)) for pairs in column.to_pylist()]


def _header(given: dict[str, Any]) -> dict[str, Any] | None:
    for name in given:
        if name.lower().startswith(RESERVED):
            raise errors.ConfigError(f"a row has the header {name}: ids come from the column msg_id; drop that header")
    return given or None


def _options(columns: dict[str, pa.Array]) -> Iterable[dict[str, Any]]:
    names = [name for name in OPTIONS if name in columns and columns[name].null_count < len(columns[name])]
    if not names:
        return repeat({})
    rows = zip(*[columns[name].to_pylist() for name in names], strict=True)
    return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
