"""publishMode=atomic: rows in atomic batches that carry a marker (nats-server 2.12.1).

The client sends the rows in chunks of up to 999, each with a marker; a chunk and its marker are stored together or not
at all. The marker has a separate subject, `<atomicMarkerSubject>.<query>.<partition>`. It names its batch and chunk and
has the hash of the rows so far.

The stream stores the marker only if no other writer wrote it in between. So the outcome of a chunk is never in doubt
for long, and the stream itself refuses an attempt that was overtaken.

A replay of the same rows in the same order finds in the marker which chunks are stored, however long ago that was. The
marker does not cover other partitions. If rows have moved between them, the ids and the journal show it (see task.py).
"""

from __future__ import annotations

import base64
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.settings import Refused
from jsclient.durations import Deadline
from jsclient.exactly.atomic_rows import AtomicRows
from jsclient.exactly.row_publisher import Row, Totals
from jsclient.exactly.sending import context
from jsclient.exactly.sink_streams import taker_of
from jsclient.jetstream.api.names import check_stream

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.exactly.settings import WriteSettings

log: logging.Logger = logging.getLogger("jsclient.exactly")

CHUNK_ROWS: Final = 999  # The server takes 1,000 messages in a batch, and one is the marker.
CHUNK_BYTES: Final = 8 << 20
ATTEMPTS: Final = 5  # For one chunk, when its outcome is unknown or the stream is busy.
KNOWN_ID: Final = 10201  # This err_code means that the stream recognises a row by its id, and refuses all of the chunk.
TOO_MANY: Final = 10210  # This err_code means that a stream has 50 unfinished batches. Other tasks end theirs soon.
PAUSE: Final = 0.2

# The complete chunk is stored, or none of it: the marker shows which.
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
    """Up to which chunk the partition of a query is stored; `revision` is the sequence of the marker, 0 if none.

    If `whole` is True, the chunks up to it are all rows of the partition from the first one on. Otherwise an attempt
    has left out rows that it found stored, and the digest only identifies that attempt. `run` is the run that wrote it
    last.
    """

    batch: int = -1
    chunk: int = -1
    digest: str = ""
    revision: int = 0
    whole: bool = True
    run: str = ""


@attrs.frozen
class Chunk:
    number: int
    rows: list[Row]
    digest: str  # of all rows so far


class Chunks:
    """Cuts rows into chunks: the same rows always at the same places."""

    def __init__(self, number: int, running: Any) -> None:
        self.number: int = number  # of the chunk that is being filled
        self.running = running  # the hash of all rows so far
        self._rows: list[Row] = []
        self._size = 0

    def full(self, rows: Iterable[Row]) -> Iterator[Chunk]:
        """The chunks that `rows` fill."""
        for row in rows:
            if len(self._rows) == CHUNK_ROWS or self._size >= CHUNK_BYTES:
                yield self._cut()
            self._rows.append(row)
            self._size += len(row[2])
            for part in row[:3]:
                self.running.update(b"%d " % len(part) + part)

    def rest(self) -> Iterator[Chunk]:
        if self._rows:
            yield self._cut()

    def _cut(self) -> Chunk:
        chunk = Chunk(self.number, self._rows, self.running.hexdigest())
        self._rows, self._size = [], 0
        self.number += 1
        return chunk


class Compared:
    """Looks for the place of a marker among the rows of a replay."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._chunks = Chunks(0, blake2b(digest_size=16))
        self._seen = 0
        self._found: tuple[int, Any] | None = None

    def add(self, rows: Iterable[Row]) -> None:
        if self._marker.whole and self._found is None:
            self._look(self._chunks.full(rows))

    def found(self) -> tuple[int, Any] | None:
        """The number of stored rows, from the first one on, and their hash; None if the marker is for other rows."""
        if self._found is None:
            self._look(self._chunks.rest())
        return self._found

    def _look(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._seen += len(chunk.rows)
            if (chunk.number, chunk.digest) == (self._marker.chunk, self._marker.digest):
                self._found = self._seen, self._chunks.running.copy()
                return


class AtomicPublisher:
    """Publishes the rows of one partition of one batch. For one thread.

    By default it expects all rows of the partition, skips rows in stored chunks, and refuses rows that differ from the
    first attempt. The publisher calls `guard` before it sends a chunk again.
    """

    def __init__(
        self,
        nc: Connection,
        options: WriteSettings,
        job: str,
        batch: int,
        partition: int,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._nc = nc
        self._guard = guard
        self._markers = Markers(nc, options, job)
        self._subject = self._markers.subject(partition)
        self._batch = batch
        self._partition = partition
        self._where = f"batch {batch}, partition {partition}"
        self.run: str = ""  # of the query, for `Markers.fence`; "" without a journal
        self.totals: Totals = Totals()
        self._chunks = Chunks(0, blake2b(digest_size=16))
        self._marker = self._markers.read(partition)
        self._whole = True
        self._compared: Compared | None = None

    # --- a replay that has more information than the marker ---------------------------------------------

    def compare(self, rows: Iterable[Row]) -> None:
        """Call this with all rows of the partition, before the first one is published."""
        if self._marker.batch == self._batch:
            self._compared = self._compared or Compared(self._marker)
            self._compared.add(rows)

    def prefix(self) -> int | None:
        """The number of compared rows that are stored, from the first one on; None if the marker does not show it."""
        found = None if self._compared is None else self._compared.found()
        return None if found is None else found[0]

    def go_on(self, behind_prefix: bool) -> None:
        """From now on `publish` gets the missing rows: the rows behind the prefix, or any others."""
        next_one = self._marker.chunk + 1 if self._marker.batch == self._batch else 0
        found = None if self._compared is None else self._compared.found()
        self._whole = behind_prefix and found is not None
        running = found[1] if self._whole and found is not None else blake2b(uuid.uuid4().bytes, digest_size=16)
        self._chunks = Chunks(next_one, running)

    # --- chunks -----------------------------------------------------------------------------------------

    def publish(self, rows: Iterable[Row]) -> None:
        for chunk in self._chunks.full(rows):
            self._flush(chunk)

    def finish(self) -> Totals:
        for chunk in self._chunks.rest():
            self._flush(chunk)
        if self._marker.batch == self._batch and self._marker.chunk >= self._chunks.number:
            raise self._differs(f"it has {self._chunks.number} chunks, the first attempt had {self._marker.chunk + 1}")
        return self.totals

    def _flush(self, chunk: Chunk) -> None:
        self.totals.rows += len(chunk.rows)
        self.totals.bytes += sum(len(row[2]) for row in chunk.rows)
        for attempt in range(ATTEMPTS):
            if self._stored(chunk):
                self.totals.duplicates += len(chunk.rows)
                return
            if attempt:
                self._guard()
            known_ids = False
            try:
                self._store_when_possible(chunk)
                return
            except UNSURE as error:
                log.info("%s: chunk %d: %s; looking at the marker", self._where, chunk.number, error)
            except errors.WrongLastSequence:
                log.info("%s: chunk %d: somebody else wrote the marker", self._where, chunk.number)
            except errors.ApiError as error:
                if error.err_code != KNOWN_ID:
                    raise
                known_ids = True
            before, self._marker = self._marker, self._markers.read(self._partition)
            if self._marker != before and not (self._stored(chunk) and self._marker.run == self.run):
                raise self._options.refuse(
                    "JETSTREAM_FENCED",
                    f"{self._where}: another attempt or driver writes it, too (marker {self._subject!r} is at batch "
                    f"{self._marker.batch}, chunk {self._marker.chunk}). If this is no copy of a task that Spark has "
                    "started again, stop one of the two drivers",
                )
            if self._marker == before and known_ids:
                raise self._ids_are_known(chunk)
        if not self._stored(chunk):  # as the last look at the marker shows; it may be stored after that look
            text = f"{self._where}: after {ATTEMPTS} attempts chunk {chunk.number} is not known to be stored"
            raise errors.NoStreamResponse(f"{text}. Start the task again: it finds out, and stores nothing twice")
        self.totals.duplicates += len(chunk.rows)

    def _stored(self, chunk: Chunk) -> bool:
        marker = self._marker
        if marker.batch > self._batch:
            raise self._options.refuse(
                "JETSTREAM_JOURNAL_AHEAD",
                f"{self._where}: the marker {self._subject!r} says that batch {marker.batch} was written. The "
                "checkpoint was restored from a backup, or another driver runs the query; nothing is written, "
                "and nothing is skipped. A retry cannot cure it: use another checkpointLocation",
            )
        at, wanted = (marker.batch, marker.chunk), (self._batch, chunk.number)
        if at < wanted:
            return False
        if not self._whole:
            return (at, marker.digest) == (wanted, chunk.digest)
        if at == wanted and marker.digest != chunk.digest:
            raise self._differs(f"its rows up to chunk {chunk.number} are not those of the first attempt")
        return True

    def _differs(self, how: str) -> Refused:
        return self._options.refuse(
            "JETSTREAM_NONDETERMINISTIC_REPLAY",
            f"{self._where} is written again, but {how}; a part is stored already, so nothing more is. Make the query "
            "deterministic (no random values, no current time, order within a partition), or use another publishMode",
        )

    def _ids_are_known(self, chunk: Chunk) -> Refused:
        return self._options.refuse(
            "JETSTREAM_PUBLISH_FAILED",
            f"{self._where}: the stream recognises rows of chunk {chunk.number} by their ids, but neither a marker nor "
            "the journal says that they are stored; nothing of the chunk is. A retry cannot cure it before the "
            "duplicate_window of the stream is over",
        )

    def _store_when_possible(self, chunk: Chunk) -> None:
        deadline = Deadline(self._options.reconnect_timeout)
        while True:
            try:
                self._store(chunk)
                return
            except errors.BatchRefused as error:
                if error.err_code != TOO_MANY or deadline.expired():
                    raise
                log.info("%s: chunk %d: %s; waiting for other tasks", self._where, chunk.number, error)
            time.sleep(deadline.at_most(PAUSE))
            self._guard()

    def _store(self, chunk: Chunk) -> None:
        rows = chunk.rows
        body = {"batch": self._batch, "chunk": chunk.number, "rows": len(rows), "hash": chunk.digest}
        if not self._whole:
            body["whole"] = 0
        if self.run:
            body["run"] = self.run
        batch = AtomicRows(context(self._nc, self._options), self._options.ack_timeout)
        batch.add(self._subject, json.dumps(body).encode(), expected_last_subject_seq=self._marker.revision)
        batch.add_rows(rows)
        ack = batch.commit()
        first = ack.seq - len(rows)
        self._marker = Marker(self._batch, chunk.number, chunk.digest, first, self._whole, self.run)
        self.totals.acked(ack.stream, first, ack.seq)


class Markers:
    """The markers of a query in the stream that gets its rows."""

    def __init__(self, nc: Connection, options: WriteSettings, job: str) -> None:
        self._nc = nc
        self._options = options
        self._root = f"{options.atomic_marker_subject}.{job.replace('-', '')}"
        self._access = StreamAccess(nc, options, self._stream())

    def subject(self, partition: int) -> str:
        return f"{self._root}.{partition}"

    def read(self, partition: int) -> Marker:
        found, revision = self._last(partition)
        whole, run = bool(found.get("whole", 1)), found.get("run", "")
        return Marker(found["batch"], found["chunk"], found["hash"], revision, whole, run)

    def fence(self, partitions: Iterable[int], run: str) -> None:
        """From now on the stream refuses chunks of other runs' attempts: each marker is written again, unchanged.

        This includes partitions that `run` does not have because it cuts the batch differently.
        """
        js = context(self._nc, self._options)
        for partition in partitions:
            deadline = Deadline(self._options.reconnect_timeout)
            while True:
                found, revision = self._last(partition)
                if found.get("run") == run:
                    break
                body = json.dumps({**found, "run": run}).encode()
                try:
                    js.publish(self.subject(partition), body, expected_last_subject_seq=revision)
                except (errors.WrongLastSequence, *UNSURE) as error:
                    if deadline.expired():
                        raise
                    log.info("fencing the marker %r: %s; looking at it", self.subject(partition), error)
                    if not isinstance(error, errors.WrongLastSequence):
                        time.sleep(deadline.at_most(PAUSE))

    def _stream(self) -> str:
        """The same for all partitions and batches of the query."""
        subject = self.subject(0)
        config = taker_of(StreamAccess(self._nc, self._options, "(sink)"), subject)
        if config is None:
            raise self._options.refuse(
                "JETSTREAM_STREAM_NOT_FOUND",
                f"no stream takes the marker subject {subject!r}: atomicMarkerSubject must be a subject prefix "
                "of the stream that gets the rows",
            )
        if not config.allow_atomic:
            raise self._options.refuse(
                "JETSTREAM_SERVER_TOO_OLD",
                f"publishMode=atomic needs nats-server 2.12.1 and allow_atomic in stream {config.name!r}",
            )
        return check_stream(config.name or "")

    def _last(self, partition: int) -> tuple[dict[str, Any], int]:
        """The content of the marker, and its sequence; 0 if there is none."""
        access = self._access

        def get() -> tuple[dict[str, Any], int]:
            body = {"last_by_subj": self.subject(partition)}
            try:
                message = access.api.request(f"STREAM.MSG.GET.{access.stream}", body, read=True)["message"]
            except errors.MessageNotFound:
                return {"batch": -1, "chunk": -1, "rows": 0, "hash": ""}, 0
            return json.loads(base64.b64decode(message["data"])), message["seq"]

        return access.retrying("reading the marker", get)
