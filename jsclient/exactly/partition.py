"""The entry point for a task: it writes one partition, with a journal if there can be one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jsclient import errors
from jsclient.arrow.settings import Refused
from jsclient.exactly.ids import ContentIds, key_of
from jsclient.exactly.journal import Job, Journal, open_journal, refuse_journal, reopen_journal
from jsclient.exactly.publishing import TaskPublisher
from jsclient.exactly.rows import RowMaker
from jsclient.exactly.sending import publish_failed
from jsclient.exactly.task import JournaledTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

    from jsclient.connection import Connection
    from jsclient.exactly.rows import Maker
    from jsclient.exactly.settings import WriteSettings


def write_partition(
    nc: Connection,
    options: WriteSettings,
    job: Job,
    batches: Iterator[pa.RecordBatch],
    journaled: bool,
    where: str,
    make: Callable[[ContentIds | None], Maker] | None = None,
) -> Outcome:
    """Publish the rows of one task; when it returns, every row is acknowledged. Query and batch make the ids that a
    replay repeats. With `journaled` it uses a journal if this user can have one. `where` begins the texts of errors.
    `make` turns record batches into rows, by default with a `RowMaker`."""
    make = make or (lambda content: RowMaker(options, content))
    try:
        journal = _journal(nc, options, job) if journaled else ""
        if isinstance(journal, Journal):
            return JournaledTask(nc, options, journal, job, make).write(batches)
        outcome = _write_plainly(nc, options, batches, job, make)
    except errors.JsClientError as error:
        raise publish_failed(options, where, error) from error
    outcome.notes += [journal] if journal else []
    return outcome


def _journal(nc: Connection, options: WriteSettings, job: Job) -> Journal | str:
    """The journal, which has begun; or a string with the reason why there is none."""
    kv = open_journal(nc, options)
    for last in (False, True):
        if isinstance(kv, str):
            break
        journal = Journal(nc, options, kv, job)
        try:
            journal.begin()
            return journal
        except Refused as error:
            cause = error.__cause__
            if isinstance(cause, errors.BucketNotFound) and not last:
                kv = reopen_journal(nc, options)  # it was deleted after this process had opened it
            elif isinstance(cause, errors.PermissionViolation):
                kv = refuse_journal(nc, options, f"the journal cannot be written: {options.hide(str(cause))}")
            else:
                raise
    if options.delivery_semantics == "exactly-once":
        raise options.refuse("JETSTREAM_JOURNAL_UNAVAILABLE", f"deliverySemantics=exactly-once needs a journal: {kv}")
    return f"{kv}. Rows are stored once only while their stream recognises repeated messages (deliverySemantics=window)"


def _write_plainly(
    nc: Connection,
    options: WriteSettings,
    batches: Iterator[pa.RecordBatch],
    job: Job,
    make: Callable[[ContentIds | None], Maker],
) -> Outcome:
    ids = options.delivery_semantics != "at-least-once"
    rows = make(ContentIds(key_of(job.query, job.batch), str(job.partition)) if ids else None)
    with TaskPublisher(nc, options, job.partition) as publisher:
        for record_batch in batches:
            publisher.publish(rows.of_batch(record_batch))
        return Outcome(publisher.finish(), publisher.notes, journaled=False)
