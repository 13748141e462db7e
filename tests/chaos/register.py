"""The model of one key, and what a history of its operations says about the client and about the servers.

A key is a register with a revision: the sequence of its last message in the stream. Every value is written once, so
that it can be found again; the revisions of writes with an unknown outcome are looked up in the final log.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import attrs
from tests.chaos import wgl
from tests.chaos.history import OK, REFUSED, UNKNOWN, Op

State = tuple[int, "bytes | None"]  #: (revision, value); the value of a key that is absent or deleted is None
ABSENT: State = (0, None)


@attrs.frozen
class Entry:
    """One message of the final log: `value` is None for a delete marker."""

    seq: int
    value: bytes | None


NONE = Entry(0, None)  #: what lies before the first message of a key


def step(state: State, op: Op) -> State | None:
    """The key after this operation, or None if it cannot have ended as it did with the key in this state."""
    revision, value = state
    if op.kind == "get":
        holds = op.value == value and (value is None or op.revision == revision)
        return state if holds else None
    allowed = _condition(state, op)
    if op.outcome == REFUSED:
        return None if allowed else state
    if not allowed or op.revision is None or op.revision <= revision:
        return None
    return (op.revision, None if op.kind == "delete" else op.value)


def _condition(state: State, op: Op) -> bool:
    if op.kind == "create":
        return state[1] is None
    return op.expected is None or op.expected == state[0]


def resolve(ops: Iterable[Op], log: Sequence[Entry]) -> list[Op]:
    """The operations that can have had an effect or have seen something, with the revisions that the log knows.

    Left out: reads that failed, writes that said that they did nothing, and unknown writes that are not in the log.
    """
    seqs = {entry.value: entry.seq for entry in log if entry.value is not None}
    markers = {before.seq: after.seq for before, after in itertools.pairwise([NONE, *log]) if after.value is None}
    found = []
    for op in ops:
        if op.kind == "get" or op.outcome == REFUSED:
            if op.outcome in (OK, REFUSED):
                found.append(op)
            continue
        if op.outcome not in (OK, UNKNOWN, "open"):
            continue
        known = markers.get(op.expected or 0) if op.kind == "delete" else seqs.get(op.value or b"")
        revision = op.revision if op.revision is not None else known
        if revision is not None:
            found.append(attrs.evolve(op, revision=revision))
    return found


def heedless(ops: Sequence[Op], log: Sequence[Entry]) -> dict[int, Op]:
    """The writes that lie in the log behind something else than they asked for, by their number and without that
    condition: a server has stored them all the same. A marker is nobody's by itself; those behind a revision that no
    delete asked for are given to the deletes that are done and have none."""
    pairs = list(itertools.pairwise([NONE, *log]))
    before = {entry.value: previous for previous, entry in pairs if entry.value is not None and previous is not NONE}
    found = {}
    for op in ops:
        previous = before.get(op.value) if op.value is not None and op.outcome in (OK, UNKNOWN) else None
        if previous is None:
            continue
        holds = previous.value is None if op.kind == "create" else op.expected in (None, previous.seq)
        if not holds:
            found[op.number] = attrs.evolve(op, kind="put", expected=None)
    done = [op for op in ops if op.kind == "delete" and op.outcome == OK]
    asked = {op.expected for op in ops if op.kind == "delete" and op.outcome in (OK, UNKNOWN)}
    marked = {previous.seq for previous, entry in pairs if entry.value is None}
    free = [entry.seq for previous, entry in pairs if entry.value is None and previous.seq not in asked]
    without = sorted((op for op in done if op.expected not in marked), key=lambda op: op.invoked)
    if len(without) <= len(free):
        found |= {
            op.number: attrs.evolve(op, expected=None, revision=seq) for op, seq in zip(without, free, strict=False)
        }
    return found


@attrs.frozen
class Finding:
    """Something that is not as it should be. `blame`: client, server, or undecided. `stream`: where no operation tells
    which one it is about."""

    blame: str
    what: str
    ops: tuple[Op, ...] = ()
    stream: str = ""


def judge(key: str, ops: Sequence[Op], log: Sequence[Entry]) -> list[Finding]:
    """Is the history of one key linearizable, and if not, what must be left out to make it so?

    Refusals and reads are what a server may answer that does not lead any more and does not know it yet; the client
    hands on what it was told. That writes alone have no order is never excused.
    """
    known = resolve(ops, log)
    verdict = _search(known)
    if verdict.linearizable:
        return []
    stuck = tuple(known[index] for index in _around(known, verdict))
    if verdict.linearizable is None:
        return [Finding("undecided", f"{key}: the search for an order was given up", stuck)]
    without = {
        "a refusal by a server that did not know the last state": [op for op in known if op.outcome != REFUSED],
        "a read of an old state": [op for op in known if op.kind != "get"],
        "a refusal and a read of old states": [op for op in known if op.kind != "get" and op.outcome != REFUSED],
    }
    for text, rest in without.items():
        if _search(rest).linearizable:
            return [Finding("server", f"{key}: {text}", stuck)]
    return [Finding("undecided", f"{key}: the writes have no order that makes sense", stuck)]


def _search(ops: Sequence[Op]) -> wgl.Verdict:
    times = [(op.invoked, op.returned if op.outcome in (OK, REFUSED) else math.inf) for op in ops]
    return wgl.check(ops, times, step, ABSENT)


def _around(ops: Sequence[Op], verdict: wgl.Verdict) -> list[int]:
    """The operation that found no place, behind the last ones that did."""
    return [*verdict.taken[-4:], *([verdict.stuck] if verdict.stuck is not None else [])]
