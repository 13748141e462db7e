"""What an annotation allows, for the tests that give each option and argument a value that it does not allow."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Accepts = Callable[[Any], bool]

_CALLABLE: Any = Callable

_HANDLES = {
    "Connection": "jsclient.connection",
    "JetStream": "jsclient.jetstream",
    "KeyValue": "jsclient.keyvalue",
    "Schedule": "jsclient.jetstream.publishing.schedules",
}
"""Classes that modules import for type checkers only, with the module of each."""


def hints_of(table: type) -> dict[str, Any]:
    """The annotations of a class or TypedDict. Names that a module imports for type checkers only are Any."""
    found: dict[str, Any] = {}
    for base in reversed(table.__mro__[:-1]):
        for name, note in inspect.get_annotations(base).items():
            found[name] = evaluated(note, base.__module__)
    return found


def evaluated(note: Any, module: str) -> Any:
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
