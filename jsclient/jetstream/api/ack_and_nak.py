"""The bodies of a client's answers to a delivered message: acks, and naks with their delay."""

from __future__ import annotations

import datetime as dt
from typing import Final

from jsclient import kinds
from jsclient.durations import FOREVER, seconds_of, to_ns
from jsclient.errors import ConfigError

ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
IN_PROGRESS: Final = b"+WPI"  # resets ack_wait; "work in progress"
TERM: Final = b"+TERM"
NEXT: Final = b"+NXT"


def nak_body(delay: float | dt.timedelta | None) -> bytes:
    """The body of a nak. With a delay it is JSON, and the delay is in nanoseconds."""
    if delay is None:
        return NAK
    kinds.check(float, dt.timedelta, delay=delay)
    if not 0 <= seconds_of(delay) < FOREVER:
        raise ConfigError(f"delay must be 0 or more seconds, and less than 32 years; got {delay!r}")
    return b'-NAK {"delay":%d}' % to_ns(delay)
