"""The amount of an object's data under way at a time. A long line needs more, or it would be idle most of the time.

Both directions begin with the window for a near server, and increase it only if the line proves to be fast enough. On a
slow line, a window of many megabytes would make everything else on it wait for minutes.
"""

from __future__ import annotations

from typing import Final

NEAR: Final = 0.02
"""Seconds of a round trip up to which the smallest window is enough."""

MOST: Final = 8
"""Times the least window, for 160 ms and more: memory grows by it."""

ROUND_TRIPS: Final = 8
"""Round trips for the bytes that a growing window holds: see `consuming.pull`."""

MOST_CHUNKS: Final = 4_000
"""However small they are."""

CHUNK: Final = 128 * 1024
"""Bytes of a chunk if its writer has not set them."""


def most_bytes(least: int, round_trip: float) -> int:
    """The largest window over this line, of which `least` is enough on a near one."""
    return int(least * min(max(round_trip / NEAR, 1.0), MOST))


def chunks_in(window: int, chunk_size: int | None, least: int) -> int:
    """Number of chunks in the window; at least `least`, even if they are large."""
    return max(least, min(window // (chunk_size or CHUNK), MOST_CHUNKS))


def grown(least: int, most: int, chunks: int, seconds: float, round_trip: float) -> int:
    """The window, in chunks, for a line that has sent `chunks` in `seconds`."""
    wanted = int(chunks / seconds * ROUND_TRIPS * round_trip) if seconds > 0 else least
    return max(least, min(wanted, most))
