"""Writes rows into a key-value bucket: puts, deletes, and compare-and-set for rows with an expected revision."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from jsclient import errors
from jsclient.exactly.ids import ContentIds, key_of
from jsclient.exactly.sending import context
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.keyvalue.entry import OPERATION_HEADER
from jsclient.keyvalue.keys import check_key
from jsclient.spark.buckets import BucketOptions, check_columns, named_errors
from jsclient.spark.context import partition_id, streaming_batch
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.pool import lease
from jsclient.spark.stream_writer import HANDS_OVER_ROWS, StreamWriter
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jsclient.connection import Connection
    from jsclient.jetstream.publishing.future import PublishFuture

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "key": ("string",),
    "value": ("binary", "string"),
    "expected_revision": ("bigint", "int"),
}
AT_ONCE: Final = 2_000
OWN_API: Final = "$JS.API."


@attrs.define
class Stored(WriterCommitMessage):
    """The result that one task returns to the driver."""

    rows: int = 0
    conflicts: list[str] = attrs.field(factory=list)


class KeyValueWriter(DataSourceArrowWriter):
    """`df.write.format("jetstream-kv")`."""

    def __init__(self, options: BucketOptions, schema: StructType) -> None:
        check_columns(schema, COLUMNS, ("key", "value"))
        self.options = options
        self.job: str = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(self.options, iterator, self.job, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report(self.options, messages)


class KeyValueStreamWriter(StreamWriter):
    """`df.writeStream.format("jetstream-kv")`. Spark makes a new one for every call."""

    def __init__(self, options: BucketOptions, schema: StructType) -> None:
        check_columns(schema, COLUMNS, ("key", "value"))
        self.options = options
        self.names: list[str] = [field.name for field in schema.fields]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        query, _, batch = streaming_batch()
        if HANDS_OVER_ROWS:
            iterator = _batches_of(iterator, self.names)
        return write_task(self.options, iterator, query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report(self.options, messages)


def write_task(options: BucketOptions, batches: Iterator[pa.RecordBatch], job: str, batch: int) -> Stored:
    with named_errors(options.stream, "JETSTREAM_PUBLISH_FAILED", f"bucket {options.bucket!r}"):
        with lease(options.stream) as nc:
            task = _Task(nc, options, ContentIds(key_of(job, batch), str(partition_id())))
            for record_batch in batches:
                task.write(record_batch)
            return task.finish()


def _batches_of(rows: Iterator[Any], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows of PySpark 4.0 as record batches; all columns of a bucket are plain."""
    import pyarrow as pa

    while some := list(islice(rows, AT_ONCE)):
        columns = zip(*some, strict=True)
        yield pa.RecordBatch.from_pydict({n: pa.array(c) for n, c in zip(names, columns, strict=True)})


def report(options: BucketOptions, messages: list[WriterCommitMessage | None]) -> None:
    conflicts = [key for message in messages if isinstance(message, Stored) for key in message.conflicts]
    if conflicts:
        tell(
            f"bucket {options.bucket!r}: {len(conflicts)} rows were not written, because their keys are not at the "
            f"revision they expect (onConflict=skip): {', '.join(sorted(conflicts)[:10])}"
        )


class _Task:
    """Puts of one partition, in their order for each key."""

    def __init__(self, nc: Connection, options: BucketOptions, ids: ContentIds) -> None:
        stream = options.stream
        self._options = options
        self._js = context(nc, stream)
        self._publisher = AsyncPublisher(self._js, stall_wait=stream.reconnect_timeout)
        # In another domain or account the subjects of a bucket begin with the prefix of the API.
        prefix = self._js.api.prefix
        self._root = f"$KV.{options.bucket}."
        self._prefix = self._root if prefix == OWN_API else prefix + self._root
        self._ids = ids
        self._pending: dict[str, PublishFuture] = {}
        self._stored = Stored()

    def write(self, batch: pa.RecordBatch) -> None:
        columns = dict(zip(batch.schema.names, (column.to_pylist() for column in batch.columns), strict=True))
        revisions = columns.get("expected_revision", [None] * batch.num_rows)
        for key, value, revision in zip(columns["key"], columns["value"], revisions, strict=True):
            self._put(check_key(key), value.encode() if isinstance(value, str) else value, revision)

    def _put(self, key: str, value: bytes | None, revision: int | None) -> None:
        if key in self._pending or len(self._pending) >= AT_ONCE:
            self._settle()  # later values of a key must be stored later, even if a row is resent
        mark = b"" if revision is None else b"%d" % revision
        id_ = self._ids.next(key.encode(), mark, b"-" if value is None else b"+" + value).decode()
        headers = None if value is not None else {OPERATION_HEADER: "DEL"}
        future = self._publisher.publish(
            self._prefix + key, value or b"", headers=headers, msg_id=id_, expected_last_subject_seq=revision
        )
        self._pending[key] = future

    def finish(self) -> Stored:
        self._settle()
        return self._stored

    def _settle(self) -> None:
        pending, self._pending = self._pending, {}
        for key, future in pending.items():
            try:
                future.result()
            except errors.WrongLastSequence as error:
                # Not because of a row of an earlier attempt: the publisher would recognize its id.
                self._conflict(key, error)
                continue
            self._stored.rows += 1

    def _conflict(self, key: str, error: errors.WrongLastSequence) -> None:
        if not self._options.skip_conflicts:
            raise JetStreamSparkError(
                "JETSTREAM_REVISION_MISMATCH",
                f"bucket {self._options.bucket!r}: key {key!r} is not at its expected_revision ({error.description}); "
                "somebody has written it, or an earlier attempt of this task and then somebody else. Other rows of the "
                "batch may be stored; read again, or leave such rows out with onConflict=skip",
            ) from error
        self._stored.conflicts.append(key)
