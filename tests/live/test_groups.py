"""Partitioned groups on a real server: what is stored, which member handles what, and that keys keep their order."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from tests.live.test_cli import cli, lines

import jsclient
from jsclient import errors, groups
from jsclient.groups import Filter, GroupPool, PartitionedGroup
from jsclient.groups.left_behind import LeftBehind
from jsclient.groups.records import Records
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig, SubjectTransform
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import PoolEvent, Reject

Count = Callable[[int, int], int]

QUICK: dict[str, Any] = {"settle": 0.1, "lease": 2.0, "ack_wait": 2.0, "priority_timeout": 1.0, "threads": 4}


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
    return js


@pytest.fixture
def group(js: JetStream, server: NatsServer) -> PartitionedGroup:
    if server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    return groups.create_elastic(js, "SRC", "work", partitions=8, filters=[Filter("src.*", [1])])


class Checked:
    """A handler that notes two messages of a key at a time, and the order in which they were first handled."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.busy: set[str] = set()
        self.overlaps: list[str] = []
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        self.by: defaultdict[str, set[str]] = defaultdict(set)
        self.epochs: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()
        self._never = threading.Event()

    def __call__(self, message: Any) -> None:
        key, number = message.subject, int(message.data)
        with self._lock:
            if key in self.busy:
                self.overlaps.append(key)
            self.busy.add(key)
        if self.pause:
            self._never.wait(self.pause)
        with self._lock:
            self.busy.discard(key)
            self.by[key].add(threading.current_thread().name.rpartition("-")[0])
            if not self.seen[key] or number > self.seen[key][-1] or number not in self.seen[key]:
                self.seen[key].append(number)
                self.epochs[key].append(message.fence.epoch)

    @property
    def count(self) -> int:
        return sum(len(numbers) for numbers in list(self.seen.values()))

    def goes_on(self, until: Callable[[], bool]) -> None:
        """Messages are handled all the time: how fast is the machine's affair, a pause of 20 seconds is ours."""
        while not until():
            before = self.count
            wait_until(lambda before=before: until() or self.count > before, 20)  # type: ignore[misc]

    def check(self, per_key: int) -> None:
        assert not self.overlaps
        for key, numbers in self.seen.items():
            assert numbers == list(range(per_key)), key
            assert self.epochs[key] == sorted(self.epochs[key]), "the fence rises"


def publish(js: JetStream, keys: int, numbers: range) -> None:
    for number in numbers:
        for key in range(keys):
            js.publish_async(f"src.k{key}", b"%d" % number)
    js.publish_async_complete(30)


def test_handlers_get_values(js: JetStream, group: PartitionedGroup) -> None:
    for number in range(6):
        js.publish(f"src.k{number % 2}", b"%d" % number if number != 3 else b"no number")
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead"], storage="memory"))
    seen: list[int] = []

    def handle(message: groups.TypedGroupMessage[int]) -> None:
        seen.append(message.value + message.epoch * 0)

    with GroupPool(group.typed(int, on_bad="reject", dead_letter="dead"), handle, **QUICK):
        wait_until(lambda: len(seen) == 5 and js.stream("DEAD").info().state.messages == 1, 30)
    assert sorted(seen) == [0, 1, 2, 4, 5]
    assert js.stream("DEAD").get_msg(1).data == b"no number"


def test_nothing_is_made_on_servers_that_would_ignore_it(js: JetStream, server: NatsServer) -> None:
    if server.version >= (2, 11):
        pytest.skip("this server has priority groups")
    with pytest.raises(errors.NotSupported, match=r"needs nats-server 2\.11"):
        groups.create_elastic(js, "SRC", "work", partitions=4)
    with pytest.raises(errors.NotSupported, match=r"needs nats-server 2\.11"):
        groups.create_static(js, "SRC", "work", partitions=4, members=["a"])
    assert list(js.stream_names()) == ["SRC"]


def test_a_user_that_cannot_read_the_level_of_the_server_learns_why() -> None:
    users = '{ user: a, password: b, permissions: { publish: { deny: ["$JS.API.INFO"] } } }'
    with NatsServer(f"authorization {{ users: [{users}] }}") as guarded:
        with jsclient.connect(guarded.url, user="a", password="b") as nc:
            js = JetStream(nc, timeout=3)
            js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
            with pytest.raises(errors.NotSupported, match=r"cannot be read\. .*permission for \$JS\.API\.INFO\.$"):
                groups.create_elastic(js, "SRC", "work", partitions=4)
            assert list(js.stream_names()) == ["SRC"]


def test_a_group_is_made_once_looked_at_and_deleted(js: JetStream, group: PartitionedGroup) -> None:
    again = groups.create_elastic(js, "SRC", "work", partitions=8, filters=[Filter("src.*", [1])])
    assert again.config() == group.config()
    with pytest.raises(groups.GroupExists):
        groups.create_elastic(js, "SRC", "work", partitions=9, filters=[Filter("src.*", [1])])
    publish(js, 10, range(2))
    wait_until(lambda: group.lag().total == 20 and group.lag().origin == 0)
    by_partition = dict.fromkeys(range(8), 0)
    for key in range(10):
        by_partition[groups.partition_of([f"k{key}"], 8)] += 2
    assert group.lag().partitions == by_partition
    group.add("b", "a")
    group.add("a")
    assert group.config().members == ["a", "b"]
    assert group.members() == {"a": None, "b": None}
    assert group.drop("b").members == ["a"]
    group.drop("a")
    group.set_mappings({"x": range(8)})
    with pytest.raises(errors.ConfigError, match="one by one"):
        group.add("y")
    assert [found.name for found in groups.partitioned_groups(js, "SRC")] == ["work"]
    group.delete()
    group.delete()
    with pytest.raises(groups.GroupNotFound):
        groups.open_group(js, "SRC", "work")
    assert "SRC-work" not in list(js.stream_names())


def test_one_member_handles_keys_in_order_and_many_at_a_time(js: JetStream, group: PartitionedGroup) -> None:
    publish(js, 6, range(20))
    handler = Checked(0.005)
    with GroupPool(group, handler, **QUICK) as pool:
        wait_until(lambda: handler.count == 120, 20)
        assert pool.partitions == list(range(8))
        assert pool.state == "working"
        assert pool.snapshot().handled == 120
        with pytest.raises(errors.ConfigError, match="has no batch"):
            GroupPool(group, handler, batch=(1, 1))  # type: ignore[call-arg]
    handler.check(20)
    assert group.lag().total == 0
    assert list(js.consumer_names("SRC-work")) == []


@pytest.mark.timeout(400)  # 65 s for the full count on a machine of its own; a stop is found by `goes_on`
def test_order_through_joins_and_leaves(
    js: JetStream, group: PartitionedGroup, server: NatsServer, count: Count
) -> None:
    """The short form of the drill in tests/faults/test_groups_kills.py, within one process."""
    keys, per_key = count(1000, 100), count(200, 20)
    handler = Checked(0.001)
    publish(js, keys, range(per_key // 2))
    with (
        jsclient.connect(server.url) as other,
        jsclient.connect(server.url) as third,
        GroupPool(group, handler, **QUICK),
    ):
        second = GroupPool(groups.open_group(JetStream(other), "SRC", "work"), handler, **QUICK)
        wait_until(lambda: len(second.partitions) == 4, 10)
        publish(js, keys, range(per_key // 2, per_key))
        with GroupPool(groups.open_group(JetStream(third), "SRC", "work"), handler, **QUICK) as last:
            handler.goes_on(lambda: len(last.partitions) >= 2 and handler.count > keys * per_key * 0.6)
            second.stop()
        handler.goes_on(lambda: handler.count == keys * per_key)
    handler.check(per_key)
    assert len({name for names in handler.by.values() for name in names}) == 3


def test_a_partition_is_given_up_late_and_taken_early(
    js: JetStream, group: PartitionedGroup, server: NatsServer
) -> None:
    """A handler runs when its partition goes to another member: that one starts within a second of its end."""
    running, go, ends, begins = threading.Event(), threading.Event(), [], []
    key = "src.k1"
    partition = groups.partition_of(["k1"], 8)

    def slow(message: Any) -> None:
        running.set()
        go.wait(30)
        ends.append(time.monotonic())

    rest = [number for number in range(8) if number != partition]
    group.set_mappings({"a": list(range(8))})
    for number in range(2):
        js.publish(key, b"%d" % number)
    with jsclient.connect(server.url) as other, GroupPool(group, slow, member="a", **QUICK):
        assert running.wait(10)
        group.set_mappings({"a": rest, "b": [partition]})
        theirs = groups.open_group(JetStream(other), "SRC", "work")
        with GroupPool(
            theirs, lambda message: begins.append((time.monotonic(), message.data)), member="b", **QUICK
        ) as b:
            wait_until(lambda: b.state == "joining", 10)
            with pytest.raises(TimeoutError):
                wait_until(lambda: begins, 0.5)
            go.set()
            wait_until(lambda: begins, 10)
    assert [data for _, data in begins] == [b"1"], "the first message was handled and confirmed by the other member"
    assert begins[0][0] - ends[0] < 1.0


def test_a_hand_over_with_a_limit_says_whose_order_is_lost(js: JetStream, group: PartitionedGroup) -> None:
    """The handler does not end within `hand_over_timeout`: the partition goes on elsewhere, and that is told."""
    group.set_mappings({"a": range(8), "b": []})
    release, begun = threading.Event(), threading.Event()
    told: list[Any] = []
    at_b: list[int] = []

    def slow(message: Any) -> None:
        begun.set()
        release.wait(60)

    def note(event: PoolEvent) -> None:
        if event.kind == "order lost":
            told.append(event.message)

    publish(js, 1, range(3))
    first = GroupPool(group, slow, member="a", hand_over_timeout=0.2, on_event=note, **QUICK)
    try:
        assert begun.wait(20)
        with GroupPool(group, lambda message: at_b.append(int(message.data)), member="b", **QUICK):
            group.set_mappings({"a": [], "b": range(8)})
            wait_until(lambda: at_b == [0, 1, 2], 30)  # from the one that still runs at the other
            assert not release.is_set()
            assert [(message.subject, message.data) for message in told] == [("src.k0", b"0")]
    finally:
        release.set()
        first.stop()
    wait_until(lambda: group.lag().total == 0, 10)


def test_failures_are_tried_again_in_their_place_and_given_up(js: JetStream, group: PartitionedGroup) -> None:
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    calls: list[tuple[str, bytes]] = []

    def handle(message: Any) -> None:
        calls.append((message.subject, message.data))
        if message.data == b"1":
            raise RuntimeError("never")
        if message.data == b"2":
            raise Reject("no")

    publish(js, 1, range(4))
    options = {**QUICK, "attempts": 3, "backoff": [0.01], "dead_letter": "dead.src"}
    with GroupPool(group, handle, **options) as pool:
        wait_until(lambda: pool.snapshot().handled == 2, 10)
        assert pool.snapshot().dead == 2
    assert [data for _, data in calls] == [b"0", b"1", b"1", b"1", b"2", b"3"]
    letter = js.stream("DEAD").get_msg(1)
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Subject"] == "src.k0", "the subject under which it was published"


@pytest.mark.parametrize("decode", [None, dict])
def test_a_letter_has_the_payload_that_did_not_come(js: JetStream, group: PartitionedGroup, decode: Any) -> None:
    """headers_only is set on the consumer of the member while it works."""
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    seen: list[Any] = []

    def handle(message: Any) -> None:
        seen.append(None if decode is None else message.value)
        raise Reject("no")

    options: dict[str, Any] = {**QUICK, "dead_letter": "dead.src"}
    taken: Any = group if decode is None else group.typed(decode)
    with GroupPool(taken, handle, **options) as pool:
        wait_until(lambda: pool.state == "working", 10)
        config = pool.consumer.info().config
        js.create_or_update_consumer(group.work_stream, config.replace(headers_only=True))
        js.publish("src.k0", b'{"id": 1}')
        wait_until(lambda: pool.snapshot().dead == 1, 10)
    assert js.stream("DEAD").get_msg(1).data == b'{"id": 1}'
    assert seen == [None if decode is None else {"id": 1}]


def test_tries_belong_to_one_message_alone(js: JetStream, group: PartitionedGroup) -> None:
    """A group that was deleted and created again has other messages of the same sequences."""
    js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
    calls: list[bytes] = []

    def handle(message: Any) -> None:
        calls.append(message.data)
        raise RuntimeError("never")

    options: dict[str, Any] = {**QUICK, "attempts": 2, "dead_letter": "dead.src"}
    js.publish("src.k0", b"first")
    with GroupPool(group, handle, backoff=[60.0], **options) as pool:
        wait_until(lambda: pool.snapshot().failed == 1, 10)
    assert len(Records.of(group, 1).tries()) == 1
    group.delete()
    js.delete_stream("SRC")
    js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
    again = groups.create_elastic(js, "SRC", "work", partitions=8, filters=[Filter("src.*", [1])])
    js.publish("src.k0", b"second")
    with GroupPool(again, handle, backoff=[0.01], **options) as pool:
        wait_until(lambda: pool.snapshot().dead == 1, 10)
    assert calls == [b"first", b"second", b"second"]


def test_a_message_that_the_handler_gave_back_is_handled_again(js: JetStream, group: PartitionedGroup) -> None:
    """It was taken for handled when it came again, and acked: lost."""
    given: list[bytes] = []

    def handle(message: Any) -> None:
        given.append(message.data)
        if len(given) == 1:
            message.nak()

    publish(js, 1, range(1))
    with GroupPool(group, handle, **QUICK):
        wait_until(lambda: len(given) == 2, 20)
        wait_until(lambda: group.lag().total == 0, 10)


def test_a_second_process_of_a_member_takes_over_in_order(
    js: JetStream, group: PartitionedGroup, server: NatsServer
) -> None:
    group.set_mappings({"a": range(8)})
    handler = Checked(0.002)
    publish(js, 20, range(10))
    with jsclient.connect(server.url) as other:
        first = GroupPool(group, handler, member="a", **QUICK)
        wait_until(lambda: handler.count > 10, 10)
        theirs = groups.open_group(JetStream(other), "SRC", "work")
        with GroupPool(theirs, handler, member="a", **QUICK) as standby:
            wait_until(lambda: standby.state == "working", 10)
            group.step_down("a")
            wait_until(lambda: handler.count > 60, 20)
            first.stop()
            publish(js, 20, range(10, 20))
            wait_until(lambda: handler.count == 400, 30)
    handler.check(20)


def test_a_deleted_group_and_a_changed_one_end_their_members(js: JetStream, group: PartitionedGroup) -> None:
    with GroupPool(group, print, **QUICK) as pool:
        group.kv.purge(group.key)
        with pytest.raises(groups.GroupNotFound, match="was deleted"):
            pool.wait(10)
    group.kv.put(
        group.key, b'{"max_members":8,"partitioning_filters":[{"filter":"src.*","partitioning_wildcards":[1]}]}'
    )
    with GroupPool(group, print, **QUICK) as pool:
        group.kv.put(group.key, b'{"max_members":4,"partitioning_filters":null}')
        with pytest.raises(groups.GroupChanged):
            pool.wait(10)


def test_static_groups_work_on_the_stream_itself(js: JetStream, server: NatsServer) -> None:
    if server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    transform = SubjectTransform(src="st.*", dest="{{Partition(4,1)}}.st.{{Wildcard(1)}}")
    js.create_stream(StreamConfig(name="ST", subjects=["st.*"], subject_transform=transform))
    group = groups.create_static(js, "ST", "work", partitions=4, filters=["st.*"], members=["a", "b"])
    with pytest.raises(errors.ConfigError, match="fixed"):
        group.add("c")
    with pytest.raises(errors.ConfigError, match="give member="):
        GroupPool(group, print)
    handler = Checked()
    for number in range(5):
        for key in range(8):
            js.publish(f"st.k{key}", b"%d" % number)
    with GroupPool(group, handler, member="a", **QUICK), GroupPool(group, handler, member="b", **QUICK):
        wait_until(lambda: handler.count == 40, 10)
    handler.check(5)
    assert sorted(js.consumer_names("ST")) == ["work-a", "work-b"]
    wait_until(lambda: group.lag().total == 0)
    group.delete()
    assert list(js.consumer_names("ST")) == []


def test_the_client_of_a_crashed_process_is_replaced_only_when_it_is_dead(
    js: JetStream, group: PartitionedGroup
) -> None:
    """A consumer with other filters is in the way: left by a process that died."""
    group.set_mappings({"a": range(8)})
    js.create_consumer(
        "SRC-work",
        ConsumerConfig(
            name="a",
            filter_subjects=["1.src.*"],
            inactive_threshold=300.0,
            priority_groups=["PCG"],
            priority_policy="pinned_client",
            priority_timeout=1.0,
        ),
    )
    handler = Checked()
    publish(js, 4, range(2))
    with GroupPool(group, handler, member="a", **QUICK):
        wait_until(lambda: handler.count == 8, 10)
    handler.check(2)


HANGS = """
import os, sys, threading, jsclient
from jsclient import groups
from jsclient.jetstream import JetStream

def handle(message):
    os.write(1, b"handled\\n")
    threading.Event().wait()

with jsclient.connect(sys.argv[1]) as nc:
    group = groups.open_group(JetStream(nc), "SRC", "work")
    groups.GroupPool(group, handle, settle=0.1, lease=2.0, ack_wait=60.0, priority_timeout=1.0).wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is not known that a process is dead")
def test_the_consumer_of_a_dead_process_does_not_keep_others_from_its_partitions(
    js: JetStream, group: PartitionedGroup, server: NatsServer
) -> None:
    """It had messages in hand: the server keeps its consumer for at least `ack_wait`, here a minute, beyond the lease.
    As long as it is only frozen nobody else does so."""
    publish(js, 8, range(5))
    member = subprocess.Popen([sys.executable, "-c", HANGS, server.url], stdout=subprocess.PIPE)
    with member:
        try:
            assert member.stdout is not None
            assert member.stdout.readline() == b"handled\n"
            (theirs,) = js.consumer_names("SRC-work")
            member.send_signal(signal.SIGSTOP)
            handler = Checked()
            with GroupPool(group, handler, **QUICK) as pool:
                wait_until(lambda: group.config().members == [pool.member], 20)
                wait_until(lambda: pool.state == "joining", 20)
                left_behind = LeftBehind(group, Records.of(group, 1))
                left_behind.delete()
                assert list(js.consumer_names("SRC-work")) == [theirs]
                assert (handler.count, pool.state) == (0, "joining")
                member.kill()
                member.wait(10)
                wait_until(lambda: handler.count == 40, 20)
            handler.check(5)
        finally:
            member.kill()


def test_the_command_line_makes_shows_and_deletes_groups(js: JetStream, server: NatsServer) -> None:
    if server.version < (2, 11):
        refused = cli(server, "group", "create", "SRC", "work", "--partitions", "4")
        assert refused.returncode == 1
        assert "2.11" in refused.stderr
        return
    assert cli(server, "group", "info", "SRC", "work").returncode == 3
    made = ("group", "create", "SRC", "work", "--partitions", "4", "--filter", "src.*", "--wildcards", "1")
    assert cli(server, *made).stdout == "group work has 4 partitions\n"
    assert cli(server, *made[:-2], "--wildcards", "x").returncode == 2
    assert cli(server, "group", "add", "SRC", "work", "b", "a").stdout == "members: a b\n"
    js.publish("src.x", b"")
    shown = cli(server, "group", "info", "SRC", "work").stdout.splitlines()
    assert [row.split() for row in shown[-2:]] == [["a", "no", "0", "1", shown[-2].split()[-2], "-"], shown[-1].split()]
    assert lines(cli(server, "group", "ls", "SRC", "--json"))[0]["max_members"] == 4
    assert "elastic" in cli(server, "group", "ls", "SRC").stdout
    assert cli(server, "group", "drop", "SRC", "work", "a", "b").stdout == "members: none\n"
    assert cli(server, "group", "step-down", "SRC", "work", "a").returncode == 3
    assert cli(server, "group", "rm", "SRC", "work").returncode == 2
    assert cli(server, "group", "rm", "SRC", "work", "--force").returncode == 0
    assert cli(server, "group", "ls", "SRC", "--json").stdout == ""
