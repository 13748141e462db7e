"""publishMode=atomic: exactly once without a time limit, by atomic batches that carry a marker (nats-server 2.12.1).

Rows go in chunks of 999 and a marker, stored together or not at all. The marker lies on a subject of its own,
`<atomicMarkerSubject>.<query>.<partition>`, says which batch and chunk it belongs to and what hash the rows so far
have, and is written under the condition that nobody else wrote it in between. A replay finds the marker and knows
exactly which chunks are stored, however long ago that was.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import attrs

from jsclient import errors
from jsclient.jetstream.api.names import check_stream
from jsclient.jetstream.publishing.atomic_rows import AtomicRows
from jsclient.jetstream.publishing.rows import Row, Totals
from jsclient.spark.access import SparkAccess
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.sending import context

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.spark.options import SparkOptions

log = logging.getLogger("jsclient.spark")

CHUNK_ROWS: Final = 999  # the server takes 1,000 messages in a batch, one is the marker
CHUNK_BYTES: Final = 8 << 20
ATTEMPTS: Final = 5  # at one chunk, when its outcome is unknown or the stream is busy


# Nothing or all of the chunk is stored: the marker tells.
UNSURE: Final = (
    errors.RequestTimeout,
    errors.UnknownOutcome,
    errors.NotStored,
    errors.ConnectionLost,
    errors.NoResponders,
    errors.BatchIncomplete,
    errors.JetStreamTemporarilyUnavailable,
    errors.TooManyRequests,
)


@attrs.frozen
class Marker:
    """Up to which chunk the partition of a query is stored; `revision` is the sequence of the marker, 0 if none."""

    batch: int = -1
    chunk: int = -1
    digest: str = ""
    revision: int = 0


class AtomicPublisher:
    """Publishes the rows of one partition of one batch. For one thread."""

    def __init__(self, nc: Connection, options: SparkOptions, job: str, batch: int, partition: int) -> None:
        self._options = options
        self._nc = nc
        self._subject = f"{options.atomic_marker_subject}.{job.replace('-', '')}.{partition}"
        self._batch = batch
        self._where = f"batch {batch}, partition {partition}"
        self._access = SparkAccess(nc, options, self._find_stream(nc))
        self.totals = Totals()
        self._chunk = 0
        self._rows: list[Row] = []
        self._size = 0
        self._hash = blake2b(digest_size=16)
        self._marker = self._read_marker()
        self._skipped = 0

    def publish(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if len(self._rows) == CHUNK_ROWS or self._size >= CHUNK_BYTES:
                self._flush()
            self._rows.append(row)
            self._size += len(row[2])
            for part in row[:3]:
                self._hash.update(b"%d " % len(part) + part)

    def finish(self) -> Totals:
        if self._rows:
            self._flush()
        if self._marker.batch == self._batch and self._marker.chunk >= self._chunk:
            raise self._differs(f"it has {self._chunk} chunks, the first attempt had {self._marker.chunk + 1}")
        return self.totals

    def close(self) -> None:
        """Nothing is left open between two chunks."""

    # --- chunks -----------------------------------------------------------------------------------------

    def _flush(self) -> None:
        rows, chunk, digest = self._rows, self._chunk, self._hash.copy().hexdigest()
        self._rows, self._size = [], 0
        self._chunk += 1
        self.totals.rows += len(rows)
        self.totals.bytes += sum(len(row[2]) for row in rows)
        for _ in range(ATTEMPTS):
            if self._stored(chunk, digest):
                self.totals.duplicates += len(rows)
                return
            try:
                self._store(rows, chunk, digest)
                return
            except UNSURE as error:
                log.info("%s: chunk %d: %s; looking at the marker", self._where, chunk, error)
            except errors.WrongLastSequence:
                log.info("%s: chunk %d: somebody else wrote the marker", self._where, chunk)
            before, self._marker = self._marker, self._read_marker()
            if self._marker != before and not self._stored(chunk, digest):
                raise JetStreamSparkError(
                    "JETSTREAM_FENCED",
                    f"{self._where}: another driver writes the same query (marker {self._subject!r} is at batch "
                    f"{self._marker.batch}, chunk {self._marker.chunk}). A retry cannot cure it: stop one of the two",
                )
        raise errors.NoStreamResponse(f"chunk {chunk} was not stored in {ATTEMPTS} attempts")

    def _stored(self, chunk: int, digest: str) -> bool:
        marker = self._marker
        if marker.batch > self._batch:
            raise JetStreamSparkError(
                "JETSTREAM_JOURNAL_AHEAD",
                f"{self._where}: the marker {self._subject!r} says that batch {marker.batch} was written. The "
                "checkpoint was restored from a backup, or another driver runs the query; nothing is written, "
                "and nothing is skipped. A retry cannot cure it: use another checkpointLocation",
            )
        if (marker.batch, marker.chunk) < (self._batch, chunk):
            return False
        if (marker.batch, marker.chunk) == (self._batch, chunk) and marker.digest != digest:
            raise self._differs(f"its rows up to chunk {chunk} are not those of the first attempt")
        return True

    def _differs(self, how: str) -> JetStreamSparkError:
        return JetStreamSparkError(
            "JETSTREAM_NONDETERMINISTIC_REPLAY",
            f"{self._where} is written again, but {how}; a part is stored already, so nothing more is. Make the query "
            "deterministic (no random values, no current time, order within a partition), or use another publishMode",
        )

    def _store(self, rows: list[Row], chunk: int, digest: str) -> None:
        body = {"batch": self._batch, "chunk": chunk, "rows": len(rows), "hash": digest}
        batch = AtomicRows(context(self._nc, self._options), self._options.ack_timeout)
        batch.add(self._subject, json.dumps(body).encode(), expected_last_subject_seq=self._marker.revision)
        batch.add_rows(rows)
        ack = batch.commit()
        first = ack.seq - len(rows)
        self._marker = Marker(self._batch, chunk, digest, first)
        self.totals.acked(ack.stream, first, ack.seq)

    # --- the marker -------------------------------------------------------------------------------------

    def _find_stream(self, nc: Connection) -> str:
        access = SparkAccess(nc, self._options, "(sink)")
        found = access.retrying(
            "STREAM.NAMES", lambda: access.api.request("STREAM.NAMES", {"subject": self._subject}, read=True)
        )
        names = found.get("streams") or []
        if len(names) != 1:
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_NOT_FOUND",
                f"no stream takes the marker subject {self._subject!r}: atomicMarkerSubject must be a subject prefix "
                "of the stream that gets the rows",
            )
        if not SparkAccess(nc, self._options, names[0]).info().config.allow_atomic:
            raise JetStreamSparkError(
                "JETSTREAM_SERVER_TOO_OLD",
                f"publishMode=atomic needs nats-server 2.12.1 and allow_atomic in stream {names[0]!r}",
            )
        return check_stream(str(names[0]))

    def _read_marker(self) -> Marker:
        access = self._access

        def get() -> Marker:
            body = {"last_by_subj": self._subject}
            try:
                message = access.api.request(f"STREAM.MSG.GET.{access.stream}", body, read=True)["message"]
            except errors.MessageNotFound:
                return Marker()
            found = json.loads(base64.b64decode(message["data"]))
            return Marker(found["batch"], found["chunk"], found["hash"], message["seq"])

        return access.retrying("reading the marker", get)
