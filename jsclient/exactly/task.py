"""Exactly once without a time window: a task that keeps a journal.

A task that finds no earlier attempt publishes its rows as they come. A replay first spools its rows, so it has all of
them before it sends one. If the partition was written completely, it sends nothing. Otherwise it reads the sink back.
The steps are in tools/docs/pages/spark-guarantees.md, "How a replay finds its rows".
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import attrs

from jsclient.arrow.access import StreamAccess
from jsclient.durations import elapsed, seconds_of
from jsclient.exactly.ids import ContentIds, key_of
from jsclient.exactly.journal import Job, Journal
from jsclient.exactly.publishing import TaskPublisher
from jsclient.exactly.readback import Stored, Unsure, forget_others, keep, read_back
from jsclient.exactly.replay import Sorter, Spool
from jsclient.exactly.row_publisher import Row, RowPublisher, Totals
from jsclient.nuid import new_token

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.connection import Connection
    from jsclient.exactly.rows import Maker
    from jsclient.exactly.settings import WriteSettings

log: logging.Logger = logging.getLogger("jsclient.exactly")

# Seconds after which an earlier attempt has noticed that it is fenced, and its last rows have arrived.
SETTLED: Final = 15.0
DRAIN: Final = 2.0  # Seconds that a failing task waits for the acks of its rows.
LEAST_PORTION: Final = 500  # Rows. In fast mode each portion is a separate batch.
MOST_PORTION: Final = 20_000
PORTION_TIME: Final = 1.0  # Seconds.
LOOK_EVERY: Final = 5.0  # Seconds between two looks at which run writes the batch.


@attrs.define
class Outcome:
    """A task's report to the driver, in addition to its totals."""

    totals: Totals
    notes: list[str]
    begins: dict[str, int] = attrs.field(factory=dict)
    aside: list[Row] = attrs.field(factory=list)
    left_over: Counter[bytes] = attrs.field(factory=Counter)
    skipped: bool = False
    journaled: bool = True


class JournaledTask:
    """Writes the rows of one partition; `journal` has begun."""

    def __init__(
        self,
        nc: Connection,
        options: WriteSettings,
        journal: Journal,
        job: Job,
        make: Callable[[ContentIds], Maker],
    ) -> None:
        self._nc = nc
        self._make = make
        self._options = options
        self._journal = journal
        self._job = job
        self._key = key_of(job.query, job.batch)
        self._pace = Pace(journal)
        self._entered: set[str] = set()  # streams that are in the entry of the batch
        self._known: set[bytes] = set()  # subjects of streams that are in the entry of the batch
        self._attempt = b"." + new_token()
        self._alone = not journal.overtook  # no earlier attempt of this run can have rows in flight

    def write(self, batches: Iterator[pa.RecordBatch]) -> Outcome:
        with TaskPublisher(self._nc, self._options, self._job.partition) as publisher:
            publisher.guard = self._journal.check  # an outage may be long enough for another run to take over
            forget_others(self._key)
            try:
                return self._write_all(batches, publisher) if self._journal.fresh else self._replay(batches, publisher)
            except BaseException:
                if self._alone and publisher.settle(DRAIN):
                    self._journal.leave()
                raise

    # --- the first attempt ------------------------------------------------------------------------------

    def _write_all(self, batches: Iterable[pa.RecordBatch], publisher: TaskPublisher) -> Outcome:
        made = _Counted(self._make, self._key, self._job.partition)
        for batch in batches:
            self._publish(publisher, made.rows(batch))
        totals = publisher.finish()
        self._journal.end(made.count, made.total, True)
        notes = list(self._journal.notes)
        moved = sorted(set(totals.streams) - self._entered)
        if moved and not self._options.compacted:
            notes.append(
                f"{self._job.where}: rows went to {', '.join(moved)}, which does not have their subject. A mapping of "
                "the server moved them, so a replay cannot find them, and may store them twice"
            )
        return Outcome(totals, notes, self._journal.batch.begins)

    def _publish(self, publisher: TaskPublisher, rows: list[Row]) -> None:
        if self._options.compacted:
            # A replay puts all rows again. If the server took some for copies, an older row would be the last one.
            rows = [(subject, lines, value, (id_ or b"") + self._attempt) for subject, lines, value, id_ in rows]
        else:
            for subject in {row[0] for row in rows} - self._known:
                self._announce(subject, publisher)
        self._pace.publish(rows, publisher)

    def _announce(self, subject: bytes, publisher: TaskPublisher) -> None:
        """The stream that takes a subject must be in the entry of the batch before a row goes there."""
        config = publisher.streams.of(subject)
        if config is None:
            return  # no stream takes the row, as the publisher will find out
        if config.name not in self._entered:
            stream = StreamAccess(self._nc, self._options, config.name)
            self._journal.begins(config.name, lambda: stream.state().last)
            publisher.limit_patience(seconds_of(config.duplicate_window or 0) / 2)
            self._entered.add(config.name)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known.add(subject)

    # --- a replay ---------------------------------------------------------------------------------------

    def _replay(self, batches: Iterable[pa.RecordBatch], publisher: TaskPublisher) -> Outcome:
        spool = Spool()
        try:
            return self._write_missing(batches, spool, publisher)
        finally:
            spool.close()

    def _write_missing(self, batches: Iterable[pa.RecordBatch], spool: Spool, publisher: TaskPublisher) -> Outcome:
        first = _Counted(self._make, self._key, self._job.partition)
        first.ids = set()
        subjects: set[bytes] = set()
        for batch in batches:
            spool.add(batch)
            subjects.update(row[0] for row in first.rows(batch))
        before, begins = self._journal.before, self._journal.batch.begins
        if before.ended and (before.rows, before.total) == (first.count, first.total):
            log.info("%s was written whole before; nothing is published", self._job.where)
            return Outcome(Totals(first.count, 0, first.count), [], begins, skipped=True)
        self._journal.reopen()
        notes: list[str] = []
        sorter = self._sorter(publisher, notes, first, subjects)
        made = _Counted(self._make, self._key, self._job.partition)
        for batch in spool:
            rows = made.rows(batch)
            self._publish(publisher, sorter.missing(rows, made.by_column))
        totals = publisher.finish()
        totals.rows += sorter.skipped
        totals.duplicates += sorter.skipped
        left_over = sorter.left_over()
        self._journal.end(made.count, made.total, not sorter.aside and not left_over)
        return Outcome(totals, notes, self._journal.batch.begins, sorter.aside, left_over)

    def _sorter(self, publisher: TaskPublisher, notes: list[str], first: _Counted, subjects: set[bytes]) -> Sorter:
        """The object that separates stored rows from missing ones."""
        if _settle(self._job, self._journal, self._alone):
            publisher.restart_clock()
        self._journal.check()  # for where the batch begins, which the attempt before may have entered last
        self._alone = True
        if self._options.compacted:
            return Sorter(Stored(), self._options.refuse)  # to put the same values again changes nothing
        try:
            for subject in subjects:
                if publisher.streams.of(subject) is None:
                    raise Unsure(
                        f"no stream has the subject {subject.decode()!r}, so a mapping may have moved its rows"
                    )
            found = read_back(self._nc, self._options, self._journal.batch.begins, self._key, first.by_column)
            stored = found.stored(self._job.partition, first.ids or set())
            keep(found)
        except Unsure as error:
            text = f"{self._job.where} was begun before, and what of it is stored cannot be seen: {error}"
            accept(self._options, text, error)
            notes.append(f"{text}. {first.count} rows are published again: some may be stored twice")
            stored = Stored()
        return Sorter(stored, self._options.refuse)


def accept(options: WriteSettings, text: str, error: Unsure) -> None:
    """Raise, unless the user or deliverySemantics=auto accepts repeated rows instead."""
    if options.delivery_semantics == "exactly-once":
        raise options.refuse(
            "JETSTREAM_UNSURE_REPLAY",
            f"{text}. Nothing of the replay was published; deliverySemantics=auto stores its rows at least once",
        ) from error


class _Counted:
    """Makes rows, and sums up their number and content."""

    def __init__(self, make: Callable[[ContentIds], Maker], key: bytes, partition: int) -> None:
        self._content = ContentIds(key, str(partition), adding=True)
        self._maker = make(self._content)
        self._columns = 0
        self.by_column = False
        self.count = 0
        self.ids: set[bytes] | None = None  # the ids of a column, if a caller wants them

    @property
    def total(self) -> int:
        return (self._content.total + self._columns) % (1 << 128)

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        self.by_column = self._maker.uses_column("msg_id" in batch.schema.names)
        rows = list(self._maker.of_batch(batch))
        self.count += len(rows)
        if self.by_column:
            if self.ids is not None:
                self.ids.update([row[3] or b"" for row in rows])
            digests = (blake2b(row[3] or b"", digest_size=16).digest() for row in rows)
            self._columns += sum(int.from_bytes(digest, "big") for digest in digests)
        return rows


class Pace:
    """Hands rows over in portions of about a second, and checks between two of them if it may continue."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._looked_at = elapsed()
        self._portion = LEAST_PORTION

    def publish(self, rows: list[Row], publisher: TaskPublisher | RowPublisher) -> None:
        at = 0
        while at < len(rows):
            began = elapsed()
            if began - self._looked_at > LOOK_EVERY:
                self._journal.check()
                self._looked_at = began
            publisher.publish(rows[at : at + self._portion])
            at += self._portion
            self._fit(elapsed() - began)

    def _fit(self, took: float) -> None:
        if took > PORTION_TIME:
            self._portion = max(self._portion // 2, LEAST_PORTION)
        elif took < PORTION_TIME / 4:
            self._portion = min(self._portion * 2, MOST_PORTION)


def _settle(job: Job, journal: Journal, alone: bool) -> bool:
    """Wait until earlier attempts, which may still publish, have seen that they lost the partition. Returns True if
    that took time.

    The entry of the batch fences attempts of another run; the entry of the partition fences attempts of this run.
    """
    ages = [journal.age()] if journal.batch.again else []
    if not alone:
        ages.append(journal.held())
    left = SETTLED - min(ages, default=SETTLED) if SETTLED else 0.0
    if left > 0:
        log.info("%s: waiting %.1f s for the rows of an earlier attempt", job.where, left)
        time.sleep(left)
    return left > 0
