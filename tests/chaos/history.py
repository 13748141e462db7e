"""What every client did, as it saw it: one `Op` per operation, with the times of its call and of its return."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from typing import Final

import attrs

from jsclient import errors

OK: Final = "ok"
REFUSED: Final = "refused"  #: a condition of the caller did not hold: not done, and something was seen
NOT_STORED: Final = "not stored"  #: certainly not done; nothing was seen
UNKNOWN: Final = "unknown"  #: done or not done
OPEN: Final = "open"  #: never returned

CONDITIONS = (errors.RevisionMismatch, errors.KeyExists, errors.WrongLastSequence)
#: What the documentation of reads lets them raise when no answer is to be had.
READS_MAY_RAISE = (
    errors.TimedOut,
    errors.NoResponders,
    errors.ConnectionLost,
    errors.JetStreamTemporarilyUnavailable,
)


@attrs.define(eq=False)
class Op:
    """One operation. `returned` is infinite while nothing is known about when it takes effect."""

    number: int
    process: str
    kind: str  #: get, put, create, update, delete, append
    key: str
    value: bytes | None
    expected: int | None
    invoked: float
    returned: float = math.inf
    outcome: str = OPEN
    revision: int | None = None
    error: str = ""
    ended: float = math.inf  #: when the call returned, whatever it said

    @property
    def writes(self) -> bool:
        return self.kind != "get"

    def __str__(self) -> str:
        what = f"{self.process} {self.kind} {self.key}"
        if self.value is not None:
            what += f" {self.value.decode(errors='replace')}"
        if self.expected is not None:
            what += f" if at {self.expected}"
        told = self.outcome + (f" at {self.revision}" if self.revision is not None else "")
        return f"[{self.invoked:.3f} .. {self.ended:.3f}] {what}: {told}{' ' + self.error if self.error else ''}"


class History:
    """The operations of all threads. Times are monotonic seconds since it was made."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.began = time.monotonic()
        self.surprises: list[str] = []  #: errors that the documentation does not announce, and ends of threads
        self._lock = threading.Lock()

    def now(self) -> float:
        return time.monotonic() - self.began

    def invoke(self, process: str, kind: str, key: str, value: bytes | None = None, expected: int | None = None) -> Op:
        with self._lock:
            op = Op(len(self.ops), process, kind, key, value, expected, self.now())
            self.ops.append(op)
        return op

    def ok(self, op: Op, revision: int | None = None, value: bytes | None = None) -> None:
        op.ended = op.returned = self.now()
        op.revision = revision
        if op.kind == "get":
            op.value = value
        op.outcome = OK

    def failed(self, op: Op, error: BaseException) -> None:
        """What a write that raised has said about itself, and whether it was allowed to say that."""
        op.ended = self.now()
        op.error = type(error).__name__
        if op.kind == "get":
            op.outcome = UNKNOWN
            if not isinstance(error, READS_MAY_RAISE):
                self.surprises.append(f"{op}: {error}")
            return
        op.outcome = outcome_of(error)
        if op.outcome != UNKNOWN:
            op.returned = op.ended
        elif not isinstance(error, (errors.UnknownOutcome, errors.DuplicateInProcess)):
            self.surprises.append(f"{op}: {error}")

    def counts(self) -> dict[str, Counter[str]]:
        """kind -> how many ended in which way."""
        found: dict[str, Counter[str]] = {}
        for op in self.ops:
            found.setdefault(op.kind, Counter())[op.outcome] += 1
        return found

    def longest_gap(self, kinds: tuple[str, ...], end: float) -> float:
        """The longest time in which none of these succeeded."""
        times = [0.0, *sorted(op.ended for op in self.ops if op.kind in kinds and op.outcome == OK), end]
        return max(after - before for before, after in itertools.pairwise(times))


def outcome_of(error: BaseException) -> str:
    """What a write that raised this is known to have done."""
    if isinstance(error, CONDITIONS):
        return REFUSED
    if isinstance(error, errors.DuplicateInProcess):
        return UNKNOWN
    if isinstance(error, (errors.NotStored, errors.ApiError)):
        return NOT_STORED
    return UNKNOWN
