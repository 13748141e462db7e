"""Reads a range by the method that fits. Both the data source and `read_range` use it in a task.

There are two methods, because neither is enough. A row of 128 bytes costs 1.7 µs of CPU through a consumer, and 3.5 µs
by direct get. A range of 100 messages takes 1.6 ms by direct get, and 4.5 ms through a consumer, which also costs the
meta layer of a cluster. Work queues can only be read by direct get, and older servers only through a consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

import attrs

from jsclient import errors
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.chunks import Chunk, by_bucket
from jsclient.arrow.direct import Elsewhere, RangeDirect
from jsclient.arrow.gaps import Gaps
from jsclient.arrow.pulling import RangeConsumer
from jsclient.arrow.ranges import Range, StreamState

if TYPE_CHECKING:
    from jsclient.arrow.settings import Settings
    from jsclient.connection import Connection

log: logging.Logger = logging.getLogger("jsclient.arrow")

SMALL_RANGE: Final = 2_000  # sequences up to which direct get is cheaper than a consumer


def read_chunks(nc: Connection, options: Settings, part: Range, method: str, label: str) -> Iterator[Chunk]:
    """The messages of one range in order. `method` is the result of `choose_method` in the planner."""
    return read_through(StreamAccess(nc, options, timeout=options.task_timeout), part, method, label)


def read_through(access: StreamAccess, part: Range, method: str, label: str) -> Iterator[Chunk]:
    """The same through `access`, bounded by its deadline."""
    reached = part.start
    try:
        gaps = Gaps(access, part)
        with closing(_chunks(access, part, method, label, gaps)) as chunks:  # type: ignore[type-var]
            for chunk in chunks:
                reached = chunk.sequences[-1] + 1
                gaps.mark(chunk)
                if part.buckets is not None:
                    chunk = by_bucket(chunk, *part.buckets)
                if len(chunk):
                    yield chunk
                if access.deadline.expired():
                    raise access.timed_out(
                        f"reading partition {part.index} [{part.start}, {part.end}), which came to {reached},"
                    )
    except errors.JsClientError as error:
        raise access.failed(f"reading partition {part.index} [{part.start}, {part.end})", error) from error


def _chunks(access: StreamAccess, part: Range, method: str, label: str, gaps: Gaps) -> Iterator[Chunk]:
    """The chunks by the method that works. The reader of the last chunk reports the end of the range to `gaps`."""
    if method != "consumer":
        direct = RangeDirect(access, part, gaps, required=method == "direct")
        try:
            yield from direct.chunks()
            return
        except Elsewhere as error:
            if method == "direct":
                raise access.options.refuse(
                    "JETSTREAM_DIRECT_UNAVAILABLE",
                    f"stream {access.stream!r}: {error}",
                ) from error
            log.info("stream %r: %s; reading on through a consumer", access.stream, error)
            part = attrs.evolve(part, start=direct.next)
    yield from RangeConsumer(access, part, label, gaps).chunks()


def choose_method(access: StreamAccess, state: StreamState, span: int) -> str:
    """With "auto" it is direct get for small ranges if that works, and for streams that are consumed by reading.

    Returns "consumer", "direct" or "either". The last one means direct get, and a consumer if direct get fails.
    """
    options, direct_works = access.options, access.direct_works(state)
    consumed = state.retention in ("workqueue", "interest")
    if options.read_method == "consumer":
        return "consumer"
    if options.read_method == "direct" or consumed:
        if not direct_works:
            raise options.refuse(
                "JETSTREAM_DIRECT_UNAVAILABLE",
                f"stream {options.stream!r} cannot be read by direct get: it needs allow_direct in the stream and "
                "nats-server 2.11" + ("" if consumed else "; use readMethod=consumer"),
            )
        return "direct"
    return "either" if direct_works and span <= SMALL_RANGE else "consumer"
