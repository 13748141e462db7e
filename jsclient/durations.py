"""Float seconds <-> integer nanoseconds, and the deadline of a call.

Durations are seconds or a timedelta in signatures, float seconds everywhere else; integer nanoseconds exist on the
wire only.
This is the only module that knows the factor between them.
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
"""The wire has 64 bits, which are 292 years."""

MOST_POLLED: Final = 2**31 - 1
"""Milliseconds (24 days) that `poll` can wait; what waits longer counts as late then."""

FOREVER: Final = 1e9
"""Seconds (32 years) from which on a timeout is none: the system's clocks and locks refuse to count so far."""


_ALWAYS_ON: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None) or (
    time.CLOCK_MONOTONIC if sys.platform == "darwin" else None
)


def elapsed() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine is suspended.

    `time.monotonic` stands still then on Linux and macOS. So this is for what servers and other machines count
    meanwhile: leases, and how long a stream remembers message ids. Timeouts of calls count the time that we run.
    """
    return time.monotonic() if _ALWAYS_ON is None else time.clock_gettime(_ALWAYS_ON)


class Default(enum.Enum):
    """The type of `DEFAULT`: "the default timeout of this kind of call" (None means: wait for ever)."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT


MAX_SECONDS: Final = (1 << 63) / 1e9
"""About 292 years: the server counts nanoseconds in 63 bits."""


def to_ns(seconds: float | dt.timedelta) -> int:
    """Seconds (or a timedelta) as integer nanoseconds; a timedelta is converted without rounding."""
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
    """A duration as float seconds, whichever of the two it is."""
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else float(duration)


def plain(duration: float | dt.timedelta) -> float:
    """A duration as seconds; what is none is left as it is, for the check behind this."""
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else duration


def plain_or_none(duration: float | dt.timedelta | None) -> float | None:
    """The same where None has a meaning."""
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else duration


def doubled(first: float, times: int, most: float) -> float:
    """`first` seconds, doubled so many times, and at most `most`. A float ends at 2**1024: what is tried again for
    hours gets there."""
    return min(most, first * 2.0 ** min(times, 64))


def to_seconds(nanoseconds: int) -> float:
    """Integer nanoseconds as float seconds."""
    return nanoseconds / NANOSECONDS


def check_timeout(timeout: float | None, name: str = "timeout") -> None:
    """Refuse what no call accepts: a negative timeout or NaN. None waits for ever, 0 takes only what is there."""
    try:
        fits = timeout is None or (timeout >= 0 and not isinstance(timeout, bool))
    except TypeError:
        fits = False
    if not fits:
        raise ConfigError(f"{name} must be 0 or more seconds, or None to wait for ever; got {timeout!r}")


_PLAIN: Final = frozenset({int, float})


def resolve(timeout: Timeout, default: float | None) -> float | None:
    """The seconds that one call has: its own timeout if given, else the default of that kind of call; checked."""
    # As usual. The rest takes 0.7 us, a twentieth of all that a fetch does in Python before it asks.
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
    """For a call of several steps: the timeout that was given bounds all of them, the default is one of each step."""
    return timeout if isinstance(timeout, Default) else Deadline.of(timeout, None)


class Deadline:
    """The moment at which a multi-step call has used up its timeout; made once, asked at every step."""

    __slots__ = ("at", "seconds")

    def __init__(self, timeout: float | None) -> None:
        self.seconds: float | None = timeout  # as given, for messages
        self.at: float | None = None if timeout is None or timeout >= FOREVER else time.monotonic() + timeout

    @classmethod
    def of(cls, timeout: Timeout, default: float | None) -> Deadline:
        """That of one call, which bounds all of its steps: what an outer call hands down, or else a new one."""
        return timeout if isinstance(timeout, Deadline) else cls(resolve(timeout, default))

    def prolonged(self, timeout: float | None) -> Deadline:
        """Another one with the same beginning."""
        assert self.at is not None
        assert self.seconds is not None
        other = Deadline(timeout)
        if other.at is not None and timeout is not None:
            other.at = self.at - self.seconds + timeout
        return other

    def remaining(self) -> float | None:
        """Seconds left, never negative; None when there is no limit."""
        if self.at is None:
            return None
        return max(0.0, self.at - time.monotonic())

    def expired(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    def at_most(self, seconds: float) -> float:
        """The smaller of what is left and `seconds`."""
        left = self.remaining()
        return seconds if left is None else min(left, seconds)


Timeout: TypeAlias = float | dt.timedelta | Default | Deadline | None
"""What every public call takes as `timeout`. A Deadline is one that an outer call has made, and hands down."""


class Patience:
    """How long a call of many steps goes on: its own timeout bounds the whole, by default each step has its time."""

    def __init__(self, timeout: Timeout, step: float | None) -> None:
        self._step = step if isinstance(timeout, Default) else None
        self._whole = Deadline(None if isinstance(timeout, Default) else resolve(timeout, None))

    @property
    def whole(self) -> float | None:
        """Seconds left for the whole; None when only its steps are bounded."""
        return self._whole.remaining()

    def remaining(self) -> float | None:
        """Seconds for the next step."""
        return self._whole.remaining() if self._step is None else self._whole.at_most(self._step)

    def deadline(self) -> Deadline:
        """The deadline of the next step."""
        return Deadline(self.remaining())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is no part of the call: the time that the application takes between two results."""
        left = time.monotonic()
        try:
            yield
        finally:
            if self._whole.at is not None:
                self._whole.at += time.monotonic() - left
