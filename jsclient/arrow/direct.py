"""A range of a stream read by batched direct get (server 2.11), without a consumer and without consuming messages.

It is made for small ranges, for which creating a consumer costs the meta layer of a cluster too much. It is also for
work queues, which allow no consumer that could read a range twice. Any replica or mirror may answer, and may lag
behind, so the leader decides about a range that ended early.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from jsclient import errors
from jsclient.arrow.access import PULL_BYTES, PULL_MESSAGES, StreamAccess
from jsclient.arrow.attempts import Interrupted, RangeReader
from jsclient.arrow.chunks import Chunk, Matching, Times, direct_chunk
from jsclient.arrow.gaps import Gaps
from jsclient.arrow.ranges import Range
from jsclient.jetstream.api import headers as header_names
from jsclient.jetstream.batch_get import Answered, BatchGets
from jsclient.message import Msg

SILENCE: Final = 5.0  # seconds without a frame of the answer, after which the request is repeated
MIRRORED: Final = 5  # answers of mirrors in a row, after which the range is read by a consumer


class Elsewhere(Exception):
    """Direct get does not work for this stream: no server answers, or only a mirror, which may keep less."""


class RangeDirect(RangeReader):
    """Reads a range by direct get; each chunk comes from one request."""

    def __init__(self, access: StreamAccess, part: Range, gaps: Gaps, required: bool) -> None:
        super().__init__(access, part, gaps)
        self._stream = access.stream.encode()
        self._times = Times()
        self._patient = required  # wait for an answer; if False, a consumer reads the range instead
        self._mirrored = 0
        # The server applies one filter. A direct get cannot carry several, so the client matches them.
        self._filter = part.filters[0] if len(part.filters) == 1 else ">"
        self._local: Matching | None = Matching(part.filters) if len(part.filters) > 1 else None

    def _attempt(self) -> Iterator[Chunk]:
        with closing(BatchGets(self._access.api, self._access.stream)) as gets:
            while self.next < self._part.end:
                self._check_time()
                yield from self._request(gets)

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
            raise Interrupted("a mirror answered")
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
            self._reached = parts[-1].sequence + 1
            self.next: int = self._reached
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
        if status.code in (204, 404):
            last = status.code == 404 or end.headers.get(header_names.NUM_PENDING) == "0"
            if last and self.next < self._part.end:
                self._nothing_left()
        elif status.code == 503 and not self._patient:
            raise Elsewhere("nobody answers direct gets (503); use readMethod=consumer, or try again later")
        elif status.code in (429, 503, 500):
            raise Interrupted(f"{status.code} {status.description}")
        else:
            raise self._access.failed(
                f"direct get of [{self.next}, {self._part.end})",
                errors.ApiError(status.code, 0, status.description),
            )
