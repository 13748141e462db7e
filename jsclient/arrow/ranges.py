"""What a stream holds, as one STREAM.INFO said, and a range of its sequences that is to be read."""

from __future__ import annotations

import attrs


@attrs.frozen
class StreamState:
    """What one STREAM.INFO said: sequences [first, last], `created` as text, and what the planner estimates with.

    An empty stream has first == last + 1.
    """

    name: str
    created: str
    first: int
    last: int
    messages: int
    bytes: int
    retention: str = "limits"
    allow_direct: bool = False
    consumer_count: int = 0
    compacted: bool = False  # a bucket: what its head has passed was replaced or has expired
    last_ns: int | None = None  # when the message at `last` was stored; None if that is not known

    @property
    def end(self) -> int:
        """The first sequence that is not there yet."""
        return self.last + 1

    def mean_size(self) -> float:
        """Bytes per sequence, an estimate for the limits in bytes; at least 1."""
        return max(1.0, self.bytes / self.messages) if self.messages else 1.0


@attrs.frozen
class Range:
    """The sequences [start, end) of one partition; `filters` and `buckets` narrow it down further.

    `buckets` (bucket, of) keeps the subjects with a hash that falls into the bucket (partitionBy=subject).
    """

    index: int
    start: int
    end: int
    filters: tuple[str, ...] = ()
    buckets: tuple[int, int] | None = None
    created: str = ""  # when the stream was made that was planned for; "" if nobody looked
    mark: tuple[int, int] | None = None  # sequence and time (ns) of a message of the plan, to know the store by
    soft: bool = False  # begins at `earliest`, and nothing was promised yet
    query: str = ""  # the query, if its driver counts what is lost; "" if none does
    headers_only: bool = False  # without values, by a consumer

    @property
    def span(self) -> int:
        return self.end - self.start


def head_moved(state: StreamState, first: int, after: int, gone: int, start: int, end: int) -> str:
    """What is said about `gone` sequences of [first, after) that the head of the stream has passed."""
    return (
        f"stream {state.name!r}: sequences {first} to {after - 1} ({gone} of the range [{start}, {end})) "
        f"are no longer there, the stream begins at {state.first} (limits, purge or deletes at its head)"
    )
