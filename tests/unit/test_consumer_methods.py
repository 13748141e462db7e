"""The consumer methods of JetStream are those of Stream, with the stream's name first."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from jsclient.jetstream import JetStream, Stream

METHODS = sorted(
    name
    for name, method in vars(Stream).items()
    if "consumer" in name and not name.startswith("_") and callable(method) and hasattr(JetStream, name)
)


def parameters(method: Any) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return [(one.name, one.kind, one.default, one.annotation) for one in found if one.name != "self"]


def test_every_consumer_method_of_a_stream_is_one_of_jetstream() -> None:
    missing = {name for name in vars(Stream) if "consumer" in name and not name.startswith("_")} - set(METHODS)
    assert missing == set()
    assert len(METHODS) >= 19


@pytest.mark.parametrize("name", METHODS)
def test_both_take_the_same_options(name: str) -> None:
    first, *rest = parameters(getattr(JetStream, name))
    assert first[0] == "stream"
    assert rest == parameters(getattr(Stream, name))
