"""Check the house rules that the code itself can show: who imports whom, no sleeping in tests, no threading.Event.

    python tools/layers.py [ROOT]       prints one line per finding, exit status 1 when there is one

The rules: imports point one way only (LAYERS); `protocol` knows no socket, thread, queue or clock and nothing of
jsclient; only jsclient/spark imports pyspark; jetstream touches no socket; tests wait on conditions and never sleep;
nothing imports tools; threads of the library wait for a `waiting.Gate`, which Ctrl-C cannot break as it does an Event;
only `waiting` makes locks (testing and the command line may make both); only `protocol.frames` knows how PUB, HPUB,
SUB and UNSUB look. Imports under
`if TYPE_CHECKING:` are for the type checker and are left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: package or module of jsclient -> its floor. A module may import its own floor and those below. What is not named
#: here is a module of the core (floor 2 or 3 make no difference to those above) and counts as CORE.
CORE = 3
FLOORS = {
    "protocol": 0,
    **dict.fromkeys(["errors", "durations", "checks", "message"], 1),
    **dict.fromkeys(["options", "nuid", "auth", "servers", "waiting"], 1),
    "_transport": 2,
    "jetstream": 4,
    **dict.fromkeys(["keyvalue", "objectstore", "services", "workers", "system", "backup", "monitor", "arrow"], 5),
    **dict.fromkeys(["spark", "testing", "coordination"], 6),
    **dict.fromkeys(["__main__", "cli"], 7),
}
#: These never import each other although they share a floor.
APART = ({"keyvalue", "objectstore"}, {"services"}, {"workers"}, {"spark"}, {"testing"})

PURE = {"socket", "ssl", "threading", "queue", "select", "selectors", "time", "asyncio", "jsclient", "concurrent"}
BANNED = {
    "protocol": PURE,
    "jsclient/jetstream": {"socket", "ssl", "select", "selectors"},
    "jsclient/keyvalue": {"socket", "ssl", "select", "selectors"},
    "jsclient/objectstore": {"socket", "ssl", "select", "selectors"},
}


#: What only `waiting` makes, by the rule for locks that stands there.
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}
LOCKSMITHS = {"jsclient/waiting.py"}

#: What a client sends has one encoder.
ENCODER = "protocol/frames.py"
SENT = re.compile(rb"(?:^|\n)(?:H?PUB|(?:UN)?SUB)(?: |$)")


def is_type_checking(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    return name == "TYPE_CHECKING"


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import that runs, relative ones resolved against `package`."""
    for node in ast.iter_child_nodes(tree):
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, base]).rstrip(".")
            if base == "jsclient":  # `from jsclient import link` names a module; deeper names change no floor
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base
        else:
            yield from imports(node, package)


def floor(module: str) -> tuple[str, int] | None:
    """(name, floor) of a module of ours; None for others and for the bare package `jsclient`."""
    parts = module.split(".")
    if parts[0] == "protocol":
        return "protocol", FLOORS["protocol"]
    if parts[0] != "jsclient" or len(parts) == 1:
        return None
    return parts[1], FLOORS.get(parts[1], CORE)


def is_module(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, bare name of what is called) of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield node.lineno, function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def frames(tree: ast.AST) -> Iterator[int]:
    """Lines of literals that begin a frame of a client."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and SENT.search(node.value):
            yield node.lineno


def check_library(root: Path, path: Path) -> Iterator[str]:
    """Findings in one file of protocol or jsclient."""
    relative = path.relative_to(root)
    module = ".".join(relative.with_suffix("").parts)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    module = module.removesuffix(".__init__")
    own = floor(module)
    tree = ast.parse(path.read_text(), str(relative))
    if own is None or own[1] < FLOORS["testing"] or own[0] == "spark":
        for line, name in calls(tree):
            if name == "Event":
                yield f"{relative}:{line}: makes an Event; Ctrl-C leaves its lock taken, use waiting.Gate"
            elif name in LOCKS and relative.as_posix() not in LOCKSMITHS:
                yield f"{relative}:{line}: makes a {name}; a signal handler may hang on it, see the rule in waiting"
    if relative.as_posix() != ENCODER:
        for line in frames(tree):
            yield f"{relative}:{line}: builds a frame by hand; only {ENCODER} does"
    for line, target in imports(tree, package):
        top = target.split(".")[0]
        where = f"{relative}:{line}: imports {target}"
        for folder, banned in BANNED.items():
            if str(relative).startswith(f"{folder}/") and top in banned:
                yield f"{where}; {folder} must not know {top}"
        if top == "pyspark" and not str(relative).startswith("jsclient/spark/"):
            yield f"{where}; only jsclient/spark imports pyspark"
        if top in ("tools", "tests"):
            yield f"{where}; {top} is imported by nothing"
        theirs = floor(target)
        if own is None or theirs is None or not is_module(root, ".".join(target.split(".")[:2])):
            continue
        if theirs[1] > own[1]:
            yield f"{where}, which stands above {own[0]}"
        elif (
            theirs[0] != own[0]
            and any((own[0] in group) != (theirs[0] in group) for group in APART)
            and (theirs[1] == own[1])
        ):
            yield f"{where}; {own[0]} and {theirs[0]} do not know each other"


def check_test(root: Path, path: Path) -> Iterator[str]:
    """Findings in one test file: calls of anything named sleep."""
    relative = path.relative_to(root)
    for line, name in calls(ast.parse(path.read_text(), str(relative))):
        if name == "sleep":
            yield f"{relative}:{line}: sleeps; wait on a condition (jsclient.testing.wait_until)"


def findings(root: Path = ROOT) -> list[str]:
    found: list[str] = []
    for folder in ("protocol", "jsclient"):
        for path in sorted((root / folder).rglob("*.py")):
            found += check_library(root, path)
    for path in sorted((root / "tests").rglob("*.py")):
        found += check_test(root, path)
    return list(dict.fromkeys(found))


def main(argv: list[str]) -> int:
    found = findings(Path(argv[1]) if len(argv) > 1 else ROOT)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
