"""`foreachBatch` with `batch_writer`: each row is stored once, in append and update mode, in several sinks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jsclient
from jsclient.spark import JetStreamSparkError, batch_writer, publish_partition
from jsclient.testing import NatsServer, wait_until

from .conftest import Js
from .journal_rig import pass_the_window


def subjects(js: Js, name: str) -> list[tuple[str, bytes]]:
    state = js.state(name)
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        message = js.api.request(f"STREAM.MSG.GET.{name}", {"seq": seq}, read=True)["message"]
        found.append((message["subject"], message["data"]))
    return sorted(found)


class Query:
    """From <stream> through `write`, from one checkpoint."""

    def __init__(self, spark: Any, url: str, stream: str, checkpoint: Path) -> None:
        self.spark, self.url, self.stream, self.checkpoint = spark, url, stream, checkpoint

    def run(self, write: Callable[[Any, int], None], mode: str = "append") -> None:
        frame = self.spark.readStream.format("jetstream").option("servers", self.url)
        frame = frame.option("startingOffsets", "earliest").load(self.stream)
        if mode == "update":
            frame = frame.groupBy("subject").count().selectExpr("subject AS key", "cast(count AS string) AS value")
        else:
            frame = frame.selectExpr("subject AS key", "value")
        writing = frame.writeStream.outputMode(mode).foreachBatch(write)
        query = writing.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)


@pytest.fixture
def query(spark: Any, server: NatsServer, js: Js, stream_name: str, tmp_path: Path) -> Query:
    js.create(stream_name)
    for name in ("one", "two"):
        js.create(f"{stream_name}_{name}", duplicate_window=100_000_000)
    js.fill(stream_name, 40)
    return Query(spark, server.url, stream_name, tmp_path / "checkpoint")


@pytest.mark.spark_modes
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_replay_after_the_window_stores_nothing_twice(query: Query, js: Js, stream_name: str, mode: str) -> None:
    one, two = f"{stream_name}_one", f"{stream_name}_two"
    servers = {"servers": query.url}
    to_one = batch_writer(servers)
    to_two = batch_writer({**servers, "subject": f"{two}.all"})
    broken = True

    def write(frame: Any, batch: int) -> None:
        to_one(frame.selectExpr(f"replace(key, '{stream_name}', '{one}') AS subject", "value"), batch)
        to_two(frame.select("value"), batch)
        if broken:
            raise RuntimeError("the driver dies here")

    with pytest.raises(Exception, match="the driver dies here"):
        query.run(write, mode)
    stored = {name: subjects(js, name) for name in (one, two)}
    assert [len(rows) for rows in stored.values()] == ([40, 40] if mode == "append" else [4, 4])
    pass_the_window()
    broken = False
    query.run(write, mode)
    assert {name: subjects(js, name) for name in (one, two)} == stored
    js.fill(stream_name, 4, first=40)
    query.run(write, mode)
    assert len(subjects(js, one)) == len(subjects(js, two)) == (44 if mode == "append" else 8)


def test_two_writers_of_one_sink_need_names(query: Query, js: Js, stream_name: str) -> None:
    options = {"servers": query.url, "subject": f"{stream_name}_one.x"}

    def twice(first: str, second: str) -> Callable[[Any, int], None]:
        def write(frame: Any, batch: int) -> None:
            batch_writer(options, name=first)(frame.select("value"), batch)
            batch_writer(options, name=second)(frame.select("value"), batch)

        return write

    with pytest.raises(Exception, match="give each batch_writer of a batch its own name="):
        query.run(twice("a", "a"))
    query.run(twice("a", "b"))
    assert js.state(f"{stream_name}_one")["messages"] == 80


def test_bad_options_and_frames_are_refused_early(query: Query, spark: Any) -> None:
    with pytest.raises(JetStreamSparkError, match="UNKNOWN_OPTION.*subject"):
        batch_writer({"servers": query.url, "subjct": "x"})
    with pytest.raises(JetStreamSparkError, match="SCHEMA_MISMATCH"):
        batch_writer({"servers": query.url})(spark.range(1), 0)
    write = batch_writer({"servers": query.url, "subject": "x"})
    with pytest.raises(Exception, match="called outside of foreachBatch"):
        write(spark.range(1).selectExpr("'a' AS value"), 0)


ROWS = [{"value": b"%d" % (n % 250), "headers": {"N": " 1:1 "}} for n in range(500)]


@pytest.mark.parametrize("kind", ["dicts", "batches", "documents"])
def test_a_named_partition_is_stored_once_after_the_window(
    js: Js, server: NatsServer, stream_name: str, kind: str
) -> None:
    """Half of the rows are equal to others; the first attempt fails behind its last row."""
    js.create(stream_name, duplicate_window=100_000_000)
    options = {"servers": server.url, "subject": f"{stream_name}.x"}
    rows: list[Any] = ROWS
    if kind == "batches":
        rows = [pa.RecordBatch.from_pylist([{"value": row["value"]} for row in ROWS[at : at + 100]]) for at in (0, 100)]
    if kind == "documents":
        options["valueFormat"] = "json"
        rows = [{"id": n, "name": "a"} for n in range(500)]
    count = 200 if kind == "batches" else 500

    def broken() -> Any:
        yield from rows
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        publish_partition(broken(), options, job="q", batch=1)
    pass_the_window()
    assert publish_partition(rows, options, job="q", batch=1).rows == count
    pass_the_window()
    assert publish_partition(rows, options, job="q", batch=1).duplicates == count
    assert js.state(stream_name)["messages"] == count
    publish_partition(rows, options, job="q", batch=2)
    assert js.state(stream_name)["messages"] == 2 * count
    with pytest.raises(JetStreamSparkError, match="JOURNAL_AHEAD"):
        publish_partition(rows, options, job="q", batch=1)


def test_rows_with_and_without_an_id_are_refused_in_a_named_partition(
    js: Js, server: NatsServer, stream_name: str
) -> None:
    """However far apart they are: an attempt could not find the rows of another one by both kinds of ids."""
    js.create(stream_name)
    options = {"servers": server.url, "subject": f"{stream_name}.x"}
    plain: list[dict[str, Any]] = [{"value": b"%d" % n} for n in range(1500)]
    named = [{**row, "msg_id": row["value"]} for row in plain]
    for number, rows in enumerate(([*plain, *named], [*named, *plain], [named[0], plain[1]])):
        with pytest.raises(JetStreamSparkError, match="a row has no msg_id"):
            publish_partition(rows, options, job=f"mixed-{number}", batch=1)
    stored = js.state(stream_name)["messages"]
    totals = publish_partition([*plain, *named], {**options, "deliverySemantics": "at-least-once"})
    assert totals.rows == 3000, "it needs no ids"
    assert js.state(stream_name)["messages"] == stored + 3000


def test_a_drained_work_queue_gets_a_named_partition_once(stream_name: str) -> None:
    with NatsServer() as server:
        options = {"servers": server.url, "subject": f"{stream_name}.x"}
        with jsclient.connect(server.url) as nc:
            js = Js(nc)
            js.create(stream_name, retention="workqueue")
            publish_partition(ROWS, options, job="q", batch=1)
            js.api.request(f"STREAM.PURGE.{stream_name}", {})
            server.restart()
            wait_until(lambda: nc.is_connected, 10)
            assert publish_partition(ROWS, options, job="q", batch=1).duplicates == len(ROWS)
            assert js.state(stream_name)["messages"] == 0
