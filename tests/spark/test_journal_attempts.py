"""Exactly once without a time window: attempts and drivers that overtake each other, and retries that wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.exactly import conclusion, readback, task
from jsclient.exactly.publishing import TaskPublisher
from jsclient.jetstream import JetStream
from jsclient.spark import options
from jsclient.spark import writer as writing
from jsclient.spark.committing import record_of
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer

from .conftest import Js, mode_works
from .journal_rig import WINDOW, Crash, Sink, cut, pass_the_window, record_batches


@pytest.fixture(autouse=True)
def idle_connections_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    yield
    from jsclient.spark import close_idle

    close_idle()


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
    record = record_of(sink.writer().sink.options, messages, True, ())
    assert record["moved"] > 0
    assert record["rows"] == len(rows), "all rows of the DataFrame, whoever writes them"
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
def test_rows_are_sent_again_only_by_who_may(
    js: Js, server: NatsServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage another run may have taken the batch over."""
    from jsclient.exactly.sending import fast_publisher, row_publisher

    monkeypatch.setattr("jsclient.exactly.sending.ACK_TIMEOUT", 0.3)

    def fenced() -> None:
        raise Crash

    checked = options.parse({"servers": server.url, "subject": "nobody.takes.it"}, options.WRITE)
    publisher: Any = (row_publisher if mode == "async" else fast_publisher)(js.nc, checked, fenced)
    try:
        too_old = mode == "fast" and server.version < (2, 14)
        with pytest.raises(errors.NotSupported if too_old else Crash):
            publisher.publish([(b"nobody.takes.it", b"", b"row", b"id")])
            publisher.finish()
    finally:
        publisher.close()
