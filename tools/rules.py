"""Rules of this code that no kept linter checks: `python tools/rules.py [ROOT]` prints a line per finding.

- Nothing waits, and no user code runs, under a lock of `jsclient.waiting` (`jsclient.testing` may).
- No package uses a private name of another package.
- No package has a circle of imports, type-only imports included (`CIRCULAR` lists those that still have one).
- Only `protocol.frames` knows how PUB, HPUB, SUB and UNSUB look.
- Tests let time pass only with `pauses.time_passes`, which wants a reason.

import-linter checks which way imports point (setup.cfg). ruff checks who makes locks and threads, and that tests do
not sleep (ruff.toml).
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

#: Calls that wait for others, or run their code.
WAITS = {"start", "join", "sleep", "wait", "waiting.get", "recv", "shutdown", "connect", "request", "flush"}
LOCK_MAKERS = {"new_lock", "new_condition"}
TEST_KIT = "jsclient/testing/"

#: Package -> its modules and packages that still import each other in circles, if only for types.
CIRCULAR: dict[str, set[str]] = {
    "jsclient": {"_connection", "checks", "connection", "jetstream", "message", "options", "subscription"},
    "jsclient._connection": {
        "connecting",
        "engine",
        "events",
        "lame_duck",
        "refusals",
        "requests",
        "session",
        "shutdown",
        "sinks",
        "subscriptions",
    },
    "jsclient.jetstream": {
        "batch_get",
        "consumer",
        "consuming",
        "context",
        "dead_letters",
        "message",
        "missing_payloads",
        "stream",
    },
    "jsclient.workers": {"batch_work", "core", "keyed_work"},
}

ENCODER = "protocol/frames.py"
SENT = re.compile(rb"(?:^|\n)(?:H?PUB|(?:UN)?SUB)(?: |$)")


class Module(NamedTuple):
    path: str
    package: str
    nodes: list[ast.AST]


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def modules(root: Path, *folders: str) -> Iterator[Module]:
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        relative = path.relative_to(root)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(relative))
        yield Module(relative.as_posix(), ".".join(relative.parent.parts), list(ast.walk(tree)))


def waits_under_locks(module: Module) -> Iterator[str]:
    locks: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            locks.update(last_name(target) for target in node.targets if last_name(node.value.func) in LOCK_MAKERS)
    for node in module.nodes:
        held = [last_name(item.context_expr) for item in node.items] if isinstance(node, ast.With) else []
        for name in locks.intersection(held):
            for call in ast.walk(node):
                if not isinstance(call, ast.Call) or not WAITS & {last_name(call.func), ast.unparse(call.func)}:
                    continue
                beneath = call.func.value if isinstance(call.func, ast.Attribute) else None
                if beneath is None or last_name(beneath) != name:  # a Condition releases its lock while it waits
                    yield f"{module.path}:{call.lineno}: {ast.unparse(call.func)} under a lock may wait"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_names(module: Module) -> Iterator[str]:
    """The private names that a module gives to its functions, classes, variables and attributes."""
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            name = node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # __slots__
            name = node.value
        else:
            continue
        if is_private(name):
            yield name


def private_to_others(library: list[Module]) -> Iterator[str]:
    """A name counts as private to each package that gives it to something."""
    owners: dict[str, set[str]] = {}
    for module in library:
        for name in private_names(module):
            owners.setdefault(name, set()).add(module.package)
    for module in library:
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
                theirs = owners.get(node.attr, {module.package})
                if module.package not in theirs:
                    place = f"{module.path}:{node.lineno}: {ast.unparse(node)}"
                    yield f"{place} is private to {' or '.join(sorted(theirs))}"


def imported(module: Module, library: set[str]) -> Iterator[str]:
    """The modules that a module imports anywhere, also in functions and for type checkers."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in library else node.module for name in inside)


def graphs_of(library: list[Module]) -> dict[str, dict[str, set[str]]]:
    """Package -> module or package in it -> those that it imports."""
    names = {module_name(module): module for module in library}
    graphs: dict[str, dict[str, set[str]]] = {}
    for name, module in names.items():
        for target in imported(module, set(names)):
            own, theirs = name.split("."), target.split(".")
            shared = next((at for at, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), 0)
            if shared:  # neither of them is the other one, or a package around it
                package = graphs.setdefault(".".join(own[:shared]), {})
                package.setdefault(own[shared], set()).add(theirs[shared])
    return graphs


def circle(graph: dict[str, set[str]], excused: Collection[str] = ()) -> list[str]:
    """Modules that import each other in a circle; [] if there is none, or only among those that are excused."""
    merged: dict[str, set[str]] = {}
    for name, targets in graph.items():
        own = "" if name in excused else name
        merged.setdefault(own, set()).update({"" if target in excused else target for target in targets} - {own})
    try:
        graphlib.TopologicalSorter(merged).prepare()
    except graphlib.CycleError as error:
        return [name or "|".join(sorted(excused)) for name in reversed(error.args[1])]
    return []


def circles(library: list[Module]) -> Iterator[str]:
    for package, graph in graphs_of(library).items():
        if found := circle(graph, CIRCULAR.get(package, ())):
            yield f"{package}: {' imports '.join(found)}: move what they share to a module below them"


def module_name(module: Module) -> str:
    """The name by which others import a module; `protocol` is installed as jsclient.protocol."""
    name = module.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("jsclient") else f"jsclient.{name}"


def frames_by_hand(module: Module) -> Iterator[str]:
    for node in module.nodes if module.path != ENCODER else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and SENT.search(node.value):
            yield f"{module.path}:{node.lineno}: builds a frame by hand; only {ENCODER} does"


def is_event(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "Event"


def events_made(target: ast.expr, value: ast.expr) -> Iterator[str]:
    """The local names that an assignment gives to new Events."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for inner, made in zip(target.elts, value.elts, strict=False):
            yield from events_made(inner, made)
    elif isinstance(target, ast.Name) and is_event(value):
        yield target.id


def hidden_sleeps(module: Module) -> Iterator[str]:
    """Waits for an Event that nothing sets: one that is made on the spot, or a local one."""
    waits: list[tuple[int, str]] = []
    made: set[str] = set()
    used: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Assign):
            made.update(events_made(node.targets[0], node.value))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr == "set":
            used.add(node.value.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "wait":
            waits.append((node.lineno, "" if is_event(node.func.value) else getattr(node.func.value, "id", "?")))
    for line, name in waits:
        if not name or name in made - used:
            yield f"{module.path}:{line}: waits for an Event that nothing sets; use pauses.time_passes"


def findings(root: Path = ROOT) -> list[str]:
    library = list(modules(root, "protocol", "jsclient"))
    found = list(private_to_others(library))
    found += circles(library)
    for module in library:
        found += frames_by_hand(module)
        if not module.path.startswith(TEST_KIT):
            found += waits_under_locks(module)
    for module in modules(root, "tests"):
        if module.path.rpartition("/")[2].startswith(("test_", "conftest")):
            found += hidden_sleeps(module)
    return found


if __name__ == "__main__":
    found = findings(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
