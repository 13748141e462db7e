"""Distributed counters: numbers of any size, and the sources that they are made of."""

from __future__ import annotations

import pytest

from jsclient import errors
from jsclient.jetstream import (
    CounterEntry,
    Counters,
    JetStream,
    StreamConfig,
)


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory", allow_rollup_hdrs=True))
    return js


def test_counters(js: JetStream) -> None:
    with pytest.raises(errors.ConfigError):
        Counters(js.stream("S"))
    if (js.api_level() or 0) < 2:
        return
    stream = js.create_stream(name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True)
    counters = Counters(stream)
    assert counters.add("hits.a") == 1
    assert counters.add("hits.a", 2**70) == 2**70 + 1
    assert counters.add("hits.b", -3) == -3
    assert counters.load("hits.a", direct=False) == 2**70 + 1
    assert counters.get("hits.b") == CounterEntry("hits.b", -3, 3, {})
    assert {entry.subject: entry.value for entry in counters.get_all()} == {"hits.a": 2**70 + 1, "hits.b": -3}
    assert [entry.subject for entry in counters.get_all("hits.b")] == ["hits.b"]
    with pytest.raises(errors.MessageNotFound):
        counters.load("hits.none")
