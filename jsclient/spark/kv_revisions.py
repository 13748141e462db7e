"""Rows of a bucket with an expected revision: compare-and-set in the order of each key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.exactly.ids import ContentIds, key_of
from jsclient.exactly.row_publisher import Totals
from jsclient.exactly.sending import context
from jsclient.exactly.task import Outcome
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.protocol import Headers
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.kv_rows import entries_of, prefix_of

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.connection import Connection
    from jsclient.exactly.journal import Job
    from jsclient.jetstream.publishing.future import PublishFuture
    from jsclient.spark.buckets import BucketOptions

AT_ONCE: Final = 2_000


class ConditionalTask:
    """Writes the rows of one partition. The revisions protect them without a journal."""

    def __init__(self, nc: Connection, options: BucketOptions, job: Job) -> None:
        self._options = options
        self._publisher = AsyncPublisher(context(nc, options.stream), stall_wait=options.stream.reconnect_timeout)
        self._prefix = prefix_of(options)
        self._ids = ContentIds(key_of(job.query, job.batch), str(job.partition))
        self._pending: dict[str, tuple[PublishFuture, int]] = {}  # with the size of the value
        self._totals = Totals()
        self._conflicts: list[str] = []

    def write(self, batches: Iterator[pa.RecordBatch]) -> Outcome:
        """Write the rows. A note has the keys that are not at their expected revision."""
        with self._publisher:
            for batch in batches:
                revisions = batch.column("expected_revision").to_pylist()
                for key, value, lines, revision in zip(*entries_of(batch), revisions, strict=False):
                    self._put(key, value, lines, revision)
            self._settle(len(self._pending))
        notes = []
        if self._conflicts:
            notes = [
                f"bucket {self._options.bucket!r}: {errors.counted(len(self._conflicts), 'row')} not written, because "
                "the key is not at its expected revision (onConflict=skip): " + ", ".join(sorted(self._conflicts)[:10])
            ]
        return Outcome(self._totals, notes, journaled=False)

    def _put(self, key: str, value: bytes, lines: bytes, revision: int | None) -> None:
        if key in self._pending:
            self._settle(len(self._pending))  # later values of a key must be stored later, even if a row is resent
        elif len(self._pending) >= AT_ONCE:
            self._settle(AT_ONCE // 2)
        mark = b"" if revision is None else b"%d" % revision
        id_ = self._ids.next(key.encode(), mark + lines, value).decode()
        headers = Headers.decode(b"NATS/1.0\r\n%b\r\n" % lines) if lines else None
        future = self._publisher.publish(
            self._prefix + key, value, headers=headers, msg_id=id_, expected_last_subject_seq=revision
        )
        self._pending[key] = future, len(value)

    def _settle(self, count: int) -> None:
        """Wait for the outcomes of the oldest rows."""
        for key in list(islice(self._pending, count)):
            future, size = self._pending.pop(key)
            try:
                ack = future.result()
            except errors.WrongLastSequence as error:
                # Not because of a row of an earlier attempt: the publisher would recognize its id.
                self._conflict(key, error)
                continue
            self._totals.rows += 1
            self._totals.bytes += size
            self._totals.duplicates += ack.duplicate
            self._totals.acked(ack.stream, ack.seq, ack.seq)

    def _conflict(self, key: str, error: errors.WrongLastSequence) -> None:
        if not self._options.skip_conflicts:
            raise JetStreamSparkError(
                "JETSTREAM_REVISION_MISMATCH",
                f"bucket {self._options.bucket!r}: key {key!r} is not at its expected_revision ({error.description}); "
                "somebody has written it, or an earlier attempt of this task and then somebody else. Other rows of the "
                "batch may be stored; read again, or leave such rows out with onConflict=skip",
            ) from error
        self._conflicts.append(key)
