"""`help()` of a class shows its fields with the texts that stand below them in the source.

Python keeps no text of a field. Editors read it from the source, and so does this module, when somebody asks for the
docstring of the class and not before: importing costs nothing, and no text stands twice. Without the sources (a zip of
compiled files) `help` shows the names and the defaults alone.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex, TypeVar, is_typeddict

if TYPE_CHECKING:
    import ast

C = TypeVar("C", bound=type)

#: Options beyond which a class names the class that has them instead of telling each.
MANY = 20

#: Their bodies are no part of ours.
FOREIGN = {"builtins", "enum", "msgspec", "typing", "typing_extensions", "abc", "collections"}


class Field(NamedTuple):
    annotation: str = ""
    """As written."""
    default: str = ""
    """As written; of a named constant its value."""
    text: str = ""

    @property
    def written(self) -> str:
        return (f": {self.annotation}" if self.annotation else "") + (f" = {self.default}" if self.default else "")


def described(cls: C) -> C:
    """Class decorator: the fields join the docstring."""
    return _described(cls, (), {})


def described_like(*names: str, shared: Mapping[str, str] | None = None) -> Callable[[C], C]:
    """The same for keywords that are the fields of other classes: their texts are taken from there.

    `names` are those of the module, or `package.module.Name`. `shared`: texts of options that many methods have.
    """
    return lambda cls: _described(cls, names, shared or {})


def _described(cls: C, names: tuple[str, ...], shared: Mapping[str, str]) -> C:
    doc = _Doc(own_doc(cls, inherited=False))
    doc.cls, doc.names, doc.shared = cls, names, shared
    cls.__doc__ = doc
    return cls


class _Doc(str):
    """Stands as `__doc__` in a class; as a text of its own it is the docstring of the source.

    Most classes ask a descriptor for it. Those with a metaclass that has a docstring (structs, TypedDicts) hand it to
    `inspect.cleandoc` as it is, which begins with `expandtabs`.
    """

    cls: type
    names: tuple[str, ...]
    shared: Mapping[str, str]

    def __get__(self, instance: object, cls: type) -> str:
        return self.whole()

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return self.whole().expandtabs(tabsize)

    def whole(self) -> str:
        found, cls = fields(self.cls), self.cls
        lines = [str.__str__(self).rstrip()]
        if found:
            lines += [f"\n    {'Values' if is_values(cls) else 'Fields'}:\n", *_listed(found)]
        used = {name: Field(text=text) for name, text in self.shared.items() if name in options_of(cls)}
        if used:
            lines += ["\n    Options that several methods have:\n", *_listed(used)]
        for table, methods in tables_of(cls).items():
            lines += [f"\n    Further options of {', '.join(methods)}:\n", *_told(table)]
        return "\n".join(lines) + "\n"


def _listed(found: Mapping[str, Field]) -> Iterator[str]:
    for name, field in found.items():
        yield f"    {name}{field.written}"
        yield from (f"        {line}" for line in field.text.splitlines())


def _told(table: type) -> Iterator[str]:
    """Its fields, or, where they are many, the classes that have the same, and its own."""
    found = fields(table)
    doc = vars(table).get("__doc__")
    if len(found) > MANY and isinstance(doc, _Doc) and doc.names:
        others = [_named(table, name) for name in doc.names]
        yield f"    the fields of {', '.join(other.__name__ for other in others)}; see there."
        found = {name: field for name, field in found.items() if not any(name in fields(other) for other in others)}
    yield from _listed(found)


def own_doc(cls: type, *, inherited: bool = True) -> str:
    """The docstring as it stands in the source."""
    for base in cls.__mro__ if inherited else (cls,):
        own = vars(base).get("__doc__")
        if own and base.__module__.partition(".")[0] not in FOREIGN:
            return own if type(own) is str else str.__str__(own)
    return ""


def is_values(cls: type) -> bool:
    """Whether it is an enumeration, or a class of constants."""
    return issubclass(cls, enum.Enum) or any(name.isupper() for name in names_of(cls))


def _annotated(cls: type) -> list[str]:
    if hasattr(cls, "__attrs_attrs__"):
        return [field.name for field in cls.__attrs_attrs__]
    return list(getattr(cls, "__struct_fields__", ()))


def names_of(cls: type) -> list[str]:
    """The public fields of an attrs class, a struct, a TypedDict, an enumeration or a class of constants; of others the
    attributes with a text that `__init__` sets."""
    if is_typeddict(cls):
        found = list(cls.__annotations__)
    elif issubclass(cls, enum.Enum):
        found = list(cls.__members__)
    else:
        found = _annotated(cls) or [name for name in vars(cls) if name.isupper()] or _attributes(cls)
    return [name for name in found if not name.startswith("_")]


def _attributes(cls: type) -> list[str]:
    found: dict[str, None] = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in FOREIGN:
            told = set_by_init(base)
            found.update(dict.fromkeys(name for name, field in told.items() if field.text and not is_inner(field)))
    return list(found)


def is_inner(field: Field) -> bool:
    """Whether only the library's own layers use it."""
    return field.text.startswith("For layers")


def fields(cls: type) -> dict[str, Field]:
    """Field -> how it is written and what it means."""
    written: dict[str, Field] = {}
    doc = vars(cls).get("__doc__")
    for name in doc.names if isinstance(doc, _Doc) else ():
        written.update(fields(_named(cls, name)))
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in FOREIGN:
            for name, field in {**written_fields(base), **set_by_init(base)}.items():
                text = field.text or written.get(name, field).text
                written[name] = Field(field.annotation, field.default, text)
    return {name: written.get(name, Field()) for name in names_of(cls)}


def _named(cls: type, name: str) -> type:
    from importlib import import_module

    module, _, name = name.rpartition(".")
    found: type = getattr(import_module(module or cls.__module__), name)
    return found


def _methods(cls: type) -> Iterator[tuple[str, Callable[..., object]]]:
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in FOREIGN:
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            function = getattr(function, "__wrapped__", function)  # what checks its arguments is around it
            if hasattr(function, "__code__") and (not name.startswith("_") or name == "__init__"):
                yield name, function


def options_of(cls: type) -> set[str]:
    """The names of the options that the public methods have."""
    found: set[str] = set()
    for _, method in _methods(cls):
        code = method.__code__
        found.update(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
    return found


def tables_of(cls: type) -> dict[type, list[str]]:
    """The TypedDicts of `**options: Unpack[...]` -> the methods that have them."""
    found: dict[type, list[str]] = {}
    for name, method in _methods(cls):
        for annotation in method.__annotations__.values():
            named = re.fullmatch(r"Unpack\[(\w+)\]", str(annotation))
            table = method.__globals__.get(named[1]) if named else None
            if table is not None:
                methods = found.setdefault(table, [])
                methods += [cls.__name__ if name == "__init__" else name] * (name not in methods)
    return found


# --- the source --------------------------------------------------------------------------------------------


def written_fields(cls: type) -> dict[str, Field]:
    """The assignments in the body of a class, with the text below, beside (`#: ...`) or above them."""
    import ast

    lines, classes = _source(cls.__module__)
    if cls.__qualname__ not in classes:
        return {}
    body = classes[cls.__qualname__].body
    found = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, annotation = node.target.id, ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, annotation = node.targets[0].id, ""
        else:
            continue
        default = _default(cls, node.value)
        found[name] = Field(annotation, default, "\n".join(_text(lines, node, after)))
    return found


def set_by_init(cls: type) -> dict[str, Field]:
    """What `__init__` sets: `self.name = ...`, with the annotation of the parameter that it comes from."""
    import ast

    lines, classes = _source(cls.__module__)
    body = classes[cls.__qualname__].body if cls.__qualname__ in classes else []
    inits = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if not inits:
        return {}
    init = inits[-1]  # behind its overloads
    kinds = {
        one.arg: ast.unparse(one.annotation)
        for one in (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)
        if one.annotation is not None
    }
    found = {}
    for node, after in zip(init.body, [*init.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            target: ast.expr = node.target
            annotation = ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign):
            target, annotation = node.targets[0], kinds.get(ast.unparse(node.value), "")
        else:
            continue
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr[0] != "_":
            found[target.attr] = Field(annotation, "", "\n".join(_text(lines, node, after, "#:")))
    return found


@cache
def _source(module: str) -> tuple[list[str], dict[str, ast.ClassDef]]:
    """The lines of a module, and its classes by their qualified names; nothing where the source is not at hand."""
    import ast
    import inspect

    try:
        text = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, ValueError):  # the last one of what stands in for a module that is not installed
        return [], {}
    found: dict[str, ast.ClassDef] = {}

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found.setdefault(prefix + child.name, child)
                look(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                look(child, f"{prefix}{child.name}.<locals>.")
            else:
                look(child, prefix)

    look(ast.parse(text), "")
    return text.splitlines(), found


def _default(cls: type, value: ast.expr | None) -> str:
    import ast

    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("attrs.field", "field", "msgspec.field"):
        for keyword in value.keywords:
            if keyword.arg == "default":
                return _value(cls, ast.unparse(keyword.value))
            if keyword.arg in ("factory", "default_factory"):
                return ast.unparse(keyword.value) + "()"
        return ""
    return _value(cls, ast.unparse(value))


def _value(cls: type, written: str) -> str:
    """The value of a constant of the module: that of PING_INTERVAL is worth more to a reader than its name."""
    value = vars(sys.modules[cls.__module__]).get(written)
    return repr(value) if written.isupper() and isinstance(value, (int, float, str)) else written


def _text(lines: list[str], node: ast.stmt, after: ast.stmt | None, mark: str = "#:?") -> Iterator[str]:
    import ast
    import inspect

    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        yield from inspect.cleandoc(after.value.value).splitlines()
        return
    beside = re.search(rf"\s{mark} ?(.*)$", lines[(node.end_lineno or node.lineno) - 1])
    if beside and not re.match(r"(type:|noqa)", beside[1]):
        yield beside[1]
        return
    above: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        comment = re.match(r"\s*#: ?(.*)$", line)
        if comment is None:
            break
        above.insert(0, comment[1])
    yield from above
