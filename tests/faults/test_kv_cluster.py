"""Buckets and objects with three replicas: both error codes of a lost race, reads from the leader, lost leaders."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors, keyvalue, objectstore
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.testing import Cluster, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

Count = Callable[[int, int], int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        cluster.wait_ready()
        yield cluster


def connect(cluster: Cluster) -> jsclient.Connection:
    return jsclient.connect(cluster.urls)


def put_until_stored(kv: KeyValue, key: str, value: bytes) -> None:
    """Store it exactly once, whatever the cluster does meanwhile."""
    while True:
        try:
            kv.put(key, value, timeout=30)
            return
        except (errors.UnknownOutcome, errors.ConnectionLost):
            try:
                if kv.get(key, direct=False).value == value:
                    return
            except (errors.JsClientError, KeyError):
                pass
        except errors.NotStored:
            pass


def test_lost_races_have_one_name_whatever_the_code(cluster: Cluster) -> None:
    with connect(cluster) as nc:
        kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="race", replicas=3))
        first = kv.create("a", b"1")
        with pytest.raises(errors.KeyExists):
            kv.create("a", b"2")
        kv.update("a", b"2", first)
        with pytest.raises(errors.RevisionMismatch):
            kv.update("a", b"3", first)
        kv.delete("a")
        kv.create("a", b"4")
        assert kv.get("a", direct=False).value == b"4"


def test_counters_of_many_threads_on_three_replicas(cluster: Cluster, count: Count) -> None:
    each, failures = count(100, 10), []
    # 2.9.10 accepts all of several updates under way with the same expected revision, if there are replicas.
    number = 8 if cluster.servers[0].version >= (2, 10) else 1
    with connect(cluster) as nc:
        kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="counter", replicas=3))
        kv.put("n", b"0")

        def work() -> None:
            try:
                for _ in range(each):
                    while True:
                        entry = kv.get("n", direct=False)
                        try:
                            kv.update("n", b"%d" % (int(entry.value) + 1), entry.revision)
                            break
                        except errors.RevisionMismatch:
                            continue
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert int(kv.get("n", direct=False).value) == number * each


def test_the_leader_has_what_was_acknowledged(cluster: Cluster) -> None:
    with connect(cluster) as nc:
        kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="fresh", replicas=3))
        for number in range(200):
            revision = kv.put("a", b"%d" % number)
            entry = kv.get("a", direct=False)
            assert (entry.revision, entry.value) == (revision, b"%d" % number)


def test_a_watcher_and_objects_outlive_their_leader(cluster: Cluster) -> None:
    data = os.urandom(2_000_000)
    with connect(cluster) as nc:
        js = JetStream(nc)
        kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="led", replicas=3, history=64))
        store = objectstore.create_object_store(js, ObjectStoreConfig(bucket="led", replicas=3))
        store.put("a", data)
        with kv.watch("k.*", include_history=True, timeout=60) as watcher:
            assert watcher.next(10) is None
            for round_ in range(2):
                for number in range(10):
                    put_until_stored(kv, "k.x", b"%d.%d" % (round_, number))
                leader = cluster.stream_leader("KV_led")
                leader.kill()
                for number in range(10, 20):
                    put_until_stored(kv, "k.x", b"%d.%d" % (round_, number))
                leader.start()
                wait_until(lambda: cluster.stream_leader("OBJ_led"), 60)
                values: list[bytes] = []
                while len(values) < 20:
                    entry = watcher.next()
                    assert entry is not None
                    values.append(entry.value)
                assert values == [b"%d.%d" % (round_, number) for number in range(20)]
        assert store.get_bytes("a", timeout=60) == data
        store.put("a", data[::-1])
        assert store.get_bytes("a") == data[::-1]
