"""Checks options against their declarations. A value of the wrong type raises ConfigError before anything is sent.

The annotations that a type checker uses also apply when the program runs. Other code checks ranges and allowed words. A
check costs some microseconds, so it is for options of objects that live for a while. Options of single messages have
their own checks.
"""

from __future__ import annotations

import builtins
import datetime as dt
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from jsclient import handlers
from jsclient.errors import ConfigError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Accepts = Callable[[Any], bool]

_CALLABLE: Any = Callable

OWN_ERRORS = frozenset(("subject", "key", "queue", "headers", "return"))
"""Arguments whose encoding raises InvalidSubject, InvalidName or InvalidHeader."""

_HANDLES = {
    "Connection": "jsclient.connection",
    "JetStream": "jsclient.jetstream",
    "KeyValue": "jsclient.keyvalue",
    "Schedule": "jsclient.jetstream.publishing.schedules",
}
"""Classes that modules import for type checkers only, with the module of each."""

_WORDS = {
    int: "an int",
    float: "a number",
    bool: "True or False",
    str: "a str",
    bytes: "bytes",
    dt.timedelta: "a timedelta",
    dt.datetime: "a datetime",
    type(None): "None",
}


def check(table: type, given: Mapping[str, Any]) -> None:
    """Refuse options of another type than the class or TypedDict declares. It does not check their names."""
    accepts = _table(table)
    for name, value in given.items():
        found = accepts.get(name)
        if found is not None and not found[0](value):
            raise _wrong(name, value, found[1])
        if callable(value):
            handlers.check(value, name)


def arguments(function: F) -> F:
    """Decorator of a public call. Arguments of another type than their annotations raise ConfigError before it runs.

    It costs about a microsecond, so it is not for calls of every message.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    tables: list[dict[str, tuple[Accepts, str]]] = []

    @functools.wraps(function)
    def checked(*given: Any, **options: Any) -> Any:
        if not tables:
            tables.append(_arguments(function))
        table = tables[0]
        for name, value in (*zip(names, given, strict=False), *options.items()):
            found = table.get(name)
            if found is not None and not found[0](value):
                raise _wrong(name, value, found[1])
        return function(*given, **options)

    return checked  # type: ignore[return-value]


def _arguments(function: Any) -> dict[str, tuple[Accepts, str]]:
    """The checks of a function's arguments, without `OWN_ERRORS`, which have their own checks."""
    hints = {name: _evaluated(note, function.__module__) for name, note in function.__annotations__.items()}
    return {
        name: (accepts(hint), words(hint)) for name, hint in hints.items() if name not in OWN_ERRORS and hint is not Any
    }


def _wrong(name: str, value: Any, wanted: str) -> ConfigError:
    large = isinstance(value, int) and not isinstance(value, bool) and not _is_int(value)
    got = "an int of more than 64 bits" if large else type(value).__name__
    return ConfigError(f"{name} must be {wanted}, not {got}")


def declared(table: str = "") -> Callable[[type[T]], type[T]]:
    """Decorator of an attrs class that checks its arguments with `check`.

    `table` is the TypedDict of the same module with the types that the converters accept, for the fields in it.
    """

    def decorate(cls: type[T]) -> type[T]:
        plain: Any = cls.__init__

        @functools.wraps(plain)
        def __init__(self: Any, *args: Any, **options: Any) -> None:
            if table:
                check(vars(sys.modules[cls.__module__])[table], options)
            check(cls, options)
            plain(self, *args, **options)

        cls.__init__ = __init__  # type: ignore[method-assign]
        return cls

    return decorate


@functools.cache
def _table(table: type) -> dict[str, tuple[Accepts, str]]:
    """Name -> a test of a value, and its meaning in words. Fields with a converter are left to the converter."""
    fields = getattr(table, "__attrs_attrs__", ())
    converted = {field.name for field in fields if field.converter is not None}
    found = {}
    for name, hint in hints_of(table).items():
        if name not in converted:
            found[name] = accepts(hint), words(hint)
    return found


def hints_of(table: type) -> dict[str, Any]:
    """The annotations of a class or TypedDict. Names that a module imports for type checkers only are Any."""
    found: dict[str, Any] = {}
    for base in reversed(table.__mro__[:-1]):
        for name, note in inspect.get_annotations(base).items():
            found[name] = _evaluated(note, base.__module__)
    return found


def _evaluated(note: Any, module: str) -> Any:
    text = note if isinstance(note, str) else getattr(note, "__forward_arg__", None)
    if text is None:
        return note
    owner = getattr(note, "__forward_module__", None) or module
    names = _Names(vars(sys.modules[owner] if isinstance(owner, str) else owner))
    for name, home in _HANDLES.items():
        if name not in names and home in sys.modules:
            names[name] = getattr(sys.modules[home], name)
    try:
        return eval(text, {}, names)
    except (NameError, AttributeError, TypeError):
        return Any


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def _options(hint: Any) -> tuple[Any, ...]:
    """The parts of a union; any other annotation is its only part."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(part for option in typing.get_args(hint) for part in _options(option))
    return (hint,)


def accepts(hint: Any) -> Accepts:
    """A function that returns True if the annotation allows a value."""
    tests = [_accepts_one(option) for option in _options(hint)]
    return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def _accepts_one(hint: Any) -> Accepts:
    if hint is None:
        return lambda value: value is None
    if hint is int:
        return _is_int
    if hint is float:
        return lambda value: hasattr(type(value), "__float__") and not isinstance(value, bool)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:  # other code checks the words, if a newer server cannot have more
        kinds = tuple({type(word) for word in args})
        return lambda value: isinstance(value, kinds)
    if origin is type:
        return _is_type
    if origin is typing.IO:
        return lambda value: hasattr(value, "write") or hasattr(value, "read")
    if origin is not None and isinstance(origin, type):
        if issubclass(origin, _CALLABLE):
            return callable
        return _accepts_many(origin, args)
    if hint is not Any and isinstance(hint, type) and not getattr(hint, "_is_protocol", False):
        return lambda value: isinstance(value, hint)
    return lambda value: True


def _is_type(value: Any) -> bool:
    """True for a class, or for an object that `typing` makes of classes."""
    made = type(value).__module__ in ("typing", "types", "typing_extensions")
    return isinstance(value, type) or typing.get_origin(value) is not None or made or value is Any


def _is_int(value: Any) -> bool:
    """True for an integer of at most 64 bits, signed or unsigned, because servers cannot read a larger one."""
    return hasattr(type(value), "__index__") and not isinstance(value, bool) and -(2**63) <= value < 2**64


def _accepts_many(origin: type, args: tuple[Any, ...]) -> Accepts:
    """A test of a sequence or mapping. It also tests the items if iterating does not consume them."""
    if issubclass(origin, Mapping):
        key, item = (accepts(part) for part in args or (Any, Any))
        return lambda value: isinstance(value, Mapping) and all(key(k) and item(v) for k, v in value.items())
    if origin is tuple and args and args[-1] is not Ellipsis:
        tests = [accepts(part) for part in args]
        return lambda value: (
            isinstance(value, (list, tuple))
            and len(value) == len(tests)
            and all(test(part) for test, part in zip(tests, value, strict=True))
        )
    if issubclass(origin, Collection):
        item = accepts(args[0]) if args else lambda value: True
        return lambda value: (
            isinstance(value, (Sequence, Collection))
            and not isinstance(value, (str, bytes, bytearray, memoryview, Mapping))
            and all(map(item, value))
        )
    return lambda value: isinstance(value, origin)


def words(hint: Any) -> str:
    """The annotation in words."""
    *first, last = dict.fromkeys(_word(option) for option in _options(hint))
    return f"{', '.join(first)} or {last}" if first else last


def _word(hint: Any) -> str:
    if hint is None:
        return "None"
    if hint in _WORDS:
        return _WORDS[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.IO:
        return "a file"
    if origin is type:
        return "a type"
    if origin is typing.Literal:
        return " or ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in args)
    if isinstance(origin, type):
        if issubclass(origin, _CALLABLE):
            return "callable"
        if issubclass(origin, Mapping):
            return f"a mapping of {words(args[0])} to {words(args[1])}" if args else "a mapping"
        if issubclass(origin, Collection):
            return "a sequence of " + ", ".join(words(part) for part in args if part is not Ellipsis)
    return f"a {getattr(hint, '__name__', 'value')}"
