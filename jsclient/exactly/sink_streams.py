"""Facts about the streams that rows go to: which ones they are, and how long they remember message ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jsclient import errors
from jsclient.arrow.access import StreamAccess, cached, forget
from jsclient.arrow.settings import Refused
from jsclient.durations import seconds_of
from jsclient.protocol import matches

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.exactly.settings import WriteSettings
    from jsclient.jetstream.api.models import StreamConfig


SHORT_WINDOW: Final = 120.0
"""Seconds. A stream that recognises ids for a shorter time gets a note. The client assumes it for a stream that it has
no permission to ask."""


class SinkStreams:
    """The streams that take the rows of one task, by subject."""

    def __init__(self, nc: Connection, options: WriteSettings) -> None:
        self._nc = nc
        self._options = options
        self._found: list[StreamConfig] = []
        self._known: dict[bytes, StreamConfig] = {}
        self._may_ask = True

    def of(self, subject: bytes) -> StreamConfig | None:
        """The stream that takes the subject; None unless there is exactly one."""
        found = self._known.get(subject)
        if found is None and (found := self._find(subject.decode("utf-8", "surrogateescape"))) is not None:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[subject] = found
        return found

    def _find(self, subject: str) -> StreamConfig | None:
        for known in self._found:
            if any(matches(pattern, subject) for pattern in known.subjects or ()):
                return known
        access = self._access()
        key = ("takes", access.api.prefix, subject)
        config = cached(self._nc, key, lambda: _taker_of(access, subject))
        if config is None:
            forget(self._nc, key)  # somebody may create it now
        else:
            self._found.append(config)
        return config

    def _access(self) -> StreamAccess:
        return StreamAccess(self._nc, self._options, "(sink)")

    def take_fast_batches(self, subjects: set[bytes]) -> bool:
        """True if one stream takes all of them, in fast batches. publishMode=fast makes all other cases an error."""
        required = self._options.publish_mode == "fast"
        recent = self._may_ask and self._access().capabilities.at_least((2, 14)) is True
        good = recent and self._same_fast_stream(subjects, required)
        if not good and required:
            raise self._options.refuse(
                "JETSTREAM_SERVER_TOO_OLD",
                "publishMode=fast needs nats-server 2.14 and one stream with allow_batched for all subjects of a task; "
                "use publishMode=auto or async",
            )
        return good

    def _same_fast_stream(self, subjects: set[bytes], required: bool) -> bool:
        try:
            first = self.of(min(subjects))
            return bool(first and first.allow_batched) and all(self.of(subject) is first for subject in subjects)
        except Refused:
            if required:
                raise
            self._may_ask = False  # an account with permission to publish, but not to ask
            return False


def _taker_of(access: StreamAccess, subject: str) -> StreamConfig | None:
    names = access.retrying(
        "STREAM.NAMES", lambda: access.api.request("STREAM.NAMES", {"subject": subject}, read=True)
    ).get("streams")
    if not names or len(names) != 1:
        return None
    return StreamAccess(access.nc, access.options, names[0]).info().config


@attrs.frozen
class Deduplication:
    """The deduplication of a stream; `window` is None if this user has no permission to ask."""

    window: float | None
    notes: tuple[str, ...]


def deduplication(nc: Connection, options: WriteSettings, stream: str) -> Deduplication:
    """The time in which a stream recognises a message id (0 is an error), and what it may forget before."""
    access = StreamAccess(nc, options, stream)
    return cached(nc, ("deduplication", access.api.prefix, stream), lambda: _deduplication(access, options))


def _deduplication(access: StreamAccess, options: WriteSettings) -> Deduplication:
    stream = access.stream
    try:
        config = access.info().config
    except Refused as error:
        if not isinstance(error.__cause__, errors.PermissionViolation):
            raise
        note = (
            f"stream {stream!r}: no permission for STREAM.INFO.{stream}, so its duplicate window is not known; a batch "
            "that is replayed later than that is stored twice"
        )
        return Deduplication(None, (note,))
    window = seconds_of(config.duplicate_window or 0)
    if window <= 0:
        raise options.refuse(
            "JETSTREAM_DEDUP_WINDOW",
            f"stream {stream!r} does not deduplicate (duplicate_window 0); set it to the longest restart you "
            "expect, or use deliverySemantics=at-least-once",
        )
    notes = []
    if window < SHORT_WINDOW:
        notes.append(
            f"stream {stream!r} recognises repeated messages for {window:g} s only (less than {SHORT_WINDOW:g} s): a "
            "batch that is replayed later is stored twice"
        )
    if (config.retention or "limits") != "limits":
        notes.append(
            f"stream {stream!r} has retention {config.retention}: when its server restarts it forgets the ids of "
            "messages that were taken out, also within its duplicate window; a replay stores them again"
        )
    return Deduplication(window, tuple(notes))
