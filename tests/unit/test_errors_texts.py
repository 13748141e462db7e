"""Every error says what happened and where. Errors of writes say what is stored; advice is for what is not obvious.

The last two belong to the class. A place that raises one may know more than its class: then its text says everything
and ends in a full stop. Here every place in jsclient that makes an error is looked at.
"""

from __future__ import annotations

import ast
import importlib.util
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import jsclient
from jsclient import checks, errors, protocol

ROOT = Path(__file__).resolve().parents[2]
#: Bases that are never raised: users catch them.
BASES = {"JsClientError", "NatsConnectionError", "JetStreamError", "PullError", "BucketError"}


@cache
def classes() -> dict[str, type[errors.JsClientError]]:
    """Every error class of the library by name, also those outside of jsclient.errors."""
    left_out = ["spark", "__main__", *([] if importlib.util.find_spec("pyarrow") else ["jsclient.arrow"])]
    for module in pkgutil.walk_packages(jsclient.__path__, "jsclient."):
        if not any(name in module.name for name in left_out):
            importlib.import_module(module.name)
    return {cls.__name__: cls for cls in below(errors.JsClientError)}


def below(cls: type[errors.JsClientError]) -> Iterator[type[errors.JsClientError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__.startswith("jsclient."):
            yield from below(child)


@pytest.mark.parametrize("base", [errors.NotStored, errors.UnknownOutcome])
def test_every_error_of_a_write_says_what_is_stored(base: type[errors.JsClientError]) -> None:
    assert [cls for cls in below(base) if not cls.meaning] == []


def test_what_classes_say_is_made_of_sentences() -> None:
    said = [(cls.meaning, cls.advice) for cls in classes().values()]
    said += [(text.meaning, text.advice) for text in errors.ApiError.texts.values()]
    for text in (text for pair in said for text in pair):
        assert not text or (text[0].isupper() and text.endswith(".")), text


def made() -> Iterator[tuple[str, ast.Call, type[errors.JsClientError]]]:
    """(place, call, class) of every error that jsclient makes."""
    for path in sorted((ROOT / "jsclient").rglob("*.py")):
        if path.parent.name == "errors":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                cls = classes().get(ast.unparse(node.func).rpartition(".")[2])
                if cls is not None:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node, cls


def text_of(call: ast.Call) -> str | None:
    """The text of the call as written, with `{}` for what is put in; None for one that is made elsewhere."""
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int):
            continue
        parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
        if not all(isinstance(part, (ast.Constant, ast.FormattedValue)) for part in parts):
            return None
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
    return None


@pytest.mark.parametrize(("number", "text"), [(0, "0 messages"), (1, "1 message"), (1200, "1200 messages")])
def test_number_and_noun_agree(number: int, text: str) -> None:
    assert errors.counted(number, "message") == text


def test_bases_are_not_raised() -> None:
    assert [f"{place}: {ast.unparse(call)}" for place, call, cls in made() if cls.__name__ in BASES] == []


def test_no_text_repeats_what_its_class_says() -> None:
    twice = [
        f"{place}: {text}"
        for place, call, cls in made()
        if (text := text_of(call)) and not text.endswith(".")
        for sentence in (cls.meaning, cls.advice)
        if sentence and sentence.rstrip(".").lower() in text.lower()
    ]
    assert twice == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.RequestTimeout("no reply from 'a' within 2 s"),
            "no reply from 'a' within 2 s. The request may have been handled. "
            "Repeat it if a second time does no harm, or give it more time.",
        ),
        (
            errors.RequestTimeout("no link", sent=False),
            "no link. Nothing of it was sent. Repeat it when the server is reachable.",
        ),
        (errors.ConfigError("batch must be positive"), "batch must be positive."),
        (errors.TimedOut("the lock is taken. Nothing was acquired."), "the lock is taken. Nothing was acquired."),
        (errors.KeyNotFound("key not found: 'a'"), "key not found: 'a'."),
        (errors.ServiceError("400", "no such order"), "400: no such order"),
    ],
)  # fmt: skip
def test_the_three_parts_follow_each_other(error: errors.JsClientError, text: str) -> None:
    assert str(error) == text


def test_the_server_answer_keeps_its_numbers() -> None:
    error = errors.api_error(404, 10059, "stream not found")
    assert str(error).startswith("stream not found (err_code 10059, code 404). Check")


def test_a_code_without_a_class_has_its_own_text() -> None:
    error = errors.api_error(400, 10176, "atomic publish batch is incomplete")
    assert type(error) is errors.BatchRefused
    assert (error.meaning, "in less than 10 s" in str(error)) == (errors.BatchRefused.meaning, True)
    sealed = errors.api_error(400, 10109, "invalid operation on sealed stream")
    assert type(sealed) is errors.ApiError
    assert str(pickle.loads(pickle.dumps(sealed))) == str(sealed)
    assert "The request changed nothing." in str(sealed)


def test_a_quoted_error_does_not_say_what_it_means() -> None:
    assert errors.brief(errors.RequestTimeout("no reply")) == "no reply"
    assert errors.brief(errors.TimedOut("it is taken. Try again.")) == "it is taken. Try again"
    assert errors.brief(ValueError("odd.")) == "odd."


def kinds_of_protocol() -> Iterator[type[Exception]]:
    for name, cls in vars(protocol.errors).items():
        if isinstance(cls, type) and issubclass(cls, Exception) and cls.__module__ == "jsclient.protocol.errors":
            assert name == cls.__name__
            yield cls


def test_those_of_protocol_say_all_three_too() -> None:
    found = list(kinds_of_protocol())
    assert len(found) >= 9
    for cls in found:
        assert re.match(r"[A-Z].*\.$", cls.meaning), cls  # type: ignore[attr-defined]
        assert re.match(r"[A-Z].*\.$", cls.advice), cls  # type: ignore[attr-defined]
    with pytest.raises(protocol.InvalidHeader) as caught:
        protocol.Headers({"a b": "x"})
    assert str(caught.value).endswith("'a b'. Nothing was encoded or sent. " + protocol.InvalidHeader.advice)


@pytest.mark.parametrize("call", [lambda: checks.subject("a b"), lambda: checks.header_block({"a": "x\n"})])
def test_what_quotes_them_says_what_happened_only(call: Callable[[], object]) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        call()
    assert "Nothing was encoded" not in str(caught.value)
