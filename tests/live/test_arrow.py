"""Ranges of streams as Arrow tables: whole, or an error; and tables into streams: acknowledged, or an error."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
from tests.deadline_rig import ALLOWED, Lateness

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, Proxy, wait_until

pa = pytest.importorskip("pyarrow")

from jsclient import arrow  # noqa: E402


@pytest.fixture
def name(request: pytest.FixtureRequest, js: JetStream) -> str:
    """A stream of its own for each test."""
    name = re.sub(r"\W", "_", request.node.name)[:60]
    js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    return name


def fill(js: JetStream, name: str, count: int, size: int = 0) -> None:
    for number in range(count):
        js.publish_async(f"{name}.{number % 4}", b"%d" % number + b"x" * size)
    js.publish_async_complete(timeout=30)


def numbers(table: Any) -> list[int]:
    return [int(value) for value in table["value"].to_pylist()]


def test_there_and_back(js: JetStream, name: str, count: Callable[[int, int], int]) -> None:
    rows = count(1_000_000, 100_000)
    values = pa.array([b"%0128d" % number for number in range(rows)], pa.binary())
    subjects = pa.array([f"{name}.{number % 8}" for number in range(rows)])
    written = arrow.write_table(js, pa.table({"subject": subjects, "value": values}))
    assert (written.rows, written.bytes, written.duplicates) == (rows, 128 * rows, 0)
    assert written.streams == {name: (1, rows)}
    table = arrow.read_table(js, name)
    assert table.schema.names == ["subject", "seq", "timestamp", "headers", "value"]
    table.validate(full=True)
    assert table["subject"].combine_chunks().equals(subjects)
    assert table["value"].combine_chunks().equals(values)
    assert table["seq"].to_numpy().tolist() == list(range(1, rows + 1))
    assert table["headers"].null_count == rows
    assert table.schema.metadata[b"jetstream.end"] == b"%d" % (rows + 1)


def test_headers_ids_and_times(js: JetStream, name: str) -> None:
    before = dt.datetime.now(dt.timezone.utc)
    headers = pa.array([[("A", ["1", "2"]), ("B", ["3"])], None], pa.map_(pa.string(), pa.list_(pa.string())))
    rows = pa.table({"value": ["a", "b"], "headers": headers, "msg_id": ["1", "2"]})
    assert arrow.write_table(js, rows, subject=f"{name}.x").duplicates == 0
    assert arrow.write_table(js, rows, subject=f"{name}.x").duplicates == 2
    table = arrow.read_table(js, name, columns=["headers", "size", "stream", "timestamp", "value"])
    assert [dict(pairs) for pairs in table["headers"].to_pylist()] == [
        {"A": ["1", "2"], "B": ["3"], "Nats-Msg-Id": ["1"]},
        {"Nats-Msg-Id": ["2"]},
    ]
    assert table["size"].to_pylist() == [1, 1]
    assert table["stream"].to_pylist() == [name, name]
    assert table.schema.field("timestamp").type == pa.timestamp("ns", tz="UTC")
    assert before <= table["timestamp"].cast(pa.timestamp("us", tz="UTC"), safe=False).to_pylist()[0]


def test_parts_of_a_stream(js: JetStream, name: str) -> None:
    fill(js, name, 100)
    js.stream(name).delete_msg(51)
    assert numbers(arrow.read_table(js, name, start=41, end=61)) == [*range(40, 50), *range(51, 60)]
    assert numbers(arrow.read_table(js, name, subjects=f"{name}.1")) == list(range(1, 100, 4))
    assert arrow.read_table(js, name, start=101).num_rows == 0
    first = arrow.read_table(js, name, end=11, subjects=[f"{name}.0"])
    assert numbers(first) == [0, 4, 8]
    assert numbers(arrow.read_table(js, name, after=first, end=21)) == list(range(10, 20))
    middle = js.stream(name).get_msg(71).time
    assert numbers(arrow.read_table(js, name, start_time=middle)) == list(range(70, 100))
    assert numbers(arrow.read_table(js, name, start=70, end_time=middle)) == [69]


def test_batches_one_by_one(js: JetStream, name: str) -> None:
    fill(js, name, 5000, 100)
    with arrow.read_batches(js, name, batch_rows=1000, columns=["value"]) as batches:
        assert next(batches).num_rows >= 1000
    wait_until(lambda: not list(js.consumer_names(name)), 10, "the consumer to be deleted")
    assert pa.table(arrow.read_batches(js, name)).num_rows == 5000
    assert arrow.read_batches(js, name, batch_bytes=1).to_reader().read_all().num_rows == 5000


def test_values_alone_are_complete_around_holes(js: JetStream, name: str) -> None:
    fill(js, name, 12_000)
    stream = js.stream(name)
    for seq in (1, 700, 9_000, 12_000):
        stream.delete_msg(seq)
    table = arrow.read_table(js, name, columns=["value"])
    assert numbers(table) == [n for n in range(12_000) if n + 1 not in (1, 700, 9_000, 12_000)]


def test_a_head_that_has_moved_is_a_loss(js: JetStream, name: str) -> None:
    fill(js, name, 100)
    whole, promised = arrow.read_batches(js, name), arrow.read_batches(js, name, start=1)
    js.stream(name).purge(seq=41)
    assert numbers(pa.table(whole)) == list(range(40, 100))  # the oldest message that is there
    with pytest.raises(errors.DataLost, match="sequences 1 to 40"):
        list(promised)
    with pytest.raises(errors.DataLost, match=r"sequences 1 to 40 .*begins at 41.*"):
        arrow.read_table(js, name, start=1)
    with pytest.raises(errors.RangeIncomplete, match="ends at 100, before end=102"):
        arrow.read_table(js, name, end=102)


def test_a_stream_made_again_is_noticed(js: JetStream, name: str) -> None:
    fill(js, name, 100)
    table, batches = arrow.read_table(js, name), arrow.read_batches(js, name)
    js.delete_stream(name)
    js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    fill(js, name, 100)
    with pytest.raises(errors.StreamRecreated):
        list(batches)
    with pytest.raises(errors.StreamRecreated):
        arrow.read_table(js, name, after=table)


def test_a_lost_link_is_read_over(server: NatsServer, js: JetStream, name: str) -> None:
    fill(js, name, 30_000, 500)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        found: list[int] = []
        for batch in arrow.read_batches(JetStream(nc), name, batch_rows=5000, columns=["seq"]):
            found += batch["seq"].to_pylist()
            proxy.cut(reset=True)
        assert found == list(range(1, 30_001))


def test_a_timeout_bounds_the_whole_reading(server: NatsServer, js: JetStream, name: str) -> None:
    fill(js, name, 3000, 500)
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url) as nc:
        batches = arrow.read_batches(JetStream(nc), name, timeout=0.5)
        proxy.stall()
        begun = time.monotonic()
        with pytest.raises(errors.RangeTimeout, match="0.5 s"):
            list(batches)
        with pytest.raises(TimeoutError):
            arrow.read_table(JetStream(nc), name, timeout=0.3)
        assert time.monotonic() - begun < 10
    with pytest.raises(ValueError, match="timeout"):
        arrow.read_table(js, name, timeout=-1)


@pytest.mark.parametrize("direction", ["down", "both"])
@pytest.mark.parametrize("rows", [10, 20_000])
def test_a_timeout_bounds_the_whole_writing(
    server: NatsServer, js: JetStream, name: str, direction: Literal["down", "both"], rows: int
) -> None:
    """Of a few rows, and of more than the window of the publisher takes."""
    timeout = 0.5
    table = pa.table({"value": pa.array([b"x" * 200] * rows, pa.binary())})
    with Proxy(server.port) as proxy, jsclient.connect(proxy.url, ping_interval=60) as nc:
        context = JetStream(nc)
        context.api_level()
        proxy.stall(direction)
        with Lateness() as lateness:
            start = time.monotonic()
            with pytest.raises(errors.WriteIncomplete, match="row 0 "):
                arrow.write_table(context, table, subject=f"{name}.x", timeout=timeout)
            took = time.monotonic() - start
        proxy.cut()
    assert took < timeout + ALLOWED + 3 * lateness.worst


def test_a_row_that_is_not_stored_is_named(js: JetStream, name: str) -> None:
    js.update_stream(StreamConfig(name=name, subjects=[f"{name}.>"], max_msgs=5, discard="new"))
    with pytest.raises(errors.WriteIncomplete, match="row 5") as caught:
        arrow.write_table(js, pa.table({"value": [str(n) for n in range(9)]}), subject=f"{name}.x", timeout=20)
    assert caught.value.stored == 5
    assert isinstance(caught.value.__cause__, errors.ApiError)
    assert numbers(arrow.read_table(js, name)) == list(range(5))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"value": ["a", None]}, "column value has 1 nulls"),
        ({"subject": ["a"]}, "a column value"),
        ({"value": ["a"], "other": ["b"]}, "and of subject"),
        ({"value": ["a"]}, "no column subject"),
        ({"value": ["a"], "subject": ["x"], "headers": [[("Nats-Msg-Id", "1")]]}, "Nats-Msg-Id"),
    ],
)
def test_tables_that_cannot_be_written(js: JetStream, columns: dict[str, list[object]], text: str) -> None:
    kinds = {"headers": pa.map_(pa.string(), pa.string())}
    table = pa.table({key: pa.array(values, kinds.get(key, pa.string())) for key, values in columns.items()})
    with pytest.raises(errors.ConfigError, match=text):
        arrow.write_table(js, table, subject="x" if "null" in text else None)


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": 0},
        {"start": 1, "start_time": dt.datetime.now(dt.timezone.utc)},
        {"end_time": dt.datetime(2026, 1, 1)},
        {"columns": ["what"]},
        {"columns": ["seq", "seq"]},
        {"subjects": ["a..b"]},
        {"batch_bytes": 2 << 30},
    ],
)
def test_arguments_that_make_no_sense(js: JetStream, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        arrow.read_table(js, name, **arguments)


def test_a_stream_that_is_not_there(js: JetStream) -> None:
    with pytest.raises(errors.StreamNotFound):
        arrow.read_table(js, "NOBODY")


SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_documents(js: JetStream, name: str, kind: Literal["json", "msgpack"]) -> None:
    rows = pa.table({"id": [1, 2, None], "tags": [["a"], None, []]}, SCHEMA)
    assert arrow.write_table(js, rows, subject=f"{name}.x", value_format=kind).rows == 3
    table = arrow.read_table(js, name, value_format=kind, schema=SCHEMA, columns=["seq"])
    assert table.drop_columns(["seq"]).cast(SCHEMA).equals(rows)
    js.publish(f"{name}.y", b"\xff?")
    with pytest.raises(errors.BadRecord, match=rf"message 4 on '{name}.y'"):
        arrow.read_table(js, name, value_format=kind, schema=SCHEMA)
    table = arrow.read_table(js, name, value_format=kind, schema=SCHEMA, bad_records="null")
    assert table["_corrupt"].to_pylist() == [None, None, None, b"\xff?"]
    assert table["id"].to_pylist() == [1, 2, None, None]
    with pytest.raises(errors.ConfigError, match="uint64"):
        arrow.read_table(js, name, value_format=kind, schema=pa.schema([("id", pa.uint64())]))
    with pytest.raises(errors.ConfigError, match="a name of its own"):
        arrow.read_table(js, name, value_format=kind, schema=pa.schema([("seq", pa.int64())]))


def test_retention_right_behind_the_reader_is_no_loss(js: JetStream, name: str) -> None:
    """What has been handed out goes, with all that the filter skips."""
    fill(js, name, 8000, 500)
    found: list[int] = []
    with arrow.read_batches(js, name, start=1, subjects=f"{name}.1", batch_rows=20) as batches:
        for batch in batches:
            found += map(int, batch.column("seq").to_pylist())
            js.stream(name, fetch_info=False).purge(seq=found[-1])
    assert found == list(range(2, 8001, 4))
