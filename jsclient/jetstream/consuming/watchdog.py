"""The reaction to a silent server: after a while ask what is wrong, then raise the alarm. No clock, no thread.

Fetches, iterators and push consumers share this code. The caller passes the times of `time.monotonic()`. Code that
shares a watchdog between threads calls it under a lock.
"""

from __future__ import annotations

import enum
from typing import Final

from jsclient.durations import Deadline
from jsclient.jetstream.consuming.credit import Credit
from jsclient.jetstream.consuming.pull_options import PullTerms

NEVER: Final = float("inf")

ENDS_LATE: Final = 1.0
"""Seconds after the end of a pull without heartbeats in which the server may still report that end."""

SHORTEST_ASK: Final = 0.1
"""Seconds that the question may take even if the call has less time left. Otherwise an application that only polls
would never learn the reason.
"""


class Look(enum.Enum):
    """The reaction to a silence."""

    WAIT = "wait"
    ASK = "ask"
    """Ask the server what is wrong, in less time than is left until the alarm."""
    ALARM = "alarm"


class Watchdog:
    """Watches the silence since the last frame, or since `restart`.

    With heartbeats every frame is a sign of life. One and a half heartbeats without a frame are a doubt, two an alarm
    (ADR-37). A pull without heartbeats only owes its end, so frames do not count there.
    """

    __slots__ = ("_asked_about", "_frames_count", "doubt", "patience", "since")

    def __init__(self, patience: float, doubt: float, now: float, *, frames_count: bool = True) -> None:
        """`patience` is the number of seconds until the alarm, and `doubt` the seconds before the alarm to ask."""
        self.patience: float = patience
        self.doubt: float = doubt
        self.since: float = now
        self._frames_count = frames_count
        self._asked_about = 0.0  # the alarm before which we asked

    @classmethod
    def of_heartbeats(cls, heartbeat: float, now: float) -> Watchdog:
        """With heartbeat 0 the server owes no frames, so there is no alarm."""
        return cls(2 * heartbeat or NEVER, heartbeat / 2, now)

    @classmethod
    def of_pulls(cls, terms: PullTerms, now: float) -> Watchdog:
        if heartbeat := terms.heartbeat:
            return cls(2 * heartbeat, heartbeat / 2, now)
        return cls(terms.expires + ENDS_LATE, ENDS_LATE / 2, now, frames_count=False)

    def ask_time(self, deadline: Deadline, last_frame: float, now: float) -> float:
        """Seconds that the question may take, to keep both the alarm and the caller in time."""
        left = self.alarm_at(last_frame) - now
        # Late, because the process was stopped for a while: frames may wait to be read, so do not raise an alarm yet.
        seconds = 0.9 * (min(left, self.doubt) if left > 0 else self.doubt)
        return max(deadline.at_most(seconds), min(seconds, SHORTEST_ASK))

    def restart(self, now: float) -> None:
        """A pull went out, the link came back, or an alarm was raised."""
        self.since = now

    def alarm_at(self, last_frame: float) -> float:
        """The time at which this silence becomes an alarm, unless a frame comes."""
        since = max(last_frame, self.since) if self._frames_count else self.since
        return since + self.patience

    def due(self, last_frame: float) -> float:
        """The time of the next look."""
        # `alarm_at`, without its call, because every wait of a fetch is here.
        since = max(last_frame, self.since) if self._frames_count else self.since
        alarm = since + self.patience
        return alarm if self._asked_about == alarm else alarm - self.doubt

    def look(self, now: float, last_frame: float) -> Look:
        """The reaction that is due now. It asks once about each silence; after an alarm call `restart`."""
        if now < self.due(last_frame):
            return Look.WAIT
        alarm = self.alarm_at(last_frame)
        if self._asked_about == alarm:
            return Look.ALARM
        self._asked_about = alarm
        return Look.ASK


def next_look(state: Credit, watchdog: Watchdog, buffered: int, now: float, last_frame: float) -> float:
    """The time at which a waiting thread must look although nothing came: a doubt, an alarm, or the end of a back-off.

    While requested messages are still to come, the server owes a sign of life.
    """
    due = watchdog.due(last_frame) if state.outstanding(buffered) else NEVER
    return min(due, state.retry_at) if state.retry_at > now else due
