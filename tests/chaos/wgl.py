"""Is a history linearizable? The algorithm of Wing and Gong with Lowe's memory of what was tried (as in Knossos).

An operation is a call, a return, and what it did. A history is linearizable if every operation can be given one moment
between its call and its return such that, one after another in the order of these moments, they make sense to a model.
Operations that never returned may have had their moment at any time after their call, or never.

The calls and returns lie in one doubly linked list in the order of time. The first operation that the model takes,
among those called before every return that is left, is lifted out of the list, and so on. When a return is met and its
operation was not taken, the last decision is undone. (operations taken, state) that were tried are not tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import attrs

T = TypeVar("T")
S = TypeVar("S", bound=Hashable)

#: step(state, operation): the state after it, or None where the model does not take it.
Step = Callable[[S, T], "S | None"]

#: Decisions after which the question is given up, so that no history can take for ever.
MOST_DECISIONS = 2_000_000


@attrs.frozen
class Verdict:
    """`linearizable` is None when the search was given up. `taken` is the longest order that made sense, and `stuck`
    the index of the operation with the return that could not be passed then; both are indices into the operations."""

    linearizable: bool | None
    taken: tuple[int, ...] = ()
    stuck: int | None = None


class _Node:
    """A call or a return in the list. A return has no `match`; the call of an operation without return neither."""

    __slots__ = ("after", "before", "call", "index", "match")

    def __init__(self, index: int, call: bool) -> None:
        self.index = index
        self.call = call
        self.match: _Node | None = None
        self.before: _Node | None = None
        self.after: _Node | None = None


def _linked(times: Sequence[tuple[float, float]]) -> _Node:
    """The list, behind a head of its own. Where times are equal calls come first: that allows more orders."""
    nodes = []
    for index, (called, returned) in enumerate(times):
        call = _Node(index, True)
        nodes.append((called, 0, index, call))
        if returned < math.inf:
            call.match = _Node(index, False)
            nodes.append((returned, 1, index, call.match))
    head = last = _Node(-1, False)
    for *_, node in sorted(nodes, key=lambda item: item[:3]):
        last.after, node.before = node, last
        last = node
    return head


def _lift(call: _Node) -> None:
    for node in (call, call.match):
        if node is not None:
            assert node.before is not None
            node.before.after = node.after
            if node.after is not None:
                node.after.before = node.before


def _unlift(call: _Node) -> None:
    for node in (call.match, call):
        if node is not None:
            assert node.before is not None
            node.before.after = node
            if node.after is not None:
                node.after.before = node


def check(
    operations: Sequence[T],
    times: Sequence[tuple[float, float]],
    step: Step[S, T],
    state: S,
    most: int = MOST_DECISIONS,
) -> Verdict:
    """Search for an order. `times` are (call, return) of each operation; an infinite return makes it optional."""
    head = _linked(times)
    left = sum(returned < math.inf for _, returned in times)
    taken = 0
    order: list[tuple[_Node, S]] = []
    tried: set[tuple[int, S]] = set()
    best: tuple[int, ...] = ()
    stuck: int | None = None
    node = head.after
    while left:
        assert node is not None  # a return that is left lies ahead
        if node.call:
            after = step(state, operations[node.index])
            mark = taken | 1 << node.index
            if after is not None and (mark, after) not in tried:
                tried.add((mark, after))
                if len(tried) > most:
                    return Verdict(None, best, stuck)
                order.append((node, state))
                taken, state = mark, after
                left -= node.match is not None
                _lift(node)
                node = head.after
            else:
                node = node.after
            continue
        if stuck is None or len(order) > len(best):
            best, stuck = tuple(entry.index for entry, _ in order), node.index
        if not order:
            return Verdict(False, best, stuck)
        undone, state = order.pop()
        taken &= ~(1 << undone.index)
        left += undone.match is not None
        _unlift(undone)
        node = undone.after
    return Verdict(True, tuple(entry.index for entry, _ in order))
