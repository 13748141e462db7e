"""The rows of one task for a bucket: puts, markers, and compare-and-set for rows with an expected revision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from jsclient import errors
from jsclient.exactly.ids import ContentIds, key_of
from jsclient.exactly.journal import Job
from jsclient.exactly.partition import write_partition
from jsclient.exactly.row_publisher import Totals
from jsclient.exactly.sending import context
from jsclient.exactly.task import Outcome
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.protocol import Headers
from jsclient.spark.buckets import BucketOptions, check_columns, named_errors, parse
from jsclient.spark.committing import conclude_batch
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.kv_rows import EntryRows, entries_of, prefix_of
from jsclient.spark.pool import lease
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jsclient.connection import Connection
    from jsclient.jetstream.publishing.future import PublishFuture

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "key": ("string",),
    "value": ("binary", "string"),
    "operation": ("string",),
    "expected_revision": ("bigint", "int"),
}
AT_ONCE: Final = 2_000
ROOT: Final = "KV_"


def sink_options(given: Mapping[str, str], way: str) -> BucketOptions:
    """The options of the sink."""
    return parse(given, way, ROOT, {"onconflict"}, {"deliverysemantics", "journal"})


def check_sink(schema: StructType) -> bool:
    """Refuse a DataFrame that a bucket cannot store. Returns True if its rows have expected revisions."""
    return "expected_revision" in check_columns(schema, COLUMNS, ("key", "value"))


@attrs.define
class Stored:
    """The result that one task returns to the driver."""

    job: Job
    outcome: Outcome
    conflicts: list[str] = attrs.field(factory=list)


def write_task(
    options: BucketOptions, batches: Iterator[pa.RecordBatch], job: Job, streaming: bool, conditional: bool
) -> Stored:
    """Store the rows of one task. `conditional` rows have expected revisions, which protect them without a journal."""
    where = f"bucket {options.bucket!r}"
    with named_errors(options.stream, "JETSTREAM_PUBLISH_FAILED", where):
        with lease(options.stream) as nc:
            if conditional:
                return _Conditional(nc, options, job).write(batches)
            journaled = options.stream.keeps_journal(streaming)
            make = partial(EntryRows, options)
            return Stored(job, write_partition(nc, options.stream, job, batches, journaled, where, make))


def conclude(options: BucketOptions, done: list[Stored], streaming: bool) -> None:
    """Runs on the driver when all tasks have written."""
    conclude_batch(options.stream, [(stored.job, stored.outcome) for stored in done], streaming)
    conflicts = [key for stored in done for key in stored.conflicts]
    if conflicts:
        tell(
            f"bucket {options.bucket!r}: {len(conflicts)} rows were not written, because their keys are not at the "
            f"revision they expect (onConflict=skip): {', '.join(sorted(conflicts)[:10])}"
        )


class _Conditional:
    """Puts of one partition with expected revisions, in their order for each key."""

    def __init__(self, nc: Connection, options: BucketOptions, job: Job) -> None:
        self._options = options
        self._publisher = AsyncPublisher(context(nc, options.stream), stall_wait=options.stream.reconnect_timeout)
        self._prefix = prefix_of(options)
        self._ids = ContentIds(key_of(job.query, job.batch), str(job.partition))
        self._pending: dict[str, PublishFuture] = {}
        self._stored = Stored(job, Outcome(Totals(), [], journaled=False))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Stored:
        for batch in batches:
            revisions = batch.column("expected_revision").to_pylist()
            for key, value, lines, revision in zip(*entries_of(batch), revisions, strict=False):
                self._put(key, value, lines, revision)
        self._settle(len(self._pending))
        return self._stored

    def _put(self, key: str, value: bytes, lines: bytes, revision: int | None) -> None:
        if key in self._pending:
            self._settle(len(self._pending))  # later values of a key must be stored later, even if a row is resent
        elif len(self._pending) >= AT_ONCE:
            self._settle(AT_ONCE // 2)
        mark = b"" if revision is None else b"%d" % revision
        id_ = self._ids.next(key.encode(), mark + lines, value).decode()
        headers = Headers.decode(b"NATS/1.0\r\n%b\r\n" % lines) if lines else None
        self._pending[key] = self._publisher.publish(
            self._prefix + key, value, headers=headers, msg_id=id_, expected_last_subject_seq=revision
        )

    def _settle(self, count: int) -> None:
        """Wait for the outcomes of the oldest rows."""
        for key in list(islice(self._pending, count)):
            try:
                self._pending.pop(key).result()
            except errors.WrongLastSequence as error:
                # Not because of a row of an earlier attempt: the publisher would recognize its id.
                self._conflict(key, error)
                continue
            self._stored.outcome.totals.rows += 1

    def _conflict(self, key: str, error: errors.WrongLastSequence) -> None:
        if not self._options.skip_conflicts:
            raise JetStreamSparkError(
                "JETSTREAM_REVISION_MISMATCH",
                f"bucket {self._options.bucket!r}: key {key!r} is not at its expected_revision ({error.description}); "
                "somebody has written it, or an earlier attempt of this task and then somebody else. Other rows of the "
                "batch may be stored; read again, or leave such rows out with onConflict=skip",
            ) from error
        self._stored.conflicts.append(key)
