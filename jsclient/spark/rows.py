"""Single rows and dicts as record batches, for code that has no Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from jsclient.exactly.rows import COLUMNS, FENCES, no_document, pairs_of
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.spark.options import SparkOptions

ROWS_AT_ONCE: Final = 1_000


def record_batches(rows: Iterable[Any], options: SparkOptions) -> Iterator[pa.RecordBatch]:
    """Rows and dicts as record batches of one schema, which a replay can keep on disk. Documents are encoded."""
    import pyarrow as pa

    kinds = {
        "subject": pa.binary(),
        "value": pa.binary(),
        "headers": pa.map_(pa.string(), pa.string()),
        **dict.fromkeys(FENCES, pa.string()),
    }
    made = map(_fields_of(options), rows)
    first, with_ids = True, options.delivery_semantics != "at-least-once"
    while some := list(islice(made, ROWS_AT_ONCE)):
        if with_ids and "msg_id" not in kinds and any(fields.get("msg_id") is not None for fields in some):
            if not first:
                raise JetStreamSparkError("JETSTREAM_NULL_VALUE", "a row has no msg_id; fill the column, or drop it")
            kinds["msg_id"] = pa.binary()
        first = False
        try:
            columns = {name: pa.array([fields.get(name) for fields in some], kind) for name, kind in kinds.items()}
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise JetStreamSparkError("JETSTREAM_SCHEMA_MISMATCH", f"a row cannot be written: {error}") from None
        yield pa.RecordBatch.from_pydict(columns)


def _fields_of(options: SparkOptions) -> Callable[[Any], dict[str, Any]]:
    """A function that makes the columns of the sink from one row."""
    documents = options.value_format != "binary"

    def fields_of(row: Any) -> dict[str, Any]:
        fields = row.asDict(recursive=documents) if hasattr(row, "asDict") else row
        if not isinstance(fields, Mapping):
            raise JetStreamSparkError(
                "JETSTREAM_SCHEMA_MISMATCH", f"rows must be Rows or dicts, not {type(row).__name__}; convert them"
            )
        made = {name: fields[name] for name in COLUMNS if name in fields}
        if documents:
            made["value"] = _document(options, fields)
        if made.get("headers") is not None:
            made["headers"] = pairs_of(made["headers"])
        for name in FENCES:
            if made.get(name) is not None:
                made[name] = str(made[name])
        return made

    return fields_of


def _document(options: SparkOptions, fields: Mapping[str, Any]) -> bytes | None:
    """The column value, or all fields without another meaning for the sink."""
    from jsclient.arrow import formats

    whole = fields["value"] if "value" in fields else {n: value for n, value in fields.items() if n not in COLUMNS}
    if hasattr(whole, "asDict"):  # a Row in a dict
        whole = whole.asDict(recursive=True)
    try:
        return None if whole is None else formats.encoder(options.value_format)(formats.without_nulls(whole))
    except (TypeError, ValueError, OverflowError) as error:
        raise no_document(options, error) from None
