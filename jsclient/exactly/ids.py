"""Message ids for Nats-Msg-Id that stay the same when a batch is written again.

An id is `<digest of the content>.<tag><partition>.<occurrence>`, without an attempt number or a row number. So a
retried task, a speculative copy or a restarted driver names each row as before, even if the rows come in another order.

Query and batch are the key of the digest, so equal rows of two batches have different ids. Equal rows of one partition
differ by the occurrence. Equal rows of two partitions differ by the number of the partition. The tag marks the rows of
the batch when a stream is read back.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable
from hashlib import blake2b
from itertools import repeat
from typing import Final

DIGEST_BYTES: Final = 15  # 20 characters of base64 without padding
DIGEST_CHARS: Final = 20
KEY_BYTES: Final = 16
TAG_CHARS: Final = 4
MOST_BASES: Final = 256  # digests of subjects in memory


def key_of(job: str, batch: int) -> bytes:
    """The key of the digests of one batch; `job` is the query id (streaming) or the driver's job id."""
    return blake2b(f"{job}|{batch}".encode(), digest_size=KEY_BYTES).digest()


def tag_of(key: bytes) -> bytes:
    """The common part of the ids of one batch."""
    return b2a_base64(blake2b(key, digest_size=3).digest(), newline=False)


class ContentIds:
    """Makes the ids of one partition; remembers every digest (about 100 bytes per row of the task).

    With `adding`, `total` is the sum of all digests so far, each times its occurrence. It is equal for equal rows in
    any order.
    """

    def __init__(self, key: bytes, partition: str, adding: bool = False) -> None:
        self.total: int = 0
        self._adding = adding
        self._base = blake2b(digest_size=DIGEST_BYTES, key=key)
        self._suffix = b".%b%b." % (tag_of(key), partition.encode())
        self._seen: set[bytes] = set()
        self._repeated: dict[bytes, int] = {}

    def next(self, subject: bytes, headers: bytes, value: bytes) -> bytes:
        """The id of the next row. Lengths are part of the digest, so no two rows share one by concatenation."""
        digest = self._base.copy()
        digest.update(b"%d %d %b%b" % (len(subject), len(headers), subject, headers))
        digest.update(value)
        return self._named(digest.digest())

    def of_columns(self, subjects: list[bytes], headers: Iterable[bytes], values: list[bytes]) -> Iterable[bytes]:
        """The ids of many rows. If no row has headers, `headers` must be a `repeat`."""
        if isinstance(headers, repeat):
            return self.plain(subjects, values)
        return map(self.next, subjects, headers, values)

    def plain(self, subjects: list[bytes], values: list[bytes]) -> list[bytes]:
        """The same ids as `next` for many rows without headers, in less than two thirds of its time."""
        digests = self._digests(subjects, values)
        new = set(digests)
        if len(new) < len(digests) or not new.isdisjoint(self._seen):
            return [self._named(digest) for digest in digests]
        self._seen |= new
        if self._adding:
            self.total += sum([int.from_bytes(digest, "big") for digest in digests])
        suffix = self._suffix
        return [b"%b%b0" % (b2a_base64(digest, newline=False), suffix) for digest in digests]

    def _digests(self, subjects: list[bytes], values: list[bytes]) -> list[bytes]:
        bases: dict[bytes, blake2b] = {}
        found = []
        for subject, value in zip(subjects, values, strict=True):
            base = bases.get(subject)
            if base is None:
                if len(bases) >= MOST_BASES:
                    bases.clear()  # thousands of them would cost more than they save
                base = bases[subject] = self._base.copy()
                base.update(b"%d 0 %b" % (len(subject), subject))
            digest = base.copy()
            digest.update(value)
            found.append(digest.digest())
        return found

    def _named(self, digest: bytes) -> bytes:
        occurrence = 0
        if digest in self._seen:
            occurrence = self._repeated[digest] = self._repeated.get(digest, 0) + 1
        else:
            self._seen.add(digest)
        if self._adding:
            self.total += int.from_bytes(digest, "big") * (occurrence + 1)
        return b"%b%b%d" % (b2a_base64(digest, newline=False), self._suffix, occurrence)
