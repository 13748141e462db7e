"""What editors and `help` find: every public name, with types that resolve as type checkers resolve them."""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from typing_extensions import Unpack

PACKAGES = [
    *("jsclient", "jsclient.jetstream", "jsclient.keyvalue", "jsclient.objectstore", "jsclient.services"),
    *("jsclient.workers", "jsclient.groups", "jsclient.coordination", "jsclient.system", "jsclient.backup"),
    *("jsclient.monitor", "jsclient.codecs", "jsclient.errors", "jsclient.testing", "jsclient.cancel"),
    *("jsclient.protocol", "jsclient.auth.credentials"),
    *(["jsclient.arrow"] if importlib.util.find_spec("pyarrow") else []),
    *(["jsclient.spark"] if importlib.util.find_spec("pyspark") else []),
]
OURS = "jsclient"


def public(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


def functions(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods of a class that are called by name, or by Python."""
    if sys.version_info >= (3, 11):
        members = inspect.getmembers_static(kind)
    else:
        members = inspect.getmembers(kind)
    for name, found in members:
        if name.startswith("_") and not (name.startswith("__") and name.endswith("__")):
            continue
        plain = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        plain = plain.fget if isinstance(plain, property) else plain
        generated = attrs.has(kind) and name.startswith("__")  # has the types of the fields, which the class tells
        if inspect.isfunction(plain) and plain.__module__.startswith(OURS) and not generated:
            yield name, plain


@pytest.fixture(scope="module")
def everything() -> dict[str, dict[str, Any]]:
    """All packages with all their names: some types come from modules that are loaded when they are used."""
    return {package: public(package) for package in PACKAGES}


@functools.cache
def classes() -> dict[str, Any]:
    """All classes of the library, by name. Asked only after the packages are loaded."""
    loaded = [vars(module) for name, module in list(sys.modules.items()) if name.partition(".")[0] == OURS]
    known = {name: one for names in loaded for name, one in names.items() if inspect.isclass(one)}
    return known | {"Unpack": Unpack, "ClassVar": typing.ClassVar}


def hints_of(thing: Any) -> dict[str, Any]:
    """Its types. A module imports some of them for type checkers only."""
    names = {**classes(), **vars(sys.modules[thing.__module__])}
    return typing.get_type_hints(thing, names, names)


@pytest.mark.parametrize("package", PACKAGES)
def test_types_of_public_names_resolve(everything: dict[str, dict[str, Any]], package: str) -> None:
    wrong = []
    for name, thing in everything[package].items():
        asked: list[tuple[str, Any]] = [(name, thing)] if inspect.isfunction(thing) else []
        if inspect.isclass(thing) and thing.__module__.startswith(OURS):
            asked = [(name, thing), *((f"{name}.{method}", found) for method, found in functions(thing))]
        for where, found in asked:
            try:
                hints_of(found)
            except Exception as error:
                wrong.append(f"{where}: {error!r}")
    assert not wrong


def test_public_names_are_there_from_the_start() -> None:
    """Also those of modules that are loaded later: in a process that has asked for nothing yet."""
    program = (
        "import importlib\n"
        f"for package in {PACKAGES!r}:\n"
        "    module = importlib.import_module(package)\n"
        "    missing = set(getattr(module, '__all__', ())) - set(dir(module))\n"
        "    assert not missing, (package, missing)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_ends_in_an_underscore(everything: dict[str, dict[str, Any]], package: str) -> None:
    """Nor a method, an attribute or a parameter: there is always another word."""
    found = list(everything[package])
    for thing in everything[package].values():
        ours = inspect.isclass(thing) and thing.__module__.startswith(OURS)
        found += [name for name in dir(thing) if name[0] != "_"] if ours else []
        calls = [one for name, one in functions(thing) if name[0] != "_" or name == "__init__"] if ours else [thing]
        found += [name for call in calls if inspect.isfunction(call) for name in inspect.signature(call).parameters]
    assert [name for name in found if name.endswith("_")] == []
    assert found


@pytest.mark.parametrize("package", PACKAGES)
def test_tables_of_keyword_arguments_have_public_names(everything: dict[str, dict[str, Any]], package: str) -> None:
    """`def mine(**options: Unpack[PublishOptions])`: a function that hands them on names their table."""
    known = {name for names in everything.values() for name in names}
    silent = set()
    for thing in everything[package].values():
        calls = [thing] if inspect.isfunction(thing) else []
        if inspect.isclass(thing) and thing.__module__.startswith(OURS):
            calls = [found for _, found in functions(thing)]
        tables = (re.search(r"Unpack\[(?:\w+\.)?(\w+)\]", str(inspect.signature(call))) for call in calls)
        silent |= {table[1] for table in tables if table} - known
    assert silent == set()


#: What a parameter that takes a duration is called.
DURATION = re.compile(r"(^|_)(timeout|expires|heartbeat|ttl|delay|interval|wait|stall|backoff|older_than|lease)$")

#: What applications neither call nor make, and the tools for tests.
LAYERS = (
    "jsclient.testing.",
    "jsclient.keyvalue.KeyWatcher.__init__",
    "jsclient.objectstore.ObjectWatcher.__init__",
    "jsclient.monitor.Deadline",
)


def parameters(package: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Where and with which type: all parameters of public functions, and fields of their keyword dictionaries."""
    for name, thing in names.items():
        found: list[tuple[str, Any]] = [(name, thing)] if inspect.isfunction(thing) else []
        if inspect.isclass(thing) and thing.__module__.startswith(OURS) and not issubclass(thing, BaseException):
            found = [(f"{name}.{method}", one) for method, one in functions(thing)]
            if attrs.has(thing):
                found.append((f"{name}.__init__", thing.__init__))
        for where, function in found:
            if where.rpartition(".")[2].startswith("_") and not where.endswith("__init__"):
                continue
            try:
                hints = hints_of(function)
            except Exception:  # another test
                continue
            for parameter, hint in hints.items():
                if typing.is_typeddict(hint):
                    yield from ((f"{package}.{where}(**{field})", t) for field, t in hints_of(hint).items())
                elif parameter != "return":
                    yield f"{package}.{where}({parameter})", hint


@pytest.mark.parametrize("package", PACKAGES)
def test_durations_may_be_timedeltas(everything: dict[str, dict[str, Any]], package: str) -> None:
    wrong = {
        f"{where}: {hint}"
        for where, hint in parameters(package, everything[package])
        if DURATION.search(where.rstrip(")").rpartition("(")[2].lstrip("*"))
        and float in parts(hint)
        and dt.timedelta not in parts(hint)
        and not where.startswith(LAYERS)
    }
    assert not wrong, "\n".join(sorted(wrong))


def parts(hint: Any) -> list[Any]:
    """All types in a type, but not those of a function that it may be."""
    if typing.get_origin(hint) is Callable:
        return []
    return [hint, *(part for one in typing.get_args(hint) for part in parts(one))]
