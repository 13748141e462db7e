"""What an earlier attempt has stored: read back from the sink, and told apart from what is still to be published.

Rows are recognised by their message ids, headers only. Ids from contents name a partition: a row that lies in the
stream under another one (the replay was cut into other partitions) may be the same row or an equal one, which no task
can know. Such rows are put aside for the driver, which sees those of all partitions.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient.arrow.ranges import Range
from jsclient.arrow.reading import read_chunks
from jsclient.spark.access import SparkAccess
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.ids import DIGEST_CHARS, TAG_CHARS

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.connection import Connection
    from jsclient.jetstream.publishing.rows import Row
    from jsclient.spark.options import SparkOptions

log = logging.getLogger("jsclient.spark")

MOST_ASIDE: Final = 64 << 20  # bytes of rows that a task may hand to the driver
_ID = b"\r\nNats-Msg-Id: "


class Unsure(Exception):
    """Rows of the batch may have been stored, but what the stream has now does not tell."""


@attrs.define
class Stored:
    """Ids found in the sink. `mine` are those of the partition; `digests` of all of the batch."""

    ids: set[bytes] = attrs.field(factory=set)
    mine: set[bytes] = attrs.field(factory=set)
    others: Counter[bytes] = attrs.field(factory=Counter)  # digest -> rows that no living partition claims
    digests: set[bytes] = attrs.field(factory=set)


def read_back(
    nc: Connection, options: SparkOptions, begins: dict[str, int], tag: bytes, partition: int | None, tasks: int = 0
) -> Stored:
    """What the batch has stored. `partition` None is the driver: the rows of partitions that none of `tasks` has."""
    found = Stored()
    for stream, first in begins.items():
        for msg_id in _ids(nc, options, stream, first):
            found.ids.add(msg_id)
            parts = msg_id.split(b".")
            if len(parts) != 3 or len(parts[0]) != DIGEST_CHARS or not parts[1].startswith(tag):
                continue
            digest, owner = parts[0], parts[1][TAG_CHARS:]
            found.digests.add(digest)
            if partition is None:
                if not owner.isdigit() or int(owner) >= tasks:
                    found.others[digest] += 1
            elif owner == b"%d" % partition:
                found.mine.add(msg_id)
    return found


def _ids(nc: Connection, options: SparkOptions, stream: str, first: int) -> Iterator[bytes]:
    """The message ids in a stream of the sink from `first` on."""
    access = SparkAccess(nc, options, stream)
    info = access.info()
    state = access.state(info)
    if state.end <= first:
        return
    if (info.config.retention or "limits") != "limits" or (info.config.max_msgs_per_subject or -1) > 0:
        raise Unsure(f"stream {stream!r} does not keep what is stored in it (retention, or max_msgs_per_subject)")
    if state.first > first:
        raise Unsure(f"stream {stream!r} begins at {state.first}, the batch may have stored rows from {first} on")
    reading = attrs.evolve(options, stream=stream, fail_on_data_loss=True)
    part = Range(0, first, state.end, created=state.created, headers_only=True)
    try:
        for chunk in read_chunks(nc, reading, part, "consumer", "readback"):
            for block in chunk.headers or ():
                at = -1 if block is None else block.find(_ID)
                if block is not None and at >= 0:
                    yield block[at + len(_ID) : block.index(b"\r\n", at + len(_ID))]
    except JetStreamSparkError as error:
        if error.token in ("JETSTREAM_DATA_LOSS", "JETSTREAM_STREAM_RECREATED"):
            raise Unsure(error.message.removesuffix(".")) from error
        raise


class Sorter:
    """Tells rows that are stored from rows that are not."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.skipped = 0
        self.aside: list[Row] = []
        self._size = 0

    def missing(self, rows: Iterable[Row], by_column: bool) -> list[Row]:
        """The rows to publish; what may be stored under another partition is put aside."""
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
            raise JetStreamSparkError(
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
