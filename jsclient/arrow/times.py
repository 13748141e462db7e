"""Times in JSON documents: RFC 3339 text as datetimes, cut to microseconds.

msgspec itself rounds, which moves 23:59:59.9999999 to the next day. Spark's `from_json` cuts, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from string import digits
from typing import Final

import msgspec

_SECONDS: Final = len("2026-01-02T03:04:05")
_MICROSECONDS: Final = len("2026-01-02T03:04:05.123456")


def times_of(texts: Sequence[str | None], zoned: bool) -> list[dt.datetime | None]:
    """The times in `texts`. Raises ValueError for other text, and for a zone that the column cannot hold."""
    found = msgspec.convert([_cut(text) for text in texts], list[dt.datetime | None])
    if not zoned and any(time is not None and time.tzinfo is not None for time in found):
        raise ValueError("a time with a zone, in a column without one")
    return found


def _cut(text: str | None) -> str | None:
    """The same time without digits behind the microseconds."""
    if text is None or not (text[_SECONDS:].startswith(".") and text[_SECONDS + 1 : _MICROSECONDS + 1].isdigit()):
        return text
    return text[:_MICROSECONDS] + text[_MICROSECONDS:].lstrip(digits)
