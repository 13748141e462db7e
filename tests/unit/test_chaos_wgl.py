"""The checker of histories: what it must accept, what it must refuse, and that it agrees with trying every order."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from tests.chaos import wgl
from tests.chaos.history import NOT_STORED, OK, REFUSED, UNKNOWN, Op
from tests.chaos.register import ABSENT, Entry, State, judge, step

Row = tuple[str, float, float, str, "int | None", "bytes | None", "int | None"]


def ops(*rows: Row) -> list[Op]:
    """(kind, call, return, outcome, revision, value, expected revision)"""
    return [
        Op(number, f"p{number}", kind, "k", value, expected, called, returned, outcome, revision)
        for number, (kind, called, returned, outcome, revision, value, expected) in enumerate(rows)
    ]


def put(called: float, returned: float, revision: int | None, value: bytes, outcome: str = OK) -> Row:
    return ("put", called, returned, outcome, revision, value, None)


def get(called: float, returned: float, revision: int | None, value: bytes | None) -> Row:
    return ("get", called, returned, OK, revision, value, None)


def update(called: float, returned: float, revision: int | None, value: bytes, expected: int, outcome: str = OK) -> Row:
    return ("update", called, returned, outcome, revision, value, expected)


A, B, C = Entry(1, b"a"), Entry(2, b"b"), Entry(3, b"c")
FOREVER = math.inf

LINEARIZABLE = {
    "nothing": ([], []),
    "one after the other": ([put(0, 1, 1, b"a"), get(2, 3, 1, b"a")], [A]),
    "a read beside a write sees either": (
        [put(0, 1, 1, b"a"), put(2, 9, 2, b"b"), get(3, 4, 1, b"a"), get(5, 6, 2, b"b")],
        [A, B],
    ),
    "an unknown write is seen long after": (
        [put(0, FOREVER, None, b"a", UNKNOWN), get(1, 2, None, None), get(50, 51, 1, b"a")],
        [A],
    ),
    "an unknown write that was never stored": ([put(0, FOREVER, None, b"a", UNKNOWN), get(1, 2, None, None)], []),
    "compare and set after a write of unknown end": (
        [put(0, FOREVER, None, b"a", UNKNOWN), update(2, 3, 2, b"b", 1)],
        [A, B],
    ),
    "refused because another one was first": (
        [put(0, 1, 1, b"a"), update(2, 9, 2, b"b", 1), update(3, 5, None, b"c", 1, REFUSED)],
        [A, B],
    ),
    "not stored, and not there": ([put(0, 1, None, b"a", NOT_STORED), get(2, 3, None, None)], []),
    "deleted before it was there": (
        [("delete", 0, 1, OK, None, None, 0), update(2, 3, None, b"b", 0, REFUSED), update(4, 5, 2, b"b", 1)],
        [Entry(1, None), B],
    ),
    "deleted, and created anew": (
        [
            put(0, 1, 1, b"a"),
            ("delete", 2, 3, OK, None, None, 1),
            get(4, 5, None, None),
            ("create", 6, 7, OK, 3, b"c", None),
        ],
        [A, Entry(2, None), C],
    ),
}

WRONG = {
    "a read of the past": (
        "server",
        "read of an old state",
        [put(0, 1, 1, b"a"), put(2, 3, 2, b"b"), get(4, 5, 1, b"a")],
        [A, B],
    ),
    "a read goes back": (
        "server",
        "read of an old state",
        [put(0, 1, 1, b"a"), put(2, 9, 2, b"b"), get(3, 4, 2, b"b"), get(5, 6, 1, b"a")],
        [A, B],
    ),
    "an acknowledged write is not seen": (
        "server",
        "read of an old state",
        [put(0, 1, 1, b"a"), get(2, 3, None, None)],
        [A],
    ),
    "refused although nothing else was written": (
        "server",
        "a refusal by",
        [put(0, 1, 1, b"a"), update(2, 3, None, b"b", 1, REFUSED)],
        [A],
    ),
    "two compare and sets of the same revision": (
        "undecided",
        "writes have no order",
        [put(0, 1, 1, b"a"), update(2, 9, 2, b"b", 1), update(2, 9, 3, b"c", 1)],
        [A, B, C],
    ),
    "revisions against time": (
        "undecided",
        "writes have no order",
        [put(0, 1, 2, b"b"), put(2, 3, 1, b"a")],
        [A, B],
    ),
    "created although it is there": (
        "undecided",
        "writes have no order",
        [put(0, 1, 1, b"a"), ("create", 2, 3, OK, 2, b"b", None)],
        [A, B],
    ),
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_accepted(name: str) -> None:
    rows, log = LINEARIZABLE[name]
    assert judge("k", ops(*rows), log) == []


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str) -> None:
    blame, text, rows, log = WRONG[name]
    findings = judge("k", ops(*rows), log)
    assert [finding.blame for finding in findings] == [blame]
    assert text in findings[0].what


def test_a_search_can_be_given_up() -> None:
    rows = [put(0, 100, number, b"%d" % number) for number in range(1, 13)] + [get(200, 201, 99, b"x")]
    history = ops(*rows)
    times = [(op.invoked, op.returned) for op in history]
    assert wgl.check(history, times, step, ABSENT, most=10).linearizable is None
    assert wgl.check(history, times, step, ABSENT).linearizable is False


def by_trying(history: list[Op]) -> bool:
    """Every order of every choice of the optional operations."""
    must = [op for op in history if op.outcome != UNKNOWN]
    may = [op for op in history if op.outcome == UNKNOWN]
    choices = (must + list(some) for size in range(len(may) + 1) for some in itertools.combinations(may, size))
    return any(fits(order) for choice in choices for order in itertools.permutations(choice))


def fits(order: tuple[Op, ...]) -> bool:
    state: State = ABSENT
    for place, op in enumerate(order):
        after = step(state, op)
        if after is None or any(later.returned < op.invoked for later in order[place + 1 :]):
            return False
        state = after
    return True


def test_it_agrees_with_trying_every_order() -> None:
    chance = random.Random(7)
    seen = {True: 0, False: 0}
    for _ in range(600):
        rows: list[Row] = []
        for number in range(1, chance.randrange(2, 6)):
            called = chance.randrange(10)
            returned = called + chance.randrange(1, 6)
            kind = chance.randrange(4)
            if kind == 0:
                rows.append(get(called, returned, chance.randrange(1, 4), b"%d" % chance.randrange(1, 4)))
            elif kind == 1:
                rows.append(update(called, returned, number, b"%d" % number, chance.randrange(4)))
            elif kind == 2:
                rows.append(update(called, returned, None, b"%d" % number, chance.randrange(4), REFUSED))
            else:
                unknown = chance.random() < 0.5
                end = FOREVER if unknown else returned
                rows.append(put(called, end, number, b"%d" % number, UNKNOWN if unknown else OK))
        history = ops(*rows)
        found = wgl.check(history, [(op.invoked, op.returned) for op in history], step, ABSENT).linearizable
        assert found is by_trying(history), [str(op) for op in history]
        seen[bool(found)] += 1
    assert min(seen.values()) > 50
