"""The driver's part of writing a batch: the journal, the notes of the tasks, and the record of the batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from jsclient.exactly.conclusion import conclude, purge_receipts
from jsclient.exactly.journal import Job
from jsclient.exactly.row_publisher import Totals
from jsclient.exactly.task import Outcome
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.telling import tell

log: logging.Logger = logging.getLogger("jsclient.spark.audit")


def conclude_batch(options: SparkOptions, done: list[tuple[Job, Outcome]], streaming: bool) -> None:
    """Conclude the batch in the journal, and log each note of its tasks once."""
    notes = {note for _, outcome in done for note in outcome.notes}
    journaled = [(job, outcome) for job, outcome in done if outcome.journaled]
    if journaled:
        with lease(options) as nc:
            job = journaled[0][0]
            notes.update(conclude(nc, options, job, [outcome for _, outcome in journaled]))
            if not streaming:
                purge_receipts(nc, options, job)
    for note in sorted(notes):
        tell(note)
    if done:
        keep(record_of(options, done[0][0], [outcome for _, outcome in done], bool(journaled), notes))


def record_of(options: SparkOptions, job: Job, outcomes: list[Outcome], journaled: bool, notes: Iterable[str]) -> Any:
    """The record of a batch. `rows` counts the rows of the DataFrame; a replay found `already` of them stored."""
    totals = Totals()
    for outcome in outcomes:
        totals.add(outcome.totals)
    return {
        "query": job.query,
        "run": job.run,
        "batch": job.batch,
        "guarantee": guarantee(options, journaled),
        "tasks": len(outcomes),
        "skipped_tasks": sum(outcome.skipped for outcome in outcomes),
        "rows": totals.rows,
        "bytes": totals.bytes,
        "already": totals.duplicates,
        "moved": sum(len(outcome.aside) for outcome in outcomes),
        "streams": {stream: list(span) for stream, span in sorted(totals.streams.items())},
        "notes": sorted(notes),
    }


def guarantee(options: SparkOptions, journaled: bool) -> str:
    """The guarantee for the batch; see the table of guarantees."""
    if journaled:
        return "exactly-once"
    return "at-least-once" if options.delivery_semantics == "at-least-once" else "window"


def _make_audible() -> None:
    """Spark commits in a process without logging handlers, and its stderr is in the driver's log."""
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("jetstream audit: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def keep(record: dict[str, Any]) -> None:
    """Log the record."""
    _make_audible()
    log.info("%s", json.dumps(record))
