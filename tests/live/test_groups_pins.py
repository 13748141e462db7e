"""The pin of a member, and the records that outlive a process, on a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import groups
from jsclient.groups import Filter, GroupPool, PartitionedGroup
from jsclient.groups.records import Records
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import PoolEvent

PRIORITY_TIMEOUT = 1.0
QUICK: dict[str, Any] = {"settle": 0.1, "lease": 2.0, "ack_wait": 5.0, "priority_timeout": PRIORITY_TIMEOUT}


@pytest.fixture
def group(server: NatsServer) -> Iterator[PartitionedGroup]:
    if server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
        yield groups.create_elastic(js, "SRC", "work", partitions=4, filters=[Filter("src.*", [1])])
        for name in list(js.stream_names()):
            js.delete_stream(name)


class Held:
    """A handler that waits for `go` with its first message."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = threading.Event()

    def __call__(self, message: Any) -> None:
        self.begun.append(message.subject)
        self.go.wait(30)


def publish(group: PartitionedGroup, number: int) -> None:
    for key in range(number):
        group.js.publish(f"src.k{key}", b"x")


def test_a_member_that_has_lost_its_pin_returns_what_it_has_not_started(group: PartitionedGroup) -> None:
    group.set_mappings({"a": range(4)})
    publish(group, 5)
    handler, kinds = Held(), list[str]()

    def on_event(event: PoolEvent) -> None:
        kinds.append(event.kind)

    with GroupPool(group, handler, member="a", threads=1, on_event=on_event, **QUICK):
        wait_until(lambda: handler.begun)
        group.step_down("a")
        wait_until(lambda: "lost pin" in kinds)
        handler.go.set()
        wait_until(lambda: group.lag().total == 0, 30)
    assert {*handler.begun} == {f"src.k{key}" for key in range(5)}


def test_no_handler_starts_when_the_server_has_not_confirmed_the_pin_for_a_while(
    group: PartitionedGroup, server: NatsServer
) -> None:
    """After `priority_timeout` the server may give the pin to another process."""
    group.set_mappings({"a": range(4)})
    publish(group, 3)
    handler = Held()
    with GroupPool(group, handler, member="a", threads=1, **QUICK):
        wait_until(lambda: handler.begun)
        wait_until(lambda: group.lag().total == 3)
        server.pause()
        try:
            time_passes(PRIORITY_TIMEOUT, "the time of the last confirmation runs out")
            begun = len(handler.begun)
            handler.go.set()
            time_passes(0.4, "a handler would start in this time")
            assert len(handler.begun) == begun
        finally:
            server.resume()
        wait_until(lambda: group.lag().total == 0, 30)


def test_the_second_death_of_a_process_within_minutes_is_noted(group: PartitionedGroup) -> None:
    records = Records.of(group, 1)
    assert not records.crash_before()
    assert records.crash_before()
    assert records.crash_before()


def test_a_crashed_process_leaves_the_partitions_that_no_one_has_taken_yet(group: PartitionedGroup) -> None:
    records = Records.of(group, 1)
    records.begin("dead", "i1", [0, 1, 2, 3])
    assert records.crashed([1, 2], "i1") == set(), "it is our own record"
    assert records.crashed([1, 2], "i2") == {1, 2}
    assert [(name, work.partitions) for name, work in records.working()] == [("dead", [0, 3])]
    assert records.crashed([1, 2], "i2") == set()
    assert records.crashed([0, 3], "i3") == {0, 3}
    assert records.working() == []


def test_a_member_that_gives_its_work_up_has_not_crashed(group: PartitionedGroup) -> None:
    records = Records.of(group, 1)
    records.begin("a", "i1", [0, 1])
    records.end("a")
    assert records.crashed([0, 1], "i2") == set()
