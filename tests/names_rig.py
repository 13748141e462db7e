"""What the tests of the tables of other clients' names share: rows of a page, and names of ours."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsclient
from jsclient import errors, jetstream, keyvalue, objectstore, services
from tools.docs import fields as field_texts

PAGES = Path(__file__).resolve().parents[1] / "tools/docs/pages"

#: The modules of ours that the tables name.
everything = SimpleNamespace(
    errors=errors,
    jetstream=jetstream,
    jsclient=jsclient,
    keyvalue=keyvalue,
    objectstore=objectstore,
    services=services,
)


def rows(page: str, *titles: str) -> list[tuple[list[str], str]]:
    """(names, what stands beside them) of the sections with titles that begin so."""
    found = []
    for section in page.split("\n## ")[1:]:
        if section.startswith(titles):
            for theirs, ours in re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.M):
                found.append((re.findall(r"`([^`]+)`", theirs), ours))
    return found


def named(name: str) -> Any:
    """The public class of that name."""
    homes = (jsclient, jetstream, keyvalue, objectstore, services)
    return next((found for found in (getattr(home, name, None) for home in homes) if found is not None), None)


def members(thing: Any) -> set[str]:
    """The names of what a class, or a module, has."""
    if not isinstance(thing, type):
        return set(dir(thing))
    attributes = {name for base in thing.__mro__ for name in field_texts.set_by_init(base)}
    return {*dir(thing), *field_texts.fields(thing), *attributes}


def keywords(thing: Any) -> set[str]:
    """The names of the keyword arguments of a function or a class, with those of the TypedDict of its `**options`."""
    found: set[str] = set()
    for name, parameter in inspect.signature(thing).parameters.items():
        options = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        found |= set(inspect.get_annotations(named(options[1]))) if options else {name}
    return found


def spelled(name: str) -> str:
    """MaxAckPending -> max_ack_pending; JSApiLevel -> js_api_level."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
