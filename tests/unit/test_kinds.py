"""The types of arguments and options, and the words of the errors."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from jsclient import errors, kinds
from jsclient.options import TLSOptions

GOOD: list[tuple[tuple[Any, ...], list[Any]]] = [
    ((int,), [0, -1, 2**64 - 1, -(2**63)]),
    ((float, dt.timedelta, None), [1, 1.5, dt.timedelta(1), None]),
    ((bool,), [True]),
    ((str, os.PathLike), ["a", Path("a")]),
    ((kinds.TEXTS,), [[], ["a"], ("a",), {"a"}]),
    ((kinds.TEXT_MAP, None), [{}, {"a": "b"}, None]),
    ((Callable, None), [print, None]),
    ((Iterable,), [[], iter("a")]),
    ((kinds.many(int),), [[], [1]]),
    ((kinds.pair(int, float, dt.timedelta),), [(1, 2), [1, 0.5], (1, dt.timedelta(1))]),
    ((kinds.FIELDS,), [{}, {"a": object()}]),
]
BAD: list[tuple[tuple[Any, ...], str, list[Any]]] = [
    ((int,), "an int", [1.0, "1", True, None]),
    ((float, dt.timedelta), "a number or a timedelta", ["1", True, None]),
    ((bool,), "True or False", [1, "yes", None]),
    ((str, bytes, None), "a str, bytes or None", [1]),
    ((kinds.TEXTS,), "a sequence of a str", ["a", b"a", [1], {"a": "b"}, None]),
    ((kinds.TEXT_MAP,), "a mapping of a str to a str", [[], {"a": 1}, {1: "a"}]),
    ((Callable,), "callable", ["print", None]),
    ((Mapping,), "a mapping", [[]]),
    ((TLSOptions,), "a TLSOptions", [True]),
    ((kinds.many(int),), "a sequence of an int", [["1"], 1]),
    ((kinds.pair(int, float),), "a pair of an int and a number", [(1,), (1, 2, 3), ("1", 2), (1, "2"), 1, [], {1, 2}]),
    ((kinds.FIELDS,), "a mapping of a str to any value", [{1: "a"}, [], "a"]),
]


@attrs.frozen(kw_only=True)
class Checked:
    """An attrs class with a checked field."""

    number: int = attrs.field(default=1, validator=kinds.field(int))


@pytest.mark.parametrize(("types", "values"), GOOD)
def test_values_of_the_types_pass(types: tuple[Any, ...], values: list[Any]) -> None:
    for value in values:
        kinds.check(*types, name=value)


@pytest.mark.parametrize(("types", "words", "values"), BAD)
def test_other_values_are_named_by_type(types: tuple[Any, ...], words: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(errors.ConfigError, match=f"^name must be {words}, not {type(value).__name__}"):
            kinds.check(*types, name=value)


def test_an_int_has_at_most_64_bits() -> None:
    with pytest.raises(errors.ConfigError, match="^number must be an int, not an int of more than 64 bits"):
        kinds.check(int, number=2**64)


def test_a_coroutine_function_is_refused() -> None:
    async def handler() -> None:
        pass

    with pytest.raises(errors.ConfigError, match="handler is an async function"):
        kinds.check(Callable, None, handler=handler)


def test_a_field_is_checked_under_its_name() -> None:
    assert Checked(number=2).number == 2
    with pytest.raises(errors.ConfigError, match="number must be an int, not str"):
        Checked(number="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no_such"):
        Checked(no_such=1)  # type: ignore[call-arg]


def test_the_value_is_not_shown() -> None:
    with pytest.raises(errors.ConfigError) as refused:
        kinds.check(int, number="secret")
    assert "secret" not in str(refused.value)


def test_files_may_be_paths() -> None:
    assert TLSOptions(ca_file=Path("ca.pem"), cert_file="cert.pem").ca_file == Path("ca.pem")
    with pytest.raises(errors.ConfigError, match="ca_file must be a str, a PathLike or None, not int"):
        TLSOptions(ca_file=1)  # type: ignore[arg-type]
