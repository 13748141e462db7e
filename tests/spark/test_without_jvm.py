"""Readers and writers as a task would use them, without Spark around them: faults, counts, replays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jsclient
from jsclient.connection import engine_of
from jsclient.spark.errors import JetStreamSparkError
from jsclient.testing import NatsServer, Proxy, wait_until

from .conftest import ROOT, Js, mode_works, refused_before

DDL = "seq bigint, value binary"


def schema_of(text: str) -> Any:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    kinds = {"bigint": LongType(), "binary": BinaryType(), "string": StringType()}
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        schema = schema.add(name, kinds[kind])
    return schema


def source(url: str, stream: str, **options: Any) -> Any:
    from jsclient.spark.datasource import JetStreamDataSource

    given = {"servers": url, "stream": stream, **{name: str(value) for name, value in options.items()}}
    return JetStreamDataSource(given)


def reader(url: str, stream: str, **options: Any) -> Any:
    return source(url, stream, **options).reader(schema_of(DDL))


def read(made: Any, between: Callable[[int], None] | None = None) -> list[int]:
    """The payloads of all partitions as numbers; `between(rows so far)` runs after every record batch."""
    found: list[int] = []
    for partition in made.partitions():
        for batch in made.read(partition):
            found += [int(value) for value in batch.column("value").to_pylist()]
            if between is not None:
                between(len(found))
    return found


def writer(url: str, **options: Any) -> Any:
    from jsclient.spark.datasource import JetStreamDataSource

    return JetStreamDataSource({"servers": url, **{k: str(v) for k, v in options.items()}}).writer(
        schema_of("value binary"), False
    )


def batches(start: int, end: int, size: int = 5000) -> Iterator[Any]:
    import pyarrow as pa

    for first in range(start, end, size):
        values = [b"%d" % n for n in range(first, min(end, first + size))]
        yield pa.record_batch([pa.array(values, pa.binary())], names=["value"])


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


@contextmanager
def at(rows: list[int], actions: list[Callable[[], object]]) -> Iterator[Callable[[int], None]]:
    """Runs the actions one by one when so many rows were seen; all must have run in the end."""
    left = list(zip(rows, actions, strict=True))

    def check(seen: int) -> None:
        while left and seen >= left[0][0]:
            left.pop(0)[1]()

    yield check
    assert not left


def test_a_lost_link_a_lost_consumer_and_a_lost_server_leave_no_trace(
    stream_name: str, in_portions: Callable[..., None]
) -> None:
    in_portions(1000, 1500, 2)
    total = 30_000
    with NatsServer() as server, Proxy(server.port) as proxy:
        with jsclient.connect(server.url) as nc:
            js = Js(nc)
            js.create(stream_name)
            js.fill(stream_name, total)

        def delete_consumers() -> None:
            with jsclient.connect(server.url) as nc:
                for name in Js(nc).consumers(stream_name):
                    Js(nc).api.request(f"CONSUMER.DELETE.{stream_name}.{name}")

        def kill() -> None:
            server.kill()
            server.start()

        made = reader(proxy.url, stream_name, readMethod="consumer")
        with at([3000, 9000, 15_000], [proxy.cut, delete_consumers, kill]) as check:
            assert read(made, check) == list(range(total))


def test_direct_get_survives_a_lost_link(stream_name: str, in_portions: Callable[..., None]) -> None:
    in_portions(500, 1000)
    with NatsServer() as server, Proxy(server.port) as proxy:
        with jsclient.connect(server.url) as nc:
            js = Js(nc)
            js.create(stream_name, allow_direct=True)
            js.fill(stream_name, 10_000)
        with refused_before(server, (2, 11), "DIRECT_UNAVAILABLE"):
            made = reader(proxy.url, stream_name, readMethod="direct")
            with at([2000, 5000], [proxy.cut, proxy.cut]) as check:
                assert read(made, check) == list(range(10_000))


def test_the_head_truncated_under_a_running_task_is_noticed(
    js: Js, server: NatsServer, stream_name: str, in_portions: Callable[..., None]
) -> None:
    in_portions(100)
    js.create(stream_name)
    js.fill(stream_name, 10_000)

    def truncate() -> None:
        js.api.request(f"STREAM.PURGE.{stream_name}", {"seq": 9001})
        for name in js.consumers(stream_name):
            js.api.request(f"CONSUMER.DELETE.{stream_name}.{name}")

    options = {"readMethod": "consumer"}
    made = reader(server.url, stream_name, **options)
    with (
        at([1000], [truncate]) as check,
        pytest.raises(JetStreamSparkError, match=rf"DATA_LOSS.*'{stream_name}'.*to 9000"),
    ):
        read(made, check)
    lost = reader(server.url, stream_name, **options, failOnDataLoss="false")
    assert read(lost) == list(range(9000, 10_000))


@pytest.mark.parametrize("mode", ["async", "fast"])
def test_a_replayed_task_is_stored_once_even_over_a_killed_server(
    mode: str, stream_name: str, count: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt dies in the middle; the second one meets a server that is killed and comes back."""
    stream, total = stream_name.replace("[", "_").rstrip("]_"), 40_000
    monkeypatch.setattr("jsclient.exactly.sending.ACK_TIMEOUT", 1.0)
    with NatsServer() as server:
        with jsclient.connect(server.url) as nc:
            Js(nc).create(stream, allow_batched=True)
        made = writer(server.url, subject=f"{stream}.x", publishMode=mode)

        def dies() -> Iterator[Any]:
            yield from batches(0, 15_000)
            raise RuntimeError("on purpose")

        def killed() -> Iterator[Any]:
            yield from batches(0, 25_000)
            server.kill()
            starter = threading.Thread(target=server.start)
            starter.start()
            yield from batches(25_000, total)
            starter.join()

        with mode_works(server, mode):
            with pytest.raises(RuntimeError, match="on purpose"):
                made.write(dies())
            message = made.write(killed())
            assert message.totals.rows == total
            if mode == "async":
                assert message.totals.duplicates >= 14_000 - 2000
            found = read(reader(server.url, stream, failOnDataLoss="false"))
            assert sorted(found) == list(range(total))
            if mode != "async":
                assert found == list(range(total))


def test_streams_that_cannot_do_what_is_asked(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name)
    fast = writer(server.url, subject=f"{stream_name}.x", publishMode="fast")
    with pytest.raises(JetStreamSparkError, match=r"SERVER_TOO_OLD.*allow_batched"):
        fast.write(batches(0, 10))
    # auto takes what there is
    assert writer(server.url, subject=f"{stream_name}.x").write(batches(0, 10)).totals.rows == 10
    assert js.state(stream_name)["messages"] == 10


def test_a_full_stream_ends_the_task(js: Js, server: NatsServer, stream_name: str) -> None:
    js.create(stream_name, max_msgs=100, discard="new")
    made = writer(server.url, subject=f"{stream_name}.x", publishMode="async")
    with pytest.raises(
        JetStreamSparkError, match=r"PUBLISH_FAILED.*maximum messages exceeded.*a retry stores the rest"
    ):
        made.write(batches(0, 1000))


# --- the stream reader, called in the order in which Spark calls it --------------------------------------------


def stream_reader(url: str, stream: str, **options: Any) -> Any:
    return source(url, stream, **options).streamReader(schema_of(DDL))


def next_of(offset: dict[str, Any]) -> int:
    """The first sequence after a batch."""
    ((_, stream),) = offset["s"].items()
    return int(stream["next"])


def rows_of(made: Any, partitions: list[Any]) -> list[int]:
    return [int(v) for p in partitions for b in made.read(p) for v in b.column("value").to_pylist()]


def test_a_crash_in_batch_0_with_latest_skips_nothing(js: Js, server: NatsServer, stream_name: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    js.create(stream_name)
    js.fill(stream_name, 50)
    first = stream_reader(server.url, stream_name, startingOffsets="latest", minPartitions=2)
    start = first.initialOffset()
    js.fill(stream_name, 30, first=50)
    assert first.initialOffset() is start
    end = first.latestOffset(start, ReadAllAvailable())
    assert (next_of(start), next_of(end), end["plan"]) == (51, 81, {stream_name: 2})
    # The driver dies; Spark has the end of batch 0 in its log, but not where it began. More arrives meanwhile.
    js.fill(stream_name, 20, first=80)
    second = stream_reader(server.url, stream_name, startingOffsets="latest", minPartitions=7)
    again = second.initialOffset()
    assert next_of(again) == 101
    planned = second.partitions(again, json.loads(json.dumps(end)))
    assert len(planned) == 2
    assert rows_of(second, planned) == list(range(50, 80))
    # and goes on from there
    after = second.latestOffset(end, ReadAllAvailable())
    assert rows_of(second, second.partitions(end, after)) == list(range(80, 100))
    assert second.latestOffset(after, ReadAllAvailable()) is after


def test_admission_by_rows_and_bytes(js: Js, server: NatsServer, stream_name: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

    js.create(stream_name)
    js.fill(stream_name, 1000)
    made = stream_reader(server.url, stream_name, startingOffsets="earliest", maxOffsetsPerTrigger=300)
    assert made.getDefaultReadLimit() == ReadMaxRows(300)
    start = made.initialOffset()
    assert next_of(made.latestOffset(start, ReadMaxRows(300))) == 301
    assert next_of(made.latestOffset(start, ReadAllAvailable())) == 1001
    by_bytes = stream_reader(server.url, stream_name, startingOffsets="earliest", maxBytesPerTrigger="1k")
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(1024)
    assert 10 < next_of(by_bytes.latestOffset(by_bytes.initialOffset(), ReadMaxBytes(1024))) < 60


# --- helpers for executors ------------------------------------------------------------------------------------


def test_acks_are_confirmed_together(js: Js, server: NatsServer, stream_name: str) -> None:
    from jsclient.spark import ack_partition

    js.create(stream_name)
    js.fill(stream_name, 1200)
    config = {"durable_name": "d", "name": "d", "ack_policy": "explicit", "max_ack_pending": 5000}
    js.api.request(f"CONSUMER.CREATE.{stream_name}.d", {"stream_name": stream_name, "config": config})
    inbox = engine_of(js.nc).open_inbox()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream_name}.d"
    js.nc.publish(subject, b'{"batch": 1200, "expires": 5000000000}', reply=inbox.subject)
    rows = []
    for _ in range(1200):
        message = inbox.next(5)
        assert isinstance(message, jsclient.Msg)
        rows.append({"reply": message.reply})
    inbox.close()
    assert ack_partition(rows, {"servers": server.url}) == 1200
    assert js.api.request(f"CONSUMER.INFO.{stream_name}.d")["num_ack_pending"] == 0


def test_a_forked_worker_gets_a_connection_of_its_own(server: NatsServer) -> None:
    from jsclient.spark import connection

    options = {"servers": server.url}
    with connection(options) as nc:
        parent = nc.client_id
    with connection(options) as nc:
        assert nc.client_id == parent
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with connection(options) as nc:
                nc.flush()
                os.write(writable, b"%d" % nc.client_id)
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        child = int(pipe.read())
    os.waitpid(pid, 0)
    assert child != parent
    with connection(options) as nc:
        assert nc.client_id == parent
        nc.flush()


def test_a_failed_task_leaves_no_connection_behind(js: Js, server: NatsServer) -> None:
    from jsclient.spark import connection

    kept: list[jsclient.Connection] = []
    with pytest.raises(RuntimeError, match="on purpose"), connection(server.url) as nc:
        kept.append(nc)
        raise RuntimeError("on purpose")
    wait_until(lambda: kept[0].closed, 5)
    with pytest.raises(JetStreamSparkError, match=r"UNKNOWN_OPTION.*'servers'"), connection({"server": server.url}):
        pass


def test_a_server_that_is_away_between_two_batches_ends_no_query(stream_name: str) -> None:
    """The driver asks for the end of the stream while the server restarts, and no connection is left."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from jsclient.spark import close_idle

    with NatsServer() as server:
        with jsclient.connect(server.url) as nc:
            Js(nc).create(stream_name)
            Js(nc).fill(stream_name, 10)
        made = stream_reader(server.url, stream_name, startingOffsets="earliest")
        start = made.initialOffset()
        close_idle()
        server.kill()
        starter = threading.Timer(1.0, server.start)
        starter.start()
        assert next_of(made.latestOffset(start, ReadAllAvailable())) == 11
        starter.join()


MEMORY = """
import re, sys
sys.path.insert(0, sys.argv[3])
from pyspark.sql.types import *
from jsclient.spark.datasource import JetStreamDataSource
names = StructType().add("subject", "string").add("seq", "long").add("timestamp", "timestamp").add("value", "binary")
source = JetStreamDataSource({"servers": sys.argv[1], "stream": sys.argv[2], "recordsPerPartition": "1000000000"})
made = source.reader(names)
rows = last = 0
for partition in made.partitions():
    for batch in made.read(partition):
        rows += batch.num_rows
        last = batch.column("seq")[-1].as_py()
# Not ru_maxrss: after vfork and exec that begins with what the parent had.
print(rows, last, re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.scale
@pytest.mark.timeout(900)
def test_memory_of_a_reading_task(
    js: Js, server: NatsServer, stream_name: str, count: Callable[[int, int], int]
) -> None:
    total = count(10_000_000, 1_000_000)
    js.create(stream_name, allow_batched=True)
    options = {"subject": f"{stream_name}.x", "deliverySemantics": "at-least-once"}
    writer(server.url, **options).write(batches(0, total, 20_000))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, server.url, stream_name, str(ROOT)],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    rows, last, kilobytes = map(int, done.stdout.split())
    assert (rows, last) == (total, total)
    assert kilobytes < 200 * 1024
