"""One record for each written batch, on a logger."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jsclient.exactly.row_publisher import Totals

if TYPE_CHECKING:
    from jsclient.exactly.journal import Job
    from jsclient.exactly.task import Outcome
    from jsclient.spark.options import SparkOptions

log: logging.Logger = logging.getLogger("jsclient.spark.audit")


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
