"""Facts about the streams that rows go to: which ones they are, and how long they remember message ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jsclient import errors
from jsclient.arrow.access import StreamAccess, cached
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


class FastSubjects:
    """The subjects that go to the one stream of this task that takes fast batches."""

    def __init__(self, nc: Connection, options: WriteSettings) -> None:
        self._access = StreamAccess(nc, options, "(sink)")
        self._required = options.publish_mode == "fast"
        self._patterns: list[str] | None = None
        self._known: dict[bytes, bool] = {}

    def take(self, subjects: set[bytes]) -> bool:
        """True if all of them do. publishMode=fast makes all other cases an error."""
        if self._patterns is None:
            self._patterns = self._find(min(subjects).decode("utf-8", "surrogateescape"))
        good = bool(self._patterns) and all([self._one(subject) for subject in subjects])  # noqa: C419
        if not good and self._required:
            raise self._access.options.refuse(
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
        """The subjects of the stream that takes `subject`, if it takes fast batches; otherwise none."""
        access = self._access
        if access.capabilities.at_least((2, 14)) is not True:
            return []
        try:
            config = taker_of(access, subject)
        except Refused:
            if self._required:
                raise
            return []  # an account with permission to publish, but not to ask
        return list(config.subjects or ()) if config is not None and config.allow_batched else []


def taker_of(access: StreamAccess, subject: str) -> StreamConfig | None:
    """The configuration of the one stream that takes `subject`."""
    return cached(access.nc, ("takes", access.api.prefix, subject), lambda: _taker_of(access, subject))


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
