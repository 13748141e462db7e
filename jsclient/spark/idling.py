"""A streaming query without news. Spark wants the latest offset 100 times per second; this asks the server far less.

After a second without news the query leaves an open pull in each stream, and the next matching message answers it. For
everything else the query looks once per second: new streams, a moved head, a re-created stream. It looks ten times per
second if a pull is not possible.
"""

from __future__ import annotations

import itertools
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.arrow.settings import Refused
from jsclient.jetstream import JetStream

if TYPE_CHECKING:
    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.ranges import StreamState
    from jsclient.jetstream.consuming.messages import Messages

log: logging.Logger = logging.getLogger("jsclient.spark")

PAUSE: Final = 0.1  # seconds between two looks without an open pull

LOOK: Final = 1.0  # seconds between two looks with an open pull in each stream

PATIENT: Final = 1.0  # seconds without news after which pulls are worth their consumers
MOST: Final = 16  # streams with an open pull
INACTIVE: Final = 30.0


def watch(access: StreamAccess, state: StreamState) -> Messages:
    """An open pull on one stream, for messages behind its end."""
    options = access.options
    if state.retention != "limits" or options.read_method == "direct":
        raise errors.ConfigError(f"stream {state.name!r} is not read by consumers")
    stream = JetStream(access.nc, domain=options.domain, api_prefix=options.api_prefix).stream(
        access.stream, fetch_info=False
    )
    reader = stream.ordered_consumer(
        filter_subjects=options.subjects,
        deliver_policy="by_start_sequence",
        opt_start_seq=state.end,
        headers_only=True,
        inactive_threshold=INACTIVE,
        name_prefix=access.new_name("watch"),
    )
    return reader.messages(max_messages=1)


def has_news(messages: Messages) -> bool:
    """True if a look is worthwhile. A connection that has closed counts as news."""
    try:
        messages.next(timeout=0)
    except errors.TimedOut:
        return False
    except errors.JsClientError:
        pass
    return True


class Idling:
    """The rest of one query between two looks. For one thread."""

    def __init__(self) -> None:
        self._start: dict[str, Any] | None = None
        self._since = self._looked_at = self._retry_at = 0.0
        self._watches: list[Messages] = []
        self.streams: list[tuple[StreamAccess, StreamState]] = []  # of the last look

    def __reduce__(self) -> tuple[Any, ...]:
        return Idling, ()

    def rests(self, start: dict[str, Any]) -> bool:
        """True if there is no reason to look again yet. A query that has moved on ends its rest."""
        if start != self._start:
            self.end()
            return False
        now = time.monotonic()
        if now - self._since < PATIENT:
            return False
        if now - self._looked_at < PAUSE:
            return True
        if any(map(has_news, self._watches)):
            self._close()
            return False
        return bool(self._watches) and now - self._looked_at < LOOK

    def looked(self, start: dict[str, Any]) -> None:
        """A look has found nothing new in `streams`; `start` is the offset of the query."""
        now = self._looked_at = time.monotonic()
        if start != self._start:
            self._start, self._since = start, now
            return
        patient = now - self._since >= PATIENT and now >= self._retry_at
        if patient and not self._watches and 0 < len(self.streams) <= MOST:
            self._open(now)

    def _open(self, now: float) -> None:
        try:
            self._watches += itertools.starmap(watch, self.streams)
        except (errors.JsClientError, Refused) as error:
            log.info("looking for news %g times per second, because a pull is not possible: %s", 1 / PAUSE, error)
            self._retry_at = now + INACTIVE
            self._close()

    def end(self) -> None:
        self._start = None
        self._close()

    def _close(self) -> None:
        watches, self._watches = self._watches, []
        for each in watches:
            with suppress(errors.JsClientError):  # the consumer is left to the server
                each.close()
