"""Receipts of what a query has written: small entries in a key-value bucket, every one written by compare-and-set.

    <query>          {"b":N,"run":...,"from":{"SINK":seq},"again":0|1}   which run writes batch N, and from where on
    <query>.<part>   {"b":N,"n":rows,"sum":...,"end":0|1,"run":...,"settled":0|1,"by":...}
                                                                         a partition: under way, or complete

An entry of a partition is also a fence. An attempt that takes the partition over writes it again, and then an older
attempt that still runs can no longer give its receipt.

`settled` means that no row of an attempt is in flight any more: the sink will get no further rows of it. An attempt
that was killed cannot set it. `from` is where a stream of the sink ended before the batch wrote to it, so all stored
rows of the batch are behind it.

`again` means that more than one run has written the batch. `gone` names runs that lost the batch to another one. They
do not take it back, even if the engine starts their tasks again.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

import attrs

from jsclient import errors
from jsclient.arrow.access import StreamAccess, cached, forget
from jsclient.arrow.settings import Refused
from jsclient.nuid import new_token

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.exactly.settings import WriteSettings
    from jsclient.keyvalue import KeyValue, KeyValueEntry

HISTORY: Final = 1  # An entry is replaced by the next batch, and nothing reads older ones.
REPLICAS: Final = (3, 1)  # For a journal that is created here, the first number that the servers allow.
MOST_GONE: Final = 8  # The number of runs in `gone`.
TAKES: Final = 5  # Attempts at the entry of a partition that others write, too.
LEAVE_TIMEOUT: Final = 2.0  # Seconds. If an attempt cannot write that it is settled, the next one has to wait.
REFUSED: Final = (errors.PermissionViolation, errors.AccountLimitExceeded)  # A user that cannot have a journal.


@attrs.frozen
class Job:
    """One partition of one batch of one run of a query. In a batch write the job is the query, and the run."""

    query: str
    run: str
    batch: int
    partition: int

    @property
    def where(self) -> str:
        return f"partition {self.partition} of batch {self.batch}"


@attrs.frozen
class BatchEntry:
    """The entry of a batch; `revision` is the revision of its key."""

    run: str
    begins: dict[str, int]  # stream -> the first sequence that the batch may have stored
    again: bool
    revision: int
    gone: tuple[str, ...] = ()


@attrs.frozen
class PartEntry:
    """The receipt of a partition before this attempt took it over; `batch` is -1 if there was none."""

    batch: int = -1
    rows: int = 0
    total: int = 0
    ended: bool = False
    run: str = ""
    settled: bool = False  # no row of the attempts until then is in flight


class Journal:
    """The journal as one attempt of a task sees it. For one thread."""

    def __init__(self, nc: Connection, options: WriteSettings, kv: KeyValue, job: Job) -> None:
        self._access = StreamAccess(nc, options, f"KV_{options.journal_bucket}")
        self._kv = kv
        self._job = job
        self._part_key = f"{job.query}.{job.partition}"
        self._name = new_token().decode()  # Of this attempt, to tell its own entries from others.
        self._part: dict[str, Any] = {}
        self._part_revision = 0
        self._began = 0.0  # When it took the partition.
        self.batch: BatchEntry = BatchEntry("", {}, False, 0)
        self.before: PartEntry = PartEntry()
        self.notes: list[str] = []  # what the user has to see although nothing failed

    # --- the steps of a task ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out which run writes the batch, and take the partition."""
        self._begin_batch()
        for attempt in range(TAKES):
            try:
                return self._take_part()
            except Refused as error:
                # The attempt before may have written its last entry just now.
                if error.token != "JETSTREAM_FENCED" or attempt == TAKES - 1:
                    raise

    def _take_part(self) -> None:
        found, self._part_revision = self._read(self._part_key)
        number = found.get("b", -1)
        if number > self._job.batch:
            raise self._ahead(number)
        if number == self._job.batch:
            run, settled = found.get("run", self._job.run), bool(found.get("settled"))
            self.before = PartEntry(number, found["n"], int(found["sum"], 16), bool(found["end"]), run, settled)
        before = self.before
        # An entry of this batch is written unchanged, because the new revision is the fence.
        self._write_part(before.rows, before.total, ended=before.ended, settled=False)
        self._began = time.monotonic()

    @property
    def fresh(self) -> bool:
        """True if no attempt has written this partition of the batch before."""
        return not self.batch.again and self.before.batch < 0

    def begins(self, stream: str, ends: Any) -> None:
        """Call this before a row goes to `stream`; `ends()` gives its last sequence."""
        while stream not in self.batch.begins:
            entry = attrs.evolve(self.batch, begins={**self.batch.begins, stream: ends() + 1})
            if not self._write_batch(entry):
                self.check()  # another task was first, or another run

    def check(self) -> None:
        """JETSTREAM_FENCED if another run has taken the batch over, or another attempt the partition."""
        found, revision = self._read(self._job.query)
        if (found.get("b"), found.get("run")) != (self._job.batch, self._job.run):
            raise self._fenced(f"batch {found.get('b')} of run {found.get('run')!r} is under way")
        begins = dict(found.get("from", {}))
        if self._part_revision and self._read(self._part_key)[1] != self._part_revision:
            raise self._fenced("another attempt has taken the partition over")
        self.batch = attrs.evolve(self.batch, begins=begins, again=bool(found.get("again")), revision=revision)

    def age(self) -> float:
        """Seconds since the entry of the batch was written, at least; by the clock of the server."""
        started = time.monotonic()
        batch, part = (self._entry(key) for key in (self._job.query, self._part_key))
        if batch is None or part is None:
            return 0.0
        # This attempt wrote the entry of the partition, so its time is nearly the present one.
        return (part.created - batch.created).total_seconds() + time.monotonic() - started

    @property
    def overtook(self) -> bool:
        """True if an earlier attempt of this run, the engine's first try of the task, may have rows in flight."""
        return self.before.batch >= 0 and self.before.run == self._job.run and not self.before.settled

    def held(self) -> float:
        """Seconds since this attempt took the partition."""
        return time.monotonic() - self._began

    def reopen(self) -> None:
        """Before a row of a replay goes out: a partition that was complete is no longer.

        Otherwise a crash would leave rows under its number that no attempt looks for, because it counts as complete.
        """
        if self.before.ended:
            self._write_part(0, 0, ended=False, settled=False)

    def end(self, rows: int, total: int, whole: bool) -> None:
        """The receipt: all rows are acknowledged. `whole` is True if no row of the partition is left to the driver."""
        self._write_part(rows, total, ended=whole, settled=True)

    def leave(self) -> None:
        """The attempt failed without rows in flight, so the next one need not wait. Tried once, for a short time."""
        body = {**self._part, "settled": 1}
        with contextlib.suppress(errors.JsClientError):
            self._kv.update(self._part_key, _encoded(body), self._part_revision, timeout=LEAVE_TIMEOUT)

    # --- entries ----------------------------------------------------------------------------------------

    def _begin_batch(self) -> None:
        job = self._job
        while True:
            found, revision = self._read(job.query)
            number = found.get("b", -1)
            if number > job.batch:
                raise self._ahead(number)
            same = number == job.batch
            begins, run, again = dict(found.get("from", {})) if same else {}, found.get("run"), bool(found.get("again"))
            gone = tuple(found.get("gone", ()))
            if same and run == job.run:
                self.batch = BatchEntry(job.run, begins, again, revision, gone)
                return
            if not found and job.batch > 0:
                self.notes = [
                    f"the journal {self._kv.bucket!r} knows nothing of query {job.query!r}: it is new to the query, or "
                    f"was lost. If batch {job.batch} was begun before, its rows are recognised within the duplicate "
                    "window only"
                ]
            if job.run in gone:
                raise self._fenced(f"batch {number} of run {run!r} is under way")
            if run not in (None, job.run):
                gone = (*gone, run)[-MOST_GONE:]
            if self._write_batch(BatchEntry(job.run, begins, same, revision, gone)):
                return

    def _write_batch(self, entry: BatchEntry) -> bool:
        body: dict[str, Any] = {"b": self._job.batch, "run": entry.run, "again": int(entry.again)}
        if entry.gone:
            body["gone"] = entry.gone
        body["from"] = entry.begins
        revision = self._update(self._job.query, body, entry.revision)
        if revision is None:
            return False
        self.batch = attrs.evolve(entry, revision=revision)
        return True

    def _write_part(self, rows: int, total: int, *, ended: bool, settled: bool) -> None:
        body: dict[str, Any] = {"b": self._job.batch, "n": rows, "sum": f"{total:x}", "end": int(ended)}
        body |= {"run": self._job.run, "settled": int(settled), "by": self._name}
        revision = self._update(self._part_key, body, self._part_revision)
        if revision is None:
            raise self._fenced("another attempt has taken the partition over")
        self._part, self._part_revision = body, revision

    def _read(self, key: str) -> tuple[dict[str, Any], int]:
        """({} if there is none, revision), as the leader of the bucket has it."""

        try:
            entry = self._entry(key)
        except errors.KeyDeleted as error:
            return {}, error.revision
        return ({}, 0) if entry is None else (self._decode(key, entry.value), entry.revision)

    def _entry(self, key: str) -> KeyValueEntry | None:
        def get() -> KeyValueEntry | errors.KeyDeleted | None:
            try:
                return self._kv.get(key, direct=False)
            except errors.KeyDeleted as error:
                return error
            except errors.KeyNotFound:
                return None

        found = self._access.retrying(f"reading the journal {self._kv.bucket!r}", get)
        if isinstance(found, errors.KeyDeleted):
            raise found
        return found

    def _decode(self, key: str, value: bytes) -> dict[str, Any]:
        try:
            found = json.loads(value)
            int(found["b"])
        except (ValueError, KeyError, TypeError):
            raise self._access.options.refuse(
                "JETSTREAM_PUBLISH_FAILED",
                f"bucket {self._kv.bucket!r}, key {key!r} is not a journal of ours; give it a bucket of its own",
            ) from None
        return found  # type: ignore[no-any-return]

    def _update(self, key: str, body: dict[str, Any], revision: int) -> int | None:
        """Compare and set; the new revision, or None if another writer has written since `revision`.

        If the answer of a put was lost, the put is repeated and then conflicts with itself: the stored entry decides.
        """
        value = _encoded(body)

        def put() -> int | None:
            try:
                return self._kv.update(key, value, revision)
            except errors.RevisionMismatch:
                return None
            except (errors.UnknownOutcome, errors.RequestTimeout, errors.ConnectionLost) as error:
                unsure.append(error)
                raise errors.RequestTimeout(errors.brief(error)) from error

        unsure: list[BaseException] = []
        stored = self._access.retrying(f"writing the journal {self._kv.bucket!r}", put)
        if stored is None and unsure:
            found, now = self._read(key)
            return now if found == body and now > revision else None
        return stored

    def _ahead(self, number: int) -> Refused:
        return self._access.options.refuse(
            "JETSTREAM_JOURNAL_AHEAD",
            f"{self._job.where}: the journal {self._kv.bucket!r} says that batch {number} of query {self._job.query!r} "
            "was written. The checkpoint was restored from a backup, or another driver runs the query; nothing is "
            "written, and nothing is skipped. A retry cannot cure it: stop the other driver, use another "
            "checkpointLocation, or let the journal forget the query: python -m jsclient.spark.journal reset "
            f"{self._job.query}",
        )

    def _fenced(self, how: str) -> Refused:
        return self._access.options.refuse(
            "JETSTREAM_FENCED",
            f"{self._job.where}: {how}. If this is no copy of a task that Spark has started again, another driver runs "
            f"the query {self._job.query!r}: stop one of the two, or give each its own checkpoint",
        )


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


# --- the bucket -----------------------------------------------------------------------------------------------------


def open_journal(nc: Connection, options: WriteSettings) -> KeyValue | str:
    """The bucket of the journal, created if it is missing; or a string that says why this user cannot have one."""
    access = StreamAccess(nc, options, f"KV_{options.journal_bucket}")
    return cached(nc, _key(access), lambda: _open(access, options))


def reopen_journal(nc: Connection, options: WriteSettings) -> KeyValue | str:
    """The same for a bucket that is gone: this makes it again, and it knows nothing then."""
    forget(nc, _key(StreamAccess(nc, options, f"KV_{options.journal_bucket}")))
    return open_journal(nc, options)


def _open(access: StreamAccess, options: WriteSettings) -> KeyValue | str:
    from jsclient.jetstream import JetStream
    from jsclient.keyvalue import KeyValue

    js = JetStream(access.nc, domain=options.domain, api_prefix=options.api_prefix)
    kv = KeyValue(js, options.journal_bucket)
    try:
        access.retrying("looking for the journal", lambda: _probe(kv))
    except Refused as error:
        cause = error.__cause__
        if isinstance(cause, REFUSED):
            return f"the journal {options.journal_bucket!r} cannot be read: {options.hide(errors.brief(cause))}"
        if not isinstance(cause, errors.StreamNotFound):
            raise
        return _create(access, options.journal_bucket, js, kv)
    return kv


def _probe(kv: KeyValue) -> None:
    try:
        kv.get("-", direct=False)
    except errors.KeyNotFound:
        pass
    except errors.BucketNotFound as error:
        raise error.__cause__ if isinstance(error.__cause__, errors.StreamNotFound) else error from None


def _create(access: StreamAccess, bucket: str, js: Any, kv: KeyValue) -> KeyValue | str:
    """Every task may be the first one, so a bucket that another task creates meanwhile is fine."""
    from jsclient.keyvalue import KeyValueConfig, create_key_value

    refusal = ""
    for replicas in REPLICAS:
        config = KeyValueConfig(
            bucket=bucket,
            history=HISTORY,
            replicas=replicas,
            description="what Spark queries have written",
        )
        try:
            access.retrying("making the journal", lambda config=config: create_key_value(js, config))  # type: ignore[misc]
        except Refused as error:
            cause = error.__cause__
            if isinstance(cause, errors.BucketExists):
                return kv
            if not isinstance(cause, (*REFUSED, errors.ApiError)):
                raise
            refusal = access.options.hide(errors.brief(cause))
        else:
            return kv
    return f"the journal {bucket!r} cannot be made: {refusal}"


def refuse_journal(nc: Connection, options: WriteSettings, why: str) -> str:
    """Remember that this user cannot write the journal."""
    key = _key(StreamAccess(nc, options, f"KV_{options.journal_bucket}"))
    forget(nc, key)
    return cached(nc, key, lambda: why)


def _key(access: StreamAccess) -> tuple[str, str, str]:
    return "journal", access.api.prefix, access.stream
