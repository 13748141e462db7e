"""The message ids of a batch in the sink, read once per Python worker.

A stream that keeps its messages only grows. So the first task of a worker that needs the ids reads from where the batch
began, headers only. Later tasks continue from there. The ids are in a file on the local disk, by partition. A filter in
memory has the digests of all contents that were found.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final

import attrs

from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import Range
from jsclient.arrow.reading import read_chunks
from jsclient.arrow.settings import Refused
from jsclient.exactly.ids import DIGEST_CHARS, TAG_CHARS, tag_of

if TYPE_CHECKING:
    from jsclient.arrow.chunks import Chunk
    from jsclient.connection import Connection
    from jsclient.exactly.settings import WriteSettings

AT_ONCE: Final = 20_000  # ids that wait in memory to be written together
BITS_PER_ROW: Final = 32
_ID: Final = b"\r\nNats-Msg-Id: "


class Unsure(Exception):
    """Rows of the batch may have been stored, but the present content of the stream does not show it."""


@attrs.define
class Stored:
    """The state of the sink for a task. `ids` are the stored ids of a msg_id column; `mine` come from contents."""

    ids: set[bytes] = attrs.field(factory=set)
    mine: set[bytes] = attrs.field(factory=set)
    digests: Container[bytes] = ()  # of all rows of the batch, and perhaps of a few others


class Digests:
    """A set of digests, in 4 to 8 bytes each. It reports about one in a few thousand other digests as present, too.

    The task puts such a row aside for the driver, which counts exactly.
    """

    def __init__(self, expected: int) -> None:
        bits = 1 << max(16, (expected * BITS_PER_ROW - 1).bit_length())
        self._mask = bits - 1
        self._bits = bytearray(bits >> 3)

    def add(self, digest: bytes) -> None:
        place, bits, mask = hash(digest), self._bits, self._mask
        one, two = place & mask, (place >> 30) & mask
        three = one ^ (two >> 1)
        bits[one >> 3] |= 1 << (one & 7)
        bits[two >> 3] |= 1 << (two & 7)
        bits[three >> 3] |= 1 << (three & 7)

    def __contains__(self, digest: object) -> bool:
        place, bits, mask = hash(digest), self._bits, self._mask
        one, two = place & mask, (place >> 30) & mask
        three = one ^ (two >> 1)
        return bool(bits[one >> 3] >> (one & 7) & bits[two >> 3] >> (two & 7) & bits[three >> 3] >> (three & 7) & 1)


class IdFile:
    """Message ids by owner, in a file of this process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="jsclient-ids-")  # noqa: SIM115 - close() is ours
        self._end = 0
        self._places: dict[bytes, list[tuple[int, int]]] = {}
        self._waiting: dict[bytes, list[bytes]] = {}
        self._count = 0

    def add(self, owner: bytes, msg_id: bytes) -> None:
        self._waiting.setdefault(owner, []).append(msg_id)
        self._count += 1
        if self._count >= AT_ONCE:
            self._write()

    def owners(self) -> list[bytes]:
        self._write()
        return list(self._places)

    def of(self, owner: bytes) -> Iterator[list[bytes]]:
        self._write()
        for at, size in self._places.get(owner, ()):
            self._file.seek(at)
            yield self._file.read(size).split(b"\n")

    def _write(self) -> None:
        waiting, self._waiting, self._count = self._waiting, {}, 0
        self._file.seek(self._end)
        for owner, ids in waiting.items():
            block = b"\n".join(ids)
            self._file.write(block)
            self._places.setdefault(owner, []).append((self._end, len(block)))
            self._end += len(block)
        self._file.flush()  # a forked child must not have data to write

    def close(self) -> None:
        self._file.close()


class ReadBack:
    """The stored rows of one batch, as far as this worker has read the sink. For one task at a time.

    `key` is the key of the ids. With `by_column` the ids come from a column and name neither batch nor partition.
    """

    def __init__(self, key: bytes, by_column: bool) -> None:
        self.process: int
        self.key: bytes
        self.by_column: bool
        self.key, self.by_column, self.process = key, by_column, os.getpid()
        self._tag = tag_of(key)
        self._reached: dict[str, tuple[str, int]] = {}  # creation time and next sequence to read, by stream
        self._ids = IdFile()
        self._digests: Digests | None = None

    def catch_up(self, nc: Connection, options: WriteSettings, begins: dict[str, int]) -> bool:
        """Read new messages. False if a stream was re-created meanwhile, so this object is of no use any more."""
        for stream, first in begins.items():
            access = StreamAccess(nc, options, stream)
            info = access.info()
            state = access.state(info)
            made, reached = self._reached.get(stream, (state.created, first))
            if made != state.created:
                return False
            if state.end <= first:
                continue
            if (info.config.retention or "limits") != "limits" or (info.config.max_msgs_per_subject or -1) > 0:
                raise Unsure(
                    f"stream {stream!r} does not keep what is stored in it (retention, or max_msgs_per_subject)"
                )
            if state.first > first:
                raise Unsure(
                    f"stream {stream!r} begins at {state.first}, the batch may have stored rows from {first} on"
                )
            if state.end > reached:
                self._digests = self._digests or Digests(state.end - first)
                self._read(nc, options, stream, Range(0, reached, state.end, created=made, headers_only=True))
            self._reached[stream] = made, max(reached, state.end)
        return True

    def _read(self, nc: Connection, options: WriteSettings, stream: str, part: Range) -> None:
        try:
            for chunk in read_chunks(nc, options.reading(stream), part, "consumer", "readback"):
                self._take(chunk)
        except Refused as error:
            if error.token in ("JETSTREAM_DATA_LOSS", "JETSTREAM_STREAM_RECREATED"):
                raise Unsure(error.message.removesuffix(".")) from error
            raise

    def _take(self, chunk: Chunk) -> None:
        ids, tag, by_column = self._ids, self._tag, self.by_column
        assert self._digests is not None
        for block in chunk.headers or ():
            at = -1 if block is None else block.find(_ID)
            if block is None or at < 0:
                continue
            msg_id = block[at + len(_ID) : block.index(b"\r\n", at + len(_ID))]
            if by_column:
                ids.add(b"", msg_id)
                continue
            parts = msg_id.split(b".")
            if len(parts) == 3 and len(parts[0]) == DIGEST_CHARS and parts[1].startswith(tag):
                self._digests.add(parts[0])
                ids.add(parts[1][TAG_CHARS:], msg_id)

    # --- what was found ---------------------------------------------------------------------------------

    def stored(self, partition: int, wanted: set[bytes]) -> Stored:
        """For the task of a partition; `wanted` are its ids if they come from a column."""
        if self.by_column:
            return Stored(ids={msg_id for some in self._ids.of(b"") for msg_id in wanted.intersection(some)})
        mine = {msg_id for some in self._ids.of(b"%d" % partition) for msg_id in some}
        return Stored(mine=mine, digests=self._digests or ())

    def unclaimed(self, tasks: int) -> Counter[bytes]:
        """Digest -> rows that belong to none of the partitions below `tasks`: for the driver."""
        found: Counter[bytes] = Counter()
        for owner in self._ids.owners():
            if not owner.isdigit() or int(owner) >= tasks:
                for some in self._ids.of(owner):
                    found.update([msg_id[:DIGEST_CHARS] for msg_id in some])
        return found

    def close(self) -> None:
        self._ids.close()


# --- a worker keeps one of them -------------------------------------------------------------------------------------

kept: list[ReadBack] = []


def read_back(
    nc: Connection, options: WriteSettings, begins: dict[str, int], key: bytes, by_column: bool = False
) -> ReadBack:
    """The rows of a batch stored until now. `keep` it for the next task of this process, or close it."""
    found = _kept_of(key, by_column)
    try:
        while not found.catch_up(nc, options, begins):
            found.close()
            found = ReadBack(key, by_column)
    except BaseException:
        found.close()  # it may hold a part of the last read
        raise
    return found


def keep(found: ReadBack) -> None:
    """The next task of the batch continues reading from there."""
    kept.append(found)
    for other in kept[:-1]:
        _drop(other)


def forget_others(key: bytes) -> None:
    """Drop the cached objects whose batch has a key other than `key`."""
    for found in kept[:]:
        if found.key != key:
            _drop(found)


def _kept_of(key: bytes, by_column: bool) -> ReadBack:
    """The cached object, removed from the cache so no other task uses it; a new one if there is none."""
    for found in kept[:]:
        if (found.key, found.by_column, found.process) == (key, by_column, os.getpid()) and _taken(found):
            return found
    return ReadBack(key, by_column)


def _taken(found: ReadBack) -> bool:
    try:
        kept.remove(found)
    except ValueError:
        return False  # another thread was first
    return True


def _drop(found: ReadBack) -> None:
    if _taken(found):
        found.close()
