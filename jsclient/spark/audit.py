"""One record for each written batch, for the log and for an optional bucket."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jsclient.exactly.row_publisher import Totals
from jsclient.spark.pool import lease
from jsclient.spark.progress import put_progress

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


def keep(options: SparkOptions, record: dict[str, Any]) -> None:
    """Log the record, and put it into the bucket that the options name for it, under `<query>.<batch>`."""
    text = json.dumps(record)
    _make_audible()
    log.info("%s", text)
    if options.audit_bucket is None:
        return
    with lease(options) as nc:
        key = f"{record['query']}.{record['batch']}"
        put_progress(nc, options, options.audit_bucket, key, text.encode())
