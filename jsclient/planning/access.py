"""A stream as planning sees it: the number of wanted messages behind a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.jetstream.api.batch_answers import parts_of

if TYPE_CHECKING:
    from jsclient.arrow.ranges import StreamState


class PlanningAccess(StreamAccess):
    """StreamAccess that can count."""

    def can_count(self, state: StreamState) -> bool:
        """True if `pending_from` works: a stream that is consumed by reading must not get a consumer for that."""
        return self._by_direct_get(state) or (self.options.read_method != "direct" and state.retention == "limits")

    def pending_from(self, seq: int, filters: tuple[str, ...], state: StreamState) -> tuple[int, int | None]:
        """The number of matching messages from `seq` on, and the sequence of the first one.

        One direct get answers both. Without it the leader gives the sequence, and a consumer, which is never read from,
        gives the number. A replica that lags behind gives too small a number, so this is for planning only.
        """
        if len(filters) <= 1 and self._by_direct_get(state):
            found = self._pending_directly(seq, filters[0] if filters else ">")
            if found is not None:
                return found
        following = self.next_on_leader(seq, filters)
        if following is None or self.options.read_method == "direct" or state.retention != "limits":
            return (0, None) if following is None else (state.end - following, following)
        name = self.new_name("plan")
        more = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, seq)}
        info = self.create_consumer(name, {**more, "filter_subjects": list(filters)} if filters else more, 5.0)
        self.delete_consumer(name)
        return info.num_pending, following

    def _by_direct_get(self, state: StreamState) -> bool:
        return self.options.read_method != "consumer" and self.direct_works(state)

    def _pending_directly(self, seq: int, subject: str) -> tuple[int, int | None] | None:
        """None without an answer, or if a mirror answers, which may keep less than the stream."""
        body = {"batch": 1, "seq": max(1, seq), "next_by_subj": subject}

        def get() -> tuple[int, int | None] | None:
            try:
                message = self.api.request_raw(f"DIRECT.GET.{self.stream}", body, timeout=self.patience(), read=True)
            except errors.JetStreamUnavailable:
                return None
            if message.status is not None:
                return (0, None) if message.status.code == 404 else None
            found = parts_of(message)
            mirrored = found.stream != self.stream.encode()
            return None if mirrored or found.pending is None else (found.pending + 1, found.sequence)

        return self.retrying("direct get", get)
