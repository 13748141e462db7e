"""Messages that are read without their payloads, when the schema asks for none."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from jsclient.arrow.chunks import Chunk
from jsclient.arrow.columns import BatchBuilder

SIZE: Final = b"Nats-Msg-Size:"
BEGINS: Final = b"NATS/1.0\r\n"


class BareBuilder(BatchBuilder):
    """A BatchBuilder for messages without payloads. The server adds a header with the size, which rows do not show."""

    def __init__(self, stream: str, names: list[str], schema: pa.Schema, rows: int, nbytes: int) -> None:
        super().__init__(stream, names, schema, rows, nbytes)
        self._wants_headers = "headers" in names or "size" in names

    def _column_size(self) -> pa.Array:
        return pa.array(array("i", [_split(block)[0] for block in self._headers]), pa.int32())

    def _column_headers(self) -> pa.Array:
        whole = self._headers
        self._headers = [_split(block)[1] for block in whole]
        try:
            return super()._column_headers()
        finally:
            self._headers = whole

    def add(self, chunk: Chunk, nbytes: int) -> Iterator[pa.RecordBatch]:
        more = 0 if chunk.headers is None or not self._wants_headers else sum(map(len, filter(None, chunk.headers)))
        return super().add(chunk, nbytes + more)


def _split(block: bytes | None) -> tuple[int, bytes | None]:
    """The size, and the block without its header; None for a block without other headers."""
    at = -1 if block is None else block.rfind(SIZE)
    if block is None or at < 0:
        return 0, block
    rest = block[:at]
    return int(block[at + len(SIZE) : -4]), None if rest == BEGINS else rest + b"\r\n"
