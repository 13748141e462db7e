"""Exactly once without a time window: random histories, lost journals, sinks that keep nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient.exactly import replay, task
from jsclient.spark import writer as writing
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

from .conftest import Js, mode_works
from .journal_rig import WINDOW, Crash, History, Sink, pass_the_window, record_batches
from .test_refusals import stream_writer


@pytest.fixture(autouse=True)
def idle_connections_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    yield
    from jsclient.spark import close_idle

    close_idle()


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_some_random_histories_store_each_row_once(
    js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    with mode_works(server, mode):
        live(js, server, monkeypatch, f"S_{mode}", range(6), mode)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", ["async", "fast"])
def test_random_histories_store_each_row_once(
    js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    with mode_works(server, mode):
        live(js, server, monkeypatch, f"H_{mode}", range(1000), mode)


def live(js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, prefix: str, seeds: range, mode: str) -> None:
    """Random histories side by side, so that they wait for their windows together; `prefix` begins their names."""
    for first in range(0, len(seeds), 50):
        some = seeds[first : first + 50]
        histories = [History(Sink(server, js, f"{prefix}{seed}", monkeypatch, mode), seed) for seed in some]
        for number in range(5):
            for history in histories:
                history.attempt(number)
            pass_the_window()
        for history, seed in zip(histories, some, strict=True):
            found, wanted = history.sink.contents(), Counter(history.rows)
            assert found == wanted, f"seed {seed}: missing {wanted - found}, twice {found - wanted}"
            js.api.request(f"STREAM.DELETE.{prefix}{seed}")


def test_a_retried_task_after_the_window(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs a task again in the same run: a slow one, or one after its worker died, longer ago than the window."""
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(500)]
    with pytest.raises(Crash):
        sink.write("run", 0, rows, crash_after=300)
    pass_the_window()
    message = sink.write("run", 0, rows)
    assert (message.totals.rows, message.totals.duplicates) == (500, 300)
    assert sink.contents() == Counter(rows)
    # and once more, although nothing of it is left in the sink: the receipt tells
    js.api.request(f"STREAM.PURGE.{stream_name}")
    assert sink.write("run", 0, rows).outcome.skipped
    assert js.state(stream_name)["messages"] == 0


def test_a_batch_write_is_exact_too_and_leaves_nothing_behind(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jsclient.spark.datasource import JetStreamDataSource

    from .test_without_jvm import schema_of

    js.create(stream_name, duplicate_window=int(WINDOW * 1e9))
    options = {"subject": f"{stream_name}.x", "deliverySemantics": "exactly-once", "journal": "batch_journal"}
    made = JetStreamDataSource({"servers": server.url, **options}).writer(schema_of("value binary"), False)
    rows = [b"%d" % n for n in range(500)]

    def dies() -> Iterator[Any]:
        yield from record_batches(rows[:350], 50)
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        made.write(dies())
    pass_the_window()
    message = made.write(record_batches(rows, 50))
    assert isinstance(message, writing.Published)
    assert message.totals.duplicates == js.state(stream_name)["messages"] - (500 - message.totals.duplicates)
    assert js.state(stream_name)["messages"] == 500
    assert js.state("KV_batch_journal")["num_subjects"] == 2
    made.commit([message])
    assert js.state("KV_batch_journal")["messages"] == 0


# --- what is refused, or told ---------------------------------------------------------------------------------------


def test_a_restored_checkpoint_skips_nothing(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    old, new = [b"old %d" % n for n in range(50)], [b"new %d" % n for n in range(50)]
    sink.run("run-1", [old])
    sink.batch = 4
    with pytest.raises(JetStreamSparkError, match=r"JOURNAL_AHEAD.*batch 5 .* was written"):
        sink.write("run-2", 0, new)
    assert sink.contents() == Counter(old)
    # set back by one batch only: its rows are new ones, and are written
    sink.batch = 5
    sink.run("run-2", [new])
    assert sink.contents() == Counter(old + new)
    assert "written before with 50 rows that it does not have now" in caplog.text


def test_a_journal_that_was_lost_is_told(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    sink.options["journal"] = "lost"
    sink.batch = 0
    sink.run("run-1", [[b"1"]])
    assert "knows nothing" not in caplog.text
    js.api.request("STREAM.PURGE.KV_lost")
    sink.batch = 1
    sink.run("run-1", [[b"2"], [b"3"]])
    assert caplog.text.count("knows nothing of query") == 1
    assert sink.contents() == Counter([b"1", b"2", b"3"])


def test_a_journal_that_was_deleted_is_made_again(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    sink.options["journal"] = "deleted"
    sink.run("run-1", [[b"1"]])
    js.api.request("STREAM.DELETE.KV_deleted")
    sink.batch += 1
    sink.run("run-1", [[b"2"], [b"3"]])  # by the same process, which knew the journal
    assert caplog.text.count("knows nothing of query") == 2
    assert sink.contents() == Counter([b"1", b"2", b"3"])


def test_rows_that_a_mapping_moves_are_told(stream_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = f'mappings = {{ "{stream_name}.x": "moved.x" }}'
    with NatsServer(mapping) as server, jsclient.connect(server.url) as nc:
        sink = Sink(server, Js(nc), stream_name, monkeypatch, subjects=["moved.>"])
        with pytest.raises(Crash):
            sink.write("run-1", 0, [b"1", b"2"], crash_after=1)
        pass_the_window()
        with pytest.raises(JetStreamSparkError, match=rf"UNSURE_REPLAY.* no stream has the subject '{stream_name}\.x'"):
            sink.write("run-2", 0, [b"1", b"2"])
        sink.batch += 1
        (note,) = sink.write("run-2", 0, [b"3"]).outcome.notes
        assert "A mapping of the server moved them" in note


def test_a_sink_that_keeps_nothing(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A work queue: what was stored may have been taken out."""
    sink = Sink(server, js, stream_name, monkeypatch, retention="workqueue")
    rows = [b"%d" % n for n in range(100)]
    with pytest.raises(Crash):
        sink.write("run-1", 0, rows, crash_after=0)
    assert sink.write("run-2", 0, rows).totals.rows == 100  # nothing was stored since: that is certain
    js.api.request(f"STREAM.PURGE.{stream_name}")
    assert sink.write("run-3", 0, rows).outcome.skipped
    sink.batch = 6
    with pytest.raises(Crash):
        sink.write("run-3", 1, rows, crash_after=50)
    js.api.request(f"STREAM.PURGE.{stream_name}")
    pass_the_window()
    with pytest.raises(JetStreamSparkError, match=r"UNSURE_REPLAY.*Nothing of the replay was published"):
        sink.write("run-4", 1, rows)
    assert js.state(stream_name)["messages"] == 0
    sink.options["deliverySemantics"] = "auto"
    message = sink.write("run-4", 1, rows)
    assert js.state(stream_name)["messages"] == 100
    assert "some may be stored twice" in message.outcome.notes[-1]


def test_a_replay_that_puts_too_much_aside_is_refused(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has to hold what lies in the sink under other partitions: 64 MiB of each task, here 100 bytes."""
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(100)]
    for number, after in ((0, 50), (1, 0)):
        with pytest.raises(Crash):
            sink.write("run-1", number, rows, crash_after=after)
    stored = sink.contents()
    monkeypatch.setattr(replay, "MOST_ASIDE", 100)
    with pytest.raises(JetStreamSparkError, match=r"UNSURE_REPLAY.*lie in the sink under other partitions"):
        sink.write("run-2", 1, rows)
    assert sink.contents() == stored


def test_ids_of_the_journal_are_not_those_of_others(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writers of the stream, and other batches of the query, are left out of the account."""
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(50)]
    with pytest.raises(Crash):
        sink.write("run-1", 0, rows, crash_after=20)
    js.nc.request(f"{stream_name}.x", b"plain")
    js.nc.request(f"{stream_name}.x", b"with an id", headers={"Nats-Msg-Id": "a.0.0"})
    message = sink.write("run-2", 0, rows)
    assert (message.totals.duplicates, message.outcome.left_over) == (20, Counter())
    again = sink.write("run-3", 0, rows)
    assert again.outcome.skipped, "the receipt says that the partition is whole"


def test_a_user_without_a_journal_gets_the_window(stream_name: str, caplog: pytest.LogCaptureFixture) -> None:
    publish = f'["{stream_name}.>", "$JS.API.STREAM.>", "$JS.API.INFO"]'
    allowed = f'{{ publish: {{ allow: {publish} }}, subscribe: {{ allow: ["_INBOX.>"] }} }}'
    users = f'{{ user: admin, password: "" }}, {{ user: u, password: p, permissions: {allowed} }}'
    with NatsServer(f"authorization: {{ users: [ {users} ] }}\n") as server:
        with jsclient.connect(server.url, user="admin", password="") as nc:
            Js(nc).create(stream_name)
        options = {"subject": f"{stream_name}.x", "user": "u", "password": "p"}
        made = stream_writer(server.url, **options)
        message = made.write(record_batches([b"%d" % n for n in range(50)]))
        made.commit([message], 0)
        assert message.totals.rows == 50
        assert "the journal cannot be written" in caplog.text
        assert "deliverySemantics=window" in caplog.text
        required = stream_writer(server.url, deliverySemantics="exactly-once", **options)
        with pytest.raises(JetStreamSparkError, match=r"JOURNAL_UNAVAILABLE.*cannot be written"):
            required.write(record_batches([b"1"]))


def test_calls_of_a_fresh_task(js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from .test_mends import requests_to

    sink = Sink(server, js, stream_name, monkeypatch)
    sink.write("run", 0, [b"first"])
    sink.batch = 6
    with requests_to(js, "$JS.API.>") as asked, requests_to(js, "$KV.spark_journal.>") as written:
        for number in range(4):
            sink.write("run", number, [b"%d" % number])
    # Each task reads two entries and writes its own twice; the first one begins the batch and looks at the sink.
    assert asked == {"STREAM.MSG": 8, "STREAM.INFO": 1}
    assert sum(written.values()) == 2 * 4 + 2


def test_the_journal_keeps_one_entry_per_query_and_partition(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    sink.options["journal"] = "small_journal"
    for batch in range(1, 6):
        sink.batch = batch
        sink.run("run", [[b"%d" % batch], [b"%d" % -batch]])
    state = js.state("KV_small_journal")
    assert state["messages"] == 3
    assert state["bytes"] < 3 * 500


def test_each_batch_leaves_a_record(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    parts = [[b"%d" % n for n in range(50)], [b"%d" % n for n in range(50, 70)]]
    with caplog.at_level("INFO", "jsclient.spark.audit"):
        sink.run("run", parts)
        record = json.loads(caplog.messages[-1])
        sink.run("again", parts)
        replayed = json.loads(caplog.messages[-1])
    assert (replayed["run"], replayed["skipped_tasks"], replayed["rows"]) == ("again", 2, 70)
    first, _ = record["streams"].pop(stream_name)
    assert (first, record.pop("bytes"), record.pop("streams")) == (1, 10 + 2 * 60, {})
    assert record == {
        "query": stream_name, "run": "run", "batch": 5, "guarantee": "exactly-once", "tasks": 2, "skipped_tasks": 0,
        "rows": 70, "already": 0, "moved": 0, "notes": record["notes"],
    }  # fmt: skip
    assert sink.contents().total() == 70
