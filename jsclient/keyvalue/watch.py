"""Watching a stream's subjects: the current messages, one None when they are complete, then every new one.

The object store watches its meta information in the same way, so the machinery is generic here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from jsclient import handlers
from jsclient.connection import engine_of
from jsclient.durations import DEFAULT, Deadline, Patience, Timeout, resolve
from jsclient.errors import (
    ConfigError,
    ConnectionClosed,
    DecodeFailed,
    IteratorClosed,
    NotSupported,
    StreamNotFound,
    TimedOut,
)
from jsclient.jetstream import JetStream
from jsclient.jetstream.consuming.listing import CompleteReading
from jsclient.keyvalue import missing
from jsclient.keyvalue.coding import Coding
from jsclient.keyvalue.entry import KeyValueEntry, Operation, V, operation_of_block
from jsclient.keyvalue.keys import check_revision
from jsclient.protocol.subjects import matches
from jsclient.threads import Thread, start_all

if TYPE_CHECKING:
    from jsclient.jetstream.message import JetStreamMsg

OPEN_TIMEOUT: Final = 5.0
"""Seconds that making a watcher may take, unless it has a shorter timeout."""

FIRST_WAIT: Final = 0.25
"""Seconds that making a watcher waits for the first current message."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class WatchOptions:
    """The options of a watcher. See `KeyValue.watch`."""

    include_history: bool = False
    updates_only: bool = False
    ignore_deletes: bool = False
    meta_only: bool = False
    resume_from_revision: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("include_history", "updates_only", "ignore_deletes", "meta_only"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, not {getattr(self, name)!r:.80}")
        given = [self.include_history, self.updates_only, self.resume_from_revision is not None]
        if sum(given) > 1:
            raise ConfigError("include_history, updates_only and resume_from_revision exclude each other")
        start = self.resume_from_revision
        if start is not None:
            check_revision(start, 1, "resume_from_revision")

    def start(self) -> dict[str, Any]:
        """The start position of the watcher's ordered consumer."""
        options: dict[str, Any] = {"deliver_policy": "last_per_subject"}
        if self.include_history:
            options["deliver_policy"] = "all"
        elif self.updates_only:
            options["deliver_policy"] = "new"
        elif self.resume_from_revision is not None:
            options["deliver_policy"] = "by_start_sequence"
            options["opt_start_seq"] = self.resume_from_revision
        return options


class StreamWatcher(Generic[T]):
    """Base of the watchers. A subclass turns a message into an entry (`_entry`)."""

    def __init__(
        self,
        js: JetStream,
        stream: str,
        subjects: list[str],
        options: WatchOptions,
        timeout: float | None,
        deadline: Deadline,
    ) -> None:
        """`timeout` bounds each iteration. `deadline` bounds the start."""
        self._nc = js.nc
        self._timeout = resolve(timeout, None)
        self._ignore_deletes = options.ignore_deletes
        self._filters: list[str] = []
        self._waiting: deque[T | None] = deque()
        self._complete = options.updates_only
        self._stopped = False
        self._last: dict[str, T | None] | None = None  # subject -> entry, while we find the last ones ourselves
        self._stream = stream
        with missing.named(stream):
            self._start(js, stream, subjects, options, deadline)

    def _start(
        self, js: JetStream, stream: str, subjects: list[str], options: WatchOptions, deadline: Deadline
    ) -> None:
        try:
            self._messages = self._open(js, stream, subjects, options, deadline)
        except NotSupported:
            # Servers before 2.10 take one filter only: read everything they could mean, and filter here.
            self._filters = subjects
            self._messages = self._open(js, stream, [common_filter(subjects)], options, deadline)
        try:
            self._check_complete()
            self._begin(deadline)
        except BaseException:
            self._messages.close()
            raise

    def _open(
        self, js: JetStream, stream: str, subjects: list[str], options: WatchOptions, deadline: Deadline
    ) -> CompleteReading:
        start = options.start()
        if start["deliver_policy"] == "last_per_subject" and js.capabilities.at_least((2, 10)) is False:
            # 2.9 loses one message of such a pass whenever a pull is used up (seen on 2.9.10: 46 of 12,000).
            start["deliver_policy"] = "all"
            self._last = {}
        return CompleteReading(
            js, stream, subjects, start, deadline, headers_only=options.meta_only, complete=options.updates_only
        )

    def _begin(self, deadline: Deadline) -> None:
        """Request messages now and wait a moment for the first one. Changes made after this call then come after it."""
        first = self._messages.next(Deadline(0.0 if self._complete else deadline.at_most(FIRST_WAIT)))
        if first is not None:
            self._accept(first)
        self._check_complete()

    # --- taking -------------------------------------------------------------------------------------------

    @property
    def initial_complete(self) -> bool:
        """True once all current entries were given (with `updates_only` from the start)."""
        return self._complete and not self._waiting

    def next(self, timeout: Timeout = DEFAULT) -> T | None:
        """The next entry, or None exactly once: when all current entries have been given.

        Waits at most `timeout` seconds, then raises TimedOut. The default is the timeout of `watch`; 0 returns only
        entries that have been received. Raises IteratorClosed after `stop`, and ListingIncomplete if the current
        entries cannot be read to their end. Only one thread may call it. Any thread may stop the watcher.
        """
        seconds = resolve(timeout, self._timeout)
        deadline = Deadline(seconds)
        while True:
            if self._waiting:
                entry = self._waiting.popleft()
                if isinstance(entry, DecodeFailed):
                    raise entry
                return entry
            try:
                message = self._messages.next(deadline)
            except StreamNotFound as error:
                raise missing.deleted(self._stream) from error
            if message is not None:
                self._accept(message)
            self._check_complete()
            if message is None and not self._waiting and deadline.expired():
                raise TimedOut(f"nothing new in {self!r} within {seconds:g} s")

    def _accept(self, message: JetStreamMsg) -> None:
        subject = message.subject
        if self._filters and not any(matches(pattern, subject) for pattern in self._filters):
            return
        entry = self._entry(message)
        if self._last is not None:
            self._last.pop(subject, None)  # to put it at the place of its last revision
            self._last[subject] = entry
        elif entry is not None:
            self._waiting.append(entry)

    def _check_complete(self) -> None:
        if self._messages.complete and not self._complete:
            self._finish_initial()

    def _finish_initial(self) -> None:
        self._complete = True
        if self._last is not None:
            shown = [entry for entry in self._last.values() if entry is not None]
            for left, entry in enumerate(reversed(shown)):
                self._set_delta(entry, left)
            self._waiting.extend(shown)
            self._last = None
        self._waiting.append(None)

    def _entry(self, message: JetStreamMsg) -> T | None:
        """The entry in the message. Returns None if the watcher must hide it."""
        raise AssertionError("subclasses say it")

    def _set_delta(self, entry: T, delta: int) -> None:
        """Set the number of current entries after this one, if the server could not give it."""

    def initial(self, timeout: Timeout = DEFAULT) -> list[T]:
        """All current entries, up to the point where they are complete. `timeout` bounds the whole call. By default
        each entry has the time of an iteration."""
        patience = Patience(timeout, self._timeout)
        found: list[T] = []
        while not self.initial_complete:
            entry = self.next(patience.remaining())
            if entry is None:
                break
            found.append(entry)
        return found

    def __iter__(self) -> StreamWatcher[T]:
        return self

    def __next__(self) -> T:
        try:
            while True:
                entry = self.next()
                if entry is not None:
                    return entry
        except IteratorClosed:
            if not (self._stopped or self._complete):
                raise  # the connection was drained: the end of a loop would look like the end of all entries
            raise StopIteration from None

    def call(self, callback: Callable[[T], Any], name: str) -> None:
        """Call the function on a separate thread for every entry, until the end of the watcher."""
        start_all([Thread(f"jsclient-worker-watch-{name}", self._call_all, callback)], repr(self))

    def _call_all(self, callback: Callable[[T], Any]) -> None:
        engine = engine_of(self._nc)
        try:
            while True:
                try:
                    entry = self.next(None)
                except DecodeFailed as error:  # of this one entry
                    engine.report_error(error, None)
                    continue
                if entry is None:
                    continue
                try:
                    handlers.ran(callback(entry))
                except Exception as error:
                    engine.report_error(error, None)
        except (IteratorClosed, ConnectionClosed):
            pass
        except BaseException as error:  # also SystemExit of the callback: no one else would notice the end
            self.stop()
            engine.report_error(error, None)

    # --- the end ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it, from any thread: a blocked or later iteration ends, `next` raises IteratorClosed. Idempotent."""
        self._stopped = True
        if self._waiting:
            self._complete = False  # current entries are left
        self._waiting.clear()
        self._messages.close()

    @property
    def stopped(self) -> bool:
        """True once `stop()` was called."""
        return self._stopped

    def __enter__(self: W) -> W:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def __reduce__(self) -> Any:
        return engine_of(self._nc).refuse_pickle(self)


W = TypeVar("W", bound=StreamWatcher[Any])


class KeyWatcher(StreamWatcher[KeyValueEntry[V]], Generic[V]):
    """The result of `KeyValue.watch`. A `for` loop returns only entries. `initial_complete` is True once all current
    ones have been returned. `next` returns None once, at that point.

    A key that the codec of the bucket cannot read raises DecodeFailed in its place. The next call continues after it.

    Attributes:
        bucket: The name of the bucket.

    Options of several methods:
        timeout: Seconds for the whole call, by default 5 for an answer of the server. None waits indefinitely, and 0
            does not wait. A negative number raises ConfigError. At the end of the time the call raises a
            TimeoutError, unless its description names what it returns.
    """

    def __init__(
        self,
        js: JetStream,
        bucket: str,
        stream: str,
        prefix: str,
        patterns: tuple[str, ...],
        options: WatchOptions,
        timeout: float | None,
        deadline: Deadline,
        coding: Coding | None = None,
    ) -> None:
        self.bucket = bucket
        self._coding = coding
        self._meta_only = options.meta_only
        self._cut = len(prefix)
        self._patterns = patterns
        super().__init__(js, stream, [prefix + pattern for pattern in patterns], options, timeout, deadline)

    def _entry(self, message: JetStreamMsg) -> Any:
        operation = operation_of_block(message.msg.raw_headers)
        if self._ignore_deletes and operation is not Operation.PUT:
            return None
        metadata = message.metadata
        key = message.subject[self._cut :]
        entry: KeyValueEntry[V] = KeyValueEntry(
            self.bucket,
            key,
            message.data,
            metadata.stream_seq,
            operation,
            metadata.num_pending,
            metadata.timestamp_ns,
            message.msg.raw_headers,
        )
        if self._coding is None:
            return entry
        try:
            return self._coding.found(entry, self._meta_only)
        except DecodeFailed as error:
            return error  # raised when it is its turn

    def _set_delta(self, entry: Any, delta: int) -> None:
        if not isinstance(entry, DecodeFailed):
            entry.delta = delta

    def __repr__(self) -> str:
        return f"<KeyWatcher {self.bucket} {' '.join(self._patterns)}>"


def common_filter(subjects: list[str]) -> str:
    """The narrowest filter we can name that covers all of them: their common first tokens, then everything."""
    split = [subject.split(".") for subject in subjects]
    common: list[str] = []
    for tokens in zip(*split, strict=False):
        if len(set(tokens)) > 1 or tokens[0] in ("*", ">"):
            break
        common.append(tokens[0])
    shortest = min(len(tokens) for tokens in split)
    return ".".join([*common[: shortest - 1], ">"])
