"""Counters and latencies of a pool. Every worker counts for itself, without a lock. A snapshot adds them up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from jsclient import waiting

if TYPE_CHECKING:
    from jsclient.workers.progress import Held

TIMES_KEPT = 1024
"""Handler times that each worker remembers for the percentiles."""


@attrs.frozen
class PoolSnapshot:
    """A pool's counters and current state. Times and ages are in seconds, percentiles over the latest handler calls.

    Attributes:
        handled: Messages that were handled with success.
        failed: Messages on which the handler failed, without Retry and Reject.
        redelivered: Messages that were delivered for a second time or more.
        rejected: Messages that the handler has rejected.
        dead: Messages that were stored as dead letters.
        hung: Handlers that ran longer than `progress_limit`.
        in_flight: Messages that handlers are working on.
        backlog: Messages that wait for their key to be free.
        buffered: Messages that were received and not taken by a worker.
        pulls_outstanding: Pulls that wait on the server.
        handler_p50: Half of the latest handler calls took fewer seconds.
        handler_p99: 99 of 100 of the latest handler calls took fewer seconds.
        oldest_unacked_age: Seconds since a worker took the oldest message in work.
        missed_heartbeats: Number of times that the server was silent for too long.
        running: False once the pool stops.
    """

    handled: int
    failed: int
    redelivered: int
    rejected: int
    dead: int
    hung: int
    in_flight: int
    backlog: int
    buffered: int
    pulls_outstanding: int
    handler_p50: float
    handler_p99: float
    oldest_unacked_age: float
    missed_heartbeats: int
    running: bool


class Counters:
    """One worker's counts. Written by that worker alone."""

    __slots__ = ("dead", "failed", "handled", "redelivered", "rejected", "times")

    def __init__(self) -> None:
        self.rejected: int
        self.redelivered: int
        self.handled: int
        self.failed: int
        self.dead: int
        self.handled = self.failed = self.redelivered = self.rejected = self.dead = 0
        self.times: deque[float] = deque(maxlen=TIMES_KEPT)


def percentile(times: list[float], part: float) -> float:
    """`times` is sorted. Returns 0 if there are none."""
    return times[min(int(len(times) * part), len(times) - 1)] if times else 0.0


def snapshot(counters: Iterable[Counters], held: Iterable[Held], **rest: Any) -> PoolSnapshot:
    """Add the counters up. `held` has the messages of workers and keys."""
    all_counters = list(counters)
    times = sorted(value for counter in all_counters for value in waiting.copy_of(counter.times))
    in_hand = list(held)
    begun = [item.started if item.taken is None else item.taken for item in in_hand]

    def total(name: str) -> int:
        return sum(getattr(counter, name) for counter in all_counters)

    return PoolSnapshot(
        handled=total("handled"),
        failed=total("failed"),
        redelivered=total("redelivered"),
        rejected=total("rejected"),
        dead=total("dead"),
        in_flight=sum(not item.waiting for item in in_hand),
        handler_p50=percentile(times, 0.5),
        handler_p99=percentile(times, 0.99),
        oldest_unacked_age=time.monotonic() - min(begun) if begun else 0.0,
        **rest,
    )
