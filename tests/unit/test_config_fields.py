"""Configurations as objects or as their fields."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
import pytest

from jsclient import errors
from jsclient.jetstream import ConsumerConfig, StreamConfig
from jsclient.jetstream.api.config_fields import ConsumerConfigDict, StreamConfigDict
from jsclient.jetstream.api.model_base import given


def test_either_the_object_or_its_fields() -> None:
    whole = StreamConfig(name="S", subjects=["s"])
    assert given(StreamConfig, whole, {}) is whole
    assert given(StreamConfig, None, {"name": "S", "subjects": ["s"]}) == whole


@pytest.mark.parametrize(
    ("config", "fields", "text"),
    [
        (None, {"nme": "S"}, "give the fields of StreamConfig"),
        (StreamConfig(name="S"), {"name": "S"}, "not both: name"),
        (ConsumerConfig(), {}, "a StreamConfig is wanted"),
        ("S", {}, "a StreamConfig is wanted"),
    ],
)
def test_what_is_neither(config: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.ConfigError, match=text):
        given(StreamConfig, config, fields)


@pytest.mark.parametrize(("kind", "of"), [(StreamConfigDict, StreamConfig), (ConsumerConfigDict, ConsumerConfig)])
def test_type_checkers_know_every_field(kind: type, of: type) -> None:
    known = {field.name for field in msgspec.structs.fields(of)} - {"extra"}
    assert set(get_type_hints(kind)) - {"extra"} == known
