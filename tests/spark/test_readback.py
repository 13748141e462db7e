"""What earlier attempts have stored is read back once per worker, however many partitions have to know it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jsclient.arrow import reading
from jsclient.arrow.chunks import Chunk
from jsclient.exactly import readback, task
from jsclient.exactly.readback import Digests, IdFile
from jsclient.spark import writer as writing
from jsclient.testing import NatsServer

from .conftest import Js
from .journal_rig import Crash, Sink, cut, pass_the_window
from .test_without_jvm import batches


@pytest.fixture(autouse=True)
def idle_connections_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    yield
    from jsclient.spark import close_idle

    close_idle()
    readback.forget_others(b"")


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the messages that are read back, by stream."""
    found: Counter[str] = Counter()
    real = reading.read_chunks

    def read_chunks(nc: Any, options: Any, *args: Any) -> Iterator[Chunk]:
        for chunk in real(nc, options, *args):
            found[options.stream] += len(chunk)
            yield chunk

    monkeypatch.setattr(readback, "read_chunks", read_chunks)
    return found


ROWS = [b"%d" % n for n in range(400)]


@pytest.mark.parametrize("kind", ["content", "column"])
def test_tasks_of_one_worker_read_a_row_once(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, rows_read: Counter[str], kind: str
) -> None:
    stream = stream_name.replace("[", "_").rstrip("]_")
    sink = Sink(server, js, stream, monkeypatch)
    sink.ids = kind == "column"
    parts = cut(ROWS, 8)
    for number, part in enumerate(parts):
        with pytest.raises(Crash):
            sink.write("run-1", number, part, crash_after=30)
    pass_the_window()
    found = [sink.write("run-2", number, part).totals for number, part in enumerate(parts)]
    assert [each.duplicates for each in found] == [30] * 8
    # What a task has written itself is read by the next one, and by nobody else.
    assert rows_read[stream] == 8 * 30 + 7 * 20
    assert sink.contents() == Counter(ROWS)
    # The next batch needs none of it.
    assert len(readback.kept) == 1
    sink.batch += 1
    sink.write("run-2", 0, parts[0])
    assert readback.kept == []


def test_a_stream_that_was_made_anew(
    js: Js, server: NatsServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of the stream before it counts for nothing."""
    sink = Sink(server, js, stream_name, monkeypatch)
    parts = cut(ROWS, 2)
    for number, part in enumerate(parts):
        with pytest.raises(Crash):
            sink.write("run-1", number, part, crash_after=150)
    pass_the_window()
    assert sink.write("run-2", 0, parts[0]).totals.duplicates == 150
    js.api.request(f"STREAM.DELETE.{stream_name}")
    js.create(stream_name)
    assert sink.write("run-2", 1, parts[1]).totals.duplicates == 0
    assert sink.contents() == Counter(parts[1])


def test_which_digests_were_seen() -> None:
    chance = random.Random(1)
    seen = Digests(10_000)
    digests = [chance.randbytes(20) for _ in range(10_000)]
    for digest in digests:
        seen.add(digest)
    assert all(digest in seen for digest in digests)
    assert sum(chance.randbytes(20) in seen for _ in range(10_000)) < 50


def test_ids_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readback, "AT_ONCE", 10)
    ids = IdFile()
    wanted: dict[bytes, set[bytes]] = {}
    for number in range(105):
        owner, msg_id = b"%d" % (number % 7), b"id-%d" % number
        wanted.setdefault(owner, set()).add(msg_id)
        ids.add(owner, msg_id)
        if number % 25 == 0:
            assert {msg_id for some in ids.of(owner) for msg_id in some} == wanted[owner]
    assert set(ids.owners()) == set(wanted)
    assert {owner: {msg_id for some in ids.of(owner) for msg_id in some} for owner in wanted} == wanted
    assert list(ids.of(b"nobody")) == []
    ids.close()


@pytest.mark.scale
@pytest.mark.timeout(1800)
def test_a_replay_of_200_unfinished_partitions(
    js: Js,
    server: NatsServer,
    stream_name: str,
    monkeypatch: pytest.MonkeyPatch,
    rows_read: Counter[str],
    count: Callable[[int, int], int],
) -> None:
    """Five million rows, of which each task had stored most: at most a minute more than the batch itself."""
    total, tasks = count(5_000_000, 500_000), 200
    each = total // tasks
    sink = Sink(server, js, stream_name, monkeypatch)
    whole = Sink(server, js, f"{stream_name}_whole", monkeypatch)

    def attempt(sink: Sink, run: str, rows: int) -> float:
        begun, messages = time.monotonic(), []
        for number in range(tasks):
            monkeypatch.setattr(writing, "streaming_batch", lambda: (sink.name, run, 5))
            monkeypatch.setattr(writing, "partition_id", lambda number=number: number)
            try:
                messages.append(sink.writer().write(dying(number * each, rows, each)))
            except Crash:
                assert rows < each
        if messages:
            sink.writer().commit(messages, 5)
        return time.monotonic() - begun

    attempt(sink, "run-1", each * 3 // 4)
    stored = js.state(sink.name)["messages"]
    batch = attempt(whole, "run-1", each)
    replay = attempt(sink, "run-2", each)
    assert js.state(sink.name)["messages"] == total
    contents = sink.contents()
    assert contents.total() == len(contents) == total
    contents = sink.contents()
    assert contents.total() == len(contents) == total
    assert 0 < stored < total
    # Once by the tasks, and once more by the driver, for the few rows that were taken for stored.
    assert total - each <= rows_read[sink.name] < 2 * total
    assert replay <= batch + 60, f"{replay:.0f} s, the batch itself took {batch:.0f} s"


def dying(first: int, rows: int, of: int) -> Iterator[Any]:
    yield from batches(first, first + rows, 10_000)
    if rows < of:
        raise Crash
