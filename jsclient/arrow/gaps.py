"""Proof that a range was read completely: nothing is missing in it, and it is still the same stream.

Deleted messages and messages that filters skip leave holes in the sequences. Retention may follow right behind the
reader, so a hole proves nothing. The reader counts the messages of the range when it begins, and compares this number
with the messages that it has read.

Missing messages are lost if the head of the stream has passed a hole. A stream that ends before the range does is a
loss, too. A replica may lag behind, so the leader decides. Every range ends with one STREAM.INFO, because the messages
alone do not show that another stream of the same name took over.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from jsclient.arrow.ranges import StreamState, head_moved
from jsclient.durations import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.chunks import Chunk
    from jsclient.arrow.ranges import Range

PAUSE: Final = 0.2  # seconds between two requests while a leader catches up


class Gaps:
    """Watches the sequences of one range. For one thread."""

    def __init__(self, access: StreamAccess, part: Range) -> None:
        self._access = access
        self._part = part
        self._expected: int | None = None  # messages of the range when the reading began, or fewer
        self._read = 0
        self._from = part.start  # missing messages below it were reported, or never promised
        self._holes: list[tuple[int, int, int]] = []  # from, up to, and the messages that came in between
        self._at_mark: int | None = None  # when the message at the mark of the plan was stored, as it was read

    def begin(self, start: int, pending: int, filtered: bool, count: Callable[[], int]) -> int:
        """A reader begins at `start`; `pending` messages from there on match. Returns the number of them behind the
        range.

        `count` gives the number behind the range. It runs after the server has counted `pending`, so messages that
        arrive in between make the range look smaller, never larger.
        """
        if self._access.options.compacted:
            return count() if filtered else 0
        state = self._access.state()
        dense = state.messages == state.end - state.first
        behind = max(0, state.end - self._part.end) if dense and not filtered else count()
        self._expected, self._read, self._holes = max(0, pending - behind), 0, []
        if not self._other(state):
            self._head(state, start)
        return behind

    def read(self, start: int, sequences: Sequence[int]) -> None:
        """Record that `sequences` of the range came when `start` was expected next."""
        if self._part.soft and not self._read and start == self._part.start:
            self._from = sequences[0]  # `earliest` promises nothing before the first row
        self._read += len(sequences)
        self._hole(start, sequences[-1] + 1, len(sequences))

    def _hole(self, start: int, after: int, count: int) -> None:
        start = max(start, self._from)
        if after - start > count:
            self._holes.append((start, after, count))

    def mark(self, chunk: Chunk) -> None:
        """Remember the message at the mark of the plan, if it is among these."""
        mark = self._part.mark
        if mark is not None and self._at_mark is None and chunk.sequences[-1] >= mark[0]:
            at = bisect_left(chunk.sequences, mark[0])
            if chunk.sequences[at] == mark[0]:
                self._at_mark = chunk.timestamps[at]

    def ahead(self, start: int) -> int | None:
        """The first sequence of the range from `start` on that the leader has; None when nothing is left."""
        found = self._access.next_on_leader(start, self._part.filters, self._part.end)
        return found if found is not None and found < self._part.end else None

    def finish(self, start: int) -> None:
        """Prove that the range was read up to `start`, and that nothing is left from there on; else raise."""
        part = self._part
        state = self._settled()
        if self._other(state):
            raise self._access.options.refuse(
                "JETSTREAM_STREAM_RECREATED",
                f"stream {state.name!r} was created at {state.created}, the range [{part.start}, {part.end}) was "
                f"planned for one of {part.created}; begin again",
            )
        if state.end < part.end:
            self._set_back(state, part.end - state.end)
        if not self._access.options.compacted:
            self._compare(state, start)
        if part.mark is not None and part.start <= part.mark[0] < part.end:
            self._same_message(part.mark)

    # --- the stream as the leader knows it --------------------------------------------------------------

    def _settled(self) -> StreamState:
        """The stream, once it reaches to the end of the range: a new leader may not have applied everything yet."""
        deadline = Deadline(self._access.deadline.at_most(self._access.options.reconnect_timeout))
        while True:
            state = self._access.state()
            if self._other(state) or state.end >= self._part.end or deadline.expired():
                return state
            time.sleep(deadline.at_most(PAUSE))

    def _other(self, state: StreamState) -> bool:
        """True if this is another stream than the planned one."""
        return bool(self._part.created) and state.created != self._part.created

    def _compare(self, state: StreamState, start: int) -> None:
        """Everything below `start` was read, and nothing is left from there on."""
        if self._expected is None:
            return self._head(state, start)
        self._hole(start, self._part.end, 0)
        passed = [hole for hole in self._holes if hole[0] < state.first]
        room = sum(min(state.first - first, after - first - count) for first, after, count in passed)
        lost = min(self._expected - self._read, room)
        if lost > 0:
            self._passed(state, passed[0][0], min(state.first, passed[-1][1]), lost)

    def _head(self, state: StreamState, start: int) -> None:
        """Check that the head lies at or below `start`, from where nothing has been delivered yet."""
        part, first = self._part, min(state.first, self._part.end)
        if first <= start:
            return
        self._from = max(self._from, first)
        if not part.soft or start != part.start:
            return self._passed(state, start, first, first - start)
        text = (
            f"stream {state.name!r}: {first - start} sequences from {start} on expired before they were read, the "
            f"stream begins at {state.first}; 'earliest' is what is there when it is read"
        )
        self._access.options.note(text)

    def _passed(self, state: StreamState, first: int, after: int, lost: int) -> None:
        text = head_moved(state, first, after, lost, self._part.start, self._part.end)
        self._lost(f"{text}; keep messages longer, or {self._access.options.accept_loss}")

    def _set_back(self, state: StreamState, missing: int) -> None:
        text = (
            f"stream {state.name!r} ends at {state.last}, but {missing} more sequences of the range "
            f"[{self._part.start}, {self._part.end}) were there when it was planned: its store was set back (a backup, "
            "or a loss of power), or a server answers that does not know better"
        )
        self._lost(f"{text}; look at the servers, then {self._access.options.accept_loss}")

    def _same_message(self, mark: tuple[int, int]) -> None:
        """Compare the message at the mark. It was not read if it is gone or matches no filter."""
        sequence, planned = mark
        stored = self._access.stored_at(sequence) if self._at_mark is None else self._at_mark
        if stored is not None and stored != planned:
            self._lost(
                f"stream {self._access.stream!r}: message {sequence} is not the one that was planned for (stored "
                f"{stored - planned:+d} ns apart): the store was set back and filled again. What was read from there "
                f"on is no longer in the stream; {self._access.options.accept_loss}"
            )

    def _lost(self, text: str) -> None:
        if self._access.options.fail_on_data_loss:
            raise self._access.options.refuse("JETSTREAM_DATA_LOSS", text)
        self._access.options.note(f"going on, because failOnDataLoss=false: {text}")
