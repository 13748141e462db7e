"""The API reference shows every public name, every option of every public call, and says something about each name."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache

import pytest

from tools.docs import api


@cache
def pages() -> dict[str, str]:
    return api.pages()


@pytest.mark.parametrize("name", api.MODULES)
def test_every_name_and_every_option_is_shown(name: str) -> None:
    module = importlib.import_module(name)
    page = pages()[api.page_name(name)]
    missing = []
    for public in api.public_names(module):
        value = api.resolve(module, public)
        if not re.search(rf"^:+\{{py:\w+\}} {public}\b", page, re.M):
            missing.append(public)
        if inspect.isclass(value):
            section = page.split(f"}} {public}", 1)[-1].split("\n::::\n")[0]
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


def test_every_option_of_a_connection_has_a_text() -> None:
    import jsclient

    for cls in (jsclient.ConnectOptions, jsclient.TLSOptions, jsclient.ReconnectPolicy):
        assert [field for field, (_, text) in api.fields(cls).items() if not text] == []


def test_the_command_line_shows_every_command() -> None:
    page = pages()["api/command-line.md"]
    for command in ("jsclient pub", "jsclient stream", "jsclient backup", "jsclient server run"):
        assert f"## {command}\n" in page
