"""The rows of a replay: rows that an earlier attempt has stored, and rows still to be published.

Rows are recognised by their message ids (see readback.py). Ids from contents name a partition. The stream may have a
row under another partition, because the replay was cut differently. It may be the same row or an equal one, which no
task can decide. The task puts such rows aside for the driver, which sees the rows of all partitions.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient.exactly.ids import DIGEST_CHARS

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.arrow.settings import Refused
    from jsclient.exactly.readback import Stored
    from jsclient.exactly.row_publisher import Row

MOST_ASIDE: Final = 64 << 20  # bytes of rows that a task may hand to the driver


class Sorter:
    """Separates rows that are stored from rows that are not."""

    def __init__(self, stored: Stored, refuse: Callable[[str, str], Refused]) -> None:
        self._stored = stored
        self._refuse = refuse
        self.skipped: int = 0
        self.aside: list[Row] = []
        self._size = 0

    def missing(self, rows: Iterable[Row], by_column: bool) -> list[Row]:
        """The rows to publish; rows that may be stored under another partition are put aside."""
        stored, left = self._stored, []
        for row in rows:
            msg_id = row[3] or b""
            if by_column:
                known = msg_id in stored.ids
            else:
                known = msg_id in stored.mine
                stored.mine.discard(msg_id)
            if known:
                self.skipped += 1
            elif not by_column and msg_id[:DIGEST_CHARS] in stored.digests:
                self._put_aside(row)
            else:
                left.append(row)
        return left

    def left_over(self) -> Counter[bytes]:
        """Digests of rows of this partition in the stream that no row of this attempt has claimed."""
        return Counter(msg_id[:DIGEST_CHARS] for msg_id in self._stored.mine)

    def _put_aside(self, row: Row) -> None:
        self.aside.append(row)
        self._size += sum(len(part or b"") for part in row)
        if self._size > MOST_ASIDE:
            raise self._refuse(
                "JETSTREAM_UNSURE_REPLAY",
                "more than 64 MiB of rows lie in the sink under other partitions: this attempt was cut otherwise than "
                "the first one. Give the query the parallelism that it had, or a column msg_id",
            )


class Spool:
    """Record batches on the local disk, to be read more than once."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="jsclient-spool-")  # noqa: SIM115 - close() is ours
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._file.flush()
        if self._file.tell():
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)

    def close(self) -> None:
        self._file.close()
