"""Which way the rows of a task go to their streams, and what is checked about these streams."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs

from jsclient import errors
from jsclient.arrow.access import cached
from jsclient.durations import Deadline, seconds_of
from jsclient.spark.access import SparkAccess
from jsclient.spark.atomic import AtomicPublisher
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.fast import FastPublisher
from jsclient.spark.sending import Row, Totals, WindowPublisher
from protocol import matches

if TYPE_CHECKING:
    from types import TracebackType

    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import StreamConfig
    from jsclient.spark.options import SparkOptions

log = logging.getLogger("jsclient.spark")


class TaskPublisher:
    """The publisher of one task: chosen by publishMode and by what the target stream allows."""

    def __init__(self, nc: Connection, options: SparkOptions, job: str, batch: int, partition: int) -> None:
        self._nc = nc
        self._options = options
        self._partition = partition
        self._deadline = Deadline(options.task_timeout)
        self.guard: Callable[[], None] | None = None  # as in WindowPublisher; to be set before the first row
        self._started = time.monotonic()
        self._windows: dict[str, float | None] = {}  # seconds in which a stream recognises an id, as far as is known
        self.notes: list[str] = []  # what the user has to see although nothing failed
        self._window: WindowPublisher | None = None
        self._other: FastPublisher | AtomicPublisher | None = None
        self._fast_subjects: FastSubjects | None = None
        if options.publish_mode == "atomic":
            self._other = AtomicPublisher(nc, options, job, batch, partition)
        elif options.publish_mode in ("auto", "fast"):
            self._fast_subjects = FastSubjects(nc, options)

    def publish(self, rows: Iterable[Row]) -> None:
        if isinstance(self._other, AtomicPublisher):
            self._other.publish(rows)
        elif self._fast_subjects is None:
            self._windowed().publish(rows)
        else:
            self._fast_or_windowed(list(rows), self._fast_subjects)
        self._check_streams()
        if self._deadline.expired():
            sent = sum(publisher.totals.rows for publisher in (self._window, self._other) if publisher is not None)
            raise JetStreamSparkError(
                "JETSTREAM_TASK_TIMEOUT",
                f"partition {self._partition}: not at the end of its rows after {sent} of them and "
                f"{self._options.task_timeout:g} s (taskTimeout)",
            )

    def limit_patience(self, seconds: float) -> None:
        """Fail rather than send rows again later than this; to be called before the first row."""
        patience = max(seconds, self._options.ack_timeout)
        if patience < self._options.reconnect_timeout:
            self._options = attrs.evolve(self._options, reconnect_timeout=patience)

    def finish(self) -> Totals:
        """Wait for what is not acknowledged yet."""
        totals = Totals()
        for publisher in (self._window, self._other):
            if publisher is not None:
                totals.add(publisher.finish())
        self._check_streams()
        self._check_duration()
        return totals

    def _check_duration(self) -> None:
        """A retry of a task that takes longer than the window repeats rows that are no longer recognised."""
        took = time.monotonic() - self._started
        for stream, window in self._windows.items():
            if window is not None and took > window:
                self.notes.append(
                    f"stream {stream!r} recognises repeated messages for {window:g} s, and a task took longer: had it "
                    "been run again, rows would have been stored twice. Make the window longer, or the tasks smaller"
                )

    def _windowed(self) -> WindowPublisher:
        if self._window is None:
            self._window = WindowPublisher(self._nc, self._options)
            self._window.guard = self.guard
        return self._window

    def _fast_or_windowed(self, rows: list[Row], subjects: FastSubjects) -> None:
        """Fast when all rows go to one stream that allows it; a batch cannot be spread over streams."""
        if not rows:
            return
        if subjects.take({row[0] for row in rows}):
            if self._other is None:
                self._other = FastPublisher(self._nc, self._options)
                self._other.guard = self.guard
            self._other.publish(rows)
        else:
            self._windowed().publish(rows)

    def _check_streams(self) -> None:
        """Once per stream, as soon as its first ack is in: ids are worth nothing without a window."""
        if self._options.delivery_semantics == "at-least-once" or self._options.publish_mode == "atomic":
            return
        for publisher in (self._window, self._other):
            seen = () if publisher is None or isinstance(publisher, AtomicPublisher) else list(publisher.seen)
            for stream in seen:
                if stream not in self._windows:
                    found = deduplication(SparkAccess(self._nc, self._options, stream))
                    self._windows[stream] = found.window
                    self.notes += found.notes

    def __enter__(self) -> TaskPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._window is not None:
            self._window.close()


class FastSubjects:
    """Which subjects go to the one stream of this task that takes fast batches."""

    def __init__(self, nc: Connection, options: SparkOptions) -> None:
        self._access = SparkAccess(nc, options, "(sink)")
        self._required = options.publish_mode == "fast"
        self._patterns: list[str] | None = None
        self._known: dict[bytes, bool] = {}

    def take(self, subjects: set[bytes]) -> bool:
        """True when all of them do. publishMode=fast makes everything else an error."""
        if self._patterns is None:
            self._patterns = self._find(min(subjects).decode("utf-8", "surrogateescape"))
        good = bool(self._patterns) and all([self._one(subject) for subject in subjects])  # noqa: C419
        if not good and self._required:
            raise JetStreamSparkError(
                "JETSTREAM_SERVER_TOO_OLD",
                "publishMode=fast needs nats-server 2.14 and one stream with allow_batched for all subjects of a task; "
                "use publishMode=auto or async",
            )
        return good

    def _one(self, subject: bytes) -> bool:
        known = self._known.get(subject)
        if known is None:
            if len(self._known) > 10_000:
                self._known.clear()
            text = subject.decode("utf-8", "surrogateescape")
            known = self._known[subject] = any(matches(pattern, text) for pattern in self._patterns or ())
        return known

    def _find(self, subject: str) -> list[str]:
        """The subjects of the stream that takes `subject`, if it takes fast batches; else none."""
        access = self._access
        if access.capabilities.at_least((2, 14)) is not True:
            return []
        try:
            config = cached(access.nc, ("takes", access.api.prefix, subject), lambda: taker_of(access, subject))
        except JetStreamSparkError:
            if self._required:
                raise
            return []  # an account that may publish, but not ask
        return list(config.subjects or ()) if config is not None and config.allow_batched else []


def taker_of(access: SparkAccess, subject: str) -> StreamConfig | None:
    """The configuration of the one stream that takes `subject`."""
    names = access.retrying(
        "STREAM.NAMES", lambda: access.api.request("STREAM.NAMES", {"subject": subject}, read=True)
    ).get("streams")
    if not names or len(names) != 1:
        return None
    return SparkAccess(access.nc, access.options, names[0]).info().config


@attrs.frozen
class Deduplication:
    """What a stream says about ids; `window` is None when this user may not ask."""

    window: float | None
    notes: tuple[str, ...]


def deduplication(access: SparkAccess) -> Deduplication:
    """The time in which a stream recognises a message id (0 is an error), and what it may forget before."""
    return cached(access.nc, ("deduplication", access.api.prefix, access.stream), lambda: _deduplication(access))


def _deduplication(access: SparkAccess) -> Deduplication:
    stream = access.stream
    try:
        config = access.info().config
    except JetStreamSparkError as error:
        if not isinstance(error.__cause__, errors.PermissionViolation):
            raise
        note = (
            f"stream {stream!r}: no permission for STREAM.INFO.{stream}, so its duplicate window is not known; a batch "
            "that is replayed later than that is stored twice"
        )
        return Deduplication(None, (note,))
    window = seconds_of(config.duplicate_window or 0)
    if window <= 0:
        raise JetStreamSparkError(
            "JETSTREAM_DEDUP_WINDOW",
            f"stream {stream!r} does not deduplicate (duplicate_window 0); set it to the longest restart you "
            "expect, or use deliverySemantics=at-least-once",
        )
    notes = []
    if window < access.options.min_dedup_window:
        notes.append(
            f"stream {stream!r} recognises repeated messages for {window:g} s only (minDedupWindow "
            f"{access.options.min_dedup_window:g} s): a batch that is replayed later is stored twice"
        )
    if (config.retention or "limits") != "limits":
        notes.append(
            f"stream {stream!r} has retention {config.retention}: when its server restarts it forgets the ids of "
            "messages that were taken out, also within its duplicate window; a replay stores them again"
        )
    return Deduplication(window, tuple(notes))
