"""Rows and dicts of Spark as rows of a publisher, or as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from jsclient.exactly.row_publisher import Row
from jsclient.exactly.rows import FENCES, RowMaker
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    from jsclient.spark.options import SparkOptions

ROWS_AT_ONCE: Final = 1_000  # rows of a record batch that is made of single rows


def record_batches(rows: Iterator[Any], options: SparkOptions) -> Iterator[Any]:
    """Rows and dicts as record batches of one schema, which a replay can keep on disk."""
    import pyarrow as pa

    made = _one_by_one(rows, RowMaker(options, None), options.value_format != "binary")
    while some := list(islice(made, ROWS_AT_ONCE)):
        subjects, lines, values, ids = zip(*some, strict=True)
        columns = {"subject": pa.array(subjects, pa.binary()), "value": pa.array(values, pa.binary())}
        pairs = [_pairs(block) for block in lines] if any(lines) else []
        plain = [_plain(row) or None for row in pairs] or [None] * len(some)
        columns["headers"] = pa.array(plain, pa.map_(pa.string(), pa.string()))
        for column, header in FENCES.items():
            texts = [dict(row).get(header) for row in pairs] or [None] * len(some)
            columns[column] = pa.array(texts, pa.string())
        if any(ids):
            columns["msg_id"] = pa.array(ids, pa.binary())
        yield pa.RecordBatch.from_pydict(columns)


def _pairs(lines: bytes) -> list[tuple[str, str]]:
    """The header lines made from the columns of a row."""
    split = [line.partition(": ") for line in lines.decode().split("\r\n") if line]
    return [(name, text) for name, _, text in split]


def _plain(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] not in FENCES.values()]


def _one_by_one(rows: Iterable[Any], maker: RowMaker, documents: bool) -> Iterator[Row]:
    for row in rows:
        fields = row.asDict(recursive=documents) if hasattr(row, "asDict") else row
        if not isinstance(fields, Mapping):
            raise JetStreamSparkError(
                "JETSTREAM_SCHEMA_MISMATCH", f"rows must be Rows or dicts, not {type(row).__name__}; convert them"
            )
        if documents and hasattr(fields.get("value"), "asDict"):  # a Row in a dict
            fields = {**fields, "value": fields["value"].asDict(recursive=True)}
        yield maker.of_fields(fields)
