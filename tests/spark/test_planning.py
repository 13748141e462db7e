"""Batches and partitions are planned by the messages that match, at a number of server calls that is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jsclient.testing import NatsServer

from .conftest import Js
from .test_many_streams import query_of, run
from .test_mends import requests_to
from .test_proofs import at_most, everything, planned_end
from .test_without_jvm import reader, rows_of, stream_reader

PROBING = ("CONSUMER.CREATE", "DIRECT.GET")  # what counts messages; a look at the leader is STREAM.MSG


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


def with_hole(js: Js, name: str, hole: int, **config: Any) -> int:
    """1000 messages, a hole, 1000 messages; returns the last number."""
    js.create(name, storage="memory", **config)
    total = hole + 2000
    js.fill(name, total, subject=lambda n: f"{name}.{'kept' if n < 1000 or n >= hole + 1000 else 'gone'}")
    js.api.request(f"STREAM.PURGE.{name}", {"filter": f"{name}.gone"})
    return total


@pytest.mark.parametrize("direct", [True, False])
def test_a_hole_costs_one_probe(
    js: Js, server: NatsServer, stream_name: str, direct: bool, count: Callable[[int, int], int]
) -> None:
    name = f"{stream_name.partition('[')[0]}_{direct}"
    total = with_hole(js, name, count(100_000, 10_000), allow_direct=direct)
    query = stream_reader(server.url, name, startingOffsets="earliest")
    start, found, probes = planned_end(query.initialOffset()), [], []
    for _ in range(10):
        with requests_to(js, "$JS.API.>") as calls:
            end = query.latestOffset(start, at_most(800))
        if end is start:
            break
        probes.append(sum(calls[each] for each in PROBING))
        assert sum(calls.values()) <= 16, calls
        end = planned_end(end)
        found.append(rows_of(query, query.partitions(start, end)))
        start = end
    assert [len(rows) for rows in found] == [800, 800, 400]
    assert [n for rows in found for n in rows] == [*range(1000), *range(total - 1000, total)]
    # Where the first message is, and where the others end: the hole costs one of them.
    assert max(probes) <= 3, probes
    assert sum(probes) <= 10, probes


@pytest.mark.parametrize("direct", [True, False])
def test_limits_count_the_messages_that_match(js: Js, server: NatsServer, stream_name: str, direct: bool) -> None:
    name = f"{stream_name.partition('[')[0]}_{direct}"
    js.create(name, storage="memory", allow_direct=direct)
    js.fill(name, 20_000, subject=lambda n: f"{name}.{'one' if n % 20 == 0 else 'other'}")
    query = stream_reader(server.url, name, startingOffsets="earliest", subjects=f"{name}.one")
    start, sizes = planned_end(query.initialOffset()), []
    for _ in range(10):
        with requests_to(js, "$JS.API.>") as calls:
            end = query.latestOffset(start, at_most(300))
        assert sum(calls[each] for each in PROBING) <= 4, calls
        if end is start:
            break
        end = planned_end(end)
        sizes.append(len(rows_of(query, query.partitions(start, end))))
        start = end
    assert sum(sizes) == 1000
    assert all(285 <= size <= 300 for size in sizes[:3]), sizes
    assert len(sizes) == 4


def test_partitions_are_made_of_the_messages_that_match(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name, storage="memory")
    js.fill(stream_name, 30_000, subject=lambda n: f"{stream_name}.{'one' if n >= 25_000 or n == 0 else 'other'}")
    options = {"subjects": f"{stream_name}.one", "recordsPerPartition": 1000}
    made = reader(server.url, stream_name, **options)
    with requests_to(js, "$JS.API.>") as calls:
        planned = made.partitions()
    assert calls["CONSUMER.CREATE"] <= 8, calls
    sizes = [len(rows_of(made, [part])) for part in planned]
    assert sum(sizes) == 5001
    assert 5 <= len(sizes) <= 6, sizes
    assert max(sizes) <= 2000, sizes
    # The same in a query: the boundaries are part of its offset, so a replay has them, too.
    query = stream_reader(server.url, stream_name, startingOffsets="earliest", **options)
    start = planned_end(query.initialOffset())
    end = planned_end(query.latestOffset(start, everything()))
    assert len(end["plan"][stream_name]) == len(sizes) - 1
    js.fill(stream_name, 100, first=30_000)
    other = stream_reader(server.url, stream_name, startingOffsets="earliest", subjects=f"{stream_name}.one")
    again = [len(rows_of(other, [part])) for part in other.partitions(start, end)]
    assert again == [len(rows_of(query, [part])) for part in query.partitions(start, end)]
    assert max(again) <= 2000, again
    assert sum(again) == 5001


def test_a_dense_stream_and_small_batches_are_not_probed(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 3000)
    query = stream_reader(server.url, stream_name, startingOffsets="earliest")
    start = planned_end(query.initialOffset())
    with requests_to(js, "$JS.API.>") as calls:
        end = planned_end(query.latestOffset(start, at_most(1000)))
    assert calls == {"STREAM.INFO": 1, "STREAM.MSG": 1}, "the state, and the time of the last message"
    js.api.request(f"STREAM.MSG.DELETE.{stream_name}", {"seq": 1500})
    with requests_to(js, "$JS.API.>") as calls:
        after = planned_end(query.latestOffset(end, everything()))
    # the mark of the offset, where the next message is, and that nothing was lost meanwhile
    assert calls == {"STREAM.INFO": 2, "STREAM.MSG": 2}
    assert len(rows_of(query, query.partitions(end, after))) == 1999


def test_a_filter_that_matches_nothing_makes_no_batches_in_many_streams(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches in ten minutes at most, which move the offset."""
    from types import SimpleNamespace

    from jsclient.spark import following

    now = 1000.0
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: now, sleep=None))
    for number in range(3):
        js.create(f"{stream_name}_{number}")
        js.fill(f"{stream_name}_{number}", 100)
    query = query_of(server.url, f"{stream_name}_*", subjects="nothing.>", startingOffsets="latest")
    start = planned_end(query.initialOffset())
    batches = 0
    for _ in range(20):
        now += 30
        for number in range(3):
            js.fill(f"{stream_name}_{number}", 100)
        end, rows = run(query, start)
        batches += end is not start
        assert rows == {}
        start = end
    assert batches <= 2


def test_rates_are_those_between_two_triggers(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from jsclient.spark import following, lag, rates

    now = 1000.0
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: now, sleep=None))
    js.create(stream_name)
    js.fill(stream_name, 10)
    query = stream_reader(server.url, stream_name, startingOffsets="earliest")
    start = planned_end(query.initialOffset())
    seen = []
    for more, seconds in ((0, 0.0), (50, 10.0), (5, 0.1), (15, 1.9), (0, 5.0)):
        js.fill(stream_name, more)
        now += seconds
        start = planned_end(query.latestOffset(start, at_most(40)))
        progress = {"sources": [{"latestOffset": query.reportLatestOffset(), "endOffset": start}]}
        seen.append((rates(progress)[stream_name], lag(progress)[stream_name]))
    assert seen == [(0.0, 0), (5.0, 10), (5.0, 0), (10.0, 0), (0.0, 0)]
