"""The reader of a range: it reads on after every failure, until the range is complete or a limit of time is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from jsclient import errors
from jsclient.arrow.chunks import Chunk, Matching
from jsclient.connection import engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.batch_get import Lost

if TYPE_CHECKING:
    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.gaps import Gaps
    from jsclient.arrow.ranges import Range

log: logging.Logger = logging.getLogger("jsclient.arrow")

PAUSE: Final = 0.05  # seconds before the second attempt; grows with each attempt without messages


class Interrupted(Exception):
    """An attempt cannot continue; the next one continues after the last message."""


class RangeReader:
    """Reads one range. Iterate `chunks()` once, and close that generator if you need no more."""

    def __init__(self, access: StreamAccess, part: Range, gaps: Gaps) -> None:
        self._access: StreamAccess = access
        self._part: Range = part
        self._gaps: Gaps = gaps
        self._local: Matching | None = None
        """Filters that this side applies, because the server does not."""
        self._counted: bool = False
        """An attempt has counted the messages of the range."""
        self._reached: int = part.start
        """The sequence behind the last message that was read."""
        self.next: int = part.start
        """The first sequence of the next attempt. At the end of the range nothing is left."""

    def _attempt(self) -> Iterator[Chunk]:
        """Read from `next` on, as far as one consumer or request goes."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Chunk]:
        access, failures = self._access, 0
        deadline = Deadline(access.options.reconnect_timeout)
        while self.next < self._part.end:
            before = self.next
            self._check_time()
            try:
                with closing(self._attempt()) as attempt:  # type: ignore[type-var]
                    for chunk in attempt:
                        kept = chunk if self._local is None else self._local.of(chunk)
                        if len(kept):
                            yield kept
            except (Interrupted, Lost, errors.ConnectionLost, errors.RequestTimeout, errors.NoResponders) as error:
                log.info("stream %r at %d: %s; reading on from there", access.stream, self.next, error)
                if self.next > before:
                    failures, deadline = 0, Deadline(access.options.reconnect_timeout)
                failures += 1
                if deadline.expired():
                    raise access.failed(f"reading [{self.next}, {self._part.end})", error) from error
                self._wait_for_link(deadline, failures)
        self._gaps.finish(self._reached)

    def _check_time(self) -> None:
        if self._access.deadline.expired():
            raise self._access.timed_out(f"reading [{self._part.start}, {self._part.end}), at {self.next},")

    def _wait_for_link(self, deadline: Deadline, failures: int) -> None:
        """Wait until the connection is back. The pause also keeps refused pulls from being repeated in a tight loop."""
        time.sleep(deadline.at_most(PAUSE * min(failures, 20)))
        while not self._access.nc.is_connected and not deadline.expired():
            engine_of(self._access.nc).check_usable()
            time.sleep(deadline.at_most(PAUSE))

    def _nothing_left(self) -> None:
        """An attempt found no more messages. The tail of the range was deleted or does not match, or a replica lags
        behind."""
        ahead = self._gaps.ahead(self.next)
        if ahead is not None:
            raise Interrupted(f"the replica that answered lags behind the leader, which has {ahead}")
        self.next = self._part.end
