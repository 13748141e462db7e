"""The API reference shows every public name, every option of every public call, and says something about each name."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import pytest

from tools.docs import api
from tools.docs.fields import fields


@cache
def pages() -> dict[str, str]:
    return api.pages()


def test_an_error_is_a_kind_of_what_can_be_looked_up() -> None:
    page = pages()["api/protocol.md"]
    assert "{py:exception} InvalidArgument\n\nIs a `ValueError`." in page, "Told, which is between them, is on no page"
    assert "Is a `Refused`" not in "".join(pages().values())


@pytest.mark.parametrize("name", api.MODULES)
def test_every_name_and_every_option_is_shown(name: str) -> None:
    module = importlib.import_module(name)
    page = "\n".join(api.module_pages(name).values())
    missing = []
    for public in api.public_names(module):
        value = api.resolve(module, public)
        if not re.search(rf"^:+\{{py:\w+\}} {public}\b", page, re.M):
            missing.append(public)
        if inspect.isclass(value):
            section = re.split(rf"\}} {public}\b", page, maxsplit=1)[-1].split("\n::::\n")[0]
            missing += [f"{public}.{member}" for member in absent(value, section)]
        elif inspect.isfunction(value):
            (line,) = re.findall(rf"^:::\{{py:function\}} {public}\(.*$", page, re.M)
            missing += [f"{public}({option})" for option in inspect.signature(value).parameters if option not in line]
    assert missing == []


def absent(cls: type, section: str) -> list[str]:
    """Public methods, and their options, that the section of a class does not show."""
    found = []
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") or not api.ours(method) or hidden(name, method):
            continue
        lines = re.findall(rf"^:::\{{py:method\}} {name}\(.*$", section, re.M)
        if not lines:
            found.append(name)
            continue
        options = list(inspect.signature(method).parameters)[1:]
        found += [f"{name}({option})" for option in options if option not in lines[0]]
        found += [f"{name}({option})" for option in handed_on(method) if f"`{option}: " not in section]
    return found


def handed_on(method: object) -> list[str]:
    """The options behind `**options: Unpack[...]`."""
    text = str(inspect.signature(method))  # type: ignore[arg-type]
    table = re.search(r"Unpack\[(?:\w+\.)?(\w+)\]", text)
    return list(api.typed_dicts()[table[1]].__annotations__) if table else []


def hidden(name: str, method: object) -> bool:
    return name in api.PLUMBING or (inspect.getdoc(method) or "").startswith(api.INTERNAL)


@pytest.mark.parametrize("name", api.MODULES)
def test_every_class_and_function_says_what_it_is_for(name: str) -> None:
    module = importlib.import_module(name)
    silent = [
        public
        for public in api.public_names(module)
        if (value := api.resolve(module, public)) is not None
        and (inspect.isclass(value) or inspect.isfunction(value))
        and not api.docstring(value)
    ]
    assert silent == []


def public_classes(name: str) -> Iterator[tuple[str, type]]:
    module = importlib.import_module(name)
    for public in api.public_names(module):
        if inspect.isclass(value := api.resolve(module, public)):
            yield public, value


@pytest.mark.parametrize("name", api.MODULES)
def test_every_method_and_property_says_what_it_does(name: str) -> None:
    silent = [
        f"{public}.{member}"
        for public, cls in public_classes(name)
        for member, value in api.members(cls)
        if not api.docstring(function_of(value))
    ]
    assert silent == []


def function_of(value: Any) -> Any:
    if api.is_property(value):
        return value.fget if isinstance(value, property) else value.func
    return value


def test_the_whole_is_not_empty() -> None:
    """The tests above count nothing if the reference stops finding names."""
    classes = [cls for name in api.MODULES for _, cls in public_classes(name)]
    assert len(classes) > 200
    assert sum(len(fields(cls)) for cls in classes) > 700
    assert sum(1 for cls in classes for _ in api.members(cls)) > 500


def test_a_field_without_a_text_is_found() -> None:
    @attrs.frozen
    class Silent:
        """A class.

        Attributes:
            said: Said.
        """

        said: int
        silent: int

    assert fields(Silent)["silent"].text == "" != fields(Silent)["said"].text


def test_the_command_line_shows_every_command() -> None:
    page = pages()["api/command-line.md"]
    for command in ("jsclient pub", "jsclient stream", "jsclient backup", "jsclient server run"):
        assert f"## {command}\n" in page
