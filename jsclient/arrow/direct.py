"""A range of a stream read by batched direct get (server 2.11), without a consumer and without consuming messages.

It is made for small ranges, for which creating a consumer costs the meta layer of a cluster too much. It is also for
work queues, which allow no consumer that could read a range twice. Any replica or mirror may answer, and may lag
behind, so the leader decides about a range that ended early.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from jsclient import errors
from jsclient.arrow.access import PULL_BYTES, PULL_MESSAGES, StreamAccess
from jsclient.arrow.chunks import Chunk, Matching, Times, direct_chunk
from jsclient.arrow.gaps import Gaps
from jsclient.arrow.ranges import Range
from jsclient.durations import Deadline
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.api.batch_answers import Answered, BatchGets, Lost
from jsclient.message import Msg

log: logging.Logger = logging.getLogger("jsclient.arrow")

SILENCE: Final = 5.0  # seconds without a frame of the answer, after which the request is repeated
LAGGING: Final = 0.1  # seconds between two requests while a replica catches up
MIRRORED: Final = 5  # answers of mirrors in a row, after which the range is read by a consumer


class Repeat(Exception):
    """The answer was empty or incomplete; the request is repeated from the next sequence."""


class Elsewhere(Exception):
    """Direct get does not work for this stream: no server answers, or only a mirror, which may keep less."""


class RangeDirect:
    """Reads one range like RangeConsumer, but each chunk comes from one request."""

    def __init__(self, access: StreamAccess, part: Range, gaps: Gaps, required: bool) -> None:
        self._access = access
        self._part = part
        self._stream = access.stream.encode()
        self.next: int = part.start
        self._reached = part.start  # behind the last message that was read
        self._times = Times()
        self._gaps = gaps
        self._patient = required  # wait for an answer; if False, a consumer reads the range instead
        self._mirrored = 0
        self._counted = False  # set after the first answer has given the number of messages in the range
        # The server applies one filter. A direct get cannot carry several, so the client matches them.
        self._filter = part.filters[0] if len(part.filters) == 1 else ">"
        self._several = Matching(part.filters) if len(part.filters) > 1 else None

    def chunks(self) -> Iterator[Chunk]:
        deadline = Deadline(self._access.options.reconnect_timeout)
        with closing(BatchGets(self._access.api, self._access.stream)) as gets:
            while self.next < self._part.end:
                before = self.next
                self._check_time()
                try:
                    for chunk in self._request(gets):
                        yield from self._wanted(chunk)
                except (Repeat, Lost, errors.ConnectionLost, errors.RequestTimeout) as error:
                    log.info("stream %r at %d: %s; asking again", self._access.stream, self.next, error)
                    if self.next > before:
                        deadline = Deadline(self._access.options.reconnect_timeout)
                    elif deadline.expired():
                        raise self._access.failed(f"reading [{self.next}, {self._part.end})", error) from error
                    if not self._mirrored:
                        time.sleep(deadline.at_most(LAGGING))
        self._gaps.finish(self._reached)

    def _check_time(self) -> None:
        if self._access.deadline.expired():
            raise self._access.timed_out(f"reading [{self._part.start}, {self._part.end}), at {self.next},")

    def _wanted(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._several is not None:
            chunk = self._several.of(chunk)
        if len(chunk):
            yield chunk

    # --- one request ------------------------------------------------------------------------------------

    def _request(self, gets: BatchGets) -> Iterator[Chunk]:
        request: dict[str, Any] = {
            "batch": min(PULL_MESSAGES, self._part.end - self.next),
            "max_bytes": PULL_BYTES,
            "seq": max(1, self.next),
            "next_by_subj": self._filter,
        }
        gets.ask(request)
        while True:
            found = gets.next(self._access.deadline.at_most(SILENCE))
            if found.messages:
                self._patient = True  # a server does answer
                yield from self._chunk(found)
            if found.end is not None:
                self._after(found.end)
                return

    def _chunk(self, found: Answered) -> Iterator[Chunk]:
        messages, parts, _ = found
        if parts[0].stream != self._stream:
            self._mirrored += 1
            if self._mirrored >= MIRRORED:
                raise Elsewhere(
                    f"its mirror {parts[0].stream.decode()!r} answers direct gets (mirror_direct), and may keep less "
                    "than the stream; connect to a server that has a replica of it, or unset mirror_direct"
                )
            raise Repeat("a mirror answered")
        self._mirrored = 0
        if parts[0].sequence < self.next or parts[-1].pending is None:
            raise self._access.options.refuse(
                "JETSTREAM_DIRECT_UNAVAILABLE",
                f"stream {self._access.stream!r}: the server does not answer direct gets in batches (needs 2.11); "
                "use readMethod=consumer",
            )
        if not self._counted:
            assert parts[0].pending is not None
            self._gaps.begin(self.next, parts[0].pending + 1, self._filter != ">", self._behind_the_end)
            self._counted = True
        beyond = parts[-1].sequence >= self._part.end
        if beyond:
            parts = [part for part in parts if part.sequence < self._part.end]
            messages = messages[: len(parts)]
        if parts:
            self._gaps.read(self.next, [part.sequence for part in parts])
            self.next = self._reached = parts[-1].sequence + 1
            yield direct_chunk(parts, messages, self._times)
        if beyond:
            self.next = self._part.end  # a later sequence came: the range has no more

    def _behind_the_end(self) -> int:
        """The number of messages that match behind the range."""
        body = {"seq": self._part.end, "next_by_subj": self._filter}
        found = self._access.retrying("counting", lambda: self._access.direct_get(body))
        return 0 if found is None or found.pending is None else found.pending + 1

    def _after(self, end: Msg) -> None:
        """Act on the status at the end of an answer."""
        status = end.status
        assert status is not None
        headers = end.headers
        if status.code == 204:
            if self.next < self._part.end and headers.get(header_names.NUM_PENDING) == "0":
                self._ask_leader()
        elif status.code == 404:
            if self.next < self._part.end:
                self._ask_leader()
        elif status.code == 503 and not self._patient:
            raise Elsewhere("nobody answers direct gets (503); use readMethod=consumer, or try again later")
        elif status.code in (429, 503, 500):
            raise Repeat(f"{status.code} {status.description}")
        else:
            raise self._access.failed(
                f"direct get of [{self.next}, {self._part.end})",
                errors.ApiError(status.code, 0, status.description),
            )

    def _ask_leader(self) -> None:
        """The replica that answered has no more messages. Ask the leader if that is true, or if it lags behind."""
        ahead = self._gaps.ahead(self.next)
        if ahead is not None:
            raise Repeat(f"the replica that answered lags behind the leader, which has {ahead}")
        self.next = self._part.end
