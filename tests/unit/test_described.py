"""`help()` shows what each field and each option means: of every public class, TypedDict and function."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tools.docs import api
from tools.docs.fields import Field, fields, own_doc, set_by_init

#: Set by what makes errors, or told by the base class.
INTERNAL_TO_ERRORS = {"args", "meaning", "advice", "err_code_of_class"}
#: What other packages of the library use of public objects; this list may only shrink.
INNER = {
    *("AsyncPublisher.futures", "AsyncPublisher.in_flight", "AsyncPublisher.recovery", "AsyncPublisher.wants_acks"),
    *("AsyncPublisher.keeps_frames", "OrderedRead.until", "JetStream.capabilities", "JetStream.header_check"),
    *("JetStream.publish_streams", "OrderedConsumer.state", "OrderedPushConsumer.options", "Endpoint.handler"),
    *("WorkerPool.settler", "WorkerPool.stopping", "PartitionedGroup.kv", "JetStreamDataSource.options"),
    *("FakeServer.stopping", "GroupPool.engine", "GroupPool.terms", "GroupPool.options", "GroupPool.values"),
    *("GroupPool.handler", "GroupPool.automatic", "GroupPool.instance", "GroupPool.records", "GroupPool.ready"),
    *("GroupPool.done", "GroupPool.settler", "GroupPool.stopping"),
}
MODULES = [
    name
    for name in api.MODULES
    if (name != "jsclient.arrow" or importlib.util.find_spec("pyarrow"))
    and (name != "jsclient.spark" or importlib.util.find_spec("pyspark"))
]


def public(name: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(name)
    for public_name in api.public_names(module):
        value = api.resolve(module, public_name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield public_name, value


def silent_fields(name: str, cls: type) -> list[str]:
    """Those without a text in its docstring, or in that of a class which it names."""
    return [f"{name}.{field}" for field, found in fields(cls).items() if not found.text]


@pytest.mark.parametrize("name", MODULES)
def test_every_field_of_every_class(name: str) -> None:
    assert [
        line for public_name, cls in public(name) if inspect.isclass(cls) for line in silent_fields(public_name, cls)
    ] == []


#: What a field is called, or typed, that is a duration.
DURATION = re.compile(r"(^|_)(timeout|expires|heartbeat|ttl|delay|interval|wait|stall|backoff|older_than|lease|age)$")
DURATION_TYPE = re.compile(r"Seconds|timedelta|Delays|Duration")
UNIT = re.compile(r"second|minute|\d s\b", re.I)
HOVER_LINES = 12


def test_every_duration_tells_its_unit() -> None:
    found = {
        f"{public_name}.{field}": text
        for name in MODULES
        for public_name, cls in public(name)
        if inspect.isclass(cls)
        for field, (kind, _, text) in fields(cls).items()
        if DURATION_TYPE.search(str(kind)) or (DURATION.search(field) and "float" in str(kind))
    }
    assert [field for field, text in found.items() if not UNIT.search(text or "")] == []
    assert len(found) > 30


def unset(name: str, cls: type) -> list[str]:
    """Attributes that `__init__` sets and of which help() says nothing."""
    return [
        f"{name}.{attribute}"
        for base in cls.__mro__
        for attribute in (set_by_init(base) if api.ours(base) else ())
        if f"`{attribute}" not in own_doc(cls) + own_doc(base) and not fields(cls).get(attribute, Field()).text
    ]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "jsclient.errors"])
def test_every_attribute_of_every_object(name: str) -> None:
    classes = [(public_name, cls) for public_name, cls in public(name) if inspect.isclass(cls)]
    assert {line for public_name, cls in classes for line in unset(public_name, cls)} <= INNER


def test_every_attribute_of_every_error() -> None:
    """Their module says that it is jsclient.errors, where their source is not: the docstrings name what they carry."""
    silent = []
    for path in sorted((api.ROOT / "jsclient" / "errors").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                said = ast.get_docstring(node) or ""
                stores = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
                found = {each.attr for each in stores if isinstance(each.ctx, ast.Store) and each.attr[0] != "_"}
                silent += [
                    f"{node.name}.{name}" for name in found - INTERNAL_TO_ERRORS if not re.search(rf"\b{name}\b", said)
                ]
    assert silent == []


def test_every_option_of_every_typed_dict() -> None:
    tables = api.typed_dicts()
    assert len(tables) > 20
    assert [line for name, table in tables.items() for line in silent_fields(name, table)] == []


def calls(name: str) -> Iterator[tuple[str, Any, Any]]:
    """(its name, what is called, what help() is asked for) of every public function and method."""
    for public_name, value in public(name):
        if inspect.isfunction(value):
            yield public_name, value, value
            continue
        for member, found in api.members(value):
            if not api.is_property(found):
                yield f"{public_name}.{member}", getattr(found, "__func__", found), value
        if public_name in api.MADE_BY_USERS and inspect.isfunction(value.__init__):
            yield public_name, value.__init__, value


def options(call: Any) -> Iterator[str]:
    for option in list(inspect.signature(call).parameters.values()):
        variable = option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL)
        if not variable and (option.kind is option.KEYWORD_ONLY or option.default is not option.empty):
            yield option.name


@cache
def doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


@cache
def texts(call: Any, asked: Any) -> str:
    """What the docstring of a call says, with that of its class and of the calls that it names."""
    own = doc(call)
    found = [own, doc(asked) if isinstance(asked, type) else ""]
    for named in re.findall(r"\b[A-Z]\w+\.\w+|`\w+`|\b(?:see|See|[Aa]s|by) [\w.]+\w", own):
        *_, word = re.findall(r"[\w.]+", named)
        found.append(text_of(word, asked))
    return "\n".join(found)


def text_of(word: str, asked: Any) -> str:
    holder, _, method = word.rpartition(".")
    holders = [everything().get(holder)] if holder else [asked, inspect.getmodule(asked)]
    for one in holders:
        thing = getattr(one, method, None) if one is not None else None
        if callable(thing):
            return doc(thing)
    return doc(everything()[word]) if word in everything() else ""


@cache
def everything() -> dict[str, Any]:
    return {public_name: value for name in MODULES for public_name, value in public(name)} | api.typed_dicts()


@pytest.mark.parametrize("name", MODULES)
def test_every_option_of_every_call(name: str) -> None:
    silent = [
        f"{where}({option})"
        for where, call, asked in calls(name)
        for option in options(call)
        if not re.search(rf"\b{option}\b", texts(call, asked))
    ]
    assert silent == []


def handed_on(call: Any) -> list[str]:
    table = re.search(r"Unpack\[(?:\w+\.)?(\w+)\]", str(inspect.signature(call)))
    return list(api.typed_dicts()[table[1]].__annotations__) if table else []


def told(call: Any, asked: Any) -> set[str]:
    """The fields of the classes that its docstring, or that of its class, names."""
    text = doc(call) + (doc(asked) if isinstance(asked, type) else "")
    named = [everything().get(name) for name in re.findall(r"\b[A-Z]\w+", text)]
    return {field for one in named if inspect.isclass(one) for field, found in fields(one).items() if found.text}


@pytest.mark.parametrize("name", MODULES)
def test_every_option_that_is_handed_on(name: str) -> None:
    """`**options: Unpack[...]`: told by help() of the class, or of what the docstring of a function names."""
    silent = [
        f"{where}({option})"
        for where, call, asked in calls(name)
        for option in handed_on(call)
        if option not in told(call, asked)
    ]
    assert silent == []


def test_they_are_counted() -> None:
    """The tests above prove nothing if they stop finding what they look for."""
    found = [each for name in MODULES for each in calls(name)]
    assert len(found) > 650
    assert sum(len(list(options(call))) for _, call, _ in found) > 650
    assert sum(len(handed_on(call)) for _, call, _ in found) > 500


def test_hover_text_of_a_call_is_short() -> None:
    """An editor shows it beside the code; everything else is in the chapter or at the class."""
    lines = {where: len(doc(call).splitlines()) for name in MODULES for where, call, _ in calls(name)}
    assert {where: count for where, count in lines.items() if count > HOVER_LINES} == {}
    assert max(lines.values()) == HOVER_LINES, "lower the limit"
