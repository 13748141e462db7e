"""The columns of a bucket's sink as messages: values, and markers for keys that are removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Final

from jsclient.jetstream.api import names
from jsclient.keyvalue.entry import OPERATION_HEADER, PURGE_HEADERS, Operation
from jsclient.keyvalue.keys import check_key
from jsclient.spark.errors import JetStreamSparkError

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.exactly.ids import ContentIds
    from jsclient.exactly.row_publisher import Row
    from jsclient.spark.buckets import BucketOptions

OWN_API: Final = "$JS.API."
DELETE: Final = f"{OPERATION_HEADER}: {Operation.DELETE}\r\n".encode()
PURGE: Final = "".join(f"{name}: {value}\r\n" for name, value in PURGE_HEADERS.items()).encode()
LINES: Final = {Operation.DELETE.value: DELETE, Operation.PURGE.value: PURGE}


def prefix_of(options: BucketOptions) -> str:
    """The subject of a key without the key. In another domain or account it begins with the prefix of the API."""
    api = names.api_prefix(options.stream.domain, options.stream.api_prefix)
    return f"$KV.{options.bucket}." if api == OWN_API else f"{api}$KV.{options.bucket}."


class EntryRows:
    """Makes the rows of record batches with the columns key, value and operation."""

    def __init__(self, options: BucketOptions, content: ContentIds | None) -> None:
        self._prefix = prefix_of(options).encode()
        self._content = content

    def uses_column(self, there: bool) -> bool:
        """False: a bucket's rows have no column msg_id."""
        return False

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[Row]:
        keys, values, lines = entries_of(batch)
        subjects = [self._prefix + key.encode() for key in keys]
        content = self._content
        ids = repeat(None) if content is None else content.of_columns(subjects, lines, values)
        return zip(subjects, lines, values, ids, strict=False)


def entries_of(batch: pa.RecordBatch) -> tuple[list[str], list[bytes], Iterable[bytes]]:
    """Keys, values and header lines. A null value, or an operation other than PUT, removes the key."""
    import pyarrow as pa

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    keys = [check_key(key) for key in columns["key"].to_pylist()]
    values: list[bytes | None] = columns["value"].cast(pa.binary()).to_pylist()
    operations = columns.get("operation")
    if operations is None or operations.null_count == len(operations):
        if None not in values:
            return keys, values, repeat(b"")  # type: ignore[return-value]
        lines = [b"" if value is not None else DELETE for value in values]
    else:
        lines = [_line(each, value) for each, value in zip(operations.to_pylist(), values, strict=True)]
    return keys, [b"" if line else value or b"" for value, line in zip(values, lines, strict=True)], lines


def _line(operation: str | None, value: bytes | None) -> bytes:
    if operation is None or operation == Operation.PUT.value:
        return b"" if value is not None else DELETE
    if operation not in LINES:
        raise JetStreamSparkError(
            "JETSTREAM_SCHEMA_MISMATCH", f"the operation of a row is {operation[:40]!r}; write PUT, DEL or PURGE"
        )
    return LINES[operation]
