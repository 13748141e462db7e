"""Float seconds <-> integer nanoseconds, and the deadline of a call.

Durations are seconds or a timedelta in signatures, and float seconds everywhere else. Integer nanoseconds exist only on
the wire. This is the only module that contains the factor between them.
"""

from __future__ import annotations

import datetime as dt
import enum
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from jsclient.errors import ConfigError

NANOSECONDS: Final = 1_000_000_000


MOST_NANOSECONDS: Final = 2**63 - 1
MOST_SECONDS: Final = MOST_NANOSECONDS // 1_000_000_000
"""The wire has 64 bits, which is 292 years."""

MOST_POLLED: Final = 2**31 - 1
"""Milliseconds (24 days) that `poll` can wait. A longer wait counts as late after that."""

FOREVER: Final = 1e9
"""A timeout of at least these seconds (32 years) sets no limit: the system's clocks and locks reject such times."""


_ALWAYS_ON: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None) or (
    time.CLOCK_MONOTONIC if sys.platform == "darwin" else None
)


def elapsed() -> float:
    """Seconds on a monotonic clock that continues while the machine is suspended.

    `time.monotonic` stops then on Linux and macOS. So use this for times that servers and other machines count
    meanwhile, such as leases or the duplicate window of a stream. Timeouts of calls count the time that we run.
    """
    return time.monotonic() if _ALWAYS_ON is None else time.clock_gettime(_ALWAYS_ON)


class Default(enum.Enum):
    """The type of `DEFAULT`, which means "the default timeout of this kind of call". None waits indefinitely."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT


MAX_SECONDS: Final = (1 << 63) / 1e9
"""About 292 years: the server counts nanoseconds in 63 bits."""


def to_ns(seconds: float | dt.timedelta) -> int:
    """Seconds (or a timedelta) as integer nanoseconds. A timedelta is converted without rounding."""
    try:
        if isinstance(seconds, dt.timedelta):
            microseconds = (seconds.days * 86_400 + seconds.seconds) * 1_000_000 + seconds.microseconds
            nanoseconds = microseconds * 1_000
        else:
            whole = int(seconds)
            nanoseconds = whole * NANOSECONDS + round((seconds - whole) * NANOSECONDS)
    except (TypeError, ValueError, OverflowError):
        nanoseconds = MOST_NANOSECONDS + 1
    if abs(nanoseconds) > MOST_NANOSECONDS:
        raise ConfigError(f"a duration is a number of seconds, of at most 292 years; got {seconds!r:.60}")
    return nanoseconds


def seconds_of(duration: float | dt.timedelta) -> float:
    """A duration, of either type, as float seconds."""
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else float(duration)


def plain(duration: float | dt.timedelta) -> float:
    """A duration as seconds. Anything else stays unchanged for a later check."""
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else duration


def plain_or_none(duration: float | dt.timedelta | None) -> float | None:
    """The same if None is allowed, too."""
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else duration


def doubled(first: float, times: int, most: float) -> float:
    """`first` seconds, doubled `times` times, and at most `most`.

    A float ends at 2**1024, which retries over hours would reach.
    """
    return min(most, first * 2.0 ** min(times, 64))


def to_seconds(nanoseconds: int) -> float:
    """Integer nanoseconds as float seconds."""
    return nanoseconds / NANOSECONDS


def check_timeout(timeout: float | None, name: str = "timeout") -> None:
    """Refuse a negative timeout or NaN. None waits indefinitely, and 0 returns only what is available."""
    try:
        fits = timeout is None or (timeout >= 0 and not isinstance(timeout, bool))
    except TypeError:
        fits = False
    if not fits:
        raise ConfigError(f"{name} must be 0 or more seconds, or None to wait for ever; got {timeout!r}")


_PLAIN: Final = frozenset({int, float})


def resolve(timeout: Timeout, default: float | None) -> float | None:
    """The seconds for one call: its own checked timeout if given, else the default of that kind of call."""
    # The usual case. The rest takes 0.7 µs, a twentieth of the Python work of a fetch before its request.
    if timeout.__class__ in _PLAIN and 0 <= timeout < FOREVER:  # type: ignore[operator]
        return timeout  # type: ignore[return-value]
    if isinstance(timeout, Default):
        return default
    if isinstance(timeout, Deadline):
        return timeout.remaining()
    if isinstance(timeout, dt.timedelta):
        timeout = timeout.total_seconds()
    check_timeout(timeout)
    return None if timeout is None or timeout >= FOREVER else float(timeout)  # a Decimal, a Fraction


def whole(timeout: Timeout) -> Default | Deadline:
    """The timeout for a call of several steps. A given timeout bounds all of them; the default applies to each step."""
    return timeout if isinstance(timeout, Default) else Deadline.of(timeout, None)


class Deadline:
    """The moment at which a multi-step call has used up its timeout. It is made once and checked at every step."""

    __slots__ = ("at", "seconds")

    def __init__(self, timeout: float | None) -> None:
        self.seconds: float | None = timeout  # as given, for messages
        self.at: float | None = None if timeout is None or timeout >= FOREVER else time.monotonic() + timeout

    @classmethod
    def of(cls, timeout: Timeout, default: float | None) -> Deadline:
        """The deadline of one call, which bounds all of its steps. An outer call may pass one; otherwise it is new."""
        return timeout if isinstance(timeout, Deadline) else cls(resolve(timeout, default))

    def prolonged(self, timeout: float | None) -> Deadline:
        """A deadline with another timeout and the same start."""
        assert self.at is not None
        assert self.seconds is not None
        other = Deadline(timeout)
        if other.at is not None and timeout is not None:
            other.at = self.at - self.seconds + timeout
        return other

    def remaining(self) -> float | None:
        """Seconds left, never negative; None if there is no limit."""
        if self.at is None:
            return None
        return max(0.0, self.at - time.monotonic())

    def expired(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    def at_most(self, seconds: float) -> float:
        """The smaller of the remaining time and `seconds`."""
        return seconds if self.at is None else min(max(0.0, self.at - time.monotonic()), seconds)


Timeout: TypeAlias = float | dt.timedelta | Default | Deadline | None
"""The type of `timeout` in all public calls. A Deadline comes from an outer call that passes it on."""


class Patience:
    """The time for a call of many steps. A given timeout bounds the complete call; the default bounds each step."""

    def __init__(self, timeout: Timeout, step: float | None) -> None:
        self._step = step if isinstance(timeout, Default) else None
        self._whole = Deadline(None if isinstance(timeout, Default) else resolve(timeout, None))

    @property
    def whole(self) -> float | None:
        """Seconds left for the complete call; None if only its steps are bounded."""
        return self._whole.remaining()

    def remaining(self) -> float | None:
        """Seconds for the next step."""
        return self._whole.remaining() if self._step is None else self._whole.at_most(self._step)

    def deadline(self) -> Deadline:
        """The deadline of the next step."""
        return Deadline(self.remaining())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wrap the time that the application takes between two results, because it does not belong to the call."""
        left = time.monotonic()
        try:
            yield
        finally:
            if self._whole.at is not None:
                self._whole.at += time.monotonic() - left
