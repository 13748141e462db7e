"""Parts of an object: which stored message has which bytes, and a seekable file over them."""

from __future__ import annotations

import io
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from jsclient import kinds
from jsclient.durations import Deadline
from jsclient.errors import ConfigError, DigestMismatch, MessageNotFound, StreamNotFound
from jsclient.jetstream.api.headers import MSG_SIZE
from jsclient.keyvalue import missing
from jsclient.objectstore.download import NOT_WHOLE, Chunks, gone
from jsclient.objectstore.models import ObjectInfo, chunk_subject

if TYPE_CHECKING:
    from jsclient.jetstream import JetStream
    from jsclient.jetstream.stream import Stream

BUFFER: Final = 128 * 1024
"""Bytes that an open object reads at least, as many as a usual chunk has."""


def check_range(start: Any, length: Any) -> None:
    """Raises ConfigError unless these are a first byte and a number of bytes."""
    for name, value in (("start", start), ("length", length)):
        if value is None and name == "length":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{name} must be an int of 0 or more bytes, got {value!r}")
        kinds.check(int, **{name: value})


class Parts:
    """The chunks of one object with their places. Making it reads the headers of all chunks, without their data."""

    def __init__(
        self, js: JetStream, stream: Stream, bucket: str, info: ObjectInfo, stall: float | None, opening: Deadline
    ) -> None:
        self.info = info
        self._js = js
        self._stream = stream
        self._subject = chunk_subject(bucket, info.nuid)
        self._stall = stall
        self._starts = array("Q")
        self._seqs = array("Q")
        if info.size:
            self._find(opening)

    def _find(self, opening: Deadline) -> None:
        # Writers may store chunks of any size, and chunks of other objects between them: only looking shows the places.
        found = 0
        chunks = self._open(opening, opening, headers_only=True)
        try:
            while True:
                if found >= self.info.size:
                    break
                message = chunks.next_message()
                self._starts.append(found)
                self._seqs.append(message.stream_seq)
                found += int(message.headers.get(MSG_SIZE) or 0)
        finally:
            chunks.close()
        if found != self.info.size:
            text = f"object {self.info.name!r} in {self.info.bucket!r} is damaged: its chunks have more than its size"
            raise DigestMismatch(text, self.info.bucket)

    def _open(self, opening: Deadline, whole: Deadline, **options: Any) -> Chunks:
        return Chunks(self._js, self._stream.name, self._subject, self.info, self._stall, opening, whole, **options)

    def place(self, position: int) -> tuple[int, int]:
        """The chunk that has the byte at `position`, and where in the chunk it is."""
        number = bisect_right(self._starts, position) - 1
        return number, position - self._starts[number]

    def one(self, number: int, deadline: Deadline) -> bytes:
        """The data of one chunk."""
        try:
            timeout = deadline.remaining() if self._stall is None else deadline.at_most(self._stall)
            message = self._stream.get_msg(self._seqs[number], direct=False, timeout=timeout)
        except MessageNotFound as error:
            raise gone(self.info) from error
        except StreamNotFound as error:
            raise missing.deleted(self._stream.name, NOT_WHOLE) from error
        if message.subject != self._subject:
            raise gone(self.info)
        return message.data

    def following(self, number: int, opening: Deadline, whole: Deadline) -> Chunks:
        """The chunks from this one on, requested ahead."""
        return self._open(opening, whole, deliver_policy="by_start_sequence", opt_start_seq=self._seqs[number])

    def bytes_of(self, start: int, length: int, opening: Deadline, whole: Deadline) -> Iterator[bytes]:
        """The data from `start` on, in pieces. `start + length` is within the object."""
        if not length:
            return
        number, skip = self.place(start)
        last, _ = self.place(start + length - 1)
        if number == last:
            yield self.one(number, whole)[skip : skip + length]
            return
        chunks = self.following(number, opening, whole)
        try:
            while True:
                if not length:
                    return
                piece = next(chunks)[skip : skip + length]
                skip = 0
                length -= len(piece)
                yield piece
        finally:
            chunks.close()


class Positions(io.RawIOBase):
    """Reads chunk by chunk at a position. Two chunks in sequence start a read ahead."""

    def __init__(self, parts: Parts, stall: float | None) -> None:
        super().__init__()
        self.parts = parts
        self._stall = stall
        self._position = 0
        self._number = -1
        self._chunk = b""
        self._ahead: Chunks | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.parts.info.size}.get(whence)
        if base is None:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence!r}")
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        target = memoryview(buffer).cast("B")
        if not len(target) or self._position >= self.parts.info.size:
            return 0
        number, skip = self.parts.place(self._position)
        chunk = self._load(number)
        piece = memoryview(chunk)[skip : skip + len(target)]
        if not len(piece):
            raise gone(self.parts.info)  # the chunk is shorter than it was
        target[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _load(self, number: int) -> bytes:
        if number == self._number:
            return self._chunk
        deadline = Deadline(self._stall)
        if number != self._number + 1 or self._number < 0:
            self._stop()
            chunk = self.parts.one(number, deadline)
        else:
            if self._ahead is None:
                self._ahead = self.parts.following(number, deadline, Deadline(None))
            chunk = next(self._ahead)
        self._number, self._chunk = number, chunk
        return chunk

    def _stop(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the object is closed: nothing more can be read from it. Call `open` again to read it")

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._chunk = b""
            self._stop()


class ObjectFile(io.BufferedReader):
    """One object as a seekable binary file, from `store.open`. `info` describes it.

    Works with zipfile, pandas, pyarrow and everything else that reads files. While you read in sequence, the client
    requests chunks ahead (about 4 MiB). After a seek it reads single chunks. It shows the object at the time of the
    `open`: if that is replaced or deleted, reading raises ObjectChanged. The digest is not checked, because it needs
    the complete object: use `get` for that. Close it, or use it in a `with`.

    Attributes:
        info: The information about the object.
    """

    def __init__(self, source: io.RawIOBase, info: ObjectInfo) -> None:
        super().__init__(source, BUFFER)
        self.info: ObjectInfo = info

    def __repr__(self) -> str:
        return f"<ObjectFile {self.info.name!r} {self.info.size} bytes>"
