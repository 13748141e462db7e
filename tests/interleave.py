"""Every interleaving of a few threads, on the very code under test: a small model checker.

The methods of a class are compiled once more as generators that yield before each statement. A statement of such code
touches what is shared at most once, so a switch of threads, or an exception of a signal handler, between two of its
statements is all that can happen to it. `explore` then runs every order in which the threads can take their steps,
each from the beginning, and skips what leads to a state that was seen before.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Generator, Hashable, Iterator
from collections.abc import Set as AbstractSet
from types import GeneratorType
from typing import Any, cast

Steps = Generator[Any, None, Any]


def _touches(statement: ast.stmt) -> bool:
    """Whether it reads or writes what other threads see; a condition stands for its `if` or `while`."""
    seen: ast.AST = statement.test if isinstance(statement, (ast.If, ast.While)) else statement
    if isinstance(seen, (ast.Try, ast.Pass, ast.Constant, ast.Expr)) and not isinstance(seen, ast.Expr):
        return False
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Attribute):
        return False  # a name for a part that never changes
    return any(isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)) for node in ast.walk(seen))


class _Yielding(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        target = node.func
        if isinstance(target, ast.Attribute) and target.attr in self.names and isinstance(target.value, ast.Name):
            return ast.YieldFrom(node)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        return node  # done already

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        changed: list[ast.stmt] = []
        for statement in statements:
            for field in ("body", "orelse", "finalbody"):
                if getattr(statement, field, None):
                    setattr(statement, field, self.body(getattr(statement, field)))
            for handler in getattr(statement, "handlers", ()):
                handler.body = self.body(handler.body)
            if _touches(statement):
                changed.append(ast.Expr(ast.Yield(None)))
            changed.append(self.visit(statement))
        return changed


def stepwise(cls: type, *names: str, calls: tuple[str, ...] = ()) -> type:
    """A subclass in which these methods are generators that yield before each statement. `calls`: methods of other
    stepwise classes that they call."""
    module = inspect.getmodule(cls)
    assert module is not None
    methods: dict[str, Any] = {} if cls.__dictoffset__ else {"__slots__": ("__dict__",)}
    for name in names:
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(cls, name))))
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = _Yielding({*names, *calls}).body(function.body)
        found: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(tree), cls.__name__, "exec"), vars(module), found)
        methods[name] = found[name]
    return type(f"Stepwise{cls.__name__}", (cls,), methods)


class Interrupt(Exception):
    """Of a signal handler."""


class Abandoned(BaseException):
    """The order is explored no further."""


class Thread:
    """A program that yields None before a step, or a function that tells when it can go on."""

    def __init__(self, program: Steps) -> None:
        self.program = cast("GeneratorType[Any, Any, Any]", program)
        self.done = False
        self.ready: Callable[[], bool] | None = None
        self.advance()

    def advance(self, error: BaseException | None = None) -> None:
        try:
            self.ready = self.program.throw(error) if error is not None else next(self.program)
        except (StopIteration, Interrupt):
            self.done = True

    def abandon(self) -> None:
        """End it where it stands, through all that its `finally` blocks do step by step."""
        while self.program.gi_frame is not None:
            try:
                self.program.throw(Abandoned())
            except (Abandoned, StopIteration, AssertionError):
                pass

    @property
    def enabled(self) -> bool:
        return not self.done and (self.ready is None or self.ready())

    def position(self) -> Hashable:
        lines: list[tuple[str, int]] = []
        inner: GeneratorType[Any, Any, Any] | None = self.program
        while inner is not None and inner.gi_frame is not None:
            lines.append((inner.gi_code.co_name, inner.gi_frame.f_lasti))
            called = inner.gi_yieldfrom
            inner = called if inspect.isgenerator(called) else None
        return (self.done, *lines)


now: list[int] = [0]
"""The number of the thread that takes a step."""

NOBODY = -1


class Numbered(Thread):
    """A thread that a `Turn` knows by its number."""

    def __init__(self, number: int, program: Steps) -> None:
        self.number = number
        super().__init__(program)

    def advance(self, error: BaseException | None = None) -> None:
        now[0] = self.number
        super().advance(error)

    def abandon(self) -> None:
        now[0] = self.number
        super().abandon()


class Turn:
    """A reentrant lock of numbered threads that never waits: a thread that asks in vain asks again."""

    def __init__(self) -> None:
        self.owner, self.depth = NOBODY, 0

    def acquire(self, wait: bool = True, patience: float = 0) -> bool:
        if self.owner not in (NOBODY, now[0]):
            return False
        self.owner, self.depth = now[0], self.depth + 1
        return True

    def release(self) -> None:
        assert self.owner == now[0], "given back by another thread"
        self.depth -= 1
        if not self.depth:
            self.owner = NOBODY

    def _is_owned(self) -> bool:
        return self.owner == now[0]


class World:
    """What one run begins with: its threads, a view of what they share, and what must hold when none can go on."""

    threads: list[Thread]
    interruptible: AbstractSet[int] = frozenset()
    interrupts = 0

    def state(self) -> Hashable:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError


def _choices(world: World, left: int) -> Iterator[tuple[int, bool]]:
    for number, thread in enumerate(world.threads):
        if thread.enabled:
            yield number, False
        if left and number in world.interruptible and not thread.done:
            yield number, True


def abandon(world: World) -> None:
    for thread in world.threads:
        thread.abandon()


def explore(make: Callable[[], World]) -> int:
    """Run every interleaving; returns the number of different states.

    A world goes on with the first of its choices; only the others begin anew and come to the same point step by step.
    """
    seen: set[Hashable] = set()
    todo: list[list[tuple[int, bool]]] = [[]]
    ends = 0
    while todo:
        path = todo.pop()
        world = make()
        left = world.interrupts
        for choice in path:
            left -= _step(world, choice)
        while (key := (left, world.state(), tuple(thread.position() for thread in world.threads))) not in seen:
            seen.add(key)
            choices = list(_choices(world, left))
            if not any(not interrupt for _, interrupt in choices):
                ends += 1
                try:
                    world.check()
                except AssertionError as error:
                    raise AssertionError(f"{error}\nafter {path}") from None
                todo += [[*path, choice] for choice in choices]  # the check has changed this world
                break
            todo += [[*path, choice] for choice in choices[1:]]
            path = [*path, choices[0]]
            left -= _step(world, choices[0])
        abandon(world)
    assert ends, "no order has come to its end: `state` takes different states for the same"
    return len(seen)


def _step(world: World, choice: tuple[int, bool]) -> bool:
    """One thread goes on, or is struck; whether it was that."""
    number, interrupt = choice
    world.threads[number].advance(Interrupt() if interrupt else None)
    return interrupt
