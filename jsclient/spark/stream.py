"""Streaming reading: offsets are stream sequences, so every batch can be planned and read again.

The reader lives in a separate process for as long as the query runs. Spark kills that process at the end and never
calls `stop()`, so nothing here depends on it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import StreamState
from jsclient.planning.offsets import Offset, StreamOffset, shape_of
from jsclient.planning.planner import share
from jsclient.planning.selection import Selection, no_stream
from jsclient.spark.errors import JetStreamSparkError
from jsclient.spark.following import Follower, News
from jsclient.spark.idling import Idling
from jsclient.spark.options import SparkOptions
from jsclient.spark.pool import lease
from jsclient.spark.reader import checked_columns, empty_plan, limits_of, plan, read_batches
from jsclient.spark.schema import needs_payloads
from jsclient.spark.telling import tell
from jsclient.spark.workqueue import claim

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from jsclient.connection import Connection
    from jsclient.jetstream.api.models import StreamInfo


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("jetstream")`: the part that all streams of the query share; see Follower for each."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns: list[str] = checked_columns(schema, options)
        self.payloads: bool = needs_payloads(self.columns, options)
        self.label: str = uuid.uuid4().hex[:8]
        self.shape: str = shape_of(options.subjects, options.partition_by)
        self.selection: Selection = Selection(options)
        self._followers: dict[str, Follower] = {}
        self._losses: Counter[str] = Counter()  # of streams that are gone
        self._initial: dict[str, Any] | None = None
        self._available_now = False
        self._planned: Offset | None = None
        self._idling: Idling = Idling()

    def follower(self, name: str) -> Follower:
        found = self._followers.get(name)
        if found is None:
            found = self._followers[name] = Follower(self.options.of(name))
        return found

    # --- offsets ----------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """The start of a query without a checkpoint. Spark calls this twice, and the answer must not change."""
        if self._initial is None:
            with lease(self.options) as nc:
                streams = {
                    name: self.follower(name).initial(nc, info)
                    for name, info in self.selection.look(nc, complete=True).items()
                    if self._there(name, info)
                }
            if not streams:
                tell(f"no stream matches {self.options.stream!r} yet")
            self._initial = Offset(streams, shape=self.shape).to_dict()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; the very `start` when there is none (Spark compares the text)."""
        if self._idling.rests(start):
            return start
        end = self._latest(start, limit)
        if end is start and not self._available_now:
            self._idling.looked(start)
        return end

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = self._checked(Offset.from_dict(start, self.options.refuse))
        with lease(self.options) as nc:
            found = self._look(nc, before)
            self._idling.streams = [(access, state) for access, state, _ in found.values()]
            streams = {name: begin.resting() for name, (_, _, begin) in found.items()}
            self._planned = attrs.evolve(before, streams=streams)
            news = {name: each for name, each in self._news(found, limit) if each is not None}
            for name in found.keys() - before.streams.keys() - news.keys():
                if streams[name].soft:
                    del streams[name]  # a new stream that is empty is looked at again
            if not news and not self._left_or_joined(before, streams):
                return start
            streams.update(self._admitted(news, limit))
            self._planned = Offset(streams, id=before.id, shape=self.shape)
        return self._planned.to_dict()

    def _look(self, nc: Connection, before: Offset) -> dict[str, tuple[StreamAccess, StreamState, StreamOffset]]:
        """Each stream of the query as it is now, and the position of the query in it."""
        found: dict[str, tuple[StreamAccess, StreamState, StreamOffset]] = {}
        for name, info in self.selection.look(nc, known=before.streams).items():
            begin, follower = before.streams.get(name), self.follower(name)
            if info is None:
                if begin is not None:
                    self._gone(name, begin)
                elif self.options.fail_on_data_loss:
                    self._there(name, info)
                continue
            if begin is None:
                if self._available_now and follower.target is None:
                    continue  # it has appeared after this run began
                begin = follower.appeared(nc, info)
            access, state = follower.look(nc, info, begin)
            if state.end != begin.next or state.created != begin.made:
                begin = follower.same_stream(access, begin, state)
            found[name] = access, state, begin
        return found

    def _news(
        self, found: dict[str, tuple[StreamAccess, StreamState, StreamOffset]], limit: ReadLimit
    ) -> Iterator[tuple[str, News | None]]:
        rows, nbytes = self._limits(limit)
        for name, (access, state, begin) in found.items():
            follower = self.follower(name)
            if not (self._available_now and follower.target is None):
                limits = [self.options.records_per_partition]
                limits += [] if rows is None else [rows]
                limits += [] if nbytes is None else [int(nbytes / state.mean_size())]
                yield name, follower.news(access, state, begin, min(limits))

    def _there(self, name: str, info: StreamInfo | None) -> bool:
        """Raise an error for a missing stream that the options name; one that matches a pattern may be gone."""
        if info is None and name in self.selection.names:
            raise no_stream(self.options, name)
        return info is not None

    def _gone(self, name: str, part: StreamOffset) -> None:
        """Handle a stream of the offset that no longer exists."""
        if self.selection.single:
            raise no_stream(self.options, name)
        text = f"stream {name!r} is no longer there; what it had from {part.next} on cannot be read"
        if self.options.fail_on_data_loss:
            raise JetStreamSparkError(
                "JETSTREAM_DATA_LOSS", f"{text}; restore it, or go on without it with failOnDataLoss=false"
            )
        tell(f"going on without it, because failOnDataLoss=false: {text}")
        follower = self._followers.pop(name, None)
        state = None if follower is None else follower.state
        if follower is not None:
            seen = 0 if state is None else max(0, state.end - part.next)  # at least
            self._losses.update(follower.losses, lost=seen)

    @staticmethod
    def _left_or_joined(before: Offset, now: dict[str, StreamOffset]) -> bool:
        """True if the set of streams differs from the offset; Spark needs a batch to record that."""
        return {name: part.made for name, part in before.streams.items()} != {n: p.made for n, p in now.items()}

    def _admitted(self, news: dict[str, News], limit: ReadLimit) -> dict[str, StreamOffset]:
        """The end of the batch in each stream that has messages, and the number of its partitions there."""
        rows, nbytes = self._limits(limit)
        waiting = [name for name, each in news.items() if each.messages]
        # The streams that the last batch left out come first.
        waiting.sort(key=lambda name: (not news[name].begin.unread, name))
        shares = share([news[name].messages for name in waiting], rows)
        sizes = share([int(news[name].messages * news[name].state.mean_size()) + 1 for name in waiting], nbytes)
        ends = {name: each.end for name, each in news.items()}
        for name, most, size in zip(waiting, shares, sizes, strict=True):
            ends[name] = self._reach(news[name], most, size)
        parts = limits_of(self.options).spread([each.load(ends[name]) for name, each in news.items()])
        by_subject = self.options.partition_by == "subject"
        admitted = {}
        for (name, each), count in zip(news.items(), parts, strict=True):
            if each.messages and ends[name] == each.first:
                continue  # its turn comes with the next batch
            self.follower(name).moved(each)
            admitted[name] = each.until(ends[name], max(1, count), by_subject)
        return admitted

    @staticmethod
    def _reach(news: News, rows: int | None, nbytes: int | None) -> int:
        """The end of the batch in one stream, for at most `rows` rows and `nbytes` estimated bytes; None means all."""
        if news.survey is None or (rows is None and nbytes is None):
            return news.end
        if rows == 0 or nbytes == 0:
            return news.first
        most = news.messages if rows is None else rows
        if nbytes is not None:
            most = min(most, int(nbytes / news.state.mean_size()))
        # Only existing messages count against the limits of the trigger. One message is always read.
        return news.survey.reach(max(1, most))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit at a time; the other one is applied on top of it."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the streams and other numbers that Spark has no place for; used by `lag()` and the listener."""
        planned = self._planned
        if planned is None:
            return None
        newest, behind, rate = {}, {}, {}
        for name, part in planned.streams.items():
            state = self.follower(name).state
            if state is not None:
                newest[name] = StreamOffset(state.created, state.end, state.end)
                behind[name] = max(0, state.end - part.next)
                rate[name] = self.follower(name).rate(state)
        losses = Counter(self._losses)
        for follower in self._followers.values():
            losses.update(follower.losses)
        metrics = {"lost": losses["lost"], "expired": losses["expired"], "behind": behind, "rate": rate}
        return {**Offset(newest, id=planned.id, shape=self.shape).to_dict(), "metrics": metrics}

    def prepareForTriggerAvailableNow(self) -> None:
        """This run will read all messages that are stored now, and none that arrive later."""
        self._available_now = True
        with lease(self.options) as nc:
            for name, info in self.selection.look(nc, complete=True).items():
                if info is not None:
                    _, state = self.follower(name).look(nc, info)
                    self.follower(name).target = state.end

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            return self.options.max_offsets_per_trigger, limit.max_bytes
        return None, None

    def _checked(self, offset: Offset) -> Offset:
        """Check that the offset was made with these filters and streams.

        With readOptionsChanged=accept the query continues from it with the new ones.
        """
        self._same_streams(offset)
        if offset.shape == self.shape or self.options.read_options_changed == "accept":
            return attrs.evolve(
                offset, streams={name: part for name, part in offset.streams.items() if self.selection.means(name)}
            )
        what = "subjects" if offset.shape[:-1] != self.shape[:-1] else "partitionBy"
        places = ", ".join(f"{part.next} in {name}" for name, part in sorted(offset.streams.items())[:10])
        raise JetStreamSparkError(
            "JETSTREAM_CONFLICTING_OPTIONS",
            f"the checkpoint of stream {self.options.stream!r} was made with another option {what!r}: a batch that was "
            "planned could not be read again as it was. Use another checkpointLocation, or readOptionsChanged=accept "
            f"to go on from {places} with the new one",
        )

    def _same_streams(self, offset: Offset) -> None:
        """You may add streams to the option, but removing one raises an error."""
        left = [name for name in sorted(offset.streams) if not self.selection.means(name)]
        if left and len(left) == len(offset.streams):
            raise JetStreamSparkError(
                "JETSTREAM_STREAM_RECREATED",
                f"the checkpoint belongs to stream {', '.join(left)!r}, the query reads {self.options.stream!r}; "
                "use another checkpointLocation",
            )
        if left and self.options.read_options_changed != "accept":
            raise JetStreamSparkError(
                "JETSTREAM_CONFLICTING_OPTIONS",
                f"the checkpoint has a place in stream {', '.join(left)!r}, which the option 'stream' "
                f"({self.options.stream!r}) no longer means; name it, or readOptionsChanged=accept to go on without it",
            )

    # --- planning and reading ---------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of one batch; the same for every replay, because `end` holds the plan."""
        last = Offset.from_dict(end, self.options.refuse)
        self._checked(last)
        names = [name for name, part in sorted(last.streams.items()) if not part.unread]
        if not names:
            return []
        planned: list[InputPartition] = []
        with lease(self.options) as nc:
            infos = Selection(attrs.evolve(self.options, stream=",".join(names))).look(nc)
            for name in names:
                planned += self._partitions_of(nc, name, infos[name], last, len(planned))
        return planned

    def _partitions_of(
        self, nc: Connection, name: str, info: StreamInfo | None, last: Offset, number: int
    ) -> list[InputPartition]:
        """The partitions of one stream; their numbers begin at `number`."""
        options, follower, part = self.options, self.follower(name), last.streams[name]
        if info is None:
            self._gone(name, part)
            return empty_plan(name, part.parts, number)
        access, state = follower.look(nc, info, part)
        access.check_filters()
        if follower.claimed != last.id:
            claim(access, options, state.retention, last.id)
            follower.claimed = last.id
        whole = follower.range_of(access, state, part)
        if whole is None:
            return empty_plan(name, part.parts, number)
        label = f"{self.label}_{part.next}"
        return plan(access, state, whole, part.parts, label, part.by_subject, number, part.cuts, self.payloads)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_batches(self.options, self.schema, self.columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has durably finished the batch that ends here. It commits the last batch of a run at the next start."""
        if self.options.ack_mode == "none":
            return
        offset = Offset.from_dict(end, self.options.refuse)
        with lease(self.options) as nc:
            for name, part in offset.streams.items():
                self._purge(nc, name, part)

    def _purge(self, nc: Connection, name: str, part: StreamOffset) -> None:
        follower = self.follower(name)
        if follower.purged >= part.next:
            return
        access, state = follower.look(nc)
        if state.created == part.made:
            access.purge_below(part.next)
            follower.purged = part.next
        else:
            tell(f"stream {state.name!r} was made again since the last batch; nothing is purged")

    def stop(self) -> None:
        """Never called by Spark 4.3: the process is killed."""
        self._idling.end()
