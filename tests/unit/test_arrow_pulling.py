"""A range that is read as columns, beside the model of the server: every row comes once and in order."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from tests.pull_rig import Connection, Server, Stored, some_stored
from tests.unit.test_pull_statuses import GOES_ON, QUIET, every_status

from jsclient.arrow import pulling
from jsclient.arrow.pulling import RangeConsumer
from jsclient.arrow.ranges import Range
from jsclient.durations import Deadline
from jsclient.jetstream.consuming import pump


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model ends pulls as soon as they are sent: a pause after that would be waited for in vain."""
    monkeypatch.setattr(pump, "FIRST_DELAY", 0.0)


class Access:
    """What the reader of a range asks of its stream: here the model is the stream, and its consumers."""

    stream = "S"
    deadline = Deadline(None)
    api = SimpleNamespace(subject=lambda operation: operation)

    def __init__(self, server: Server, held: list[Stored]) -> None:
        self.server, self.held = server, held
        self.nc = Connection(server)
        self.consumers = 0
        self.options = SimpleNamespace(reconnect_timeout=30.0)

    def new_name(self, label: str) -> str:
        self.consumers += 1
        return f"{label}_{self.consumers}"

    def create_consumer(self, name: str, more: dict[str, Any], threshold: float) -> Any:
        self.server.begin([each for each in self.held if each.sequence >= more["opt_start_seq"]])
        return SimpleNamespace(num_pending=len(self.server.left))

    def delete_consumer(self, name: str) -> None:
        pass


class NoGaps:
    """The end of a range is believed."""

    def begin(self, start: int, pending: int, filtered: bool, count: Any) -> int:
        return 0

    def read(self, start: int, sequences: list[int]) -> None:
        pass

    def ahead(self, start: int) -> None:
        return None

    def finish(self, start: int) -> None:
        pass


@pytest.mark.parametrize("seed", range(0, 2000, 200))
def test_every_row_of_the_range_comes_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(seed, seed + 200):
        r = random.Random(number)
        held = some_stored(r, r.choice([300, 1000, 1500]))  # what is larger than a pull may be is asked for alone
        server = Server(r, [], trouble=r.choice([0.0, 0.0, 0.0, 0.01]))
        access: Any = Access(server, held)
        pulled, prefetch = r.choice([1, 3, 10, 50]), r.choice([1, 2, 4])
        monkeypatch.setattr(pulling, "PULL_MESSAGES", pulled)
        monkeypatch.setattr(pulling, "PREFETCH", prefetch)
        monkeypatch.setattr(pulling, "PULL_BYTES", 1000)
        server.most = pulled * prefetch
        gaps: Any = NoGaps()
        start, end = sorted(r.choices(range(1, 82), k=2))
        chunks = RangeConsumer(access, Range(0, start, end), "read", gaps).chunks()
        found = [sequence for chunk in chunks for sequence in chunk.sequences]
        assert found == [each.sequence for each in held if start <= each.sequence < end], number
        assert not server.pulls


class StatusServer(Server):
    """The first pull of all ends with a status after one message."""

    def __init__(self, status: str, headers: str) -> None:
        super().__init__(random.Random(1), [])
        self.status, self.headers = status, headers

    def step(self) -> bool:
        if not self.status or not self.pulls:
            return super().step()
        pull, status, self.status = self.pulls[0], self.status, ""
        self.send(pull)
        self.say(pull, status, self.headers.format(left=pull.messages))
        if not status.startswith("100"):
            self.pulls.remove(pull)
        return True


@every_status
def test_what_a_status_means_for_a_range(
    status: str, headers: str, consume: str, error: Any, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PULL_MESSAGES", 10)
    monkeypatch.setattr(pulling, "PULL_BYTES", 1000)
    held = [Stored(sequence, 100) for sequence in range(1, 41)]
    access: Any = Access(StatusServer(status, headers), held)
    gaps: Any = NoGaps()
    chunks = RangeConsumer(access, Range(0, 1, 41), "read", gaps).chunks()
    assert [sequence for chunk in chunks for sequence in chunk.sequences] == list(range(1, 41))
    too_large = status.endswith("MaxBytes")
    assert access.consumers == (1 if consume in (GOES_ON, QUIET) or too_large else 2)  # else a new one goes on
