"""Partitioned groups through joins, leaves and kills: keys in order, nothing lost, nothing in two members at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pauses import time_passes

import jsclient
from jsclient import errors, groups, keyvalue
from jsclient.groups import Filter
from jsclient.jetstream import JetStream, StreamConfig, SubjectTransform
from jsclient.keyvalue import KeyValueConfig
from jsclient.testing import Cluster, NatsServer, wait_until

MEMBER = Path(__file__).with_name("group_member.py")
PROCESSES = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        cluster.wait_ready()
        yield cluster


class Members:
    """Processes of one group, and what they found wrong."""

    def __init__(self, urls: list[str], log: Path, *more: str) -> None:
        self.more = more
        self.urls = ",".join(urls)
        self.log = log
        self.all: list[subprocess.Popen[bytes]] = []
        self.names: list[str] = []
        self.codes: list[int] = []

    def start(self, name: str = "") -> None:
        command = [sys.executable, str(MEMBER), self.urls, "SRC", "work", "8", "3", str(self.log), *self.more]
        environ = {**os.environ, "MEMBER": name} if name else None
        self.all.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environ))
        self.names.append(name)

    def leave(self) -> None:
        """The oldest one goes, as in a rolling deploy, and a new one comes."""
        self.all[0].terminate()
        self.start()
        gone = self.all.pop(0)
        self.names.pop(0)
        self.codes.append(gone.wait(30))

    def crash(self, chance: random.Random) -> None:
        which = chance.randrange(len(self.all))
        gone, name = self.all.pop(which), self.names.pop(which)
        os.kill(gone.pid, signal.SIGKILL)
        gone.wait(10)
        self.start(name)

    def stop(self) -> None:
        for process in self.all:
            process.terminate()
        for process in self.all:
            try:
                self.codes.append(process.wait(20))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def findings(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def elect(nc: jsclient.Connection, chance: random.Random, stream: str = "SRC-work") -> None:
    """Another leader for a consumer: it forgets which client it has pinned, and may forget what was acked last."""
    try:
        names = list(JetStream(nc, timeout=5).consumer_names(stream))
        nc.request(f"$JS.API.CONSUMER.LEADER.STEPDOWN.{stream}.{chance.choice(names)}", b"", timeout=5)
    except (errors.JsClientError, IndexError):
        pass  # there is none, or no leader at the moment


def crash_server(cluster: Cluster, chance: random.Random) -> None:
    server = chance.choice(cluster.servers)
    server.kill()
    server.start()


def handled(seen: keyvalue.KeyValue) -> int:
    stream = seen._access.js.stream("KV_seen", fetch_info=False)
    return sum((int(entry.data) + 1 for entry in stream.get_last_msgs("$KV.seen.>")), 0)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_keys_keep_their_order_through_kills_of_members_and_servers(cluster: Cluster, tmp_path: Path) -> None:
    """1,000 keys x 200 messages, 4 processes x 8 threads, one leaves and one joins every 2 s, 6 members and 3 servers
    are killed, and consumers get new leaders."""
    keys, per_key = int(os.environ.get("DRILL_KEYS", 1000)), int(os.environ.get("DRILL_PER_KEY", 200))
    chance = random.Random(19)
    with jsclient.connect(cluster.urls, connect_timeout=20) as nc:
        js = JetStream(nc, timeout=20)
        js.create_stream(StreamConfig(name="SRC", subjects=["src.*"], num_replicas=3))
        seen = keyvalue.create_key_value(js, KeyValueConfig(bucket="seen", replicas=3))
        groups.create_elastic(js, "SRC", "work", partitions=16, filters=[Filter("src.*", [1])], timeout=30)
        members = Members(cluster.urls, tmp_path / "findings")
        for _ in range(PROCESSES):
            members.start()
        publisher = threading.Thread(target=publish, args=(cluster, keys, per_key))
        publisher.start()
        try:
            kills = ["member"] * 6 + ["server"] * 3
            chance.shuffle(kills)
            started = time.monotonic()
            total, now, beats = keys * per_key, 0, 0
            while now < total and time.monotonic() < started + 1200:
                time_passes(2, "the beat of the drill")
                beats += 1
                members.leave()
                if beats % 3 == 0:
                    elect(nc, chance)
                if kills and beats % 4 == 0:
                    if kills.pop() == "member":
                        members.crash(chance)
                    else:
                        crash_server(cluster, chance)
                try:
                    now = handled(seen)
                except errors.JsClientError:
                    continue
                print(f"{time.monotonic() - started:.0f} s: {now} of {total}, {len(kills)} kills to come", flush=True)
                assert not members.findings()
            assert not kills, "the drill was over before all kills"
            assert now == total
        finally:
            publisher.join()
            members.stop()
        assert members.findings() == []
        assert groups.open_group(js, "SRC", "work", timeout=30).lag(timeout=30).total == 0


def publish(cluster: Cluster, keys: int, per_key: int) -> None:
    with jsclient.connect(cluster.urls, connect_timeout=20) as nc:
        js = JetStream(nc, timeout=20)
        for number in range(per_key):
            for key in range(keys):
                js.publish_async(f"src.k{key}", b"%d" % number, msg_id=f"{key}.{number}")
            js.publish_async_complete(120)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_static_members_take_over_from_each_other_in_order(cluster: Cluster, tmp_path: Path) -> None:
    """200 keys x 150 messages, two members of two processes each: step-downs, elections, 4 processes killed."""
    keys, per_key = 200, 150
    chance = random.Random(21)
    with jsclient.connect(cluster.urls, connect_timeout=20) as nc:
        js = JetStream(nc, timeout=20)
        transform = SubjectTransform(src="src.*", dest="{{Partition(8,1)}}.src.{{Wildcard(1)}}")
        js.create_stream(
            StreamConfig(name="SRC", subjects=["src.*"], num_replicas=3, subject_transform=transform), timeout=20
        )
        seen = keyvalue.create_key_value(js, KeyValueConfig(bucket="seen", replicas=3))
        group = groups.create_static(js, "SRC", "work", partitions=8, filters=["src.*"], members=["a", "b"], timeout=30)
        members = Members(cluster.urls, tmp_path / "findings")
        for name in "abab":
            members.start(name)
        publisher = threading.Thread(target=publish, args=(cluster, keys, per_key))
        publisher.start()
        kills, now, beats = 4, 0, 0
        started = time.monotonic()
        try:
            while (now < keys * per_key or kills) and time.monotonic() < started + 500:
                time_passes(1, "the beat of the drill")
                beats += 1
                if beats % 3 == 0:
                    step_down(group, "ab"[beats % 2])
                if beats % 5 == 0:
                    elect(nc, chance, "SRC")
                if kills and beats % 5 == 4:
                    kills -= 1
                    members.crash(chance)
                try:
                    now = handled(seen)
                except errors.JsClientError:
                    continue
                print(f"{time.monotonic() - started:.0f} s: {now} of {keys * per_key}, {kills} kills", flush=True)
                assert not members.findings()
            assert (now, kills) == (keys * per_key, 0)
        finally:
            publisher.join()
            members.stop()
        assert members.findings() == []
        assert group.lag(timeout=30).total == 0


def step_down(group: groups.PartitionedGroup, member: str) -> None:
    try:
        group.step_down(member)
    except errors.JsClientError:
        pass  # nobody is pinned, or there is no leader at the moment


@pytest.mark.slow
@pytest.mark.faults
def test_a_frozen_member_starts_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    """SIGSTOP for longer than its lease: others take over, and it finds out before it starts another handler."""
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
        seen = keyvalue.create_key_value(js, KeyValueConfig(bucket="seen"))
        groups.create_elastic(js, "SRC", "work", partitions=8, filters=[Filter("src.*", [1])])
        members = Members([server.url], tmp_path / "findings")
        members.start()
        members.start()
        per_key, keys = 100, 20
        try:
            for number in range(per_key):
                for key in range(keys):
                    js.publish_async(f"src.k{key}", b"%d" % number)
                if number == 30:
                    js.publish_async_complete(30)
                    wait_until(lambda: handled(seen) > 100, 30)
                    members.all[0].send_signal(signal.SIGSTOP)
            js.publish_async_complete(30)
            behind = time.monotonic() + 9
            wait_until(lambda: time.monotonic() > behind, 20)
            members.all[0].send_signal(signal.SIGCONT)
            wait_until(lambda: handled(seen) == per_key * keys, 60)
        finally:
            members.all[0].send_signal(signal.SIGCONT)
            members.stop()
        assert members.findings() == []


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(150)
def test_a_message_that_kills_its_process_is_found_and_given_up(tmp_path: Path) -> None:
    """Of all that was in hand when processes died, only the one that did it goes to the dead letters."""
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_stream(StreamConfig(name="SRC", subjects=["src.*"]))
        js.create_stream(StreamConfig(name="DEAD", subjects=["dead.>"]))
        seen = keyvalue.create_key_value(js, KeyValueConfig(bucket="seen"))
        group = groups.create_elastic(js, "SRC", "work", partitions=4, filters=[Filter("src.*", [1])])
        for number in range(5):
            for key in range(10):
                js.publish(f"src.k{key}", str(number))
            if number == 2:
                js.publish("src.killer", "kill")
        members = Members([server.url], tmp_path / "findings", "2")
        members.start()
        try:
            deadline = time.monotonic() + 120
            while not js.stream("DEAD").info().state.messages and time.monotonic() < deadline:
                time_passes(0.1, "between two looks, at what is there and who has died")
                if members.all[0].poll() is not None:
                    members.all.pop()
                    members.start()
            wait_until(lambda: handled(seen) == 50, 30)
        finally:
            members.stop()
        kills = [line for line in members.findings() if line.startswith("KILL")]
        assert members.findings() == kills == ["KILL src.killer"] * 4, "two to find it, and attempts=2 alone"
        assert [letter.data for letter in js.stream("DEAD").get_batch(10)] == [b"kill"]
        assert group.lag().total == 0
