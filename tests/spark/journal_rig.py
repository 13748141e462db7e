"""A query that writes one batch to a stream as often as a test wants, and random lives of such a batch."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from jsclient.arrow.access import StreamAccess
from jsclient.arrow.ranges import Range
from jsclient.arrow.reading import read_chunks
from jsclient.exactly import conclusion, task
from jsclient.exactly.publishing import TaskPublisher
from jsclient.spark import options
from jsclient.spark import writer as writing
from jsclient.testing import NatsServer, wait_until

from .conftest import Js
from .test_refusals import stream_writer

WINDOW = 0.1  # seconds in which the sinks of these tests recognise ids: a replay always comes later


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
        allowed = {"async": {}, "fast": {"allow_batched": True}}[mode]
        js.create(name, **{"duplicate_window": int(WINDOW * 1e9), **allowed, **config})
        self.name, self.js, self.monkeypatch, self.mode = name, js, monkeypatch, mode
        self.batch = 5
        self.options: dict[str, str] = {"deliverySemantics": "exactly-once", "publishMode": mode}
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
        sink.ids = chance.random() < 0.2
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
