"""The driver's part of a batch that tasks have written, for the sink and for `batch_writer`."""

from __future__ import annotations

from jsclient.exactly.conclusion import conclude, purge_receipts
from jsclient.exactly.journal import Job
from jsclient.exactly.task import Outcome
from jsclient.spark.audit import keep, record_of
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.telling import tell


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
