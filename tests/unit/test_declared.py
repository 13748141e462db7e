"""What an annotation allows, in words and in deed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import attrs
import pytest

from jsclient import declared, errors
from jsclient.options import TLSOptions


class Table(TypedDict, total=False):
    """Some options."""

    number: int
    seconds: float | dt.timedelta | None
    flag: bool
    word: Literal["a", "b"]
    names: Sequence[str]
    words: dict[str, str] | None
    both: str | Sequence[str]
    call: Callable[[int], Any] | None
    pair: tuple[int, float]
    many: tuple[str, ...]
    kind: type[int]
    anything: Any
    unknown: NotImported  # type: ignore[name-defined] # noqa: F821


@attrs.frozen(kw_only=True)
class Plain:
    """Options of a class; one of them is converted."""

    number: int = 1
    seconds: float = attrs.field(default=1.0, converter=float)


Checked = declared.declared()(Plain)

GOOD: dict[str, list[Any]] = {
    "number": [0, -1],
    "seconds": [1, 1.5, dt.timedelta(1), None],
    "flag": [True],
    "word": ["a", "of a newer server"],
    "names": [[], ["a"], ("a",), {"a"}],
    "words": [{}, {"a": "b"}, None],
    "both": ["a", ["a"]],
    "call": [print, None],
    "pair": [(1, 2.0), [1, 2]],
    "many": [(), ("a", "b")],
    "kind": [int],
    "anything": [object()],
    "unknown": [object()],
    "of another table": [object()],
}
BAD: dict[str, list[Any]] = {
    "number": [1.0, "1", True, None],
    "seconds": ["1", True],
    "flag": [1, "yes", None],
    "word": [1, None],
    "names": ["a", [1], {"a": "b"}, None],
    "words": [[], {"a": 1}, {1: "a"}],
    "both": [1, [1], b"a"],
    "call": ["print"],
    "pair": [(1,), (1, 2, 3), ("a", 1.0), 1],
    "many": [("a", 1), "a"],
    "kind": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_what_is_declared_passes(name: str, value: Any) -> None:
    declared.check(Table, {name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_is_not_is_named(name: str, value: Any) -> None:
    with pytest.raises(errors.ConfigError, match=f"^{name} must be .*, not {type(value).__name__}"):
        declared.check(Table, {name: value})


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int | None, "an int or None"),
        (float | dt.timedelta | None, "a number, a timedelta or None"),
        (Literal["a", "b"], '"a" or "b"'),
        (Sequence[str] | None, "a sequence of a str or None"),
        (Mapping[str, int], "a mapping of a str to an int"),
        (Callable[[int], Any], "callable"),
        (Plain, "a Plain"),
    ],
)
def test_words(hint: Any, text: str) -> None:
    assert declared.words(hint) == text


def test_a_class_checks_what_it_is_given() -> None:
    assert Checked(number=2, seconds=3).seconds == 3.0
    with pytest.raises(errors.ConfigError, match="number must be an int, not str"):
        Checked(number="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no_such"):
        Checked(no_such=1)  # type: ignore[call-arg]


def test_the_value_is_not_shown() -> None:
    with pytest.raises(errors.ConfigError) as refused:
        declared.check(Table, {"number": "secret"})
    assert "secret" not in str(refused.value)


def test_files_may_be_paths() -> None:
    assert TLSOptions(ca_file=Path("ca.pem"), cert_file="cert.pem").ca_file == Path("ca.pem")
    with pytest.raises(errors.ConfigError, match="ca_file must be a str, a PathLike or None, not int"):
        TLSOptions(ca_file=1)  # type: ignore[arg-type]
