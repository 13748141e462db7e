"""Reading an object as a binary file: chunks in order, a window of memory, size and digest checked on the way."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any, NoReturn

from jsclient import handlers
from jsclient.errors import DigestMismatch, IteratorClosed
from jsclient.objectstore.digest import decode_digest
from jsclient.objectstore.models import ObjectInfo
from jsclient.objectstore.sources import Progress


class ObjectReader(io.RawIOBase):
    """The data of one object as a readable binary file (not seekable). `info` describes it.

    Works with `shutil.copyfileobj`, `io.BufferedReader`, `io.TextIOWrapper`, pandas and other readers of files. Size
    and SHA-256 are checked when the last chunk arrives, before its bytes are returned. On DigestMismatch, do not use
    the data that you have read before. For a part (`start`, `length`) only the size is checked. Close the reader, or
    use it in a `with` block. Only one thread may read. Any may close it.

    Attributes:
        info: The information about the object.
    """

    def __init__(
        self, info: ObjectInfo, chunks: Iterator[bytes], progress: Progress = None, part: int | None = None
    ) -> None:
        """`part` is the number of bytes that arrive, if that is not the complete object."""
        super().__init__()
        self.info = info
        self._chunks = chunks
        self._progress = progress
        self._digest = hashlib.sha256()
        self._part = part
        self._size = info.size if part is None else part
        self._received = 0
        self._left: memoryview = memoryview(b"")
        self._done = False
        if self._size == 0:
            self._finish()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill as much of the buffer as one chunk allows. Returns 0 at the end."""
        target = memoryview(buffer).cast("B")
        if not len(target):
            return 0
        left = self._left or self._next()
        count = min(len(left), len(target))
        target[:count] = left[:count]
        self._left = left[count:]
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes (all that are left for -1). Returns b"" at the end."""
        if size is None or size < 0:
            return self.readall()
        if size == 0:
            return b""
        left = self._left or self._next()
        self._left = left[size:]
        return bytes(left[:size])

    def readall(self) -> bytes:
        """The rest in one piece, which needs memory for all of it."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        """The rest, chunk by chunk as stored: the cheapest way to read all of it."""
        if self._left:
            rest, self._left = bytes(self._left), memoryview(b"")
            yield rest
        while chunk := self._next_chunk():
            yield chunk

    def _next(self) -> memoryview:
        return memoryview(self._next_chunk())

    def _next_chunk(self) -> bytes:
        """The next chunk; b"" at the end. The last one is returned only if size and digest of all chunks are right."""
        self._check_open()
        if self._done:
            return b""
        try:
            chunk = next(self._chunks, None)
        except IteratorClosed:
            self._check_open()
            raise
        if chunk is None:
            self._damaged(f"only {self._received} of {self._size} bytes are there")
        self._digest.update(chunk)
        self._received += len(chunk)
        if self._received > self._size:
            self._damaged(f"more than its {self._size} bytes are there")
        if self._received == self._size:
            self._finish()
        if self._progress is not None:
            handlers.ran(self._progress(self._received, self._size))
        return chunk or self._next_chunk()

    def _finish(self) -> None:
        self._done = True
        self._stop()
        if self._part is not None or not self.info.digest:
            return  # links and deleted objects have none; nor has an object if its writer left it out
        if self._digest.digest() != decode_digest(self.info.digest, self.info.bucket):
            self._damaged("its SHA-256 is not the one that was stored with it")

    def _damaged(self, what: str) -> NoReturn:
        self._done = True
        self.close()
        raise DigestMismatch(f"object {self.info.name!r} in {self.info.bucket!r} is damaged: {what}", self.info.bucket)

    def _stop(self) -> None:
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(
                "the object reader is closed: nothing more can be read from it. Call `get` again to read the object"
            )

    def close(self) -> None:
        """Stop reading. The consumer on the server goes away."""
        first = not self.closed
        super().close()
        if first:
            self._left = memoryview(b"")
            self._stop()

    def __repr__(self) -> str:
        return f"<ObjectReader {self.info.name!r} {self._received}/{self._size} bytes>"
