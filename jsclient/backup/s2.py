"""S2 streams (the snappy framing with klauspost's extensions), in which nats-server packs its snapshots.

Reading decodes every block. Writing packs without compressing, which every reader accepts. Pure Python decodes some 10
MB/s: enough to look into a backup. A backup and a plain restore never decode anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from jsclient.backup.errors import BackupCorrupt

MAGIC: Final = b"\xff\x06\x00\x00S2sTwO"
_SNAPPY: Final = b"sNaPpY"
MAX_BLOCK: Final = 4 * 1024 * 1024
WRITE_BLOCK: Final = 64 * 1024
"""Bytes of an uncompressed chunk that is written: the most that the snappy framing allows."""

_STREAM_ID, _COMPRESSED, _PLAIN, _PADDING = 0xFF, 0x00, 0x01, 0xFE


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE: Final = _crc_table()


def masked_crc(data: bytes) -> int:
    """CRC-32C of the data, masked as the framing format requires."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def blocks(file: BinaryIO, *, check: bool = False) -> Iterator[bytes]:
    """The decoded blocks of a stream. `check` compares the checksum of each. Raises BackupCorrupt."""
    first = True
    while header := file.read(4):
        if len(header) < 4:
            raise BackupCorrupt("the file ends within the head of a block")
        kind, length = header[0], int.from_bytes(header[1:], "little")
        body = file.read(length)
        if len(body) < length:
            raise BackupCorrupt(f"the file ends within a block: {len(body)} of {length} bytes are there")
        if first and kind != _STREAM_ID:
            raise BackupCorrupt("this is no S2 stream")
        first = False
        if kind in (_COMPRESSED, _PLAIN):
            data = decode_block(body[4:]) if kind == _COMPRESSED else body[4:]
            if check and masked_crc(data) != int.from_bytes(body[:4], "little"):
                raise BackupCorrupt("the checksum of a block does not fit its data")
            yield data
        elif kind == _STREAM_ID:
            if body not in (MAGIC[4:], _SNAPPY):
                raise BackupCorrupt("this is no S2 stream")
        elif 0x02 <= kind <= 0x7F:
            raise BackupCorrupt(f"the stream has a block of unknown kind {kind}")


def decode_block(source: bytes) -> bytes:
    """One compressed block."""
    try:
        return _decode(source)
    except IndexError:
        raise BackupCorrupt("a compressed block ends too early") from None


def _decode(source: bytes) -> bytes:
    size, at = _uvarint(source)
    if size > MAX_BLOCK:
        raise BackupCorrupt(f"a block claims {size} bytes; {MAX_BLOCK} is the most there can be")
    out = bytearray()
    end, offset = len(source), 0
    while at < end:
        tag = source[at]
        kind = tag & 3
        if kind == 0:  # a literal
            length = tag >> 2
            at += 1
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(source[at : at + extra], "little")
                at += extra
            length += 1
            if at + length > end:
                raise BackupCorrupt("a compressed block ends too early")
            out += source[at : at + length]
            at += length
            continue
        if kind == 1:
            new_offset = (tag & 0xE0) << 3 | source[at + 1]
            length = tag >> 2 & 7
            at += 2
            if new_offset:
                offset = new_offset
            elif length >= 5:  # the offset of the copy before, and a longer length
                extra = length - 4
                length = int.from_bytes(source[at : at + extra], "little") + (0, 4, 1 << 8, 1 << 16)[extra]
                at += extra
            length += 4
        else:
            extra = 2 if kind == 2 else 4
            length = (tag >> 2) + 1
            offset = int.from_bytes(source[at + 1 : at + 1 + extra], "little")
            at += 1 + extra
        start = len(out) - offset
        if offset <= 0 or start < 0 or len(out) + length > size:
            raise BackupCorrupt("a compressed block points outside of itself")
        if offset >= length:
            out += out[start : start + length]
        else:  # the copy overlaps its own result: a pattern of `offset` bytes
            out += (out[start:] * (length // offset + 1))[:length]
    if len(out) != size:
        raise BackupCorrupt(f"a block claims {size} bytes and holds {len(out)}")
    return bytes(out)


def _uvarint(source: bytes) -> tuple[int, int]:
    value = shift = at = 0
    while True:
        byte = source[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise BackupCorrupt("a number of a block does not end")


def packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of data as an S2 stream of uncompressed chunks."""
    yield MAGIC
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= WRITE_BLOCK:
            yield _plain(bytes(waiting[:WRITE_BLOCK]))
            del waiting[:WRITE_BLOCK]
    if waiting:
        yield _plain(bytes(waiting))


def _plain(data: bytes) -> bytes:
    return bytes([_PLAIN]) + (len(data) + 4).to_bytes(3, "little") + masked_crc(data).to_bytes(4, "little") + data


class Reader:
    """Decoded bytes of an S2 stream, as a file that is read forward: a block at a time is in memory."""

    def __init__(self, file: BinaryIO, *, check: bool = False) -> None:
        self._blocks = blocks(file, check=check)
        self._buffer = b""
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        have = len(self._buffer) - self._at
        if 0 <= size <= have:
            self._at += size
            return self._buffer[self._at - size : self._at]
        parts = [self._buffer[self._at :]]
        while size < 0 or have < size:
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
            have += len(block)
        whole = b"".join(parts)
        size = len(whole) if size < 0 else min(size, len(whole))
        self._buffer, self._at = whole, size
        return whole[:size]
