"""Keyword arguments that are handed on are those of the calls that take them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from jsclient.jetstream import JetStream
from jsclient.jetstream.publishing import options as keywords
from jsclient.jetstream.publishing.asynchronous import AsyncPublisher
from jsclient.jetstream.publishing.atomic_batch import AtomicBatch
from jsclient.jetstream.publishing.fast_batch import FastBatch
from jsclient.jetstream.publishing.methods import Publishing
from jsclient.jetstream.publishing.options import OPTION_PREFIX, PublishOptions

MESSAGE = {"headers"}
"""What a message object brings along."""


def named(call: Any) -> set[str]:
    """The keyword-only arguments of a call."""
    return {one.name for one in inspect.signature(call).parameters.values() if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (keywords.PublishDict, named(Publishing.publish) - MESSAGE | set(PublishOptions.__annotations__)),
        (keywords.PublishAsyncDict, named(AsyncPublisher.publish) - MESSAGE | set(PublishOptions.__annotations__)),
        (keywords.PublishWindowDict, {OPTION_PREFIX + name for name in named(AsyncPublisher.__init__)}),
        (
            keywords.JetStreamDict,
            named(JetStream.__init__) | set(keywords.PublishWindowDict.__annotations__) - {"codec"},
        ),
        (keywords.AtomicBatchDict, named(AtomicBatch.__init__)),
        (keywords.FastBatchDict, named(FastBatch.__init__)),
    ],
)
def test_they_are_the_same(kind: Any, names: set[str]) -> None:
    assert set(kind.__annotations__) == names - {"codec"}
