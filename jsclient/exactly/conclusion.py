"""The driver's part of a batch, when all of its tasks have written."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.exactly.ids import DIGEST_CHARS, key_of, tag_of
from jsclient.exactly.journal import Job, Journal, open_journal
from jsclient.exactly.readback import Unsure, read_back
from jsclient.exactly.sending import row_publisher
from jsclient.exactly.task import Outcome, Pace, accept

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.exactly.row_publisher import Row
    from jsclient.exactly.settings import WriteSettings

log: logging.Logger = logging.getLogger("jsclient.exactly")

RUN_CHARS: Final = 8


def conclude(nc: Connection, options: WriteSettings, job: Job, outcomes: list[Outcome]) -> list[str]:
    """Find rows that are in the sink under other partitions, or missing. For `outcomes` of tasks with a journal; `job`
    is the job of any of them.

    Each stored row that no partition claims accounts for one row of the same digest that was put aside. The driver
    publishes the rest of the rows put aside. Returns notes that the user has to see.
    """
    kv = open_journal(nc, options)
    if isinstance(kv, str):
        raise options.refuse("JETSTREAM_JOURNAL_UNAVAILABLE", kv)
    journal = Journal(nc, options, kv, job)
    journal.check()  # also for a batch without such rows: a run that has lost the batch must not call it committed
    aside = [row for outcome in outcomes for row in outcome.aside]
    unclaimed: Counter[bytes] = Counter()
    for outcome in outcomes:
        unclaimed += outcome.left_over
    key = key_of(job.query, job.batch)
    notes = []
    if aside:
        begins = {stream: first for outcome in outcomes for stream, first in outcome.begins.items()}
        try:
            found = read_back(nc, options, begins, key)
            unclaimed += found.unclaimed(len(outcomes))
            found.close()
        except Unsure as error:
            text = f"{len(aside)} rows of batch {job.batch} may lie under partitions of an earlier attempt: {error}"
            accept(options, text, error)
            notes.append(f"{text}. They are published again: some may be stored twice")
        journal.check()  # reading the sink may have taken long
    missing = []
    for row in aside:
        digest = (row[3] or b"")[:DIGEST_CHARS]
        if unclaimed[digest] > 0:
            unclaimed[digest] -= 1
        else:
            missing.append(row)
    if missing:
        _publish(nc, options, missing, b"%br%b" % (tag_of(key), job.run.encode()[:RUN_CHARS]), journal)
    others = sum(unclaimed.values())
    if others:
        notes.append(
            f"batch {job.batch} was written before with {others} rows that it does not have now; both are stored. The "
            "query is not deterministic, or its checkpoint was restored from a backup"
        )
    return notes


def _publish(nc: Connection, options: WriteSettings, rows: list[Row], owner: bytes, journal: Journal) -> None:
    """The ids name the run. So the next replay recognises the rows, and no two runs give the same id to different rows.

    Ends when another run takes the batch over, as a task does.
    """
    numbers: Counter[bytes] = Counter()
    named: list[Row] = []
    for subject, lines, value, msg_id in rows:
        digest = (msg_id or b"")[:DIGEST_CHARS]
        named.append((subject, lines, value, b"%b.%b.%d" % (digest, owner, numbers[digest])))
        numbers[digest] += 1
    publisher = row_publisher(nc, options, journal.check)
    try:
        Pace(journal).publish(named, publisher)
        publisher.finish()
    finally:
        publisher.close()


def purge_receipts(nc: Connection, options: WriteSettings, job: Job) -> None:
    """A batch write is over and will not run again. Best effort."""
    access = StreamAccess(nc, options, f"KV_{options.journal_bucket}")
    for key in (job.query, f"{job.query}.>"):
        body: dict[str, Any] = {"filter": f"$KV.{options.journal_bucket}.{key}"}
        try:
            access.api.request(f"STREAM.PURGE.{access.stream}", body)
        except errors.JsClientError as error:
            log.info("the receipts of job %s stay in the journal: %s", job.query, error)
            return
