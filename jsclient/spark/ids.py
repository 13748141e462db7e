"""Message ids for Nats-Msg-Id that come out the same when a batch is written again.

`<job>.<batch>.<partition>.<digest of the content>.<occurrence>`: no attempt number and no row number, so a
retried task, a speculative copy or a restarted driver names each row as before, even when the rows come in
another order. The occurrence tells equal rows of one partition apart, and the partition those of two.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

DIGEST_BYTES = 16


class ContentIds:
    """Makes the ids of one partition; remembers every digest (about 100 bytes per row of the task)."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode() + b"."
        self._seen: set[str] = set()
        self._repeated: dict[str, int] = {}

    def next(self, subject: bytes, headers: bytes, value: bytes) -> bytes:
        """The id of the next row. Lengths are part of the digest, so no two rows share one by concatenation."""
        digest = blake2b(
            b"%d %d " % (len(subject), len(headers)) + subject + headers + value, digest_size=DIGEST_BYTES
        ).hexdigest()
        seen = self._seen
        if digest not in seen:
            seen.add(digest)
            return self._prefix + digest.encode() + b".0"
        occurrence = self._repeated.get(digest, 0) + 1
        self._repeated[digest] = occurrence
        return self._prefix + b"%s.%d" % (digest.encode(), occurrence)


def id_prefix(job: str, batch: int, partition: int) -> str:
    """`job` is the query id (streaming) or the job id made by the driver (batch); 8 characters are enough."""
    return f"{job.replace('-', '')[:8]}.{batch}.{partition}"


NextId = Callable[[bytes, bytes, bytes], bytes]
