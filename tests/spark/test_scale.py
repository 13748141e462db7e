"""What holds with many streams, partitions and tasks: rows exact, memory and server calls bounded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from jsclient.planning.offsets import Offset, StreamOffset
from jsclient.planning.planner import Limits, Load
from jsclient.testing import NatsServer, wait_until

from .conftest import ROOT, Js
from .test_many_streams import query_of, rows_by_stream
from .test_mends import requests_to
from .test_proofs import everything, planned_end
from .test_without_jvm import batches, reader, writer

Count = Callable[[int, int], int]


@pytest.fixture(autouse=True)
def idle_connections_closed() -> Iterator[None]:
    yield
    from jsclient.spark import close_idle

    close_idle()


def test_a_plan_of_8000_partitions_is_quick_and_small() -> None:
    begun = time.process_time()
    million = 1_000_000
    parts = Limits(100_000, 1, 10_000).spread([Load(16 * million, 16 * million, 0)] * 50)
    streams = {
        f"ORDERS_{n}": StreamOffset(
            "2026-11-22T11:00:00.123456789Z", 16 * million, 1, count, mark=(16 * million, 1 << 60)
        )
        for n, count in enumerate(parts)
    }
    text = json.dumps(Offset(streams).to_dict(), separators=(",", ":"))
    assert time.process_time() - begun < 2
    assert sum(parts) == 8000
    assert len(text) < 64_000


READ_ALL = """
import re, sys
sys.path.insert(0, sys.argv[3])
from collections import Counter
from pyspark.sql.types import StructType
from jsclient.spark.datasource import JetStreamDataSource
names = StructType().add("stream", "string").add("subject", "string").add("seq", "long").add("value", "binary")
given = {"servers": sys.argv[1], "stream": sys.argv[2] + "_*", "minPartitions": "200", "readMethod": "consumer"}
made = JetStreamDataSource(given).reader(names)
partitions = made.partitions()
rows, at = Counter(), {}
for partition in partitions:
    for batch in made.read(partition):
        (name,) = set(batch.column("stream").to_pylist())
        seqs = batch.column("seq").to_pylist()
        assert seqs == list(range(at.get(name, 0) + 1, at.get(name, 0) + 1 + len(seqs))), (name, seqs[0])
        at[name] = seqs[-1]
        rows[name] += len(seqs)
high = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(len(partitions), len(rows), sum(rows.values()), len(set(rows.values())), high)
"""


@pytest.mark.scale
@pytest.mark.timeout(1800)
def test_200_partitions_of_50_streams(js: Js, server: NatsServer, stream_name: str, count: Count) -> None:
    """One worker reads all of it, as the only one of a cluster would: rows, memory, calls of each task."""
    total = count(10_000_000, 1_000_000)
    each = total // 50
    for number in range(50):
        name = f"{stream_name}_{number}"
        js.create(name)
        options = {"subject": f"{name}.x", "deliverySemantics": "at-least-once"}
        writer(server.url, **options).write(batches(0, each, 20_000))
    with requests_to(js, "$JS.API.>") as calls:
        done = subprocess.run(
            [sys.executable, "-c", READ_ALL, server.url, stream_name, str(ROOT)],
            capture_output=True, text=True, timeout=1500, check=True,
        )  # fmt: skip
    partitions, streams, rows, sizes, kilobytes = map(int, done.stdout.split())
    assert (partitions, streams, rows, sizes) == (200, 50, total, 1)
    assert kilobytes < 200 * 1024
    # A consumer for each task, made and deleted, and two looks at the stream, at its begin and its end (see `gaps`).
    # The planner lists the streams.
    assert (calls["CONSUMER.CREATE"], calls["CONSUMER.DELETE"], calls["STREAM.LIST"]) == (200, 200, 1)
    assert calls["STREAM.INFO"] <= 400
    pulls = calls["CONSUMER.MSG"]
    assert pulls <= 200 * (each // 4 // 2500 + 2)
    # Besides: the version of the server, and what a pull brought that ended by its bytes.
    assert sum(calls.values()) - pulls <= 200 * 4 + 10, calls


@pytest.mark.slow
def test_as_many_consumers_as_tasks_and_none_afterwards(
    js: Js, server: NatsServer, stream_name: str, count: Count, in_portions: Callable[..., None]
) -> None:
    in_portions(10, 20, 2)
    tasks = count(200, 20)
    js.create(stream_name)
    js.fill(stream_name, tasks * 100)
    made = reader(server.url, stream_name, minPartitions=tasks, readMethod="consumer")
    planned = made.partitions()
    assert len(planned) == tasks
    with ExitStack() as stack:
        running = [stack.enter_context(closing(made.read(part))) for part in planned]
        firsts = [next(each).num_rows for each in running]
        assert len(js.consumers(stream_name)) <= tasks
        rest = [batch.num_rows for each in running for batch in each]
    assert sum(firsts) + sum(rest) == tasks * 100
    wait_until(lambda: js.consumers(stream_name) == [], 60, "the consumers to be deleted")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_streams_that_appear_one_by_one(js: Js, server: NatsServer, stream_name: str, count: Count) -> None:
    """One more stream each time, and something new in all of them: all rows once, at one request for finding them."""
    query = query_of(server.url, f"{stream_name}_*", minPartitions=4)
    start: Any = planned_end(query.initialOffset())
    found: dict[str, list[int]] = {}
    wanted: dict[str, list[int]] = {}
    for number in range(count(50, 8)):
        js.create(f"{stream_name}_{number}", storage="memory")
        for name in (f"{stream_name}_{n}" for n in range(number + 1)):
            rows = wanted.setdefault(name, [])
            more = list(range(len(rows), len(rows) + 20))
            js.fill(name, len(more), first=more[0])
            rows += more
        with requests_to(js, "$JS.API.>") as calls:
            end = planned_end(query.latestOffset(start, everything()))
        assert calls["STREAM.LIST"] == 1
        assert calls["STREAM.INFO"] == 0
        for name, values in rows_by_stream(query, query.partitions(start, end)).items():
            found.setdefault(name, []).extend(values)
        start = end
    assert found == wanted
