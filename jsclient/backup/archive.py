"""The archive format of nats-server 2.15 (`NATSARC1`): a sequence of entries that ends with an empty entry.

The first entries are the state of the stream and its consumers. The messages follow in order of their sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import attrs
import msgspec

from jsclient.backup.errors import BackupCorrupt
from jsclient.message import headers_of
from jsclient.protocol import Headers
from jsclient.protocol.errors import BAD_JSON

MAGIC: Final = b"NATSARC1"
STATE: Final = "state.json"
CONSUMERS: Final = "consumers/"
MAX_NAME: Final = 64 * 1024
MAX_PART: Final = 128 * 1024 * 1024
"""Most bytes of headers, or of payload, that are accepted in an entry. nats-server rejects messages above 64 MiB."""


class Source(Protocol):
    def read(self, size: int) -> bytes: ...


@attrs.frozen
class Entry:
    """One entry: a message (sequence above 0) or a file. `time` is in nanoseconds, as the archive has it.

    Attributes:
        name: Subject of a message, or name of a file.
        time: Nanoseconds since 1970 (UTC) when it was stored.
        seq: Sequence of the message; 0 for a file.
        raw_headers: Its header block as stored; empty when there is none.
        data: The payload, or the content of the file.
    """

    name: str
    time: int
    seq: int
    raw_headers: bytes = attrs.field(repr=False)
    data: bytes = attrs.field(repr=False)

    @property
    def headers(self) -> Headers:
        """The headers of a message, empty when it has none."""
        return headers_of(self.raw_headers or None)

    def json(self) -> dict[str, Any]:
        """The data of a file entry."""
        try:
            plain = msgspec.json.decode(self.data)
        except BAD_JSON:
            plain = None
        if not isinstance(plain, dict):
            raise BackupCorrupt(f"{self.name} in the archive is not a JSON object")
        return plain


def is_archive(start: bytes) -> bool:
    return start.startswith(MAGIC)


def entries(source: Source) -> Iterator[Entry]:
    """All entries up to the end mark. Raises BackupCorrupt when there is none: the archive was cut off."""
    if source.read(len(MAGIC)) != MAGIC:
        raise BackupCorrupt("this is no archive of nats-server 2.15; older servers write tar files")
    while True:
        entry = _entry(source)
        if entry is None:
            return
        yield entry


def _entry(source: Source) -> Entry | None:
    name_size = _uvarint(source)
    zigzag = _uvarint(source)
    seq = _uvarint(source)
    header_size = _uvarint(source)
    data_size = _uvarint(source)
    if not (name_size or zigzag or seq or header_size or data_size):
        return None
    if name_size > MAX_NAME or header_size > MAX_PART or data_size > MAX_PART:
        raise BackupCorrupt(f"an entry claims {name_size + header_size + data_size} bytes: the archive is damaged")
    raw = _exactly(source, name_size)
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise BackupCorrupt("the name of an entry is not UTF-8") from None
    time = zigzag >> 1 ^ -(zigzag & 1)
    return Entry(name, time, seq, _exactly(source, header_size), _exactly(source, data_size))


def _uvarint(source: Source) -> int:
    value = shift = 0
    while True:
        byte = _exactly(source, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 63:
            raise BackupCorrupt("a number of the archive does not end")


def _exactly(source: Source, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise BackupCorrupt("the archive has no end mark: it was cut off")
    return data


def encoded(contents: Iterable[Entry]) -> Iterator[bytes]:
    """Entries as an archive, with magic and end mark."""
    yield MAGIC
    for entry in contents:
        name = entry.name.encode()
        numbers = (len(name), entry.time << 1 ^ entry.time >> 63, entry.seq, len(entry.raw_headers), len(entry.data))
        yield b"".join(map(_varint, numbers)) + name + entry.raw_headers + entry.data
    yield bytes(5)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
