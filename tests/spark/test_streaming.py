"""readStream -> writeStream: every message exactly once, through restarts, crashes and changed plans."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient.jetstream import JetStream
from jsclient.spark import lag
from jsclient.testing import NatsServer, wait_until

from .conftest import Js, Pipeline, refused_before

Contents = Callable[[str], list[int]]
Count = Callable[[int, int], int]


def failing(flag: Path, after: int) -> Callable[[Any], Any]:
    """A change of the frame that lets tasks fail after `after` rows as long as the file `flag` exists."""

    def change(frame: Any) -> Any:
        def rows(batches: Iterator[Any]) -> Iterator[Any]:
            seen = 0
            for batch in batches:
                if flag.exists() and seen + batch.num_rows > after:
                    yield batch.slice(0, max(0, after - seen))
                    raise RuntimeError("a task that fails on purpose")
                seen += batch.num_rows
                yield batch

        return frame.mapInArrow(rows, "value binary")

    return change


def test_restarts_from_the_checkpoint_are_exact(
    js: Js, pipeline: Pipeline, contents: Contents, count: Count, stream_name: str
) -> None:
    total = count(500_000, 50_000)
    half = total // 2
    js.fill(stream_name, half)
    first = pipeline.run(maxOffsetsPerTrigger=total // 5)
    assert len(first.recentProgress) >= 3
    js.fill(stream_name, half, first=half)
    pipeline.run(minPartitions=3)
    last = pipeline.run()
    found = contents(f"{stream_name}_out")
    assert (len(found), len(set(found)), min(found), max(found)) == (total, total, 0, total - 1)
    assert lag(last.lastProgress) in ({stream_name: 0}, {})
    wait_until(lambda: js.consumers(stream_name) == [], 10, "the consumers to be deleted")


@pytest.mark.slow
def test_a_failed_batch_is_replayed_without_a_trace(
    js: Js, pipeline: Pipeline, contents: Contents, stream_name: str, tmp_path: Path
) -> None:
    """Batch 0 fails after a part was published; the replay has another minPartitions; the sink stores each once."""
    js.fill(stream_name, 20_000)
    flag = tmp_path / "fail"
    flag.touch()
    pipeline.change = failing(flag, after=8000)
    # In the window of the stream; without one it is test_a_batch_that_failed_long_ago_is_stored_once.
    pipeline.sink = {"publishMode": "async", "deliverySemantics": "window"}
    pipeline.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        with pytest.raises(Exception, match="fails on purpose"):
            pipeline.run(minPartitions=2)
    finally:
        pipeline.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert js.state(f"{stream_name}_out")["messages"] > 0
    flag.unlink()
    js.fill(stream_name, 1000, first=20_000)
    pipeline.run(minPartitions=3)
    assert sorted(contents(f"{stream_name}_out")) == list(range(21_000))


def forget_ids(js: Js, stream: str) -> None:
    """Let a stream recognise repeated messages for 100 ms only: every replay comes later."""
    config = js.api.request(f"STREAM.INFO.{stream}", read=True)["config"]
    js.api.request(f"STREAM.UPDATE.{stream}", {**config, "duplicate_window": 10**8})


@pytest.mark.spark_modes
def test_a_batch_that_failed_long_ago_is_stored_once(
    js: Js, pipeline: Pipeline, contents: Contents, stream_name: str, tmp_path: Path
) -> None:
    """Batch 0 fails after a part was published; the replay is cut into other partitions by a shuffle."""
    js.fill(stream_name, 20_000)
    forget_ids(js, f"{stream_name}_out")
    flag = tmp_path / "fail"
    flag.touch()
    fails = failing(flag, after=8000)
    partitions = 2
    pipeline.change = lambda frame: fails(frame.repartition(partitions))
    pipeline.sink = {"publishMode": "async", "deliverySemantics": "exactly-once"}
    pipeline.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        with pytest.raises(Exception, match="fails on purpose"):
            pipeline.run(minPartitions=2)
        stored = js.state(f"{stream_name}_out")["messages"]
        assert 0 < stored < 20_000
        flag.unlink()
        partitions = 3
        pipeline.run()
    finally:
        pipeline.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted(contents(f"{stream_name}_out")) == list(range(20_000)), repeated(pipeline.url, f"{stream_name}_out")


def repeated(url: str, stream: str) -> str:
    """Rows that are stored more than once: where, when and under which ids. For the report of a failure."""
    places: dict[bytes, list[str]] = {}
    with jsclient.connect(url) as nc, JetStream(nc).stream(stream).ordered_consumer().read_until(drained=True) as found:
        for message in found:
            place = f"{message.stream_seq} {message.metadata.timestamp} {message.headers.get('Nats-Msg-Id')}"
            places.setdefault(message.data, []).append(place)
    twice = [f"{data!r}: {', '.join(where)}" for data, where in places.items() if len(where) > 1]
    return "\n".join([f"{len(twice)} rows", *twice[:20], "...", *twice[-20:]])


def test_a_batch_whose_commit_was_lost_is_stored_once(
    js: Js, pipeline: Pipeline, contents: Contents, stream_name: str
) -> None:
    """The driver died after the sink had everything and before Spark's commit log knew."""
    js.fill(stream_name, 5000)
    forget_ids(js, f"{stream_name}_out")
    pipeline.run(maxOffsetsPerTrigger=2500, minPartitions=2)
    commits = pipeline.checkpoint / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    pipeline.run(minPartitions=5)
    assert sorted(contents(f"{stream_name}_out")) == list(range(5000))


def test_limits_of_a_trigger_and_lag(js: Js, pipeline: Pipeline, contents: Contents, stream_name: str) -> None:
    js.fill(stream_name, 100)
    query = pipeline.run(maxOffsetsPerTrigger=40)
    rows = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert rows == [40, 40, 20]
    assert contents(f"{stream_name}_out") == list(range(100))
    behind = [lag(progress) for progress in query.recentProgress]
    assert behind[0] == {stream_name: 60}


@pytest.mark.spark_modes
def test_a_publisher_that_goes_on_does_not_keep_available_now_alive(
    js: Js, pipeline: Pipeline, contents: Contents, stream_name: str
) -> None:
    js.fill(stream_name, 2000)
    ended = threading.Event()
    published = 2000

    def publish() -> None:
        nonlocal published
        while not ended.wait(0.002):
            js.nc.request(f"{stream_name}.x", b"%d" % published)
            published += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        pipeline.run(maxOffsetsPerTrigger=1000)
    finally:
        ended.set()
        publisher.join()
    found = contents(f"{stream_name}_out")
    assert found == list(range(len(found)))
    assert 2000 <= len(found) < published
    pipeline.run()
    assert contents(f"{stream_name}_out") == list(range(published))


# --- refusals ---------------------------------------------------------------------------------------------------


def edit_offset(pipeline: Pipeline, **changes: Any) -> None:
    """Change the newest offset in the checkpoint, as another version or a mistake would have left it."""
    offsets = pipeline.checkpoint / "offsets"
    last = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    lines = last.read_text().split("\n")
    lines[-1] = json.dumps({**json.loads(lines[-1]), **changes})
    last.write_text("\n".join(lines))
    (offsets / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.spark_modes
def test_checkpoints_that_do_not_fit_are_refused(js: Js, pipeline: Pipeline, stream_name: str) -> None:
    js.fill(stream_name, 100)
    pipeline.run()
    # the head is truncated past the offset
    js.fill(stream_name, 100, first=100)
    js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 151})
    with pytest.raises(Exception, match=rf"JETSTREAM_DATA_LOSS.*'{stream_name}'.*sequences 101 to 150"):
        pipeline.run()
    # an offset of a newer format
    edit_offset(pipeline, v=3)
    with pytest.raises(Exception, match=r"JETSTREAM_OFFSET_VERSION.*format 3"):
        pipeline.run()
    edit_offset(pipeline, v=2)
    # the stream is deleted and made again
    js.api.request(f"STREAM.DELETE.{stream_name}")
    js.create(stream_name)
    js.fill(stream_name, 300)
    with pytest.raises(Exception, match=rf"JETSTREAM_STREAM_RECREATED.*'{stream_name}' was created.*from 101 on"):
        pipeline.run()
    pipeline.run(failOnDataLoss="false")
    assert js.state(f"{stream_name}_out")["messages"] == 400


@pytest.mark.spark_modes
def test_two_drivers_on_one_journal(js: Js, pipeline: Pipeline, contents: Contents, stream_name: str) -> None:
    js.api.request(
        "STREAM.CREATE.KV_receipts",
        {"name": "KV_receipts", "subjects": ["$KV.receipts.>"], "max_msgs_per_subject": 1, "allow_rollup_hdrs": True},
    )
    js.fill(stream_name, 1000)
    pipeline.sink = {"journal": "receipts"}
    pipeline.run(maxOffsetsPerTrigger=500)
    query_id = json.loads((pipeline.checkpoint / "metadata").read_text())["id"]
    # a batch that the journal knows is not published again, even where the stream would not recognise the ids
    last = max(int(path.name) for path in (pipeline.checkpoint / "commits").iterdir() if path.name.isdigit())
    (pipeline.checkpoint / "commits" / str(last)).unlink()
    (pipeline.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    js.api.request(f"STREAM.PURGE.{stream_name}_out")
    pipeline.run()
    assert contents(f"{stream_name}_out") == []
    # another driver commits the next batch while ours is writing it
    js.fill(stream_name, 10, first=1000)
    flag = pipeline.checkpoint.parent / "other"

    def other_driver(frame: Any) -> Any:
        url, batch = pipeline.url, last + 1

        def rows(batches: Iterator[Any]) -> Iterator[Any]:
            for batch_ in batches:
                yield batch_
                if not flag.exists():
                    flag.touch()
                    import jsclient
                    from jsclient.jetstream import JetStream
                    from jsclient.keyvalue import KeyValue

                    with jsclient.connect(url) as nc:
                        journal = KeyValue(JetStream(nc), "receipts")
                        ours = json.loads(journal[query_id])["run"]
                        entry = {"b": batch, "run": "other", "from": {}, "again": 1, "gone": [ours]}
                        journal.put(query_id, json.dumps(entry))

        return frame.mapInArrow(rows, "value binary")

    pipeline.change = other_driver
    with pytest.raises(Exception, match=r"JETSTREAM_FENCED.*run 'other' is under way"):
        pipeline.run()


def test_work_queue_is_read_once_and_purged_after_commit(
    js: Js, server: NatsServer, pipeline: Pipeline, contents: Contents, stream_name: str
) -> None:
    queue = f"{stream_name}_q"
    js.create(queue, retention="workqueue", allow_direct=True)
    js.fill(queue, 3000)
    pipeline.source = queue
    with refused_before(server, (2, 11), "DIRECT_UNAVAILABLE"):
        pipeline.run(ackMode="purge", maxOffsetsPerTrigger=1000)
        # the last batch of a run is committed at the next start
        assert js.state(queue)["messages"] == 1000
        assert sorted(contents(f"{stream_name}_out")) == list(range(3000))
        js.fill(queue, 10, first=3000)
        pipeline.run(ackMode="purge")
        assert sorted(contents(f"{stream_name}_out")) == list(range(3010))
        assert js.state(queue)["messages"] == 10
