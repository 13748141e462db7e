"""The driver's part of writing a batch: the journal, the notes of the tasks, and the record of the batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import attrs

from jsclient.exactly.conclusion import conclude, purge_receipts
from jsclient.exactly.journal import Job
from jsclient.exactly.row_publisher import Totals
from jsclient.exactly.task import Outcome
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.telling import tell

log: logging.Logger = logging.getLogger("jsclient.spark.audit")


@attrs.define(slots=False)
class Written:
    """The result that one task returns to the driver."""

    job: Job
    outcome: Outcome

    @property
    def totals(self) -> Totals:
        return self.outcome.totals


def conclude_batch(options: SparkOptions, done: list[Written], streaming: bool) -> None:
    """Conclude the batch in the journal, log each note of its tasks once, and keep the record of the batch."""
    notes = {note for each in done for note in each.outcome.notes}
    journaled = [each.outcome for each in done if each.outcome.journaled]
    if journaled:
        with lease(options) as nc:
            notes.update(conclude(nc, options, done[0].job, journaled))
            if not streaming:
                purge_receipts(nc, options, done[0].job)
    for note in sorted(notes):
        tell(note)
    if done:
        keep(record_of(options, done, bool(journaled), notes))


def record_of(options: SparkOptions, done: list[Written], journaled: bool, notes: Iterable[str]) -> dict[str, Any]:
    """The record of a batch. `rows` counts the rows of the DataFrame; a replay found `already` of them stored."""
    totals, job = Totals(), done[0].job
    for each in done:
        totals.add(each.totals)
    moved = sum(len(each.outcome.aside) for each in done)
    return {
        "query": job.query,
        "run": job.run,
        "batch": job.batch,
        "guarantee": guarantee(options, journaled),
        "tasks": len(done),
        "skipped_tasks": sum(each.outcome.skipped for each in done),
        "rows": totals.rows + moved,
        "bytes": totals.bytes,
        "already": totals.duplicates,
        "moved": moved,
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
