"""Check the house rules that the code itself can show: imports, no sleeping in tests, no threading.Event.

    python tools/layers.py [ROOT]       prints one line per finding, exit status 1 when there is one

The rules: imports point one way only (LAYERS); `protocol` knows no socket, thread, queue or clock and nothing of
jsclient; only jsclient/spark imports pyspark; jetstream touches no socket; tests wait on conditions and never sleep; a
test lets time pass only by `pauses.time_passes`, which wants a reason; nothing imports tools; threads of the library
wait for a `waiting.Gate`, which Ctrl-C cannot break as it does an Event; only `waiting` makes locks, and nothing waits
beneath one (testing and the command line may do both); only `threads` begins threads, so that each start has an end;
only `protocol.frames` knows how PUB, HPUB, SUB and UNSUB look (JOINERS put its pieces together), and only
`jetstream.api.headers` how the headers of JetStream are called. Imports under `if TYPE_CHECKING:` are for the type
checker and are left out, with one exception: what any engine could use (ENGINE_FREE) names jsclient.spark nowhere.

And of the tree as a whole: no modules import each other in a circle, not even from within functions; no package uses
a private name of another one; modules of protocol and jetstream have a test file of their name; what lives behind a
door (DOORS) is imported through it; arrow, exactly, planning and spark have no inbox and send no request of their own;
jsclient/spark has at most SPARK_LINES lines; a Connection has the public names of CONNECTION, and inherits nothing.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

#: package or module of jsclient -> its floor. A module may import its own floor and those below. What is not named
#: here is a module of the core (floor 2 or 3 make no difference to those above) and counts as CORE.
CORE = 3
FLOORS = {
    "protocol": 0,
    **dict.fromkeys(["errors", "durations", "checks", "codecs", "first_use", "hints", "message", "shared_options"], 1),
    **dict.fromkeys(["declared", "options", "nuid", "auth", "urls", "waiting", "instruments", "threads"], 1),
    "_transport": 2,
    "jetstream": 4,
    **dict.fromkeys(["keyvalue", "objectstore", "services", "workers", "system", "backup", "monitor", "arrow"], 5),
    **dict.fromkeys(["exactly", "planning"], 6),
    **dict.fromkeys(["spark", "testing", "coordination", "groups"], 7),
    **dict.fromkeys(["__main__", "cli"], 8),
}
#: These never import each other although they share a floor.
APART = ({"keyvalue", "objectstore"}, {"services"}, {"workers"}, {"exactly"}, {"planning"}, {"spark"}, {"testing"})

#: What any engine of batches could use does not know Spark by name, not even for the type checker; and the most lines
#: of Python that Spark's own part has.
ENGINE_FREE = ("jsclient/arrow/", "jsclient/exactly/", "jsclient/planning/")
SPARK, SPARK_LINES = "jsclient/spark", 4_300

PURE = {"socket", "ssl", "threading", "queue", "select", "selectors", "time", "asyncio", "jsclient", "concurrent"}
BANNED = {
    "protocol": PURE,
    "jsclient/jetstream": {"socket", "ssl", "select", "selectors"},
    "jsclient/keyvalue": {"socket", "ssl", "select", "selectors"},
    "jsclient/objectstore": {"socket", "ssl", "select", "selectors"},
}


#: What only `waiting` makes, by the rule for locks that stands there.
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}
LOCKSMITHS = {"jsclient/waiting.py", "jsclient/threads.py"}

#: What begins a thread: only `threads` does, since CPython's own start may wait for ever.
STARTS = {"threading.Thread", "threading.Timer", "_thread.start_new_thread", "concurrent.futures.ThreadPoolExecutor"}
BEGINNER = "jsclient/threads.py"

#: What waits for others, or runs their code: not under a lock that a signal handler, the reader or a child may need.
WAITS = {"start", "join", "sleep", "wait", "waiting.get", "recv", "shutdown", "connect", "request", "flush"}

#: What a client sends has one encoder.
ENCODER = "protocol/frames.py"
SENT = re.compile(rb"(?:^|\n)(?:H?PUB|(?:UN)?SUB)(?: |$)")


#: The pieces of a line of PUB and HPUB, and the loops so hot that they join these themselves, as its encoder does.
PIECES = {"pub_end", "header_size"}
JOINERS = {
    "jsclient/connection.py",
    "jsclient/jetstream/publishing/asynchronous.py",
    "jsclient/jetstream/publishing/rows.py",
    "jsclient/jetstream/publishing/fast_rows.py",
}

#: What asks and listens for answers: where columns are made, jetstream does that.
ASKS = {"new_inbox", "open_sink", "post", "post_now"}
ASK_NOTHING = (*ENGINE_FREE, "jsclient/spark/")

#: The names of headers that JetStream gives a meaning have one owner.
HEADERS = "jsclient.jetstream.api.headers"

#: Packages of which others import nothing but what the package itself offers; and which modules are at home in there.
DOORS = {"jsclient._engine": {"__init__", "connection", "subscription", "process"}}

#: Tests look into the module that they are named after, and into no other one, except here, and why.
PRIVATE_IN_TESTS = {
    ("faults/test_groups_kills.py", "_js"): "counts through the connection that its bucket has",
    ("live/test_deadlines.py", "_reading"): "a typed message of a member is made as its group makes it",
    ("live/test_kv_outcomes.py", "_last_message"): "the look that comes after a refusal is made late",
    ("live/test_endings_connection.py", "_subscription"): "nothing public tells how much waits for an endpoint",
    ("live/test_endings_connection.py", "_threads"): "the threads of an endpoint have to end with its connection",
    ("live/test_parity.py", "_permits"): "another call has to hold the only turn",
    ("live/test_push.py", "_mailbox"): "only the mailbox knows how many it has dropped so far",
    ("live/test_reconnect.py", "_replace"): "strikes where a signal would, within a send",
    ("live/test_reconnect.py", "_right"): "the same",
    ("spark/test_mends.py", "_pool"): "the pool of connections of this process",
    ("spark/test_mends.py", "_old"): "what a thread would close a minute later",
    ("unit/test_outbox_sending.py", "_sock"): "a socket in Python code takes the place of the real one",
    ("unit/test_publish_refusals.py", "_token"): "the reply subject by which the model answers",
    ("unit/test_reading.py", "_waiters"): "puts a thread that waits beside the one that reads",
    ("unit/test_reentry.py", "_let_go"): "what a finalizer calls",
    ("unit/test_requests.py", "_control"): "PINGs as the reader gets them, without a server that sends thousands",
}

#: Packages of which each module has a test file of its name, with `js_` or `publish_` before it or an `s` behind it.
NAMED_AFTER = ("protocol", "jsclient.jetstream", "jsclient.jetstream.api", "jsclient.jetstream.consuming",
               "jsclient.jetstream.publishing")  # fmt: skip
#: Modules of these with tests of another name, and why.
TESTED_ELSEWHERE = {
    "jsclient.jetstream.api.model_base": ("unit/test_js_models.py", "seen through the models"),
    "jsclient.jetstream.api.models_consumer": ("unit/test_js_models.py", "one table of all models"),
    "jsclient.jetstream.api.models_stream": ("unit/test_js_models.py", "one table of all models"),
    "protocol.events": ("protocol/test_parser.py", "what the parser makes"),
}

#: What `dir()` shows of a Connection: its documentation. Everything else is the engine's.
CONNECTION = {
    *("options", "state", "closed", "is_connected", "is_draining", "connected_url", "servers", "server_info"),
    *("max_payload", "client_id", "last_error", "stats", "health", "link", "discovered_servers"),
    *("events", "set_callbacks", "barrier", "jetstream"),
    *("publish", "request", "request_many", "subscribe", "new_inbox", "flush", "rtt"),
    *("set_servers", "force_reconnect", "drain", "close"),
}


@functools.cache
def parse(text: str, name: str) -> ast.Module:
    """The tree of a file; several rules look at each."""
    return ast.parse(text, name)


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree."""
    return tuple(ast.walk(tree))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly beneath a node, and what holds further ones: an import is in no expression."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield child


def is_type_checking(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    return name == "TYPE_CHECKING"


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import that runs, relative ones resolved against `package`."""
    for node in statements(tree):
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, package)
            if base == "jsclient":  # `from jsclient import link` names a module; deeper names change no floor
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base
        else:
            yield from imports(node, package)


def base_of(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from, a relative one resolved against `package`."""
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], base]).rstrip(".")
    return base


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that is imported, also for the type checker."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, package)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


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
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield node.lineno, function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def waits_under_locks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, call) of what waits, or runs code of others, beneath a lock of `waiting.new_lock`."""
    made = {"new_lock", "new_condition"}
    locks: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else ""
            for target in node.targets if maker in made else ():
                locks[last_name(target)] = maker
    for node in ast.walk(tree):
        held = [last_name(item.context_expr) for item in node.items] if isinstance(node, ast.With) else []
        for name in held:
            for call in ast.walk(node) if name in locks else ():
                if not isinstance(call, ast.Call) or not WAITS & {last_name(call.func), ast.unparse(call.func)}:
                    continue
                beneath = call.func.value if isinstance(call.func, ast.Attribute) else None
                if beneath is not None and last_name(beneath) == name:
                    continue  # a Condition lets go of its lock while it waits
                yield call.lineno, ast.unparse(call.func)


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def starts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of what makes or imports something that begins a thread, or is a kind of it."""
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            names = [ast.unparse(node.func)]
        else:
            names = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        yield from ((node.lineno, name) for name in names if name in STARTS)  # type: ignore[attr-defined]


def frames(tree: ast.AST) -> Iterator[int]:
    """Lines of literals that begin a frame of a client."""
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and SENT.search(node.value):
            yield node.lineno


def check_library(root: Path, path: Path) -> Iterator[str]:
    """Findings in one file of protocol or jsclient."""
    relative = path.relative_to(root)
    module = ".".join(relative.with_suffix("").parts)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    module = module.removesuffix(".__init__")
    own = floor(module)
    tree = parse(path.read_text(), str(relative))
    if own is None or own[1] < FLOORS["testing"] or own[0] == "spark":
        for line, name in calls(tree):
            if name == "Event":
                yield f"{relative}:{line}: makes an Event; Ctrl-C leaves its lock taken, use waiting.Gate"
            elif name in LOCKS and relative.as_posix() not in LOCKSMITHS:
                yield f"{relative}:{line}: makes a {name}; a signal handler may hang on it, see the rule in waiting"
        for line, call in waits_under_locks(tree):
            yield f"{relative}:{line}: {call} under a lock may wait, see the rule in waiting"
    if relative.as_posix().startswith(ASK_NOTHING):
        for line, name in calls(tree):
            if name in ASKS:
                yield f"{relative}:{line}: {name}() asks by itself; jsclient.jetstream does"
    if relative.as_posix().startswith(ENGINE_FREE):
        for line, target in imported_names(tree, package):
            if f"{target}.".startswith("jsclient.spark."):
                yield f"{relative}:{line}: imports {target}; any engine can use this, so it knows none"
    if relative.as_posix() != BEGINNER:
        for line, name in starts(tree):
            yield f"{relative}:{line}: {name} may wait for ever; only {BEGINNER} begins threads"
    if relative.as_posix() != ENCODER:
        for line in frames(tree):
            yield f"{relative}:{line}: builds a frame by hand; only {ENCODER} does"
        for line, target in imported_names(tree, package):
            piece = target.removeprefix("protocol.frames.")
            if piece in PIECES and relative.as_posix() not in JOINERS:
                yield f"{relative}:{line}: joins a frame from {piece}; only {ENCODER} and JOINERS do"
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


def tests_own(stem: str, module: str) -> bool:
    """Whether the test file `test_<stem>.py` is named after `module`, or after its package."""
    words = "_".join(module.split(".")[-2:]).split("_")
    return any(len(word) > 2 and word.rstrip("s") in stem for word in words)


def check_tests_private(root: Path, found: list[Module]) -> Iterator[str]:
    """Findings: private names of a module looked up in a test of another one, beyond those that are named."""
    owners: dict[str, set[str]] = {}
    for module in found:
        for name in private_names(module.tree):
            owners.setdefault(name, set()).add(module.name)
    seen: dict[tuple[str, str], list[str]] = {}
    for path in sorted((root / "tests").rglob("*.py")):
        relative = path.relative_to(root)
        tree = parse(path.read_text(), str(relative))
        mine = set(private_names(tree))
        for node in nodes(tree):
            if not isinstance(node, ast.Attribute) or not is_private(node.attr) or is_own(node.value):
                continue
            theirs = owners.get(node.attr, set())
            if theirs and node.attr not in mine and not any(tests_own(path.stem, module) for module in theirs):
                place = f"{relative}:{node.lineno}: {ast.unparse(node)} is private to another module"
                seen.setdefault((relative.as_posix().removeprefix("tests/"), node.attr), []).append(place)
    for key, places in seen.items():
        if key not in PRIVATE_IN_TESTS:
            yield from places
    for key in sorted(PRIVATE_IN_TESTS.keys() - seen.keys()):
        if not (root / "tests" / key[0]).is_file():
            continue
        yield f"tests/{key[0]}: {key[1]} is named in PRIVATE_IN_TESTS and no longer used"


def hidden_sleeps(tree: ast.Module) -> Iterator[int]:
    """Lines that wait for an Event which nothing sets: one that is made on the spot, or a local one."""
    waits: list[tuple[int, str]] = []
    made: set[str] = set()
    used: set[str] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Assign):
            made.update(events_made(node.targets[0], node.value))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr == "set":
            used.add(node.value.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "wait":
            if is_event(node.func.value):
                yield node.lineno
            waits.append((node.lineno, getattr(node.func.value, "id", "")))
    yield from (line for line, name in waits if name in made - used)


def events_made(target: ast.expr, value: ast.expr) -> Iterator[str]:
    """The local names that an assignment gives to new Events."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for inner, what in zip(target.elts, value.elts, strict=False):
            yield from events_made(inner, what)
    elif isinstance(target, ast.Name) and is_event(value):
        yield target.id


def is_event(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "Event"


def check_test(root: Path, path: Path) -> Iterator[str]:
    """Findings in one test file: what sleeps, by that name or another."""
    relative = path.relative_to(root)
    tree = parse(path.read_text(), str(relative))
    for line, name in calls(tree):
        if name == "sleep":
            yield f"{relative}:{line}: sleeps; wait on a condition (jsclient.testing.wait_until)"
    if path.stem.startswith(("test_", "conftest")):  # what they start as programs of their own cannot import from here
        for line in hidden_sleeps(tree):
            yield f"{relative}:{line}: waits for an Event that nothing sets; say why time passes (pauses.time_passes)"


class Module(NamedTuple):
    name: str
    package: str
    """Of a package itself its own name."""
    path: Path
    """Beneath the root."""
    tree: ast.Module


def modules(root: Path) -> list[Module]:
    """Those of protocol and jsclient."""
    found = []
    for path in sorted([*(root / "protocol").rglob("*.py"), *(root / "jsclient").rglob("*.py")]):
        relative = path.relative_to(root)
        name = ".".join(relative.with_suffix("").parts)
        package = name.removesuffix(".__init__") if path.stem == "__init__" else name.rpartition(".")[0]
        tree = parse(path.read_text(), str(relative))
        found.append(Module(name.removesuffix(".__init__"), package, relative, tree))
    return found


def imported_modules(module: Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """(line, module of ours) of every import that runs, also within functions. Of `from package import module` it is
    the module."""
    stack: list[ast.AST] = [module.tree]
    while stack:
        node = stack.pop()
        if is_type_checking(node):
            continue
        stack.extend(statements(node))
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, module.package)
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if target in known or base in known:
                    yield node.lineno, target if target in known else base


def check_circles(found: list[Module]) -> Iterator[str]:
    """Findings: imports from which a way leads back."""
    known = {module.name for module in found}
    places = {
        (module.name, target): f"{module.path}:{line}"
        for module in found
        for line, target in imported_modules(module, known)
        if target != module.name
    }
    after: dict[str, set[str]] = {name: set() for name in known}
    for importer, imported in places:
        after[importer].add(imported)
    for name in sorted(known):
        way = way_back(name, after)
        if way:
            first = min(range(len(way)), key=way.__getitem__)
            circle = [*way[first:], *way[:first]]  # the same words, from wherever it was entered
            circle.append(circle[0])
            yield f"{places[circle[0], circle[1]]}: imports in a circle: {' -> '.join(circle)}"


def way_back(start: str, after: dict[str, set[str]]) -> list[str]:
    """The shortest way from a module through its imports back to it; [] when there is none."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:
        for target in sorted(after[way[-1]]):
            if target == start:
                return way
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[str]:
    """The private names that a module gives to its functions, classes, variables and attributes."""
    for node in nodes(tree):
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


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def check_private(found: list[Module]) -> Iterator[str]:
    """Findings: private names of another package, imported or looked up on an object. A name counts as that of a
    package which gives it to something: what else `x._name` may mean cannot be told from the text."""
    owners: dict[str, set[str]] = {}
    for module in found:
        for name in private_names(module.tree):
            owners.setdefault(name, set()).add(module.package)
    known = {module.name for module in found}
    for module in found:
        for node in nodes(module.tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
                if module.package not in owners.get(node.attr, {module.package}):
                    theirs = " or ".join(sorted(owners[node.attr]))
                    yield f"{module.path}:{node.lineno}: {ast.unparse(node)} is private to {theirs}"
            elif isinstance(node, ast.ImportFrom) and node.module and node.module in known:
                home = next(other.package for other in found if other.name == node.module)
                for alias in node.names:
                    private = is_private(alias.name) and f"{node.module}.{alias.name}" not in known
                    if private and home != module.package:
                        yield f"{module.path}:{node.lineno}: {alias.name} is private to {home}"


def check_doors(found: list[Module]) -> Iterator[str]:
    """Findings: imports from outside that go past the door of a package."""
    known = {module.name for module in found}
    for module in found:
        for line, target in imported_modules(module, known):
            for door, at_home in DOORS.items():
                home = module.package == door or (module.package == "jsclient" and module.path.stem in at_home)
                if target.startswith(door + ".") and not home:
                    yield f"{module.path}:{line}: imports {target}; only {door} itself is for others"


def check_connection(found: list[Module]) -> Iterator[str]:
    """Findings: a Connection that inherits, or shows more or less than its list."""
    for module in found:
        if module.name != "jsclient.connection":
            continue
        for made in module.tree.body:
            if not isinstance(made, ast.ClassDef) or made.name != "Connection":
                continue
            if made.bases:
                yield f"{module.path}:{made.lineno}: Connection inherits; it holds an engine"
            names = {name for name in class_names(made) if not name.startswith("_")}
            for name in sorted(names - CONNECTION):
                yield f"{module.path}:{made.lineno}: Connection.{name} is public and not on the list of its names"
            for name in sorted(CONNECTION - names):
                yield f"{module.path}:{made.lineno}: Connection.{name} is on the list of its names, and missing"


def class_names(made: ast.ClassDef) -> Iterator[str]:
    """Methods, class attributes, and what the methods give to `self`."""
    for node in made.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
    for inner in nodes(made):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and is_own(inner.value):
            yield inner.attr


def check_headers(found: list[Module]) -> Iterator[str]:
    """Findings: names of headers that are typed once more, instead of the constant."""
    names = {
        node.value
        for module in found
        if module.name == HEADERS
        for node in nodes(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("Nats-")
    }
    for module in found:
        if module.name == HEADERS or module.package.partition(".")[0] == "protocol":
            continue
        for node in nodes(module.tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, (str, bytes)):
                continue
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if text in names:
                yield f"{module.path}:{node.lineno}: types {text} once more; {HEADERS} has it"


def check_spark(root: Path) -> Iterator[str]:
    """Findings: more lines in Spark's own part than it may have, as `wc -l` counts them."""
    lines = sum(path.read_bytes().count(b"\n") for path in (root / SPARK).rglob("*.py"))
    if lines > SPARK_LINES:
        yield f"{SPARK}: has {lines} lines, at most {SPARK_LINES}; what needs no pyspark belongs beneath it"


def check_namesakes(root: Path, found: list[Module]) -> Iterator[str]:
    """Findings: modules of the packages of NAMED_AFTER without a test file of their name."""
    tests = {path.stem.removeprefix("test_") for path in (root / "tests").rglob("test_*.py")}
    for module in found:
        stem = module.path.stem
        if module.package not in NAMED_AFTER or stem == "__init__":
            continue
        elsewhere = TESTED_ELSEWHERE.get(module.name)
        if elsewhere is not None and (root / "tests" / elsewhere[0]).is_file():
            continue
        if not tests & {stem, f"{stem}s", f"js_{stem}", f"publish_{stem}"}:
            yield f"{module.path}:1: no test file is named after it"


def findings(root: Path = ROOT) -> list[str]:
    found: list[str] = []
    for folder in ("protocol", "jsclient"):
        for path in sorted((root / folder).rglob("*.py")):
            found += check_library(root, path)
    whole = modules(root)
    for check in (check_circles, check_private, check_doors, check_connection, check_headers):
        found += check(whole)
    found += check_tests_private(root, whole)
    found += check_spark(root)
    if (root / "tests").is_dir():
        found += check_namesakes(root, whole)
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
