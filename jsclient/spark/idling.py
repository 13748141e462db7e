"""A streaming query without news. Spark wants the latest offset 100 times per second; this asks the server far less.

After a second without news the query leaves an open pull in each stream, and the next matching message answers it. For
everything else the query looks once per second: new streams, a moved head, a re-created stream. It looks ten times per
second if a pull is not possible.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from jsclient import errors
from jsclient.arrow.access import from_sequence
from jsclient.arrow.settings import Refused
from jsclient.durations import to_ns

if TYPE_CHECKING:
    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.ranges import StreamState

log: logging.Logger = logging.getLogger("jsclient.spark")

PAUSE: Final = 0.1  # seconds between two looks without an open pull

LOOK: Final = 1.0  # seconds between two looks with an open pull in each stream

PATIENT: Final = 1.0  # seconds without news after which pulls are worth their consumers
MOST: Final = 16  # streams with an open pull
EXPIRES: Final = 20.0
INACTIVE: Final = 30.0
LATE: Final = 5.0


class Watch:
    """An open pull on one stream. The connection may close, and the consumer may vanish: both count as news."""

    def __init__(self, access: StreamAccess, seq: int) -> None:
        self._access, self._name = access, access.new_name("watch")
        more = {**from_sequence(seq, access.options.subjects), "headers_only": True}
        access.create_consumer(self._name, more, INACTIVE)
        self._subscription = access.nc.subscribe(access.nc.new_inbox())
        self._pull()

    def _pull(self) -> None:
        subject = self._access.api.subject(f"CONSUMER.MSG.NEXT.{self._access.stream}.{self._name}")
        body = json.dumps({"batch": 1, "expires": to_ns(EXPIRES)}).encode()
        self._access.nc.publish(subject, body, reply=self._subscription.subject)
        self._pulled_at = time.monotonic()

    def news(self) -> bool:
        """True if it is worth a look."""
        try:
            message = self._subscription.next(timeout=0)
        except errors.TimedOut:
            return time.monotonic() - self._pulled_at > EXPIRES + LATE
        except errors.JsClientError:
            return True
        if message.status is None or message.status.code not in (404, 408):
            return True
        self._pull()
        return False

    def close(self) -> None:
        try:
            self._subscription.unsubscribe()
            self._access.delete_consumer(self._name)
        except errors.JsClientError as error:
            log.debug("the consumer %s is left to the server: %s", self._name, error)


class Idling:
    """The rest of one query between two looks. For one thread."""

    def __init__(self) -> None:
        self._start: dict[str, Any] | None = None
        self._since = self._looked_at = self._retry_at = 0.0
        self._watches: list[Watch] = []
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
        if any(watch.news() for watch in self._watches):
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
            for access, state in self.streams:
                self._watches.append(self._watch(access, state))
        except (errors.JsClientError, Refused) as error:
            log.info("looking for news %g times per second, because a pull is not possible: %s", 1 / PAUSE, error)
            self._retry_at = now + INACTIVE
            self._close()

    @staticmethod
    def _watch(access: StreamAccess, state: StreamState) -> Watch:
        if state.retention != "limits" or access.options.read_method == "direct":
            raise errors.ConfigError(f"stream {state.name!r} is not read by consumers")
        return Watch(access, state.end)

    def end(self) -> None:
        self._start = None
        self._close()

    def _close(self) -> None:
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.close()
