"""Exactly once without a time window: random histories of attempts, crashes, other partitions, lost drivers."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import Range
from jsclient.arrow.reading import read_chunks
from jsclient.exactly import atomic, conclusion, readback, replay, task
from jsclient.exactly.publishing import TaskPublisher
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig
from jsclient.spark import options
from jsclient.spark import writer as writing
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer, wait_until

from .conftest import Js, mode_works
from .test_refusals import stream_writer

WINDOW = 0.1  # seconds in which the sinks of these tests recognise ids: a replay always comes later


@pytest.fixture(autouse=True)
def idle_connections_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    yield
    from jsclient.spark import close_idle

    close_idle()


class Crash(Exception):
    """A task or the driver dies."""


class Crashing(TaskPublisher):
    """Dies after so many rows, all of which are stored."""

    after: int | None = None

    def publish(self, rows: Any) -> None:
        rows = list(rows)
        if Crashing.after is None:
            super().publish(rows)
            return
        super().publish(rows[: Crashing.after])
        Crashing.after -= len(rows)
        if Crashing.after < 0:
            Crashing.after = None
            self.finish()
            raise Crash


def record_batches(values: list[bytes], size: int = 7, ids: bool = False) -> Iterator[Any]:
    import pyarrow as pa

    for at in range(0, len(values), size):
        part = values[at : at + size]
        columns = [pa.array(part, pa.binary())]
        if ids:
            columns.append(pa.array([value.decode() for value in part], pa.string()))
        yield pa.record_batch(columns, names=["value", "msg_id"][: len(columns)])


class Sink:
    """A stream and a query that writes one batch to it, as often as a test wants."""

    def __init__(
        self,
        server: NatsServer,
        js: Js,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        mode: str = "async",
        **config: Any,
    ) -> None:
        allowed = {"async": {}, "fast": {"allow_batched": True}, "atomic": {"allow_atomic": True}}[mode]
        js.create(name, **{"duplicate_window": int(WINDOW * 1e9), **allowed, **config})
        self.name, self.js, self.monkeypatch, self.mode = name, js, monkeypatch, mode
        self.batch = 5
        self.options: dict[str, str] = {"deliverySemantics": "exactly-once", "publishMode": mode}
        if mode == "atomic":
            self.options["atomicMarkerSubject"] = f"{name}.marker"
            monkeypatch.setattr(atomic, "CHUNK_ROWS", 7)
        self.url = server.url
        self.ids = False

    def writer(self) -> Any:
        columns = "value binary, msg_id string" if self.ids else "value binary"
        return stream_writer(self.url, columns=columns, subject=f"{self.name}.x", **self.options)

    def write(self, run: str, number: int, values: list[bytes], crash_after: int | None = None) -> Any:
        """One task; raises Crash where it dies."""
        self.monkeypatch.setattr(writing, "streaming_batch", lambda: (self.name, run, self.batch))
        self.monkeypatch.setattr(writing, "partition_id", lambda: number)
        self.monkeypatch.setattr(task, "TaskPublisher", Crashing)
        Crashing.after = crash_after
        try:
            return self.writer().write(record_batches(values, ids=self.ids))
        finally:
            Crashing.after = None

    def run(
        self, run: str, parts: list[list[bytes]], crash: tuple[int, int] | None = None, commit: str = "all"
    ) -> bool:
        """One attempt at the whole batch; whether no task died. `commit`: all, none, or half of the driver's rows."""
        messages = []
        for number, values in enumerate(parts):
            after = crash[1] if crash is not None and crash[0] == number else None
            try:
                messages.append(self.write(run, number, values, after))
            except Crash:
                return False
        if commit == "none":
            return True
        real = conclusion._publish

        def half(nc: Any, given: Any, rows: list[Any], *more: Any) -> None:
            real(nc, given, rows[: len(rows) // 2], *more)
            raise Crash

        with self.monkeypatch.context() as patch:
            if commit == "half":
                patch.setattr(conclusion, "_publish", half)
            try:
                self.writer().commit(messages, self.batch)
            except Crash:
                assert commit == "half"
        return True

    def contents(self) -> Counter[bytes]:
        given = {"servers": self.url, "stream": self.name, "failOnDataLoss": "false"}  # some tests purge the head
        checked = options.parse(given, options.READ)
        end = StreamAccess(self.js.nc, checked).state().end  # waits for a leader, where there is none
        found: Counter[bytes] = Counter()
        for chunk in read_chunks(self.js.nc, checked, Range(0, 1, end, (f"{self.name}.x",)), "consumer", "test"):
            found.update(chunk.payloads)
        return found


def pass_the_window() -> None:
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > WINDOW * 1.3, 5)


def cut(rows: list[bytes], parts: int) -> list[list[bytes]]:
    return [rows[i * len(rows) // parts : (i + 1) * len(rows) // parts] for i in range(parts)]


class History:
    """A random life of one batch: up to four attempts that die somewhere, and one that does not."""

    def __init__(self, sink: Sink, seed: int) -> None:
        chance = random.Random(seed)
        self.sink, self.chance = sink, chance
        sink.ids = chance.random() < 0.2 and sink.mode != "atomic"
        self.rows = [b"%d" % (i if sink.ids else chance.choice([i, i, i, i % 5])) for i in range(60)]
        self.parts = chance.choice([2, 3, 4])
        self.attempts = chance.randrange(1, 4)
        self.run = ""
        self.again = False  # whether Spark may try the same run again

    def attempt(self, number: int) -> None:
        if number > self.attempts:
            return
        chance = self.chance
        # Spark tries again what a dead task has left in the same run, and cuts it the same way; or the driver dies.
        if not (self.again and chance.random() < 0.5):
            self.run = f"run-{number}"
            self.parts = self.parts if number == 0 else chance.choice([self.parts, 2, 3, 4])
        parts = cut(self.rows, self.parts)
        for part in parts:
            if number and chance.random() < 0.7:
                chance.shuffle(part)
        crash = None
        commit = "all"
        if number < self.attempts:
            crash = (chance.randrange(len(parts)), chance.randrange(0, 30)) if chance.random() < 0.6 else None
            commit = chance.choice(["all", "none", "half"])
        self.again = not self.sink.run(self.run, parts, crash, commit)


@pytest.mark.parametrize("mode", ["async", "atomic"])
def test_some_random_histories_store_each_row_once(
    js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    with mode_works(server, mode):
        live(js, server, monkeypatch, f"S_{mode}", range(6), mode)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", ["async", "atomic"])
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


def test_a_second_driver_stops_the_first(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(100)]
    first = sink.write("run-1", 0, rows[:50])
    second = [sink.write("run-2", number, part) for number, part in enumerate(cut(rows, 2))]
    with pytest.raises(JetStreamSparkError, match=r"FENCED.*run 'run-2'"):
        sink.writer().commit([first], 5)
    sink.writer().commit(second, 5)
    assert sink.contents() == Counter(rows)
    with pytest.raises(JetStreamSparkError, match=r"FENCED.*run 'run-2' is under way"):
        sink.write("run-1", 1, rows[50:])  # Spark starts a task again: it does not take the batch back
    # a task that is in the middle of its rows
    sink.batch = 6
    sink.monkeypatch.setattr(task, "LOOK_EVERY", 0.0)

    def overtaken() -> Iterator[Any]:
        yield from record_batches(rows[:50], 50)
        sink.write("run-4", 0, rows)
        yield from record_batches(rows[50:], 50)

    sink.monkeypatch.setattr(writing, "streaming_batch", lambda: (stream_name, "run-3", 6))
    with pytest.raises(JetStreamSparkError, match=r"FENCED.*run 'run-4' is under way"):
        sink.writer().write(overtaken())
    assert sink.contents() == Counter(rows * 2)


def test_an_attempt_that_spark_has_given_up_stops(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    monkeypatch.setattr(task, "LOOK_EVERY", 0.0)
    rows = [b"%d" % n for n in range(100)]

    def overtaken() -> Iterator[Any]:
        yield from record_batches(rows[:50], 50)
        sink.write("run", 0, rows)
        yield from record_batches(rows[50:], 50)

    sink.monkeypatch.setattr(writing, "streaming_batch", lambda: (stream_name, "run", 5))
    with pytest.raises(JetStreamSparkError, match=r"FENCED.*another attempt has taken the partition"):
        sink.writer().write(overtaken())
    assert sink.contents() == Counter(rows)


def test_a_new_run_waits_for_the_tasks_of_the_old_one(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(100)]
    with pytest.raises(Crash):
        sink.write("run-1", 0, rows, crash_after=50)
    waited: list[float] = []
    monkeypatch.setattr(task, "SETTLED", 15.0)
    monkeypatch.setattr(task, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waited.append))
    sink.write("run-2", 0, rows)
    pass_the_window()
    sink.write("run-2", 1, rows)
    assert len(waited) == 2
    assert 14 < waited[1] < waited[0] - WINDOW, "the time is that of the journal, for all tasks and workers alike"


class Slow(TaskPublisher):
    """Dies with rows under way, which are stored later: as if their link were slow."""

    late: list[Any] = []

    def publish(self, rows: Any) -> None:
        rows = list(rows)
        super().publish(rows[:50])
        self.finish()
        Slow.late = rows[50:]
        raise Crash

    def settle(self, timeout: float) -> bool:
        return False


def die_with_rows_under_way(sink: Sink, rows: list[bytes]) -> None:
    sink.monkeypatch.setattr(writing, "streaming_batch", lambda: (sink.name, "run", 5))
    with sink.monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(task, "TaskPublisher", Slow)
        sink.writer().write(record_batches(rows, 100))


def store_late(server: NatsServer, rows: list[Any]) -> None:
    with jsclient.connect(server.url) as nc:
        for subject, _, value, msg_id in rows:
            JetStream(nc).publish(subject.decode(), value, msg_id=msg_id.decode())


def test_a_retry_waits_for_the_rows_of_the_attempt_before(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task was killed, and Spark starts it again in the same run, while its last rows are on their way."""
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(100)]
    die_with_rows_under_way(sink, rows)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        store_late(server, Slow.late)
        pass_the_window()

    monkeypatch.setattr(task, "SETTLED", 15.0)
    monkeypatch.setattr(task, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    outcome = sink.write("run", 0, rows).outcome
    assert [round(seconds) for seconds in waited] == [15]
    assert outcome.totals.duplicates == 100
    assert sink.contents() == Counter(rows)


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_a_retry_of_a_task_that_has_settled_waits_for_nothing(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It failed with rows under way, waited for their acks, and said so in the journal."""
    with mode_works(server, mode):
        sink = Sink(server, js, stream_name, monkeypatch, mode)
        rows = [b"%d" % n for n in range(5000)]

        def failing() -> Iterator[Any]:
            yield from record_batches(rows[:4000], 500)
            raise Crash

        monkeypatch.setattr(task, "SETTLED", 15.0)
        monkeypatch.setattr(task, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pytest.fail))
        monkeypatch.setattr(writing, "streaming_batch", lambda: (stream_name, "run", 5))
        for _ in range(2):
            with pytest.raises(Crash):
                sink.writer().write(failing())
            pass_the_window()
        message = sink.write("run", 0, rows)
        assert message.outcome.totals.duplicates == 4000
        # One new row of some thousands may look like a stored one to the task, and is left to the driver.
        sink.writer().commit([message], 5)
        assert sink.contents() == Counter(rows)


def test_an_attempt_that_failed_before_it_had_waited_vouches_for_nobody(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(100)]
    die_with_rows_under_way(sink, rows)

    def failing() -> Iterator[Any]:
        yield from record_batches(rows[:50], 50)
        raise Crash

    with pytest.raises(Crash):
        sink.writer().write(failing())  # while it puts its rows aside
    waited: list[float] = []
    monkeypatch.setattr(task, "SETTLED", 15.0)
    monkeypatch.setattr(task, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waited.append))
    sink.write("run", 0, rows)
    assert len(waited) == 1
    assert sink.contents() == Counter(rows)


@pytest.mark.parametrize("stored", [True, False])
def test_an_attempt_does_not_take_the_entry_of_another_one_for_its_own(
    js: Js, server: NatsServer, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """The answer to its entry is lost, and another attempt writes the same before it asks again."""
    sink = Sink(server, js, f"overtaken_{stored}", monkeypatch)
    rows = [b"%d" % n for n in range(100)]
    overtaken: list[str] = []
    real = keyvalue.KeyValue.update

    def update(self: Any, key: str, value: Any, revision: int, **more: Any) -> int:
        if key != f"{sink.name}.0" or overtaken:
            return real(self, key, value, revision, **more)
        overtaken.append(key)
        if stored:
            real(self, key, value, revision, **more)
        with pytest.raises(Crash):
            sink.write("run", 0, rows, crash_after=20)
        raise errors.RequestTimeout("the answer was lost")

    monkeypatch.setattr(keyvalue.KeyValue, "update", update)
    pass_the_window()
    outcome = sink.write("run", 0, rows).outcome
    assert overtaken
    assert outcome.totals.duplicates == 20, "it has seen that it was overtaken, and looked what is stored"
    assert sink.contents() == Counter(rows)


def test_a_driver_that_was_overtaken_while_it_read_the_sink_publishes_nothing(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    rows = [b"%d" % n for n in range(60)]
    assert not sink.run("run-1", cut(rows, 3), crash=(2, 5))
    pass_the_window()
    parts = cut(rows, 2)
    messages = [sink.write("run-2", number, values) for number, values in enumerate(parts)]
    assert any(message.outcome.aside for message in messages)
    real = readback.read_back

    def slow(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        monkeypatch.setattr(conclusion, "read_back", real)
        pass_the_window()
        assert sink.run("run-3", cut(rows, 2))
        pass_the_window()
        return found

    monkeypatch.setattr(conclusion, "read_back", slow)
    with pytest.raises(JetStreamSparkError, match="FENCED"):
        sink.writer().commit(messages, sink.batch)
    assert sink.contents() == Counter(rows)


def test_a_slow_task_looks_often_whether_it_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record batch may take longer than others wait for it."""
    now, looks, sizes = [0.0], [], []
    monkeypatch.setattr(task, "elapsed", lambda: now[0])
    journal: Any = SimpleNamespace(check=lambda: looks.append(now[0]))
    pace = task.Pace(journal)
    rate = 500.0  # rows per second

    def publish(rows: list[Any]) -> None:
        sizes.append(len(rows))
        now[0] += len(rows) / rate

    pace.publish([()] * 20_000, SimpleNamespace(publish=publish))  # type: ignore[list-item, arg-type]
    assert max(after - before for before, after in pairwise(looks)) < 7
    rate = 1e6
    sizes.clear()
    pace.publish([()] * 200_000, SimpleNamespace(publish=publish))  # type: ignore[list-item, arg-type]
    assert sizes[-2] == task.MOST_PORTION
    assert sum(sizes) == 200_000


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_rows_are_sent_again_only_by_who_may(js: Js, server: NatsServer, mode: str) -> None:
    """After an outage another run may have taken the batch over."""
    from jsclient.exactly.sending import fast_publisher, row_publisher

    def fenced() -> None:
        raise Crash

    checked = options.parse({"servers": server.url, "subject": "nobody.takes.it", "ackTimeout": "300ms"}, options.WRITE)
    publisher: Any = (row_publisher if mode == "async" else fast_publisher)(js.nc, checked, fenced)
    try:
        too_old = mode == "fast" and server.version < (2, 14)
        with pytest.raises(errors.NotSupported if too_old else Crash):
            publisher.publish([(b"nobody.takes.it", b"", b"row", b"id")])
            publisher.finish()
    finally:
        publisher.close()


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
    sink.options["whenUnsure"] = "publish"
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


def test_each_batch_leaves_a_record(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(server, js, stream_name, monkeypatch)
    sink.options["auditBucket"] = f"{stream_name}_audit"
    bucket = keyvalue.create_key_value(JetStream(js.nc), KeyValueConfig(bucket=f"{stream_name}_audit"))
    parts = [[b"%d" % n for n in range(50)], [b"%d" % n for n in range(50, 70)]]
    with caplog.at_level("INFO", "jsclient.spark.audit"):
        sink.run("run", parts)
        record = json.loads(bucket[f"{stream_name}.5"])
        assert json.loads(caplog.messages[-1]) == record
    first, _ = record["streams"].pop(stream_name)
    assert (first, record.pop("bytes"), record.pop("streams")) == (1, 10 + 2 * 60, {})
    assert record == {
        "query": stream_name, "run": "run", "batch": 5, "guarantee": "exactly-once", "tasks": 2, "skipped_tasks": 0,
        "rows": 70, "already": 0, "moved": 0, "notes": record["notes"],
    }  # fmt: skip
    sink.run("again", parts)
    replayed = json.loads(bucket[f"{stream_name}.5"])
    assert (replayed["run"], replayed["skipped_tasks"], replayed["rows"]) == ("again", 2, 70)
    assert sink.contents().total() == 70
