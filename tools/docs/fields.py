"""The fields of a class with the texts that its docstring gives them below `Attributes:` or `Values:`."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, is_typeddict

#: Titles of the sections whose entries are fields.
SECTION = re.compile(r"^(?:Attributes|Values):$", re.M)
ENTRY = re.compile(r"^(\w+): ?(.*)$")
REFERENCE = re.compile(r"fields (?:are described in|of) ((?:`\w+`(?:, | and )?)+)")
#: Packages of base classes that are not ours.
FOREIGN = {"builtins", "enum", "msgspec", "typing", "typing_extensions", "abc", "collections"}


class Field(NamedTuple):
    annotation: str = ""
    default: str = ""
    text: str = ""


def own_doc(cls: type) -> str:
    """The docstring in the source, with its fields."""
    for base in _ours(cls):
        own = vars(base).get("__doc__")
        if own:
            return str(own)
    return ""


def _ours(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in FOREIGN]


def without_fields(text: str) -> str:
    """A docstring (cleaned) without its sections of fields."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        inside = bool(SECTION.match(line)) or (inside and (not line or line.startswith(" ")))
        kept += [] if inside else [line]
    return "\n".join(kept)


def entries(text: str) -> dict[str, str]:
    """Field -> text of a docstring's sections."""
    found: dict[str, str] = {}
    name, inside = "", False
    for line in inspect.cleandoc(text).splitlines():
        if line and not line.startswith(" "):
            inside = bool(SECTION.match(line))
            continue
        entry = ENTRY.match(line[4:]) if inside else None
        if entry:
            name, found[entry[1]] = entry[1], entry[2]
        elif inside and name:
            found[name] += "\n" + line[8:]
    return {name: text.rstrip() for name, text in found.items()}


def is_values(cls: type) -> bool:
    """True for an enumeration and a class of constants."""
    return issubclass(cls, enum.Enum) or any(name.isupper() for name in vars(cls))


def names_of(cls: type) -> list[str]:
    """The public fields of an attrs class, a struct, a TypedDict, an enumeration or a class of constants; of others
    the attributes that their docstrings tell."""
    if is_typeddict(cls):
        found = list(cls.__annotations__)
    elif issubclass(cls, enum.Enum):
        found = list(cls.__members__)
    elif hasattr(cls, "__attrs_attrs__"):
        found = [field.name for field in cls.__attrs_attrs__]
    elif hasattr(cls, "__struct_fields__"):
        found = list(cls.__struct_fields__)
    else:
        constants = [name for name in vars(cls) if name.isupper()]
        found = constants or list(dict.fromkeys(name for base in _ours(cls) for name in entries(_doc(base))))
    return [name for name in found if not name.startswith("_")]


def _doc(cls: type) -> str:
    return str(vars(cls).get("__doc__") or "")


def fields(cls: type) -> dict[str, Field]:
    """Field -> its type, its default and what it means."""
    hashable: Any = cls
    return _fields(hashable)


@cache
def _fields(cls: Any) -> dict[str, Field]:
    texts: dict[str, str] = {}
    for referred in _referred(cls):
        texts |= {name: field.text for name, field in fields(referred).items() if field.text}
    for base in reversed(_ours(cls)):
        texts |= entries(_doc(base))
    kinds, values = _kinds(cls), _defaults(cls)
    return {name: Field(kinds.get(name, ""), values.get(name, ""), texts.get(name, "")) for name in names_of(cls)}


def _referred(cls: type) -> Iterator[type]:
    """The classes that its docstring names as those which describe its fields."""
    for names in REFERENCE.findall(" ".join(_doc(cls).split())):
        for name in re.findall(r"\w+", names.replace(" and ", " ")):
            found = _known(cls.__module__, name)
            if found is not None and found is not cls:
                yield found


def _known(module: str, name: str) -> type | None:
    loaded = [sys.modules[module], *(one for key, one in list(sys.modules.items()) if key.startswith("jsclient"))]
    return next((vars(one)[name] for one in loaded if inspect.isclass(vars(one).get(name))), None)


def _kinds(cls: type) -> dict[str, str]:
    """Field -> its annotation as written."""
    found: dict[str, str] = {}
    for base in reversed(_ours(cls)):
        found |= set_by_init(base)
        for name, note in inspect.get_annotations(base).items():
            found[name] = str(getattr(note, "__forward_arg__", note))
    return {} if is_values(cls) else found


def _defaults(cls: type) -> dict[str, str]:
    """Field -> its default or value, as Python shows it."""
    found: dict[str, Any] = {}
    if hasattr(cls, "__attrs_attrs__"):
        for field in cls.__attrs_attrs__:
            factory = getattr(field.default, "factory", None)
            if factory is not None:
                found[field.name] = _Plain(f"{factory.__name__}()")
            elif "NOTHING" not in repr(field.default):
                found[field.name] = field.default
    elif hasattr(cls, "__struct_fields__"):
        defaults = cls.__struct_defaults__  # type: ignore[attr-defined]
        names = cls.__struct_fields__[len(cls.__struct_fields__) - len(defaults) :]
        found = {name: value for name, value in zip(names, defaults, strict=True) if "NODEFAULT" not in repr(value)}
    elif issubclass(cls, enum.Enum):
        found = {name: member.value for name, member in cls.__members__.items()}
    elif is_values(cls):
        found = {name: value for name, value in vars(cls).items() if name.isupper()}
    return {name: shown for name, value in found.items() if (shown := repr(value)) and not shown.startswith("<")}


class _Plain(str):
    def __repr__(self) -> str:
        return str(self)


def set_by_init(cls: type) -> dict[str, str]:
    """The public attributes that `__init__` sets, with the annotation of each or of its parameter."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(vars(cls)["__init__"]))).body[0]
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(node, ast.FunctionDef)
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    kinds = {one.arg: ast.unparse(one.annotation) for one in arguments if one.annotation is not None}
    found = {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign):
            target: ast.expr = line.target
            kind = ast.unparse(line.annotation)
        elif isinstance(line, ast.Assign):
            target, kind = line.targets[0], kinds.get(ast.unparse(line.value), "")
        else:
            continue
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr[0] != "_":
            found[target.attr] = kind
    return found
