"""What editors, `help` and `typing.get_type_hints` find: every public name, with types that resolve."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

PACKAGES = [
    *("jsclient", "jsclient.jetstream", "jsclient.keyvalue", "jsclient.objectstore", "jsclient.services"),
    *("jsclient.workers", "jsclient.groups", "jsclient.coordination", "jsclient.system", "jsclient.backup"),
    *("jsclient.monitor", "jsclient.codecs", "jsclient.errors", "jsclient.testing", "jsclient.cancel", "protocol"),
    *(["jsclient.arrow"] if importlib.util.find_spec("pyarrow") else []),
    *(["jsclient.spark"] if importlib.util.find_spec("pyspark") else []),
]
OURS = ("jsclient", "protocol")


def public(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


def functions(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods of a class that are called by name, or by Python."""
    for name, found in inspect.getmembers_static(kind) if sys.version_info >= (3, 11) else inspect.getmembers(kind):
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


@pytest.mark.parametrize("package", PACKAGES)
def test_types_of_public_names_resolve(everything: dict[str, dict[str, Any]], package: str) -> None:
    wrong = []
    for name, thing in everything[package].items():
        asked = [(name, thing)] if inspect.isfunction(thing) else []
        if inspect.isclass(thing) and thing.__module__.startswith(OURS):
            asked = [(name, thing), *((f"{name}.{method}", found) for method, found in functions(thing))]
        for where, found in asked:
            try:
                typing.get_type_hints(found)
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
