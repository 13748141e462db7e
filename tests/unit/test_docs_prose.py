"""What the documentation names exists: symbols, options, constants, files, make targets, environment variables.

Everything in backticks is looked at, in README.md, the chapters and the pages of the site. Blocks of code are run by
tests/live/test_readme.py and tests/examples. In tables that translate from another product its own column is left out.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.docs import api
from tools.docs import fields as field_texts

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "jsclient").rglob("README.md")),
    *sorted((ROOT / "tools" / "docs" / "pages").glob("*.md")),
]
#: First cells of tables with a first column in the words of another product.
FOREIGN_TABLES = ("nats.go", "async-nats", "nats-py", "Kafka", "Celery, RQ", "question")
#: Words of servers, of Python, of Spark and of other products that stand in texts and not in our sources.
FOREIGN = {
    *("AsyncResult", "SimpleQueue", "SSLSocket", "setswitchinterval", "getpid", "on_commit", "ack_confirmed", "Expect"),
    *(
        "NullHandler",
        "connz",
        "sync_interval",
        "response_type",
        "server_name",
        "startingOffsetsByTimestampStrategy",
        "ErrHandler",
        "PAID",
        "AUDIT",
    ),
}
#: Last parts of module names that texts also use for something else: a session, a fixture, a column.
ALSO_VALUES = {"spark", "jetstream", "protocol"}
WORD = re.compile(r"^[A-Za-z_]\w*$")
DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
CALL = re.compile(r"^([A-Za-z_][\w.]*)\((.*)\)$")
TEST = re.compile(r"^((?:\w+/)*test_\w+\.py)::(test_\w+)$")
FILE = re.compile(r"^[\w.-]+(?:/[\w.*-]+)+/?$|^[\w-]+\.(?:py|md|cfg|toml|yaml)$")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of everything in backticks outside of blocks of code and of columns of other products."""
    fenced = foreign = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced or line.startswith("    "):
            continue
        cells = line.split(" | ")
        if not line.startswith("|"):
            foreign = False
        elif cells[0].strip("| ").startswith(FOREIGN_TABLES):
            foreign = True
        for literal in re.findall(r"`([^`]+)`", " ".join(cells[1:]) if foreign else line):
            yield number, literal


@cache
def source_words() -> set[str]:
    """Every word of the sources: a name that stands nowhere in them is a mistake or is foreign."""
    words: set[str] = set()
    files = [path for name in ("jsclient", "protocol", "tools", "tests") for path in (ROOT / name).rglob("*.py")]
    files.remove(Path(__file__).resolve())
    for path in [*files, ROOT / "Makefile", ROOT / "setup.cfg"]:
        text = path.read_text(encoding="utf-8")
        words.update(re.findall(r"\w+", text))
        words.update(option.replace("-", "_") for option in re.findall(r"[a-z]+(?:-[a-z]+)+", text))
    return words


@cache
def loggers() -> set[str]:
    """The names of the loggers, which need not be those of modules."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "jsclient").rglob("*.py")]
    return {name for text in texts for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}


@cache
def public() -> dict[str, Any]:
    """Name -> object, of every public name and of every module."""
    found: dict[str, Any] = {}
    for name in api.MODULES:
        module = importlib.import_module(name)
        found[name] = module
        if name.rpartition(".")[2] not in ALSO_VALUES:
            found[name.rpartition(".")[2]] = module
        for public_name in api.public_names(module):
            found.setdefault(public_name, api.resolve(module, public_name))  # `Msg` is that of jsclient
    return found


def exists(dotted: str) -> bool:
    """`JetStream.publish`, `jsclient.shared`: each part is an attribute, a field or a module of the one before."""
    first, *rest = dotted.split(".")
    if first in ("jsclient", "tools"):
        return resolves_module(dotted) or dotted in loggers()
    holder = public().get(first)
    if holder is None:
        return all(part in source_words() | FOREIGN for part in rest) or first in ("spark", "nats", "jetstream")
    for part in rest:
        if isinstance(holder, type) and part in field_texts.fields(holder):
            return True
        if not hasattr(holder, part):
            return part in inspect.getsource(holder) if inspect.isclass(holder) else False
        holder = getattr(holder, part)
    return True


def resolves_module(dotted: str) -> bool:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            holder = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(holder, part):
                return False
            holder = getattr(holder, part)
        return True
    return False


def is_file(name: str) -> bool:
    return any(True for _ in ROOT.glob(name.rstrip("/"))) or name.split("/")[0] in ("build", "dist")


def rows_to_prove(path: Path) -> Iterator[tuple[int, str]]:
    """(line, its last cell) of every row of the tables with "proven by" as their last column."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            inside = False
        elif line.endswith("| proven by |"):
            inside = True
        elif inside and not line.startswith("|---"):
            yield number, line.rstrip("| ").rpartition(" | ")[2]


def test_every_guarantee_of_spark_names_the_test_that_proves_it() -> None:
    """That each of them exists is looked at below."""
    rows = list(rows_to_prove(ROOT / "tools" / "docs" / "pages" / "spark-guarantees.md"))
    assert len(rows) > 20
    assert [number for number, cell in rows if not all(map(TEST.match, re.findall(r"`([^`]+)`", cell) or [""]))] == []


def unknown(literal: str) -> str:
    """Why a literal is wrong, or ""."""
    target = re.match(r"make ([\w-]+)", literal)
    if target:
        known = re.search(rf"^[\w -]*\b{target[1]}\b[\w -]*:", (ROOT / "Makefile").read_text(), re.M)
        return "" if known else f"make has no {target[1]}"
    test = TEST.match(literal)
    if test:
        files = [path for path in (ROOT / "tests").rglob(Path(test[1]).name) if str(path).endswith(f"/{test[1]}")]
        there = any(f"\ndef {test[2]}(" in path.read_text(encoding="utf-8") for path in files)
        return "" if there else "no such test"
    if FILE.match(literal) and not literal.startswith(("application/", "github")):
        return "" if is_file(literal) or literal.split("/")[0] not in top_level() else "no such file"
    call = CALL.match(literal)
    if call:
        for option in re.findall(r"(?:^|[ (,])([a-z_]\w*)=(?!=)", call[2]):
            if option not in source_words():
                return f"no option {option}"
        literal = call[1]
    option = re.fullmatch(r"([a-z_]\w*)=.*", literal)
    if option:
        return "" if option[1] in source_words() | FOREIGN else "no such option"
    if DOTTED.match(literal):
        return "" if exists(literal) else "no such name"
    if (WORD.match(literal) and not literal.islower()) or re.fullmatch(r"[a-z]+(?:_[a-z0-9]+)+", literal):
        return (
            "" if literal in source_words() | FOREIGN or hasattr(builtins, literal) else "no such word in the sources"
        )
    return ""


@cache
def top_level() -> set[str]:
    return {path.name for path in ROOT.iterdir()}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_named_exists(path: Path) -> None:
    wrong = [f"{number}: {literal}: {why}" for number, literal in literals(path) if (why := unknown(literal))]
    assert wrong == []


@pytest.mark.parametrize(
    "literal",
    [
        "JetStream.publsh",
        "jsclient.conect",
        "publish(mgs_id=1)",
        "make tset",
        "tests/unit/test_nothing.py",
        "test_journal.py::test_that_nothing_is_stored",
        "test_nothing.py::test_random_histories_store_each_row_once",
        "NATS_SERVR",
        "KeyValueConfg",
        "max_messagez=3",
        "pending_bufer",
    ],
)
def test_a_name_that_does_not_exist_is_found(literal: str) -> None:
    assert unknown(literal)


@pytest.mark.parametrize(
    "literal", ["JetStream.publish", "jsclient.shared", "publish(msg_id=1)", "make test", "jsclient.spark.audit"]
)
def test_a_name_that_exists_is_not_found(literal: str) -> None:
    assert not unknown(literal)
