"""Proof that a range was read whole: holes between its messages, its end, and that it is still the same stream.

Deleted messages and those that filters skip are normal. A head of the stream that has moved past the reader is a loss,
and so is a stream that ends before the range does. A replica that lags behind the leader is neither: the leader has
the last word. Every range ends with one STREAM.INFO, because what was read proves nothing about another stream of the
same name, or about a store that was set back.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from jsclient.arrow.ranges import StreamState, head_moved
from jsclient.durations import Deadline

if TYPE_CHECKING:
    from jsclient.arrow.access import StreamAccess
    from jsclient.arrow.chunks import Chunk
    from jsclient.arrow.ranges import Range

FREE_LOOKS: Final = 20  # chunks with holes after which the head is looked at at once
EVERY: Final = 0.1  # seconds between two looks after that: filters leave holes everywhere
PAUSE: Final = 0.2  # seconds between two questions while a leader catches up


class Gaps:
    """Watches the sequences of one range. For one thread."""

    def __init__(self, access: StreamAccess, part: Range) -> None:
        self._access = access
        self._part = part
        self._holes: list[tuple[int, list[int]]] = []  # what did not come whole since the last look at the head
        self._looks = 0
        self._look_at = 0.0
        self._at_mark: int | None = None  # when the message at the mark of the plan was stored, as it was read

    def check(self, start: int, sequences: list[int]) -> None:
        """`sequences` came where `start` was to be next; JETSTREAM_DATA_LOSS when the head has overtaken the reader.

        The head is compared soon after a hole was seen. Later it may have passed holes that were always there.
        """
        if sequences[-1] - start + 1 == len(sequences):
            return
        self._holes.append((start, sequences))
        if self._looks < FREE_LOOKS or time.monotonic() >= self._look_at:
            self._compare(self._access.state())

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
        """Everything of the range below `start` was read, and nothing is left from there on: is that the truth?"""
        part = self._part
        if start < part.end:
            self._holes.append((start, []))
        state = self._settled()
        if part.created and state.created != part.created:
            raise self._access.options.refuse(
                "JETSTREAM_STREAM_RECREATED",
                f"stream {state.name!r} was created at {state.created}, the range [{part.start}, {part.end}) was "
                f"planned for one of {part.created}; begin again",
            )
        if state.end < part.end:
            self._set_back(state, part.end - state.end)
        if self._holes:
            self._compare(state)
        if part.mark is not None and part.start <= part.mark[0] < part.end:
            self._same_message(part.mark)

    # --- the stream as the leader knows it --------------------------------------------------------------

    def _settled(self) -> StreamState:
        """The stream, once it reaches to the end of the range: a new leader may not have applied everything yet."""
        deadline = Deadline(self._access.deadline.at_most(self._access.options.reconnect_timeout))
        while True:
            state = self._access.state()
            same = not self._part.created or state.created == self._part.created
            if not same or state.end >= self._part.end or deadline.expired():
                return state
            time.sleep(deadline.at_most(PAUSE))

    def _compare(self, state: StreamState) -> None:
        """Count what the head has taken out of the holes that were seen since the last look."""
        part, holes = self._part, self._holes
        self._holes, self._looks, self._look_at = [], self._looks + 1, time.monotonic() + EVERY
        if (
            self._access.options.compacted
            or state.first <= holes[0][0]
            or (part.created and state.created != part.created)
        ):
            return  # the end of the range tells about another stream
        expired = lost = first_lost = last_lost = 0
        for start, sequences in holes:
            if part.soft and start == part.start:
                # `earliest` means what is there when it is read: nothing was promised before the first row.
                reached = sequences[0] if sequences else part.end
                expired += max(0, min(state.first, reached) - start)
                start = reached
            end = min(state.first, part.end, sequences[-1] + 1 if sequences else part.end)
            gone = end - start - bisect_left(sequences, end) + bisect_left(sequences, start)
            if gone > 0:
                first_lost, last_lost = first_lost or start, end - 1
                lost += gone
        if expired:
            text = (
                f"stream {state.name!r}: {expired} sequences from {part.start} on expired before they were read, the "
                f"stream begins at {state.first}; 'earliest' is what is there when it is read"
            )
            self._access.options.note(self._access.nc, part.query, text, expired=expired)
        if lost:
            text = head_moved(state, first_lost, last_lost + 1, lost, part.start, part.end)
            self._lost(f"{text}; keep messages longer, or {self._access.options.accept_loss}", lost)

    def _set_back(self, state: StreamState, missing: int) -> None:
        text = (
            f"stream {state.name!r} ends at {state.last}, but {missing} more sequences of the range "
            f"[{self._part.start}, {self._part.end}) were there when it was planned: its store was set back (a backup, "
            "or a loss of power), or a server answers that does not know better"
        )
        self._lost(f"{text}; look at the servers, then {self._access.options.accept_loss}", missing)

    def _same_message(self, mark: tuple[int, int]) -> None:
        """Compare the message at the mark; one that is no longer there, or that no filter matches, was not read."""
        sequence, planned = mark
        stored = self._access.stored_at(sequence) if self._at_mark is None else self._at_mark
        if stored is not None and stored != planned:
            self._lost(
                f"stream {self._access.stream!r}: message {sequence} is not the one that was planned for (stored "
                f"{stored - planned:+d} ns apart): the store was set back and filled again. What was read from there "
                f"on is no longer in the stream; {self._access.options.accept_loss}"
            )

    def _lost(self, text: str, count: int = 0) -> None:
        if self._access.options.fail_on_data_loss:
            raise self._access.options.refuse("JETSTREAM_DATA_LOSS", text)
        text = f"going on, because failOnDataLoss=false: {text}"
        self._access.options.note(self._access.nc, self._part.query, text, lost=count)
