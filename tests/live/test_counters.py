"""Distributed counters: numbers of any size, and the sources that they are made of."""

from __future__ import annotations

import pytest

from jsclient import errors
from jsclient.jetstream import (
    CounterEntry,
    Counters,
    JetStream,
    StreamConfig,
    StreamSource,
)
from jsclient.jetstream.counters import counter_sources, counter_value
from jsclient.testing import wait_until


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], storage="memory", allow_rollup_hdrs=True))
    return js


def test_counter(js: JetStream) -> None:
    if (js.api_level() or 0) < 2:
        with pytest.raises(errors.NotSupported, match=r"2\.12"):
            js.publish("s.a", incr=1)
        return
    js.create_stream(StreamConfig(name="C", subjects=["c.*"], allow_msg_counter=True))
    assert js.publish("c.a", incr=5).val == "5"
    assert js.publish("c.a", incr=-7).val == "-2"
    assert js.publish_async("c.a", incr=10**20).result(5).val == str(10**20 - 2)
    with pytest.raises(errors.CounterRefused):
        js.publish("c.a", b"no counter")
    assert counter_value(js.stream("C").get_last_msg("c.a")) == 10**20 - 2
    js.create_stream(StreamConfig(name="SUM", sources=[StreamSource(name="C")], allow_msg_counter=True))
    summed = js.stream("SUM")
    wait_until(lambda: summed.info().state.messages == 3)
    assert counter_sources(summed.get_last_msg("c.a")) == {"C": {"c.a": 10**20 - 2}}


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
