"""jsclient.monitor: the thresholds of `trouble`, and the rates, from listings as a server sends them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import monitor
from jsclient.monitor import HISTORY, ConsumerRow, Monitor, Snapshot

STREAM: dict[str, Any] = {"config": {"name": "S", "storage": "file"}, "state": {"messages": 3, "consumer_count": 1}}
CALM: dict[str, Any] = {"name": "c", "config": {"max_ack_pending": 10}, "num_waiting": 1}


class Account:
    """Answers listings; every snapshot is a second after the one before it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.stream, self.consumer = STREAM, CALM
        monkeypatch.setattr(monitor, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now))
        self.monitor = Monitor(SimpleNamespace(api=self))  # type: ignore[arg-type]

    def pages(self, operation: str, key: str, timeout: float | None) -> Iterator[dict[str, Any]]:
        yield {key: [self.stream if key == "streams" else self.consumer]}

    def look(self, **changes: Any) -> Snapshot:
        self.consumer = {**CALM, **changes}
        self.now += 1.0
        return self.monitor.snapshot()

    def row(self, **changes: Any) -> ConsumerRow:
        (row,) = self.look(**changes).consumers
        return row


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return Account(monkeypatch)


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({}, ""),
        ({"num_ack_pending": 9}, ""),
        ({"num_ack_pending": 10}, "stuck: acks are missing"),
        ({"num_ack_pending": 10, "config": {"max_ack_pending": -1}}, ""),
        ({"paused": True, "num_ack_pending": 10}, "paused"),
        ({"num_pending": 1, "num_waiting": 0}, "nobody pulls"),
        ({"num_pending": 1, "num_waiting": 0, "num_ack_pending": 1}, ""),
        ({"num_pending": 1, "num_waiting": 0, "config": {"deliver_subject": "d"}}, ""),
        ({"num_pending": 0, "num_waiting": 0}, ""),
    ],
)
def test_the_trouble_of_a_consumer(account: Account, changes: dict[str, Any], trouble: str) -> None:
    assert account.row(**changes).trouble == trouble


def test_redeliveries_that_rise(account: Account) -> None:
    assert account.row(num_redelivered=3).trouble == "", "one listing shows no change"
    assert account.row(num_redelivered=3).trouble == ""
    assert account.row(num_redelivered=4).trouble == "redeliveries rise"
    assert account.row(num_redelivered=2).trouble == ""


def test_a_lag_rises_after_thirty_rates(account: Account) -> None:
    for pending in range(HISTORY):
        assert account.row(num_pending=pending).trouble == ""
    assert account.row(num_pending=HISTORY).trouble == "lag rises"
    assert account.row(num_pending=HISTORY).trouble == "", "it stands still"


def test_rates_and_the_time_until_the_lag_is_gone(account: Account) -> None:
    first = account.row(num_pending=100, delivered={"consumer_seq": 10}, num_ack_pending=4)
    assert (first.lag, first.out_per_second, first.done_per_second, first.eta) == (104, None, None, None)
    second = account.row(num_pending=80, delivered={"consumer_seq": 30}, num_ack_pending=4)
    assert (second.lag, second.out_per_second, second.done_per_second, second.eta) == (84, 20.0, 20.0, 84 / 20)
    third = account.row(num_pending=90, delivered={"consumer_seq": 30}, num_ack_pending=4)
    assert (third.lag, third.eta) == (94, None), "it grows"


@pytest.mark.parametrize(
    ("cluster", "trouble"),
    [
        (None, ""),
        ({"name": "C", "leader": "a"}, ""),
        ({"name": "C"}, "no leader"),
        ({"name": "C", "leader": "a", "replicas": [{"name": "b"}]}, ""),
        ({"name": "C", "leader": "a", "replicas": [{"name": "b"}, {"name": "c", "offline": True}]}, "replica offline"),
        ({"name": "C", "replicas": [{"name": "c", "offline": True}]}, "no leader"),
    ],
)
def test_the_trouble_of_a_stream(account: Account, cluster: dict[str, Any] | None, trouble: str) -> None:
    account.stream = {**STREAM, "cluster": cluster}
    (row,) = account.look().streams
    assert row.trouble == trouble
