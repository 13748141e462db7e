"""What type checkers see: tools/typing_check.py, and the typed dictionaries that repeat other signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from jsclient.groups.options import GroupPoolDict, MemberOptions
from jsclient.jetstream import AtomicBatch, Consumer, ConsumerConfig, FastBatch, JetStream, StreamConfig
from jsclient.jetstream.api.config_fields import ConsumerConfigDict, StreamConfigDict
from jsclient.jetstream.consuming.pull_options import FetchBytesDict, FetchDict, PullOptions, PullOptionsDict
from jsclient.jetstream.publishing import options as keywords
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.jetstream.publishing.options import PublishOptions
from jsclient.keyvalue.config import KeyValueConfig, KeyValueConfigDict
from jsclient.objectstore.models import ObjectStoreConfig, ObjectStoreConfigDict
from jsclient.options import CallbacksDict, ConnectOptions, ConnectOptionsDict
from jsclient.services.endpoint import EndpointDict
from jsclient.services.service import Group
from jsclient.workers.options import PoolOptions, PoolOptionsDict
from tools.typing_check import compare, expected, main

KEPT = {"extra"}

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_missed_and_what_is_too_much() -> None:
    text = "good()\nbad()  # wrong\nworse()  # wrong\n"
    assert list(compare(text, [(2, "no"), (3, "no")])) == []
    assert list(compare(text, [(1, "no"), (2, "no")])) == [
        "line 1: refused although it is correct: no",
        "line 3: not refused: worse()  # wrong",
    ]


def test_there_are_enough_mistakes() -> None:
    assert len(expected((ROOT / "tests/typed/mistakes.py").read_text())) >= 70


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_checkers_refuse_every_mistake_and_no_correct_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().out


def names(parameters: Callable[..., Any], *but: str) -> set[str]:
    found = inspect.signature(parameters).parameters.values()
    return {one.name for one in found if one.kind is not inspect.Parameter.VAR_KEYWORD} - {"self", *but}


def fields(options: type[attrs.AttrsInstance]) -> set[str]:
    return {field.name for field in attrs.fields(options)}


@pytest.mark.parametrize(
    ("typed", "accepted"),
    [
        (ConnectOptionsDict, fields(ConnectOptions) - {"servers"}),
        (PoolOptionsDict, fields(PoolOptions)),
        (PullOptionsDict, fields(PullOptions) - {"first_messages", "most_messages"}),  # these two are for layers
        (FetchDict, names(Consumer.fetch, "max_messages", "timeout")),
        (FetchBytesDict, names(Consumer.fetch, "max_messages", "timeout", "max_bytes")),
        (
            GroupPoolDict,
            fields(MemberOptions)
            | (fields(PoolOptions) - {"batch", "manual", "group", "max_prefetch", "later", "later_from"}),
        ),
        (EndpointDict, names(Group.add_endpoint, "name", "handler", "decode")),
        (keywords.AtomicBatchDict, names(AtomicBatch, "js")),
        (keywords.FastBatchDict, names(FastBatch, "js")),
        (
            keywords.PublishDict,
            names(JetStream.publish, "subject", "payload", "headers") | set(PublishOptions.__annotations__),
        ),
        (keywords.PublishAsyncDict, {"msg_id"} | set(PublishOptions.__annotations__)),
        (CallbacksDict, {name for name in fields(ConnectOptions) if name.startswith("on_")}),
        (StreamConfigDict, set(StreamConfig.__struct_fields__) - KEPT),
        (ConsumerConfigDict, set(ConsumerConfig.__struct_fields__) - KEPT),
        (KeyValueConfigDict, fields(KeyValueConfig)),
        (ObjectStoreConfigDict, fields(ObjectStoreConfig)),
        (
            keywords.JetStreamDict,
            names(JetStream, "nc", "codec", "publish_async_options") | set(keywords.PublishWindowDict.__annotations__),
        ),
        (
            keywords.PublishWindowDict,
            {f"publish_async_{name}" for name in names(AsyncPublisher, "js", "capabilities")},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_typed_dictionary_has_all_that_is_accepted(typed: type, accepted: set[str]) -> None:
    assert set(typed.__annotations__) == accepted
