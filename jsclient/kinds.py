"""Checks of the types of arguments and options: a value of another type raises ConfigError before anything is sent.

A public call begins with `check(int, None, seq=seq)`. `field(int, None)` is the validator of an attrs
field. Other code checks ranges and allowed words.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from jsclient import handlers
from jsclient.errors import ConfigError


class Kind(NamedTuple):
    """A type that `isinstance` cannot test: its name in errors, and its test."""

    words: str
    fits: Callable[[Any], bool]


def is_int(value: Any) -> bool:
    """True for an integer of at most 64 bits, signed or unsigned, because servers cannot read a larger one."""
    return hasattr(type(value), "__index__") and not isinstance(value, bool) and -(2**63) <= value < 2**64


def _is_number(value: Any) -> bool:
    return hasattr(type(value), "__float__") and not isinstance(value, bool)


_WORDS: Final[dict[Any, str]] = {
    None: "None",
    int: "an int",
    float: "a number",
    bool: "True or False",
    str: "a str",
    bytes: "bytes",
    dt.timedelta: "a timedelta",
    dt.datetime: "a datetime",
    Callable: "callable",
    Mapping: "a mapping",
    Iterable: "iterable",
}


_PLAIN: Final = frozenset((None, bool, float, str, bytes))
"""Types whose own values need no further test."""


def check(*kinds: Any, **given: Any) -> None:
    """Raises ConfigError for a value that has none of the types; None is one of them if you name it.

    A bool is not an `int`, and `float` accepts every number. A function must be a plain one (see `handlers`).
    """
    for name, value in given.items():
        if not any(_fits(value, kind) for kind in kinds):
            raise ConfigError(f"{name} must be {_words(kinds)}, not {_got(value)}")
        if Callable in kinds and callable(value):
            handlers.check(value, name)


def field(*kinds: Any) -> Callable[[Any, Any, Any], None]:
    """A validator of an attrs field that calls `check`."""
    usual = {type(None) if kind is None else kind for kind in kinds if kind in _PLAIN}

    def validate(instance: Any, attribute: Any, value: Any) -> None:
        if value.__class__ not in usual:  # an object with many fields has to be cheap
            check(*kinds, **{attribute.name: value})

    return validate


def _fits(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind is int:
        return is_int(value)
    if kind is float:
        return _is_number(value)
    return kind.fits(value) if isinstance(kind, Kind) else isinstance(value, kind)


def _words(kinds: tuple[Any, ...]) -> str:
    *first, last = [kind.words if isinstance(kind, Kind) else _word(kind) for kind in kinds]
    return f"{', '.join(first)} or {last}" if first else last


def _word(kind: Any) -> str:
    return _WORDS.get(kind) or f"a {kind.__name__}"


def _got(value: Any) -> str:
    large = isinstance(value, int) and not isinstance(value, bool) and not is_int(value)
    return "an int of more than 64 bits" if large else type(value).__name__


def many(*kinds: Any) -> Kind:
    """A list, tuple or set of values of these types."""
    return Kind(
        f"a sequence of {_words(kinds)}",
        lambda value: (
            isinstance(value, (Sequence, AbstractSet))
            and not isinstance(value, (str, bytes, bytearray, memoryview))
            and all(any(_fits(item, kind) for kind in kinds) for item in value)
        ),
    )


def pair(first: Any, *second: Any) -> Kind:
    """A list or tuple of two values: one of the first type, and one of the others."""
    return Kind(
        f"a pair of {_word(first)} and {_words(second)}",
        lambda value: (
            isinstance(value, (list, tuple))
            and len(value) == 2
            and _fits(value[0], first)
            and any(_fits(value[1], kind) for kind in second)
        ),
    )


TEXTS: Final = many(str)
FIELDS: Final = Kind(
    "a mapping of a str to any value",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
TEXT_MAP: Final = Kind(
    "a mapping of a str to a str",
    lambda value: (
        isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    ),
)
