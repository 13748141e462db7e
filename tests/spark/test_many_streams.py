"""One query over many streams: lists and patterns, streams that appear and vanish, limits that are shared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

from .conftest import Js, Pipeline
from .test_mends import requests_to
from .test_proofs import at_most, everything, planned_end
from .test_without_jvm import schema_of, source


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


@pytest.fixture
def two(js: Js, stream_name: str) -> tuple[str, str]:
    """Two streams, with the numbers 0 to 299 and 1000 to 1099."""
    one, other = f"{stream_name}_a", f"{stream_name}_b"
    js.create(one)
    js.create(other)
    js.fill(one, 300)
    js.fill(other, 100, first=1000)
    return one, other


def rows_by_stream(made: Any, partitions: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in partitions:
        for batch in made.read(partition):
            for row in batch.to_pylist():
                found.setdefault(row["stream"], []).append(int(row["value"]))
    return found


def reader_of(url: str, streams: str, **options: Any) -> Any:
    return source(url, streams, **options).reader(schema_of("stream string, value binary"))


def query_of(url: str, streams: str, **options: Any) -> Any:
    given = {"startingOffsets": "earliest", **options}
    return source(url, streams, **given).streamReader(schema_of("stream string, value binary"))


def run(query: Any, start: Any, limit: Any = None) -> tuple[Any, dict[str, list[int]]]:
    """One trigger: its end, and the rows by stream; the end is `start` itself when there is no batch."""
    end = query.latestOffset(start, limit or everything())
    if end is start:
        return start, {}
    end = planned_end(end)
    return end, rows_by_stream(query, query.partitions(start, end))


# --- batch ---------------------------------------------------------------------------------------------------------


def test_a_batch_reads_lists_and_patterns(js: Js, server: NatsServer, two: tuple[str, str], stream_name: str) -> None:
    one, other = two
    js.create(f"KV_{stream_name}_a", subjects=[f"$KV.{stream_name}.>"])
    whole = {one: list(range(300)), other: list(range(1000, 1100))}
    for streams in (f"{one}, {other}", f"{stream_name}_*", f"{one},*{stream_name}_b,{one[:-1]}*"):
        made = reader_of(server.url, streams, minPartitions=4)
        planned = made.partitions()
        assert rows_by_stream(made, planned) == whole, streams
        assert [part.range.index for part in planned] == [0, 1, 2, 3]
        assert Counter(part.stream for part in planned) == {one: 3, other: 1}
    positions = json.dumps({one: {"seq": 101}, "*": "earliest"})
    ends = json.dumps({other: {"seq": 51}})
    made = reader_of(server.url, f"{stream_name}_*", startingOffsets=positions, endingOffsets=ends)
    assert rows_by_stream(made, made.partitions()) == {one: list(range(100, 300)), other: list(range(1000, 1050))}
    for streams in (f"{one},{stream_name}_none", f"{stream_name}_none*"):
        with pytest.raises(JetStreamSparkError, match=r"STREAM_NOT_FOUND.*_none"):
            reader_of(server.url, streams).partitions()


# --- streaming -----------------------------------------------------------------------------------------------------


def test_a_query_follows_many_streams(js: Js, server: NatsServer, two: tuple[str, str], stream_name: str) -> None:
    """Streams that appear are read from their first message, the limit is shared, replays are the same."""
    one, other = two
    query = query_of(server.url, f"{stream_name}_*", minPartitions=3)
    start = planned_end(query.initialOffset())
    end, rows = run(query, start, at_most(160))
    assert rows == {one: list(range(80)), other: list(range(1000, 1080))}
    assert sum(end["plan"].values()) == 3
    late = f"{stream_name}_c"
    js.create(late)
    again, nothing = run(query, end, at_most(10_000))
    assert nothing == {one: list(range(80, 300)), other: list(range(1080, 1100))}
    assert set(again["s"]) == {one, other}, "what has appeared empty is no part of an offset yet"
    js.fill(late, 50, first=2000)
    js.fill(one, 10, first=300)
    last, rows = run(query, again)
    assert rows == {one: list(range(300, 310)), late: list(range(2000, 2050))}
    # A replay, by another process with other options, after more has come.
    js.fill(late, 5, first=2050)
    js.create(f"{stream_name}_d")
    js.fill(f"{stream_name}_d", 5)
    other_process = query_of(server.url, f"{stream_name}_*", minPartitions=9)
    planned = other_process.partitions(planned_end(other_process.initialOffset()), last)
    assert rows_by_stream(other_process, planned) == rows
    assert [part.range.index for part in planned] == list(range(3))
    metrics = other_process.reportLatestOffset()
    assert metrics is None
    assert query.reportLatestOffset()["metrics"]["behind"] == {one: 0, other: 0, late: 0}
    assert run(query, last)[1] == {late: list(range(2050, 2055)), f"{stream_name}_d": list(range(5))}


def test_a_checkpoint_of_one_stream_goes_on_with_more(
    js: Js, server: NatsServer, two: tuple[str, str], stream_name: str
) -> None:
    one, other = two
    alone = query_of(server.url, one)
    end, rows = run(alone, planned_end(alone.initialOffset()))
    assert rows == {one: list(range(300))}
    js.fill(one, 1, first=300)
    more = query_of(server.url, f"{one},{other}", startingOffsets="latest")
    end, rows = run(more, end)
    assert rows == {one: [300], other: list(range(1000, 1100))}, "a stream that is named later is read from its start"
    # and back: only if that is accepted
    js.fill(one, 1, first=301)
    with pytest.raises(JetStreamSparkError, match=rf"CONFLICTING_OPTIONS.*'{other}'.*readOptionsChanged=accept"):
        run(alone, end)
    assert run(query_of(server.url, one, readOptionsChanged="accept"), end)[1] == {one: [301]}
    with pytest.raises(JetStreamSparkError, match=rf"STREAM_RECREATED.*belongs to stream '{one}, {other}'"):
        run(query_of(server.url, f"{stream_name}_none"), end)


def test_streams_that_vanish_are_a_loss(
    js: Js, server: NatsServer, two: tuple[str, str], stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = two
    for streams in (f"{stream_name}_*", f"{one},{other}"):
        strict = query_of(server.url, streams)
        lenient = query_of(server.url, streams, failOnDataLoss="false", minPartitions=4)
        start = planned_end(strict.initialOffset())
        end = planned_end(lenient.latestOffset(start, at_most(100)))
        before = lenient.partitions(start, end)
        js.api.request(f"STREAM.DELETE.{other}")
        with pytest.raises(JetStreamSparkError, match=rf"DATA_LOSS.*'{other}' is no longer there.*from 51 on"):
            strict.latestOffset(end, everything())
        with pytest.raises(JetStreamSparkError, match=rf"DATA_LOSS.*'{other}' is no longer there"):
            strict.partitions(start, end)
        replayed = lenient.partitions(start, end)
        assert [part.range.index for part in replayed] == [part.range.index for part in before]
        assert rows_by_stream(lenient, replayed) == {one: list(range(50))}
        caplog.clear()
        after, rows = run(lenient, end)
        assert rows == {one: list(range(50, 300))}
        assert set(after["s"]) == {one}
        assert f"going on without it, because failOnDataLoss=false: stream '{other}'" in caplog.text
        assert lenient.latestOffset(after, everything()) is after
        assert lenient.reportLatestOffset()["metrics"]["lost"] > 0
        # One of the name that is made again is a new stream.
        js.create(other)
        js.fill(other, 100, first=1000)
        assert run(lenient, after)[1] == {other: list(range(1000, 1100))}
        lenient.stop()


def test_available_now_reads_what_was_there(js: Js, server: NatsServer, two: tuple[str, str], stream_name: str) -> None:
    one, other = two
    query = query_of(server.url, f"{stream_name}_*")
    query.prepareForTriggerAvailableNow()
    js.fill(one, 10, first=300)
    js.create(f"{stream_name}_c")
    js.fill(f"{stream_name}_c", 10)
    start = planned_end(query.initialOffset())
    end, rows = run(query, start)
    assert rows == {one: list(range(300)), other: list(range(1000, 1100))}
    assert query.latestOffset(end, everything()) is end


def test_finding_streams_costs_one_request(js: Js, server: NatsServer, stream_name: str) -> None:
    names = [f"{stream_name}_{n}" for n in range(50)]
    for name in names:
        js.create(name, storage="memory")
        js.nc.request(f"{name}.x", b"1")
    query = query_of(server.url, f"{stream_name}_*")
    start = planned_end(query.initialOffset())
    end, rows = run(query, start)
    assert rows == {name: [1] for name in names}
    with requests_to(js, "$JS.API.>") as found:
        assert query.latestOffset(end, everything()) is end
    assert found == {"STREAM.LIST": 1}
    js.nc.request(f"{names[7]}.x", b"2")
    with requests_to(js, "$JS.API.>") as found:
        after = query.latestOffset(end, everything())
    assert found == {"STREAM.LIST": 1, "STREAM.MSG": 1}, "the mark of the stream that has something is compared"
    assert rows_by_stream(query, query.partitions(end, planned_end(after))) == {names[7]: [2]}


@pytest.mark.spark_modes
def test_a_pipeline_over_streams_that_appear(
    js: Js, pipeline: Pipeline, contents: Callable[[str], list[int]], stream_name: str
) -> None:
    """Through Spark: two runs from one checkpoint; a stream appears between them."""
    js.create(f"{stream_name}_in_a")
    js.fill(f"{stream_name}_in_a", 200)
    pipeline.source = f"{stream_name}_in_*"
    pipeline.run(maxOffsetsPerTrigger=150)
    js.create(f"{stream_name}_in_b")
    js.fill(f"{stream_name}_in_b", 100, first=200)
    js.fill(f"{stream_name}_in_a", 10, first=300)
    query = pipeline.run()
    assert sorted(contents(f"{stream_name}_out")) == list(range(310))
    from jsclient.spark import lag

    assert lag(query.lastProgress) in ({f"{stream_name}_in_a": 0, f"{stream_name}_in_b": 0}, {})
