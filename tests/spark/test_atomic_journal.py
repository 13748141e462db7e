"""publishMode=atomic under the journal: replays with other partitions, what the marker proves, drained sinks."""

from __future__ import annotations

import base64
import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from jsclient import errors
from jsclient.exactly import atomic, task
from jsclient.exactly.atomic_rows import AtomicRows
from jsclient.spark import writer as writing
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

from .conftest import Js, mode_works
from .journal_rig import Crash, Sink, cut, pass_the_window, record_batches
from .test_mends import requests_to


@pytest.fixture(autouse=True)
def idle_connections_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    yield
    from jsclient.spark import close_idle

    close_idle()


ROWS = [b"%d" % n for n in range(100)]


def test_a_replay_with_another_number_of_partitions(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is lost when a part or all of the batch is stored, and cuts it otherwise when it is back."""
    rows = [b"%d" % (n % 70) for n in range(100)]  # some are equal
    with mode_works(server, "atomic"):
        for number, crash in enumerate([None, (1, 20)]):
            sink = Sink(server, js, f"{stream_name}_{number}", monkeypatch, "atomic")
            del sink.options["deliverySemantics"]  # `auto` has a journal, too
            sink.run("run-1", cut(rows, 3), crash, commit="none")
            pass_the_window()
            sink.run("run-2", cut(rows, 2), commit="half")
            pass_the_window()
            sink.run("run-3", cut(rows, 4))
            assert sink.contents() == Counter(rows)


def test_a_retry_in_the_same_run_reads_nothing_back(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker says how many of the rows are stored; rows in another order are looked for by their ids."""
    sink = Sink(server, js, stream_name, monkeypatch, "atomic")
    with mode_works(server, "atomic"):
        for retries in (ROWS, ROWS[::-1]):
            sink.batch += 1
            with pytest.raises(Crash):
                sink.write("run", 0, ROWS, crash_after=35)
            pass_the_window()
            with requests_to(js, "$JS.API.>") as asked:
                message = sink.write("run", 0, retries)
            assert (message.totals.rows, message.totals.duplicates) == (100, 35)
            assert bool(asked["CONSUMER.CREATE"]) == (retries is not ROWS)
        assert sink.contents() == Counter(ROWS * 2)


def queued(js: Js, name: str) -> Counter[bytes]:
    """The rows of a work queue, looked at without taking them out."""
    found: Counter[bytes] = Counter()
    seq = 0
    with contextlib.suppress(errors.MessageNotFound):
        while True:
            body = {"seq": seq + 1, "next_by_subj": f"{name}.x"}
            message = js.api.request(f"STREAM.MSG.GET.{name}", body)["message"]
            found[base64.b64decode(message["data"])] += 1
            seq = message["seq"]
    return found


def test_a_drained_sink(js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken out of a work queue cannot be read back; the marker tells within a run, and after it in part."""
    sink = Sink(server, js, stream_name, monkeypatch, "atomic", retention="workqueue", duplicate_window=int(60e9))

    def drained(batch: int, run: str) -> None:
        sink.batch = batch
        with pytest.raises(Crash):
            sink.write(run, 0, ROWS, crash_after=35)
        js.api.request(f"STREAM.PURGE.{stream_name}", {"filter": f"{stream_name}.x"})

    with mode_works(server, "atomic"):
        drained(6, "run-1")
        assert sink.write("run-1", 0, ROWS).totals.duplicates == 35
        assert queued(js, stream_name) == Counter(ROWS[35:])
        # Another run may cut the batch otherwise: a row behind the prefix may have been stored by another partition.
        drained(7, "run-1")
        with pytest.raises(JetStreamSparkError, match=r"UNSURE_REPLAY.*Nothing of the replay was published"):
            sink.write("run-2", 0, ROWS)
        assert queued(js, stream_name) == Counter()
        sink.options["whenUnsure"] = "publish"
        message = sink.write("run-2", 0, ROWS)
        assert "65 rows are published again: some may be stored twice" in message.outcome.notes[-1]
        assert queued(js, stream_name) == Counter(ROWS[35:])
        # Nothing is known: all rows are stored, although the stream remembers the ids of some.
        drained(8, "run-2")
        message = sink.write("run-3", 0, ROWS[::-1])
        assert "100 rows are published again: some may be stored twice" in message.outcome.notes[-1]
        assert queued(js, stream_name) == Counter(ROWS)


@pytest.mark.parametrize("other", ["run-1", "run-2"])
def test_an_attempt_that_was_overtaken_is_refused(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """By the stream itself, long before it looks at the journal; by its own run or by another one."""
    stream = stream_name.replace("[", "_").rstrip("]_")
    sink = Sink(server, js, stream, monkeypatch, "atomic")

    def overtaken() -> Iterator[Any]:
        yield from record_batches(ROWS[:50], 50)
        sink.write(other, 0, ROWS)
        yield from record_batches(ROWS[50:], 50)

    monkeypatch.setattr(writing, "streaming_batch", lambda: (stream, "run-1", 5))
    with mode_works(server, "atomic"):
        with pytest.raises(JetStreamSparkError, match=r"FENCED|NONDETERMINISTIC"):
            sink.writer().write(overtaken())
        assert sink.contents() == Counter(ROWS)


@pytest.mark.parametrize("begun", [0, 20], ids=["no chunk", "some chunks"])
def test_attempts_of_partitions_that_the_new_run_does_not_have(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, begun: int
) -> None:
    """The stream refuses them, however late they are: here they never look at the journal again."""
    sink = Sink(server, js, f"fenced_{begun}", monkeypatch, "atomic")
    last = cut(ROWS, 3)[2]

    def overtaken() -> Iterator[Any]:
        monkeypatch.setattr(task, "LOOK_EVERY", math.inf)
        yield from record_batches(last[:begun], 20)
        sink.run("run-2", cut(ROWS, 2))
        pass_the_window()
        yield from record_batches(last[begun:], 20)

    with mode_works(server, "atomic"):
        for number, values in enumerate(cut(ROWS, 3)[:2]):
            sink.write("run-1", number, values)
        monkeypatch.setattr(writing, "partition_id", lambda: 2)
        with pytest.raises(JetStreamSparkError, match=r"FENCED.*another attempt or driver writes it, too"):
            sink.writer().write(overtaken())
        assert sink.contents() == Counter(ROWS)


def test_a_chunk_that_was_stored_before_the_attempt_was_overtaken(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the chunk is lost. The marker says that it is stored, and that another run has come since."""
    sink = Sink(server, js, stream_name, monkeypatch, "atomic")

    class AckGetsLost(AtomicRows):
        def commit(self, **options: Any) -> Any:
            super().commit(**options)
            monkeypatch.setattr(atomic, "AtomicRows", AtomicRows)
            sink.run("run-2", cut(ROWS, 2))
            raise errors.RequestTimeout("on purpose")

    with mode_works(server, "atomic"):
        for number, values in enumerate(cut(ROWS, 3)[:2]):
            sink.write("run-1", number, values)
        monkeypatch.setattr(atomic, "AtomicRows", AckGetsLost)
        monkeypatch.setattr(task, "LOOK_EVERY", math.inf)
        with pytest.raises(JetStreamSparkError, match=r"FENCED.*another attempt or driver writes it, too"):
            sink.write("run-1", 2, cut(ROWS, 3)[2])
        assert sink.contents() == Counter(ROWS)


def test_workers_of_one_run_do_not_refuse_each_other(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has begun a partition that the run before did not have when another one fences what was begun."""
    sink = Sink(server, js, stream_name, monkeypatch, "atomic")
    first, second, third = cut(ROWS, 3)
    found = []

    def meanwhile() -> Iterator[Any]:
        yield from record_batches(second[:20], 20)
        found.append(sink.write("run-2", 0, first))  # through a connection of its own, as in another worker
        yield from record_batches(second[20:], 20)

    with mode_works(server, "atomic"):
        with pytest.raises(Crash):
            sink.write("run-1", 0, ROWS, crash_after=35)
        pass_the_window()
        found.append(sink.write("run-2", 2, third))
        monkeypatch.setattr(writing, "partition_id", lambda: 1)
        found.append(sink.writer().write(meanwhile()))
        sink.writer().commit(found, sink.batch)
        assert sink.contents() == Counter(ROWS)


def test_ids_that_only_the_window_knows(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journal and markers are lost, and the stream still recognises the rows: nothing of the chunk is stored."""
    sink = Sink(server, js, stream_name, monkeypatch, "atomic", duplicate_window=int(60e9))
    with mode_works(server, "atomic"):
        sink.write("run-1", 0, ROWS)
        js.api.request("STREAM.PURGE.KV_spark_journal", {"filter": f"$KV.spark_journal.{stream_name}.>"})
        js.api.request("STREAM.PURGE.KV_spark_journal", {"filter": f"$KV.spark_journal.{stream_name}"})
        js.api.request(f"STREAM.PURGE.{stream_name}", {"filter": f"{stream_name}.marker.>"})
        with pytest.raises(JetStreamSparkError, match=r"PUBLISH_FAILED.*recognises rows of chunk 0 by their ids"):
            sink.write("run-1", 0, ROWS)
        assert sink.contents() == Counter(ROWS)
