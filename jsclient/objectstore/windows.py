"""How much of an object is under way at a time: more over a long line, or it would stand idle most of the time.

Both directions begin with what a near server needs, and take more only as fast as the line proves to be: a window of
many megabytes on a slow line would make everything else on it wait for minutes.
"""

from __future__ import annotations

from typing import Final

NEAR: Final = 0.02
"""Seconds of a round trip up to which the least window does."""

MOST: Final = 8
"""Times the least window, for 160 ms and more: memory grows by it."""

ROUND_TRIPS: Final = 8
"""Round trips for the bytes that a growing window holds: see `consuming.pull`."""

MOST_CHUNKS: Final = 4_000
"""However small they are."""

CHUNK: Final = 128 * 1024
"""Bytes of a chunk where its writer has not said it."""


def most_bytes(least: int, round_trip: float) -> int:
    """The largest window over this line, of which `least` is enough on a near one."""
    return int(least * min(max(round_trip / NEAR, 1.0), MOST))


def chunks_in(window: int, chunk_size: int | None, least: int) -> int:
    """How many chunks the window holds, and `least` at least, however large they are."""
    return max(least, min(window // (chunk_size or CHUNK), MOST_CHUNKS))


def grown(least: int, most: int, chunks: int, seconds: float, round_trip: float) -> int:
    """The window, in chunks, for a line that took so many in so many seconds."""
    wanted = int(chunks / seconds * ROUND_TRIPS * round_trip) if seconds > 0 else least
    return max(least, min(wanted, most))
