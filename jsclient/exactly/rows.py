"""Converts record batches or dicts to the rows of a publisher: (subject, header lines, value, message id)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

from jsclient import checks
from jsclient.jetstream.api import headers as header_names
from jsclient.protocol import Headers
from jsclient.protocol.errors import InvalidHeader

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.arrow.settings import Refused
    from jsclient.exactly.ids import ContentIds
    from jsclient.exactly.row_publisher import Row
    from jsclient.exactly.settings import WriteSettings

# Columns that are headers by another name; the server checks them while storing.
FENCES = {
    "expected_last_subject_seq": header_names.EXPECTED_LAST_SUBJECT_SEQ,
    "expected_last_seq": header_names.EXPECTED_LAST_SEQ,
    "ttl": header_names.MSG_TTL,
}

COLUMNS: Final = frozenset({"subject", "value", "headers", "msg_id", *FENCES})
"""With valueFormat, all other columns are fields of the document."""

# Headers with which a client or server has handled a stored message. On a copy they would mean something else.
RESERVED: Final = "nats-"


class Maker(Protocol):
    """Makes the rows of record batches."""

    def of_batch(self, batch: pa.RecordBatch) -> Iterable[Row]: ...

    def uses_column(self, there: bool) -> bool:
        """True if ids come from the column msg_id; `there` is True if that column exists."""


class RowMaker:
    """Makes the rows of one task. `content` makes the ids of rows without one; None if no ids are wanted."""

    def __init__(self, options: WriteSettings, content: ContentIds | None) -> None:
        self._options = options
        self._subject = None if options.subject is None else options.subject.encode()
        self._content = content
        self._blocks: dict[Any, bytes] = {}
        self._format = options.value_format

    # --- record batches ---------------------------------------------------------------------------------

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The rows of a record batch, made column by column."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        subjects = self._subjects(columns.get("subject"), batch.num_rows)
        values = self._encoded(columns) if self._format != "binary" else self._values(_binary(columns["value"]))
        lines = self._lines(columns)
        return zip(subjects, lines, values, self._ids(columns.get("msg_id"), subjects, lines, values), strict=False)

    def _subjects(self, column: pa.Array | None, count: int) -> list[bytes]:
        if self._subject is not None:
            return [self._subject] * count
        if column is None:
            raise self._options.refuse("JETSTREAM_MISSING_OPTION", "a row has no subject; set the option 'subject'")
        if column.null_count:
            raise self._options.refuse("JETSTREAM_NULL_VALUE", "a row has a null subject; filter such rows out")
        return _binary(column).to_pylist()  # type: ignore[no-any-return]

    def _encoded(self, columns: dict[str, pa.Array]) -> list[bytes]:
        """The values as documents: from the column value, or from all columns without another meaning for the sink."""
        from jsclient.arrow import formats

        try:
            if "value" in columns:
                return self._filled(formats.encode_values(self._format, columns["value"]))
            inside = [name for name in columns if name not in COLUMNS]
            return formats.encode_columns(self._format, inside, [columns[name] for name in inside])
        except (TypeError, ValueError, OverflowError) as error:
            raise no_document(self._options, error) from None

    def _filled(self, values: list[bytes | None]) -> list[bytes]:
        if None in values:
            raise self._null_value()
        return values  # type: ignore[return-value]

    def _values(self, column: pa.Array) -> list[bytes]:
        if not column.null_count:
            return column.to_pylist()  # type: ignore[no-any-return]
        return self._filled(column.to_pylist())

    def _lines(self, columns: Mapping[str, pa.Array]) -> Iterable[bytes]:
        names = [
            name for name in ("headers", *FENCES) if name in columns and columns[name].null_count < len(columns[name])
        ]
        if not names:
            return repeat(b"")
        given = [columns[name].to_pylist() for name in names]
        return [self._block(dict(zip(names, row, strict=True))) for row in zip(*given, strict=True)]

    def _ids(
        self, column: pa.Array | None, subjects: list[bytes], lines: Iterable[bytes], values: list[bytes]
    ) -> Iterable[bytes | None]:
        if self.uses_column(column is not None):
            assert column is not None
            if column.null_count:
                raise self._options.refuse("JETSTREAM_NULL_VALUE", "a row has no msg_id; fill the column, or drop it")
            return [self._id(text) for text in _binary(column).to_pylist()]
        return repeat(None) if self._content is None else self._content.of_columns(subjects, lines, values)

    def uses_column(self, there: bool) -> bool:
        return there and self._options.delivery_semantics != "at-least-once"

    # --- headers ----------------------------------------------------------------------------------------

    def _block(self, given: Mapping[str, Any]) -> bytes:
        """The header lines of one row; checked, because a line break in a value would forge headers."""
        items: list[tuple[str, str]] = []
        for name, value in given.items():
            if value is None:
                continue
            if name == "headers":
                items += pairs_of(value)
            else:
                items.append((FENCES[name], str(value)))
        if not items:
            return b""
        key = tuple(items)
        block = self._blocks.get(key)
        if block is None:
            if len(self._blocks) > 1000:
                self._blocks.clear()
            try:
                encoded = checks.header_block(Headers(items))
            except InvalidHeader as error:
                raise self._options.refuse("JETSTREAM_SCHEMA_MISMATCH", f"a row has a bad header: {error}") from None
            block = self._blocks[key] = encoded[len(b"NATS/1.0\r\n") : -2]
        return block

    # --- refusals ---------------------------------------------------------------------------------------

    def _id(self, raw: bytes) -> bytes:
        if not raw or b"\r" in raw or b"\n" in raw or b"\0" in raw:
            text = f"{raw[:60]!r} cannot be a message id; take another"
            raise self._options.refuse("JETSTREAM_SCHEMA_MISMATCH", text)
        return raw

    def _null_value(self) -> Refused:
        text = "a row has a null value; filter such rows out, or fill them with coalesce(value, X'')"
        return self._options.refuse("JETSTREAM_NULL_VALUE", text)


def pairs_of(headers: Any) -> list[tuple[str, str]]:
    """A map column of a row as pairs, without headers for servers, so copies need no filter.

    Arrow gives a list of tuples, others a dict; values are strings or lists of them.
    """
    pairs: list[tuple[str, str]] = []
    for name, texts in headers.items() if isinstance(headers, Mapping) else headers:
        if name.lower().startswith(RESERVED):
            continue
        pairs += [(name, text) for text in ([texts] if isinstance(texts, str) else texts or ()) if text is not None]
    return pairs


def no_document(options: WriteSettings, error: Exception) -> Refused:
    return options.refuse(
        "JETSTREAM_SCHEMA_MISMATCH",
        f"a row cannot be written as valueFormat={options.value_format}: {error}; correct such rows",
    )


def _binary(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())
