"""The time without a link: what the log and `health` say of it."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from jsclient import errors
from jsclient._engine.callbacks import EventsThread

log = logging.getLogger("jsclient.connection")

EVERY: Final = 10
"""The first failed attempt of an outage is logged, and each tenth: an outage of a night must not fill the log."""


class Outage:
    """Logs the loss of a link, the attempts that fail, and the next link. On the events thread: a log handler is user
    code, and may wait for what only the reader brings."""

    def __init__(self, number: int, events: EventsThread) -> None:
        self._number = number
        self._events = events
        self._began: float | None = time.monotonic()
        self.failed_attempts: int = 0

    @property
    def seconds(self) -> float | None:
        """Since the last link was lost; None while one stands."""
        began = self._began
        return None if began is None else time.monotonic() - began

    def begin(self, url: str, reason: BaseException | None) -> None:
        """The link is lost. Without a reason the application has closed the connection."""
        self._began, self.failed_attempts = time.monotonic(), 0
        if reason is not None:
            self._log(logging.WARNING, "lost its link to %s: %s", url, errors.brief(reason))

    def attempt_failed(self, url: str, error: BaseException, quiet: bool) -> None:
        """`quiet`: the call of `connect` raises the error, or the connection is being closed."""
        self.failed_attempts += 1
        count = self.failed_attempts
        level = logging.WARNING if not quiet and (count == 1 or count % EVERY == 0) else logging.INFO
        self._log(level, "cannot connect to %s (attempt %d): %s", url, count, errors.brief(error))

    def end(self, url: str, first: bool) -> None:
        """A link stands, perhaps in the place of another one that still stood."""
        seconds, failed = self.seconds, self.failed_attempts
        self._began, self.failed_attempts = None, 0
        if seconds is not None and not first:
            self._log(logging.WARNING, "is connected again after %.1f s, to %s", seconds, url)
        elif failed:
            self._log(logging.WARNING, "is connected to %s after %d failed attempts", url, failed)

    def _log(self, level: int, text: str, *args: Any) -> None:
        if log.isEnabledFor(level):
            self._events.run(log.log, level, f"connection %d {text}", self._number, *args, rare=True)
