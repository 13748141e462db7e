"""The state of a stream according to one STREAM.INFO, and a range of its sequences to read."""

from __future__ import annotations

import attrs


@attrs.frozen
class StreamState:
    """The answer of one STREAM.INFO: sequences [first, last], `created` as text, and numbers for the planner's
    estimates.

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
    compacted: bool = False  # a bucket: messages that its head has passed were replaced or have expired
    last_ns: int | None = None  # when the message at `last` was stored; None if unknown

    @property
    def end(self) -> int:
        """The first sequence that does not exist yet."""
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
    created: str = ""  # creation time of the planned stream; "" if unknown
    mark: tuple[int, int] | None = None  # sequence and time (ns) of a message of the plan, to recognize the store
    soft: bool = False  # begins at `earliest`, and nothing was promised yet
    headers_only: bool = False  # without values, by a consumer
    numbered: bool = True  # the sequence and time of each message are wanted

    @property
    def span(self) -> int:
        return self.end - self.start


def head_moved(state: StreamState, first: int, after: int, gone: int, start: int, end: int) -> str:
    """The text about `gone` sequences of [first, after) that the head of the stream has passed."""
    return (
        f"stream {state.name!r}: sequences {first} to {after - 1} ({gone} of the range [{start}, {end})) "
        f"are no longer there, the stream begins at {state.first} (limits, purge or deletes at its head)"
    )
