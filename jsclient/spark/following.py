"""One stream of a streaming query: checks that it is still the same stream, finds new messages, and cuts batches."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import Range, StreamState
from jsclient.durations import Deadline
from jsclient.planning.offsets import StreamOffset
from jsclient.planning.planner import Load, check_head
from jsclient.planning.survey import Survey, survey_of
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.reader import begins_softly, load_of, starting
from jsclient.spark.telling import tell
from jsclient.spark.workqueue import check_retention

if TYPE_CHECKING:
    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import StreamInfo
    from jsclient.spark.options import SparkOptions

CATCH_UP: Final = 2.0  # seconds to wait for a stream that ends before the checkpoint
IDLE: Final = 600.0  # seconds after which the offset moves over what no filter matches, in a batch without rows
RATED: Final = 0.5  # the minimum of seconds for measuring a rate
MOST_CUTS: Final = 60_000  # bytes of an offset for the boundaries of partitions; with more, cuts are even
CLOSE: Final = 0.1  # it also moves when the head of the stream is closer to it than this part of the stream


@attrs.frozen
class News:
    """The part of a stream for the next batch: the sequences [first, end). Without a survey there are no rows.

    `lost` and `expired` are the sequences before `first` that the head of the stream has passed.
    """

    access: StreamAccess
    state: StreamState
    begin: StreamOffset
    first: int
    end: int
    soft: bool
    survey: Survey | None
    lost: int
    expired: int
    warning: str

    @property
    def messages(self) -> int:
        return 0 if self.survey is None else self.survey.messages

    def load(self, end: int) -> Load:
        """The load before `end`."""
        return Load(0, 0, 0) if self.survey is None else load_of(self.state, self.survey, end)

    def until(self, end: int, parts: int, by_subject: bool) -> StreamOffset:
        """The offset of a batch that reads up to `end`."""
        cuts = () if by_subject or self.survey is None else self.survey.cuts(end, parts)
        if len(cuts) * (len(str(end)) + 2) > MOST_CUTS:
            cuts = ()
        return StreamOffset(
            made=self.begin.made,
            next=end,
            start=self.first,
            parts=parts,
            cuts=cuts,
            by_subject=by_subject,
            mark=self.access.mark(self.state, self.first, end),
            soft=self.soft,
        )


class Follower:
    """One stream of a query. `options` belong to this stream."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self.losses: Counter[str] = Counter()  # "lost" and "expired" sequences of this run, for the progress
        self.state: StreamState | None = None  # as the last trigger saw it
        self.target: int | None = None  # AvailableNow: nothing at or after it is read in this run
        self.claimed = ""  # the id of the query for which this process has claimed the work queue
        self.purged = 0  # below it a commit of this process has purged
        self._checked = False
        self._nothing_below = 0  # the leader found no match between the offset and this sequence
        self._nothing_since: float | None = None  # when it first found none
        self._rated: tuple[float, int] | None = None  # the time of the last rate, and the end of the stream then
        self._rate = 0.0

    def look(
        self, nc: Connection, info: StreamInfo | None = None, known: StreamOffset | None = None
    ) -> tuple[StreamAccess, StreamState]:
        """The stream now. A new leader may lag behind what we saw from the old one, so it gets a moment to catch up."""
        access = StreamAccess(nc, self.options)
        info = info or access.info()
        if not self._checked:
            check_retention(access, self.options, info)
            self._checked = True
        state, deadline = access.state(info), Deadline(CATCH_UP)
        while known is not None and state.created == known.made and state.end < known.next:
            if deadline.expired():
                break
            time.sleep(deadline.at_most(0.1))
            state = access.state()
        self.state = state
        return access, state

    def initial(self, nc: Connection, info: StreamInfo | None) -> StreamOffset:
        """The start of a query without a checkpoint in this stream."""
        access, state = self.look(nc, info)
        # A commit purges all messages below its offset, so with ackMode=purge the default start is the head of the
        # stream.
        soft = self.options.ack_mode == "purge" or self.options.starting_offsets == "earliest"
        seq = starting(self.options, access, state, state.first if soft else state.end)
        if seq > state.end:
            raise JetStreamSparkError(
                "JETSTREAM_BAD_OPTION",
                f"option 'startingOffsets': {seq} lies behind the end of stream {state.name!r}, which ends at "
                f"{state.last}; give at most {state.end}, or latest",
            )
        if self.target is not None:
            seq = min(seq, self.target)
        return StreamOffset(state.created, seq, start=seq, soft=soft and begins_softly(self.options))

    def appeared(self, nc: Connection, info: StreamInfo) -> StreamOffset:
        """The start of a query in a stream that did not exist before."""
        _, state = self.look(nc, info)
        return StreamOffset(state.created, state.first, start=state.first, soft=True)

    def news(self, access: StreamAccess, state: StreamState, begin: StreamOffset, worth: int) -> News | None:
        """The messages to read from `begin` on; None if there are none and the offset need not move.

        For more than `worth` sequences it counts the messages in them.
        """
        available = state.end if self.target is None else min(state.end, self.target)
        if available <= begin.next:
            return None
        known = max(begin.next, min(self._nothing_below, available))  # below it no message matches, so none was lost
        lost, warning, soft = 0, "", begin.soft and begin.unread
        if soft:
            head = max(begin.next, min(state.first, available))
        else:
            head, warning = check_head(state, known, available, self.options)
            lost = head - known if warning else 0
        expired = max(0, head - known) if soft else 0
        first = self._first(access, state, head, available)
        if first is None:
            if not self._may_move(begin.next, state):
                return None
            return News(access, state, begin, available, available, soft, None, lost, expired, warning)
        survey = survey_of(access, state, first, available, worth)
        return News(access, state, begin, first, available, soft, survey, lost, expired, warning)

    def moved(self, news: News) -> None:
        """Record that the next batch moves the offset, past any lost messages before it."""
        self._nothing_since = None
        self.losses.update(lost=news.lost, expired=news.expired)
        if news.warning:
            tell(f"going on, because failOnDataLoss=false: {news.warning}")

    def rate(self, state: StreamState) -> float:
        """Messages per second that the stream received between the last two triggers; 0 at the first one."""
        now = time.monotonic()
        if self._rated is None or state.end < self._rated[1]:
            self._rated, self._rate = (now, state.end), 0.0
        elif now - self._rated[0] >= RATED:
            self._rate = round((state.end - self._rated[1]) / (now - self._rated[0]), 1)
            self._rated = now, state.end
        return self._rate

    def _first(self, access: StreamAccess, state: StreamState, head: int, available: int) -> int | None:
        """The first message to read in [head, available); None when nothing matches. Holes do not cause batches."""
        dense = state.messages == state.end - state.first
        if head >= available or (dense and not self.options.subjects):
            return head if head < available else None
        found = access.next_on_leader(head, self.options.subjects)
        # That answer only counts if the leader has the complete range. Else the task looks what is left of it.
        now = access.state()
        if now.created != state.created or now.first > head:
            return head
        if found is not None and found < available:
            return found
        if now.end < available:
            return head
        self._nothing_below = available
        return None

    def _may_move(self, start: int, state: StreamState) -> bool:
        """Nothing matches up to the end. True if it is time for a batch without rows, which only moves the offset.

        If the offset stayed behind forever, it would look like a loss when the head of the stream passes it.
        """
        now = time.monotonic()
        self._nothing_since = self._nothing_since or now
        near = start - state.first < CLOSE * (state.end - state.first)
        return near or self.target is not None or now - self._nothing_since >= IDLE

    def same_stream(self, access: StreamAccess, offset: StreamOffset, state: StreamState) -> StreamOffset:
        """Check that the checkpoint belongs to this stream. With failOnDataLoss=false the query begins a new one."""
        recreated = offset.made != state.created
        if recreated:
            what = f"was created at {state.created}, the checkpoint belongs to one of {offset.made}"
        elif offset.next > state.end:
            what = f"ends at {state.last}, before the checkpoint: its store was set back"
        elif offset.mark is not None and access.stored_at(offset.mark[0]) not in (None, offset.mark[1]):
            what = f"has another message {offset.mark[0]} than the checkpoint: its store was set back and filled again"
        else:
            return offset
        text = (
            f"stream {state.name!r} {what}: the range from {offset.next} on cannot be what it was (stream now: "
            f"[{state.first}, {state.end}))"
        )
        if self.options.fail_on_data_loss:
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_RECREATED" if recreated else "JETSTREAM_DATA_LOSS",
                f"{text}; use another checkpointLocation, or failOnDataLoss=false to go on at the head of the new one",
            )
        tell(f"going on at {state.first}, because failOnDataLoss=false: {text}")
        self._nothing_below = 0
        return StreamOffset(state.created, state.first, start=state.first)

    def range_of(self, access: StreamAccess, state: StreamState, last: StreamOffset) -> Range | None:
        """The range of a batch in this stream, according to its offset; None if nothing of it is left."""
        begin = last.start
        if self.same_stream(access, last, state).made != last.made:
            self.losses["lost"] += last.next - begin
            return None
        if not last.soft:
            head, warning = check_head(state, begin, last.next, self.options)
            if warning:
                self.losses["lost"] += head - begin
                tell(f"going on, because failOnDataLoss=false: {warning}")
        return Range(0, begin, last.next, self.options.subjects, None, state.created, last.mark, last.soft)
