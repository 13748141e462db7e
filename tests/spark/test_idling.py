"""An idle streaming query: few requests, and news within 0.2 s."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.pauses import time_passes

from jsclient.spark import close_idle
from jsclient.testing import NatsServer, wait_until

from .conftest import Js
from .test_mends import requests_to
from .test_without_jvm import next_of, stream_reader


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    close_idle()


def poll(made: Any, start: Any, seconds: float) -> Any:
    """As Spark does, every 10 ms; the first offset that is another one, and the seconds until then."""
    began = time.monotonic()
    limit = made.getDefaultReadLimit()
    while time.monotonic() - began < seconds:
        found = made.latestOffset(start, limit)
        if found is not start:
            return found, time.monotonic() - began
        time_passes(0.01, "Spark asks as often")
    return start, seconds


def in_rest(made: Any, js: Js, stream: str) -> Any:
    """The offset of a query that has read everything and has an open pull."""
    start = made.initialOffset()
    start, _ = poll(made, start, 0.5)
    wait_until(lambda: poll(made, start, 0.1)[0] is start and len(js.consumers(stream)) == 1, 20)
    return start


@pytest.mark.parametrize("named", ["one", "pattern"])
def test_an_idle_query_is_quiet_and_sees_news(js: Js, server: NatsServer, stream_name: str, named: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    word = stream_name if named == "one" else f"{stream_name}*"
    made = stream_reader(server.url, word, startingOffsets="earliest")
    start = in_rest(made, js, stream_name)
    with requests_to(js, "$JS.API.>") as asked:
        assert poll(made, start, 4)[0] is start
    assert sum(asked.values()) <= 8
    delays = []
    for number in range(3):
        js.fill(stream_name, 1, first=10 + number)
        found, seconds = poll(made, start, 5)
        assert next_of(found) == 12 + number
        delays.append(seconds)
        start = found
        wait_until(lambda s=start: poll(made, s, 0.1)[0] is s and len(js.consumers(stream_name)) == 1, 20)  # type: ignore[misc]
    assert min(delays) < 0.2
    made.stop()
    wait_until(lambda: js.consumers(stream_name) == [], 10, "the consumer to be deleted")


def test_messages_that_no_filter_matches_cause_no_look(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 8)
    made = stream_reader(server.url, stream_name, startingOffsets="earliest", subjects=f"{stream_name}.1")
    start = in_rest(made, js, stream_name)
    with requests_to(js, "$JS.API.>") as asked:
        for number in range(20):
            js.nc.publish(f"{stream_name}.2", b"%d" % number)
            poll(made, start, 0.1)
    assert asked["STREAM.INFO"] <= 8


def test_a_stream_that_is_made_again_is_noticed(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    made = stream_reader(server.url, stream_name, startingOffsets="earliest")
    start = in_rest(made, js, stream_name)
    js.api.request(f"STREAM.DELETE.{stream_name}")
    js.create(stream_name)
    with pytest.raises(Exception, match="STREAM_RECREATED"):
        poll(made, start, 10)


def test_a_resting_reader_can_be_sent_to_tasks(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 10)
    made = stream_reader(server.url, stream_name, startingOffsets="earliest")
    in_rest(made, js, stream_name)
    assert pickle.loads(pickle.dumps(made)).options == made.options
