"""The sources of an object's data: bytes, text, a path, a file object or an iterator, cut into chunks."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from jsclient import checks
from jsclient.errors import ConfigError

Data = bytes | bytearray | memoryview | str | os.PathLike[str] | IO[bytes] | Iterable[bytes]
Progress = Any  # Callable[[int, int | None], object]; Any because attrs and mypy read it at run time too


@contextmanager
def chunks_of(data: Any, size: int) -> Iterator[tuple[Iterator[bytes], int | None]]:
    """(chunks of exactly `size` bytes except the last, total bytes or None if unknown); closes the files that it opens.

    A `str` is the text itself (UTF-8), an `os.PathLike` the file of that path. A text file object raises an error,
    because it does not return the bytes that are on disk.
    """
    if isinstance(data, str):
        data = checks.utf8(data, "an object")
    if isinstance(data, (bytes, bytearray, memoryview)):
        view = memoryview(data).cast("B")
        yield _slices(view, size), len(view)
    elif isinstance(data, os.PathLike):
        with open(data, "rb", buffering=0) as file:
            yield _reads(file, size), os.fstat(file.fileno()).st_size
    elif isinstance(data, io.TextIOBase):
        raise ConfigError("a text file object cannot be stored: open it in binary mode")
    elif hasattr(data, "read"):
        yield _reads(data, size), _rest_of(data)
    elif isinstance(data, Iterable):
        yield _joined(data, size), None
    else:
        raise ConfigError(
            f"cannot store a {type(data).__name__}: give bytes, str, a path, a binary file or an iterable"
        )


def rewinder(data: Any) -> Callable[[], object] | None:
    """A function that resets the data to the present position, to read it again. Returns None if that is impossible."""
    if isinstance(data, (str, bytes, bytearray, memoryview, os.PathLike)):
        return lambda: None
    try:
        here = data.tell()
        data.seek(here)
    except (OSError, AttributeError, ValueError, TypeError):
        return None
    return lambda: data.seek(here)


def _slices(view: memoryview, size: int) -> Iterator[bytes]:
    return (bytes(view[start : start + size]) for start in range(0, len(view), size))


def _reads(file: Any, size: int) -> Iterator[bytes]:
    """Full chunks from a file object. Its `read` may return less than requested (pipes, sockets)."""
    while True:
        chunk = _checked(file.read(size))
        while chunk and len(chunk) < size:
            more = _checked(file.read(size - len(chunk)))
            if not more:
                yield chunk
                return
            chunk += more
        if not chunk:
            return
        yield chunk


def _checked(piece: Any) -> bytes:
    if piece is None:
        raise ConfigError(
            "the file object is in non-blocking mode and has no data now. The object is not stored. Open it in "
            "blocking mode."
        )
    if isinstance(piece, str):
        raise ConfigError("the file object gives text. The object is not stored. Open it in binary mode.")
    return bytes(piece)


def _joined(pieces: Iterable[Any], size: int) -> Iterator[bytes]:
    """Pieces of any length, put together or cut into chunks of `size`."""
    buffer = bytearray()
    for piece in pieces:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ConfigError(
                f"an iterable of chunks must give bytes, not {type(piece).__name__}. The object is not stored. "
                "Encode the chunks."
            )
        if not buffer and len(piece) == size:
            yield bytes(piece)
            continue
        buffer += piece
        while len(buffer) >= size:
            yield bytes(memoryview(buffer)[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


def _rest_of(file: Any) -> int | None:
    """Number of bytes that a seekable file still has."""
    try:
        here = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(here)
    except (OSError, AttributeError, ValueError):
        return None
    return int(end) - int(here)
