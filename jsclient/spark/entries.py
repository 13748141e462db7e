"""Messages of a key-value bucket as the columns of its entries."""

from __future__ import annotations

import pyarrow as pa

from jsclient.arrow.columns import BatchBuilder
from jsclient.keyvalue.entry import Operation, operation_of_block


class EntryBuilder(BatchBuilder):
    """A BatchBuilder for the stream of a bucket; values of markers are null."""

    def __init__(self, bucket: str, names: list[str], schema: pa.Schema, rows: int, nbytes: int) -> None:
        super().__init__(bucket, names, schema, rows, nbytes)
        self._wants_headers = "operation" in names or "value" in names

    def _operations(self) -> list[Operation]:
        if not self._any_headers:
            return [Operation.PUT] * len(self)
        return [operation_of_block(block) for block in self._headers]

    def _column_bucket(self) -> pa.Array:
        return self._column_stream()

    def _column_key(self) -> pa.Array:
        return pa.array([subject.split(b".", 2)[2].decode("utf-8", "replace") for subject in self._subjects])

    def _column_value(self) -> pa.Array:
        operations = self._operations()
        if operations.count(Operation.PUT) == len(self):
            return super()._column_value()
        put = [operation is Operation.PUT for operation in operations]
        return pa.array(
            [value if there else None for value, there in zip(self._payloads, put, strict=True)], pa.binary()
        )

    def _column_revision(self) -> pa.Array:
        return self._column_seq()

    def _column_time(self) -> pa.Array:
        return self._times(self._schema.field("time").type)

    def _column_operation(self) -> pa.Array:
        return pa.array([operation.value for operation in self._operations()], pa.string())
