"""Any engine of batches can plan and write with jsclient.planning and jsclient.exactly: here a loop, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from tests.pauses import time_passes

from jsclient.connection import Connection
from jsclient.jetstream import JetStream, StreamConfig

pa = pytest.importorskip("pyarrow")

from jsclient import arrow  # noqa: E402
from jsclient.arrow.access import StreamAccess  # noqa: E402
from jsclient.arrow.options import ReadOptions  # noqa: E402
from jsclient.arrow.ranges import Range  # noqa: E402
from jsclient.arrow.reading import read_chunks  # noqa: E402
from jsclient.arrow.settings import Refused  # noqa: E402
from jsclient.exactly import task  # noqa: E402
from jsclient.exactly.conclusion import conclude  # noqa: E402
from jsclient.exactly.journal import Job  # noqa: E402
from jsclient.exactly.partition import write_partition  # noqa: E402
from jsclient.exactly.task import Outcome  # noqa: E402
from jsclient.planning.offsets import Offset, StreamOffset  # noqa: E402
from jsclient.planning.planner import Limits, Load, cut  # noqa: E402
from jsclient.planning.selection import Selection  # noqa: E402
from jsclient.planning.survey import survey_of  # noqa: E402

WINDOW = 0.1  # seconds in which the sink recognises an id: a replay comes later
ROWS = 1000


@attrs.frozen(kw_only=True)
class Options(ReadOptions):
    """See `PlanSettings` and `WriteSettings`."""

    subject: str | None = None
    value_format: str = "binary"
    delivery_semantics: str = "exactly-once"
    journal_bucket: str = "loop_journal"
    publish_mode: str = "auto"

    @property
    def stream_names(self) -> tuple[str, ...]:
        return () if self.stream_patterns else (self.stream,)

    @property
    def stream_patterns(self) -> tuple[str, ...]:
        return (self.stream,) if "*" in self.stream else ()

    def reading(self, stream: str) -> ReadOptions:
        return ReadOptions(stream=stream)


class Killed(Exception):
    """A process of the engine dies."""


class Loop:
    """Reads IN_* in batches and writes them to OUT; all that it keeps over a crash is `checkpoint`."""

    def __init__(self, nc: Connection) -> None:
        self.nc = nc
        self.reads, self.writes = Options(stream="IN_*"), Options(stream="OUT", subject="out.x")
        self.checkpoint = ""

    def plan(self) -> None:
        streams: dict[str, StreamOffset] = {}
        for name, info in Selection(self.reads).look(self.nc, complete=True).items():
            access = StreamAccess(self.nc, self.reads, name)
            state = access.state(info)
            survey = survey_of(access, state, state.first, state.end, 10)
            load = Load(survey.end - survey.first, survey.messages, 0)
            parts = Limits(records_per_partition=150, min_partitions=1, max_partitions=10).count(load)
            mark = access.mark(state, state.first, state.end)
            streams[name] = StreamOffset(state.created, state.end, state.first, parts=parts, mark=mark)
        self.checkpoint = json.dumps(Offset(streams, id="loop").to_dict())

    def parts(self) -> list[tuple[str, Range]]:
        found: list[tuple[str, Range]] = []
        for name, planned in sorted(Offset.from_dict(json.loads(self.checkpoint), self.reads.refuse).streams.items()):
            assert planned.start is not None
            for start, end in cut(planned.start, planned.next, planned.parts):
                found.append((name, Range(len(found), start, end, created=planned.made, mark=planned.mark)))
        return found

    def write(self, run: str, name: str, part: Range, dies_after: int | None = None) -> Outcome:
        job = Job("loop", run, 1, part.index)
        return write_partition(self.nc, self.writes, job, self.rows(name, part, dies_after), True, job.where)

    def rows(self, name: str, part: Range, dies_after: int | None) -> Iterator[Any]:
        reads = attrs.evolve(self.reads, stream=name)
        for chunk in read_chunks(self.nc, reads, part, "consumer", "loop"):
            values = chunk.payloads[:dies_after]
            yield pa.record_batch([pa.array(values, pa.binary())], names=["value"])
            if dies_after is not None:
                dies_after -= len(values)
                if not dies_after:
                    raise Killed


@pytest.fixture
def js(js: JetStream) -> JetStream:
    for name in ("IN_A", "IN_B"):
        js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], storage="memory"))
    js.create_stream(StreamConfig(name="OUT", subjects=["out.>"], storage="memory", duplicate_window=WINDOW))
    for future in [js.publish_async(f"IN_{'AB'[number % 2]}.x", b"%d" % number) for number in range(ROWS)]:
        future.result(timeout=10)
    return js


def test_a_loop_stores_each_row_once(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "SETTLED", 0.0)
    loop = Loop(js.nc)
    loop.plan()
    parts = loop.parts()
    assert [name for name, _ in parts] == ["IN_A"] * 4 + ["IN_B"] * 4
    for number in (0, 1):
        loop.write("run-1", *parts[number])
    with pytest.raises(Killed):
        loop.write("run-1", *parts[2], dies_after=50)
    for number in range(10):
        js.publish("IN_A.x", b"later-%d" % number)  # not in the plan
    time_passes(WINDOW * 1.5, "a server tells nobody that it has forgotten an id")

    again = Loop(js.nc)
    again.checkpoint = loop.checkpoint
    assert again.parts() == parts
    outcomes = [again.write("run-2", *part) for part in parts]
    assert [outcome.skipped for outcome in outcomes] == [True, True, *[False] * 6]
    assert outcomes[2].totals.duplicates == 50
    assert conclude(js.nc, again.writes, Job("loop", "run-2", 1, 0), outcomes) == []
    with pytest.raises(Refused, match="run 'run-2' is under way") as caught:
        loop.write("run-1", *parts[3])
    assert caught.value.token == "JETSTREAM_FENCED"

    stored = arrow.read_table(js, "OUT", columns=["value"])["value"].to_pylist()
    assert Counter(stored) == Counter(b"%d" % number for number in range(ROWS))


def test_nothing_of_spark_is_loaded() -> None:
    program = """
import importlib, pkgutil, sys
import jsclient.arrow, jsclient.exactly, jsclient.planning
for package in (jsclient.arrow, jsclient.exactly, jsclient.planning):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print([name for name in sys.modules if "spark" in name])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]", found.stderr
