"""A range is read when that is proven: another stream of the name, stores set back, heads that move, holes, claims."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jsclient
from jsclient.arrow.access import StreamAccess
from jsclient.spark import JetStreamListener, losses
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer, wait_until

from .conftest import Js, refused_before
from .test_without_jvm import at, next_of, read, reader, rows_of, stream_reader


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


def everything() -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


def at_most(count: int) -> Any:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    return ReadMaxRows(count)


def planned_end(offset: dict[str, Any]) -> dict[str, Any]:
    """As Spark gives it back after a restart."""
    return json.loads(json.dumps(offset))  # type: ignore[no-any-return]


# --- another stream, a store that was set back --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_a_stream_made_again_is_not_read(js: Js, server: NatsServer, stream_name: str, method: str) -> None:
    js.create(stream_name, allow_direct=True)
    js.fill(stream_name, 1000)
    with refused_before(server, (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE"):
        made = reader(server.url, stream_name, readMethod=method, minPartitions=2)
        planned = made.partitions()
        js.api.request(f"STREAM.DELETE.{stream_name}")
        js.create(stream_name, allow_direct=True)
        js.fill(stream_name, 1000, first=5000)
        for part in planned:
            with pytest.raises(JetStreamSparkError, match=rf"STREAM_RECREATED.*'{stream_name}' was created"):
                rows_of(made, [part])


def set_back(server: NatsServer, copy: Path) -> None:
    """The store as it was when the copy was made, as after a loss of power or a restored backup."""
    server.kill()
    shutil.rmtree(server.store_dir)
    shutil.copytree(copy, server.store_dir)
    server.start()


def copy_store(server: NatsServer, to: Path) -> None:
    server.stop()
    shutil.copytree(server.store_dir, to)
    server.start()


def test_a_store_that_was_set_back_is_noticed(
    stream_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jsclient.spark import following

    monkeypatch.setattr(following, "CATCH_UP", 0.3)

    def fill(count: int, first: int) -> None:
        with jsclient.connect(server.url) as nc:
            Js(nc).fill(stream_name, count, first)

    with NatsServer() as server:
        with jsclient.connect(server.url) as nc:
            Js(nc).create(stream_name)
        fill(600, 0)
        copy_store(server, tmp_path / "copy")
        fill(600, 600)
        options = {"reconnectTimeout": "300ms", "minPartitions": 2}
        made = reader(server.url, stream_name, **options)
        filtered = reader(server.url, stream_name, **options, subjects=f"{stream_name}.1")
        query = stream_reader(server.url, stream_name, **options, startingOffsets="earliest")
        batch = planned_end(query.latestOffset(query.initialOffset(), everything()))
        plans = [made.partitions(), filtered.partitions(), query.partitions(query.initialOffset(), batch)]
        set_back(server, tmp_path / "copy")
        for each, planned in zip((made, filtered, query), plans, strict=True):
            first, second = planned
            assert rows_of(each, [first])[0] in (0, 1)
            with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*ends at 600, but 600 more.*set back"):
                rows_of(each, [second])
        with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*ends at 600, before the checkpoint"):
            query.latestOffset(batch, everything())
        # and filled again: as many messages, but others
        fill(700, 5000)
        for each, planned in zip((made, filtered, query), plans, strict=True):
            with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*message 1200 is not the one.*filled again"):
                rows_of(each, planned)
        with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*another message 1200 than the checkpoint"):
            query.latestOffset(batch, everything())


# --- heads that move ----------------------------------------------------------------------------------------------


def test_earliest_is_what_is_there_when_it_is_read(
    js: Js, server: NatsServer, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream at its limits, with a publisher that goes on, loses its oldest messages between planning and reading."""
    js.create(stream_name, max_msgs=1000)
    js.fill(stream_name, 1000)
    options = {"minPartitions": 4, "startingOffsets": "earliest"}
    made = reader(server.url, stream_name, **options)
    query = stream_reader(server.url, stream_name, **options)
    planned = made.partitions()
    start = query.initialOffset()
    end = planned_end(query.latestOffset(start, everything()))
    js.fill(stream_name, 600, first=1000)
    for each, parts in ((made, planned), (query, query.partitions(start, end))):
        assert rows_of(each, parts) == list(range(600, 1000))
        shown = caplog.text
        caplog.clear()
        assert "250 sequences from 1 on expired" in shown
        assert "100 sequences from 501 on expired" in shown
    # What was promised by an offset is another matter.
    after = query.latestOffset(end, everything())
    js.fill(stream_name, 900, first=1600)
    with pytest.raises(JetStreamSparkError, match=r"DATA_LOSS.*sequences 1001 to 1500 \(500 of"):
        query.partitions(end, after)


@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_holes_that_were_passed_are_no_loss(
    js: Js, server: NatsServer, stream_name: str, method: str, in_portions: Callable[..., None]
) -> None:
    js.create(stream_name, allow_direct=True)
    js.fill(stream_name, 1000)
    for seq in (100, 250, 400):
        js.api.request(f"STREAM.MSG.DELETE.{stream_name}", {"seq": seq, "no_erase": True})
    in_portions(50)
    options = {"readMethod": method, "startingOffsets": '{"seq": 1}'}

    def purge() -> None:
        js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 500})

    with refused_before(server, (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE"):
        made = reader(server.url, stream_name, **options)
        with at([650], [purge]) as check:
            found = read(made, check)
        assert found == [n for n in range(1000) if n + 1 not in (100, 250, 400)]


def test_accepted_losses_are_shown_and_counted(
    js: Js, server: NatsServer, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 1000)
    query = stream_reader(server.url, stream_name, startingOffsets="earliest", failOnDataLoss="false", minPartitions=4)
    end = planned_end(query.latestOffset(query.initialOffset(), at_most(100)))
    # the planner sees that the head has passed the offset
    js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 601})
    after = planned_end(query.latestOffset(end, everything()))
    assert "500 of the range [101, 1001)" in caplog.text
    planned = query.partitions(end, after)
    # and tasks see more of it
    js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 651})
    assert rows_of(query, planned) == list(range(650, 1000))
    assert "50 of the range [601, 701)" in caplog.text
    progress = {"sources": [{"latestOffset": query.reportLatestOffset()}]}
    assert losses(progress)["lost"] == 500, "what the driver has found"
    # a replay has the same partitions, whatever was lost in between
    again = query.partitions(end, after)
    assert [p.range.index for p in again] == [0, 1, 2, 3]
    assert [p.range.end for p in again] == [p.range.end for p in planned]
    query.stop()


@pytest.mark.parametrize("filtered", [True, False])
def test_a_head_that_moves_on_during_the_plan_is_noticed(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, filtered: bool
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 1000)
    options = {"subjects": f"{stream_name}.>"} if filtered else {}
    query = stream_reader(server.url, stream_name, startingOffsets="earliest", **options)
    end = planned_end(query.latestOffset(query.initialOffset(), everything()))
    assert len(rows_of(query, query.partitions(query.initialOffset(), end))) == 1000
    js.fill(stream_name, 1000)
    js.api.request(f"STREAM.MSG.DELETE.{stream_name}", {"seq": 1990})  # without a filter, only a hole makes it look
    look_up = StreamAccess.next_on_leader

    def late(self: StreamAccess, *args: Any) -> int | None:
        monkeypatch.undo()
        js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 1501})
        return look_up(self, *args)

    monkeypatch.setattr(StreamAccess, "next_on_leader", late)
    after = planned_end(query.latestOffset(end, everything()))
    with pytest.raises(JetStreamSparkError, match="JETSTREAM_DATA_LOSS"):
        rows_of(query, query.partitions(end, after))
    query.stop()


def test_what_is_told_is_seen_where_nobody_configured_logging(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from jsclient.spark.telling import log, tell

    monkeypatch.setattr(log, "propagate", False)  # to the handlers of pytest
    monkeypatch.setattr(log, "handlers", [])
    tell("500 messages are lost")
    assert capfd.readouterr().err == "jetstream: 500 messages are lost\n"
    monkeypatch.setattr(log, "handlers", [logging.StreamHandler()])
    tell("once is enough")
    assert capfd.readouterr().err == "jetstream: once is enough\n"


def test_the_listener_says_what_was_planned_read_and_lost(
    js: Js, server: NatsServer, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    js.create(stream_name)
    js.fill(stream_name, 300)
    query = stream_reader(server.url, stream_name, startingOffsets="earliest", failOnDataLoss="false")
    start = planned_end(query.latestOffset(query.initialOffset(), at_most(100)))
    js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 121})
    end = planned_end(query.latestOffset(start, at_most(150)))
    rows = rows_of(query, query.partitions(start, end))
    source = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(query.reportLatestOffset()))
    progress = SimpleNamespace(
        name=None, id="the-query", batchId=1, numInputRows=len(rows), sources=[source],
        processedRowsPerSecond=10.0, durationMs={"triggerExecution": 7},
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    for listener in (JetStreamListener(found.append), JetStreamListener()):
        with caplog.at_level("INFO", "jsclient.spark"):
            listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert found == [{
        "query": "the-query", "id": "the-query", "batch": 1, "stream": stream_name, "from": 121, "next": 271,
        "rows": 150, "empty": False, "behind": 30, "lost": 20, "expired": 0, "rate": 0.0,
        "rows_per_second": 10.0, "trigger_ms": 7,
    }]  # fmt: skip
    assert f"batch 1: 150 rows of stream {stream_name} [121, 271), 30 behind and 0.0/s stored, 20 lost" in caplog.text
    query.stop()


# --- plans that do not change -------------------------------------------------------------------------------------


def test_partitions_by_subject_keep_their_numbers(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 300, subject=lambda n: f"{stream_name}.{n % 3}")
    options = {"startingOffsets": "earliest", "partitionBy": "subject", "minPartitions": 8}
    query = stream_reader(server.url, stream_name, **options)
    start = query.initialOffset()
    end = planned_end(query.latestOffset(start, everything()))
    rows = [rows_of(query, [part]) for part in query.partitions(start, end)]
    assert end["plan"] == {stream_name: ["subject", 8]}
    js.fill(stream_name, 100, first=300, subject=lambda n: f"{stream_name}.new.{n % 20}")
    again = stream_reader(server.url, stream_name, **{**options, "minPartitions": 3})
    replayed = [rows_of(again, [part]) for part in again.partitions(again.initialOffset(), end)]
    assert replayed == rows
    assert sorted(n for part in rows for n in part) == list(range(300))


def test_other_filters_on_an_old_checkpoint_are_refused(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 40)
    query = stream_reader(server.url, stream_name, startingOffsets="earliest", subjects=f"{stream_name}.1")
    end = planned_end(query.latestOffset(query.initialOffset(), everything()))
    js.fill(stream_name, 40, first=40)
    for options in ({"subjects": f"{stream_name}.2"}, {"subjects": f"{stream_name}.1", "partitionBy": "subject"}):
        changed = "subjects" if options["subjects"].endswith("2") else "partitionBy"
        other = stream_reader(server.url, stream_name, startingOffsets="earliest", **options)
        for call, more in ((other.latestOffset, everything()), (other.partitions, end)):
            with pytest.raises(JetStreamSparkError, match=f"CONFLICTING_OPTIONS.*another option '{changed}'"):
                call(end, more)
    accepted = stream_reader(
        server.url, stream_name, startingOffsets="earliest", subjects=f"{stream_name}.2", readOptionsChanged="accept"
    )
    after = accepted.latestOffset(end, everything())
    assert rows_of(accepted, accepted.partitions(end, after)) == list(range(42, 80, 4))


# --- holes and filters make no batches ----------------------------------------------------------------------------


def batches_of(query: Any, limit: int, most: int = 50) -> list[int]:
    """The rows of each batch until there is none; `query` is asked as Spark asks it."""
    found: list[int] = []
    start = planned_end(query.initialOffset())
    for _ in range(most):
        end = planned_end(query.latestOffset(start, at_most(limit)))
        if end == start:
            return found
        found.append(len(rows_of(query, query.partitions(start, end))))
        start = end
    raise AssertionError(f"more than {most} batches: {found}")


def test_a_hole_costs_no_batches(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 3040, subject=lambda n: f"{stream_name}.{'kept' if n < 20 or n >= 3020 else 'gone'}")
    js.api.request(f"STREAM.PURGE.{stream_name}", {"filter": f"{stream_name}.gone"})
    assert batches_of(stream_reader(server.url, stream_name, startingOffsets="earliest"), 100) == [40]


def test_a_filter_that_matches_nothing_makes_no_batches(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    js.fill(stream_name, 200)
    query = stream_reader(server.url, stream_name, startingOffsets="latest", subjects=f"{stream_name}.none")
    start = query.initialOffset()
    for n in range(3):
        js.fill(stream_name, 300, first=n)
        assert query.latestOffset(start, at_most(100)) is start
    # What no filter matches is no loss either, when the head of the stream passes it.
    js.fill(stream_name, 1, subject=lambda _: f"{stream_name}.none")
    js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 801})
    wait_until(lambda: query.latestOffset(start, at_most(100)) is not start, 5)
    end = planned_end(query.latestOffset(start, at_most(100)))
    assert len(rows_of(query, query.partitions(start, end))) == 1
    # A run that ends moves its offset, in one batch without rows.
    once = stream_reader(server.url, stream_name, startingOffsets="earliest", subjects=f"{stream_name}.never")
    once.prepareForTriggerAvailableNow()
    begin = once.initialOffset()
    moved = planned_end(once.latestOffset(begin, at_most(100)))
    assert next_of(moved) == 1102
    assert once.partitions(begin, moved) == []
    assert once.latestOffset(moved, at_most(100)) is moved


# --- other readers of a work queue ----------------------------------------------------------------------------------


def test_a_second_query_on_a_work_queue_is_refused(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name, retention="workqueue", allow_direct=True)
    js.fill(stream_name, 40)
    with refused_before(server, (2, 11), "DIRECT_UNAVAILABLE"):
        ones = {"ackMode": "purge", "subjects": f"{stream_name}.1"}
        first = stream_reader(server.url, stream_name, **ones)
        start = first.initialOffset()
        end = planned_end(first.latestOffset(start, everything()))
        assert len(rows_of(first, first.partitions(start, end))) == 10
        second = stream_reader(server.url, stream_name, ackMode="purge")
        begin = second.initialOffset()
        with pytest.raises(JetStreamSparkError, match=rf"WORKQUEUE_SHARED.*'spark_{end['id']}'.*delete the consumer"):
            second.partitions(begin, second.latestOffset(begin, everything()))
        # Other subjects of the queue are free, and the first query goes on after a restart.
        other = stream_reader(server.url, stream_name, ackMode="purge", subjects=f"{stream_name}.2")
        begin = other.initialOffset()
        assert len(rows_of(other, other.partitions(begin, other.latestOffset(begin, everything())))) == 10
        again = stream_reader(server.url, stream_name, **ones)
        assert len(rows_of(again, again.partitions(start, end))) == 10
        again.commit(end)
        assert js.state(stream_name)["messages"] == 30


# --- mirrors and direct get ---------------------------------------------------------------------------------------


def test_a_mirror_as_servers_make_it_is_read(js: Js, server: NatsServer, stream_name: str) -> None:
    """With mirror_direct a mirror answers for its origin; for its own name it does not."""
    mirror = f"{stream_name}_mirror"
    js.create(stream_name, allow_direct=True)
    js.create(mirror, subjects=None, mirror={"name": stream_name}, mirror_direct=True)
    js.fill(stream_name, 100)
    js.settle(mirror, 100)
    assert read(reader(server.url, mirror, reconnectTimeout="2s")) == list(range(100))


def test_direct_get_that_nobody_answers_is_replaced_by_a_consumer(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name, allow_direct=True)
    js.fill(stream_name, 100)
    made = reader(server.url, stream_name, reconnectTimeout="2s")
    planned = made.partitions()
    config = js.api.request(f"STREAM.INFO.{stream_name}", read=True)["config"]
    js.api.request(f"STREAM.UPDATE.{stream_name}", {**config, "allow_direct": False})
    assert rows_of(made, planned) == list(range(100))


def read_here(server: NatsServer, method: str, subjects: int) -> AbstractContextManager[None]:
    if subjects > 1 and server.version < (2, 10):
        return refused_before(server, (2, 10), "SERVER_TOO_OLD")
    return refused_before(server, (2, 11) if method == "direct" else (2, 9), "DIRECT_UNAVAILABLE")


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize("subjects", [0, 1, 2])
@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_retention_follows_the_reader(
    js: Js,
    server: NatsServer,
    stream_name: str,
    method: str,
    subjects: int,
    streaming: bool,
    in_portions: Callable[..., None],
) -> None:
    """Every message below the last row that was read goes, those that the filter skips and a few others among them."""
    js.create(stream_name, allow_direct=True)
    js.fill(stream_name, 6000)
    gone = {1000, 2500, 4000}
    for seq in gone:
        js.api.request(f"STREAM.MSG.DELETE.{stream_name}", {"seq": seq, "no_erase": True})
    filters = [f"{stream_name}.{n}" for n in (1, 3)[:subjects]]
    in_portions(50)
    options: dict[str, Any] = {"readMethod": method}
    options["startingOffsets"] = '{"seq": 1}' if filters else "earliest"
    if filters:
        options["subjects"] = ",".join(filters)
    with read_here(server, method, subjects):
        if streaming:
            query = stream_reader(server.url, stream_name, **options)
            start = query.initialOffset()
            made, planned = query, query.partitions(start, planned_end(query.latestOffset(start, everything())))
        else:
            made = reader(server.url, stream_name, **options)
            planned = made.partitions()
        found: list[int] = []
        for part in planned:
            for batch in made.read(part):
                found += [int(value) for value in batch.column("value").to_pylist()]
                js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": batch.column("seq")[-1].as_py()})
        wanted = {0: (0, 1, 2, 3), 1: (1,), 2: (1, 3)}[subjects]
        assert found == [n for n in range(6000) if n % 4 in wanted and n + 1 not in gone]


@pytest.mark.parametrize("filters", ["", "{}.1", "{}.1,{}.3"], ids=["all", "one", "two"])
@pytest.mark.parametrize("method", ["consumer", "direct"])
def test_a_slow_reader_is_overtaken(
    js: Js, server: NatsServer, stream_name: str, method: str, filters: str, in_portions: Callable[..., None]
) -> None:
    """A stream at its limits: each message that arrives takes an old one out, so that the numbers stay the same."""
    js.create(stream_name, allow_direct=True, max_msgs=2000)
    js.fill(stream_name, 2000)
    in_portions(50)
    options: dict[str, Any] = {"readMethod": method}
    options |= {"startingOffsets": '{"seq": 1}'}
    if filters:
        options["subjects"] = filters.replace("{}", stream_name)
    with read_here(server, method, 1 + filters.count(",")):
        made = reader(server.url, stream_name, **options)
        with (
            at([200], [lambda: js.fill(stream_name, 1500, first=2000)]) as check,
            pytest.raises(JetStreamSparkError, match=rf"DATA_LOSS.*'{stream_name}'.*to 1500 .*begins at 1501"),
        ):
            read(made, check)
