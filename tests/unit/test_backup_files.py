"""S2 streams and archives of backups, byte by byte, without a server."""

from __future__ import annotations

import io

import pytest

from jsclient.backup import archive, s2
from jsclient.backup.archive import Entry
from jsclient.backup.errors import BackupCorrupt


def block(*parts: bytes, size: int) -> bytes:
    return bytes([size]) + b"".join(parts)


@pytest.mark.parametrize(
    ("encoded", "plain"),
    [
        (block(b"\x08abc", size=3), b"abc"),
        (block(b"\xf0\x02abc", size=3), b"abc"),  # the length of the literal in a byte of its own
        (block(b"\x08abc", b"\x05\x03", size=8), b"abcabcab"),  # copy of 5 with offset 3: overlaps itself
        (block(b"\x08abc", b"\x16\x03\x00", size=9), b"abcabcabc"),  # two bytes of offset
        (block(b"\x08abc", b"\x17\x03\x00\x00\x00", size=9), b"abcabcabc"),  # four bytes of offset
        (block(b"\x08abc", b"\x01\x03", b"\x01\x00", size=11), b"abcabcabcab"),  # offset 0: the one before
        (block(b"\x00a", b"\x01\x01", b"\x15\x00\x02", size=15), b"a" * 15),  # a longer repeat: 2 + 4 + 4
    ],
)
def test_blocks_decode(encoded: bytes, plain: bytes) -> None:
    assert s2.decode_block(encoded) == plain


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x05\x08abc",  # holds less than it says
        b"\x03\x10abc",  # a literal that is longer than the block
        b"\x08\x08abc\x05\x09",  # points before its begin
        b"\x08\x08abc\x05",  # ends within a copy
        b"\xff\xff\xff\xff\x7f",  # claims more than any block may hold
        b"\x04\x08abc\x05\x03",  # writes more than it says
    ],
)
def test_damaged_blocks_are_refused(encoded: bytes) -> None:
    with pytest.raises(BackupCorrupt):
        s2.decode_block(encoded)


def test_the_checksum_is_crc32c() -> None:
    crc = (s2.masked_crc(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert (crc << 15 | crc >> 17) & 0xFFFFFFFF == 0xE3069283  # the check value of CRC-32C


ENTRIES = [
    Entry("state.json", 0, 0, b"", b"{}"),
    Entry("a.b", 1_700_000_000_000_000_000, 5, b"NATS/1.0\r\nA: b\r\n\r\n", b"x" * 200_000),
    Entry("a.c", -5, 7, b"", b""),
]


def test_what_is_packed_is_read_again() -> None:
    data = b"".join(s2.packed(archive.encoded(ENTRIES)))
    read = list(archive.entries(s2.Reader(io.BytesIO(data), check=True)))
    assert read == ENTRIES
    headers = read[1].headers
    assert headers is not None
    assert headers["A"] == "b"


def test_an_archive_that_was_cut_off_is_no_archive() -> None:
    whole = b"".join(archive.encoded(ENTRIES))
    for cut in (4, len(archive.MAGIC), len(whole) - 1, len(whole) - 5, len(whole) - 30):
        with pytest.raises(BackupCorrupt):
            list(archive.entries(io.BytesIO(whole[:cut])))


def test_a_changed_bit_is_found_by_the_checksum() -> None:
    data = bytearray(b"".join(s2.packed([b"some data"])))
    data[-1] ^= 1
    assert s2.Reader(io.BytesIO(bytes(data))).read() != b"some data"
    with pytest.raises(BackupCorrupt, match="checksum"):
        s2.Reader(io.BytesIO(bytes(data)), check=True).read()


@pytest.mark.parametrize(
    "data", [b"nonsense", b"\xff\x06\x00\x00sOmEtH", s2.MAGIC + b"\x05\x00\x00\x00", s2.MAGIC + b"\x00\x09"]
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(BackupCorrupt):
        s2.Reader(io.BytesIO(data)).read()
