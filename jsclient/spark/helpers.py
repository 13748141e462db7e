"""For code that Spark runs on executors: `foreachPartition`, `mapInArrow`, `foreachBatch`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jsclient import checks, errors
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.chunks import iterate_rows
from jsclient.arrow.columns import header_items
from jsclient.arrow.ranges import Range
from jsclient.arrow.reading import choose_method, read_chunks
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.exactly.conclusion import conclude
from jsclient.exactly.journal import Job
from jsclient.exactly.partition import write_partition
from jsclient.exactly.row_publisher import Totals
from jsclient.jetstream.api.ack_and_nak import ACK
from jsclient.protocol import Headers, MalformedHeaders
from jsclient.spark import options as known
from jsclient.spark.context import partition_id
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.sinks import StreamSink
from jsclient.spark.telling import tell

if TYPE_CHECKING:
    from jsclient.connection import Connection

ACK_WINDOW: Final = 500  # acknowledgements under way at once
ACK_TIMEOUT: Final = 5.0  # seconds for their answers
ACK_PATIENCE: Final = 15.0  # seconds after which acks without an answer are given up
ACK_PAUSE: Final = 0.2


class Record(NamedTuple):
    """One message of `read_range`."""

    subject: str
    seq: int
    timestamp_ns: int
    headers: Headers
    value: bytes


def publish_partition(
    rows: Iterable[Any],
    options: Mapping[str, str] | SparkOptions,
    *,
    job: str | None = None,
    batch: int | None = None,
) -> Totals:
    """Publish the rows of a partition: each once if `job` and `batch` are given, else once within the duplicate window.

    `job` (any string) and `batch` name the rows for the journal, which still finds them when a task runs again much
    later. The batches of a job must come in order, and every attempt needs the same rows in the same partitions, as
    with the sink. Without `job` and `batch` the ids come from application and stage, and a restarted server may forget
    ids of delivered messages. `batch_writer` does all of this for `foreachBatch`.

    `rows` are Rows, dicts or record batches with the columns of the sink. `options` are the options of `write`. Waits
    for acks; returns rows, bytes, duplicates, streams. A task may call it more than once, as long as every attempt
    makes the same calls in the same order. Raises JetStreamSparkError.
    """
    checked = options if isinstance(options, SparkOptions) else known.parse(options, known.WRITE)
    partition, number = partition_id(), batch or 0
    named = job is not None and batch is not None
    if checked.delivery_semantics == "exactly-once" and not named:
        raise JetStreamSparkError(
            "JETSTREAM_CONFLICTING_OPTIONS",
            "publish_partition needs job= and batch= for deliverySemantics=exactly-once; add them",
        )
    query = hashlib.sha256((job or _stage()).encode()).hexdigest()[:32]
    calls = _calls_before(query, number)
    if calls:
        query = f"{query}-{calls}"
    entry = Job(query, query, number, partition)
    if journaled := named and checked.keeps_journal(streaming=True):
        # Each partition is a separate query in the journal; its task also does the work of the driver.
        query = f"{query}-{checked.target()}-{partition}"
        entry = Job(query, query, number, 0)
    where = f"partition {partition} of batch {number}" if named else f"partition {partition}"
    sink, batches = _batches(rows, checked)
    with lease(checked) as nc:
        outcome = write_partition(nc, sink.options, entry, batches, journaled, where)
        notes = set(outcome.notes)
        if outcome.journaled:
            notes.update(conclude(nc, sink.options, entry, [outcome]))
    for note in sorted(notes):
        tell(note)
    return outcome.totals


def _batches(rows: Iterable[Any], options: SparkOptions) -> tuple[StreamSink, Iterator[Any]]:
    """The rows as record batches, and the sink for them."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return StreamSink(options), iter(())
    batches = chain([first], iterator)
    return (StreamSink(options), batches) if hasattr(first, "num_rows") else StreamSink(options).of_rows(batches)


_calls: dict[tuple[int, str, int], int] = {}  # of the task attempt that runs now: (attempt, job, batch) -> calls


def _calls_before(job: str, batch: int) -> int:
    """Number of earlier calls of this task attempt, because equal rows of two calls are different rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    key = (context.taskAttemptId(), job, batch)
    for other in [other for other in _calls if other[0] != key[0]]:
        del _calls[other]
    _calls[key] = _calls.get(key, 0) + 1
    return _calls[key] - 1


def _stage() -> str:
    """A name that is the same for all attempts of a task, and new in every run of a stage."""
    import uuid

    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return uuid.uuid4().hex
    from pyspark import SparkFiles

    # A worker knows its application only by the folder of the application's files.
    application = context.getLocalProperty("spark.app.id") or SparkFiles.getRootDirectory()
    return f"{application}/{context.stageId()}"


def read_range(options: Mapping[str, str] | SparkOptions, start: int, end: int) -> Iterator[Record]:
    """The messages of the sequences [start, end), in order, as records; `options` as for `read`."""
    checked = options if isinstance(options, SparkOptions) else known.parse(options, known.READ)
    if checked.stream_names != (checked.stream,):
        raise JetStreamSparkError(
            "JETSTREAM_BAD_OPTION", f"a range is of one stream, not of {checked.stream!r}; name one"
        )
    with lease(checked) as nc:
        access = StreamAccess(nc, checked)
        access.check_filters()
        state = access.state()
        method = choose_method(access, state, end - start)
        part = Range(0, start, max(start, min(end, state.end)), checked.subjects, created=state.created)
        for chunk in read_chunks(nc, checked, part, method, "range"):
            for subject, seq, ns, block, value in iterate_rows(chunk):
                yield Record(subject.decode("utf-8", "surrogateescape"), seq, ns, _headers(block), value)


def _headers(block: bytes | None) -> Headers:
    """The value of the column `headers`; unreadable header lines are left out."""
    if block is None:
        return Headers()
    try:
        return Headers.decode(block)
    except MalformedHeaders:
        return Headers.received([(name, value) for name, values in header_items(block) or () for value in values])


def ack_partition(rows: Iterable[Any], options: Mapping[str, str] | SparkOptions, *, column: str = "reply") -> int:
    """Acknowledge messages by their reply subjects and wait until the server has confirmed each; returns how many.

    This is for work queues shared with other clients, if a consumer with explicit acks has fetched the messages. They
    are processed at least once.

    `rows` are reply subjects, or rows that have them in `column`.
    """
    checked: Any = options
    given = (row if isinstance(row, str) else row[column] for row in rows)
    replies = (checks.subject(reply) for reply in given if reply)
    done = 0
    with lease(checked) as nc:
        while window := list(islice(replies, ACK_WINDOW)):
            _confirm(nc, window)
            done += len(window)
    return done


def _confirm(nc: Connection, replies: list[bytes]) -> None:
    """Acks are idempotent, so one without an answer (a lost link, an absent leader) is sent again."""
    left, deadline = replies, Deadline(ACK_PATIENCE)
    while not deadline.expired():
        engine_of(nc).check_usable()
        try:
            answers, _ = engine_of(nc).request_each(left, ACK, Deadline(deadline.at_most(ACK_TIMEOUT)))
        except (errors.TimedOut, errors.ConnectionLost, errors.BufferFull):
            answers = {}
        left = [reply for n, reply in enumerate(left) if n not in answers or answers[n].status is not None]
        if not left:
            return
        time.sleep(deadline.at_most(ACK_PAUSE))
    raise JetStreamSparkError(
        "JETSTREAM_PUBLISH_FAILED",
        f"{len(left)} of {len(replies)} acknowledgements were not confirmed, the first on {left[0].decode()!r}: the "
        "consumer is gone, or its leader is away. Those messages come again; run the task again",
    )
