"""Functions that turn the text of an option into a value. They raise Refused with the allowed values."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Callable
from typing import Final

from jsclient.jetstream.message import timestamp_ns

SIZES: Final = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3, "gb": 1024**3}
SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LARGEST: Final = (1 << 63) - 1
MOST_SECONDS: Final = LARGEST / 1e9
"""292 years, the maximum that a server accepts in nanoseconds."""
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


class Refused(ValueError):
    """The text of an option is invalid; says what it must be. Users get JETSTREAM_BAD_OPTION with the option's name."""


def text(value: str) -> str:
    if not value.strip():
        raise Refused("must not be empty")
    return value.strip()


def integer(lowest: int) -> Callable[[str], int]:
    """A whole number of at least `lowest` that fits into 63 bits."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise Refused(f"must be a whole number, got {value!r}") from None
        if not lowest <= number <= LARGEST:
            raise Refused(f"must be between {lowest} and 2^63-1, got {number}")
        return number

    return parse


def boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise Refused(f"must be true or false, got {value!r}")
    return lowered == "true"


def size(value: str) -> int:
    """Bytes: a whole number, or with k, m or g (powers of 1024)."""
    match = _NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in SIZES:
        raise Refused(f"must be a size such as 65536, 512k or 8m, got {value!r}")
    number = float(match[1]) * SIZES[match[2].lower()]
    if not 1 <= number < LARGEST:
        raise Refused(f"must be at least 1 byte and less than 2^63, got {value!r}")
    return int(number)


def duration(value: str) -> float:
    """Seconds: a number, or with ms, s, m, h or d."""
    match = _NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in SECONDS:
        raise Refused(f"must be a duration such as 500ms, 30s or 15m, got {value!r}")
    seconds = float(match[1]) * SECONDS[match[2].lower()]
    if seconds > MOST_SECONDS:
        raise Refused(f"must be at most 292 years, got {value!r}")
    return seconds


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in allowed:
            raise Refused(f"must be one of {', '.join(allowed)}; got {value!r}")
        return lowered

    return parse


def names(value: str) -> tuple[str, ...]:
    """A comma list without empty items."""
    items = tuple(item.strip() for item in value.split(","))
    if not all(items):
        raise Refused(f"must be a comma list without empty items, got {value!r}")
    return items


class PerStream(tuple[tuple[str, "str | int"], ...]):
    """Positions of single streams by name; "*" stands for all others."""

    __slots__ = ()

    def of(self, stream: str) -> str | int | None:
        """None for a stream that is not named, when there is no "*"."""
        found = dict(self)
        return found.get(stream, found.get("*"))


Position = str | int | PerStream


def position(*words: str) -> Callable[[str], Position]:
    """One of `words`, or `{"seq": n}`; or an object with these by the name of the stream, "*" for the rest."""
    allowed = ", ".join((*words, '{"seq": n}'))

    def one(value: object) -> str | int:
        if isinstance(value, str) and value.strip().lower() in words:
            return value.strip().lower()
        sequence = value["seq"] if isinstance(value, dict) and set(value) == {"seq"} else None
        if type(sequence) is not int or not 0 <= sequence <= LARGEST:
            raise Refused
        return sequence

    def parse(value: str) -> Position:
        try:
            if value.strip().lower() in words:
                return one(value)
            decoded = json.loads(value)
            if isinstance(decoded, dict) and decoded and (set(decoded) != {"seq"} or isinstance(decoded["seq"], dict)):
                return PerStream(sorted((name, one(each)) for name, each in decoded.items()))
            return one(decoded if isinstance(decoded, dict) else None)
        except (ValueError, RecursionError):
            raise Refused(f"must be {allowed}, or these by the name of the stream; got {value!r}") from None

    return parse


def moment(value: str) -> int:
    """A point in time as nanoseconds since 1970: ISO-8601 (UTC when it has no zone), epoch milliseconds, or -15m for a
    time before now."""
    stripped = value.strip()
    if stripped.startswith("-"):
        return time.time_ns() - int(duration(stripped[1:]) * 1e9)
    try:
        found = int(stripped) * 1_000_000 if stripped.isdecimal() else _since_1970(stripped)
    except (ValueError, OverflowError):
        raise Refused(
            f"must be ISO-8601, epoch milliseconds, or a time before now such as -15m, got {value!r}"
        ) from None
    if not -LARGEST <= found <= LARGEST:
        raise Refused(f"must be between the years 1678 and 2262, got {value!r}")
    return found


def _since_1970(written: str) -> int:
    when = dt.datetime.fromisoformat(written.replace("Z", "+00:00"))
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.timezone.utc)
    return timestamp_ns(when)
