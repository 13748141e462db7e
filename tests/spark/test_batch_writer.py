"""`foreachBatch` with `batch_writer`: each row is stored once, in append and update mode, in several sinks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jsclient.spark import JetStreamSparkError, batch_writer
from jsclient.testing import NatsServer

from .conftest import Js
from .test_journal import pass_the_window


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
