"""Key-value buckets on a real server, whatever its version: every operation, every refusal, lists and counters."""

from __future__ import annotations

import datetime as dt
import pickle
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream, StreamConfig, StreamSource
from jsclient.keyvalue import KeyValue, KeyValueConfig, Operation
from jsclient.testing import LeafPair, NatsServer, wait_until

Count = Callable[[int, int], int]


@pytest.fixture
def kv(js: JetStream) -> KeyValue:
    return keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=5, storage="memory"))


def test_put_get_and_what_an_entry_tells(kv: KeyValue) -> None:
    before = dt.datetime.now(dt.timezone.utc)
    assert kv.put("a.b", b"1") == 1
    assert kv.put("a.b", "zwei") == 2
    for direct in (None, True, False):
        entry = kv.get("a.b", direct=direct)
        assert (entry.bucket, entry.key, entry.value, entry.revision) == ("b", "a.b", b"zwei", 2)
        assert (entry.operation, entry.delta) == (Operation.PUT, 0)
        assert abs((entry.created - before).total_seconds()) < 10
    assert kv["a.b"] == b"zwei"
    assert kv.put("empty", b"") == 3
    assert kv["empty"] == b""
    big = bytes(range(256)) * 2000
    kv.put("big", big)
    assert kv["big"] == big


def test_a_revision_belongs_to_its_key(kv: KeyValue) -> None:
    first, second = kv.put("a", b"1"), kv.put("c", b"2")
    for direct in (None, True, False):
        assert kv.get_revision("a", first, direct=direct).value == b"1"
        for key, revision in (("a", second), ("a", 99), ("none", first)):
            with pytest.raises(errors.KeyNotFound):
                kv.get_revision(key, revision, direct=direct)
    kv.delete("a")
    assert kv.get_revision("a", first).value == b"1"
    with pytest.raises(errors.KeyDeleted):
        kv.get_revision("a", 3)
    with pytest.raises(errors.ConfigError):
        kv.get_revision("a", 0)


def test_missing_and_deleted_keys(kv: KeyValue) -> None:
    with pytest.raises(errors.KeyNotFound) as missing:
        kv.get("a")
    assert (missing.value.bucket, missing.value.key) == ("b", "a")
    assert isinstance(missing.value, KeyError)
    assert missing.value.what == "key not found: 'a' in bucket 'b'"
    kv.put("a", b"1")
    kv.delete("a")
    for direct in (None, False):
        with pytest.raises(errors.KeyDeleted) as deleted:
            kv.get("a", direct=direct)
        assert deleted.value.revision == 2
    kv.purge("a")
    with pytest.raises(errors.KeyDeleted):
        kv["a"]
    assert "a" not in kv
    assert [entry.operation for entry in kv.history("a")] == [Operation.PURGE]


def test_create_only_what_is_not_there(kv: KeyValue) -> None:
    assert kv.create("a", b"1") == 1
    with pytest.raises(errors.KeyExists) as caught:
        kv.create("a", b"2")
    assert str(caught.value).startswith("key exists: 'a'")
    assert isinstance(caught.value.__cause__, errors.WrongLastSequence)
    assert kv["a"] == b"1"
    kv.delete("a")
    assert kv.create("a", b"3") == 3
    kv.purge("a")
    assert kv.create("a", b"4") == 5
    assert kv["a"] == b"4"


def test_compare_and_set(kv: KeyValue) -> None:
    first = kv.put("a", b"1")
    second = kv.update("a", b"2", first)
    with pytest.raises(errors.RevisionMismatch) as caught:
        kv.update("a", b"3", first)
    assert isinstance(caught.value.__cause__, errors.WrongLastSequence)
    for remove in (kv.delete, kv.purge):
        with pytest.raises(errors.RevisionMismatch):
            remove("a", revision=first)
    kv.delete("a", revision=second)
    assert "a" not in kv
    assert kv.update("new", b"1", 0) == 4


def test_both_error_codes_of_a_wrong_revision_are_known() -> None:
    for code in (10071, 10164):
        assert isinstance(errors.api_error(400, code, "wrong last sequence"), errors.WrongLastSequence)


BAD_KEYS: list[Any] = ["", " ", "a b", "a*", ">", ".a", "a.", "a..b", "ü", "a\r\nPUB x 1", "x" * 10_000, None, 5, b"a"]


def test_bad_keys_never_reach_the_wire(js: JetStream, kv: KeyValue) -> None:
    js.nc.flush()
    before = js.nc.stats().bytes_out
    calls: list[Callable[[Any], object]] = [
        kv.get,
        lambda key: kv.get_revision(key, 1),
        lambda key: kv.put(key, b""),
        lambda key: kv.create(key, b""),
        lambda key: kv.update(key, b"", 1),
        kv.delete,
        kv.purge,
        kv.history,
    ]
    for key in BAD_KEYS:
        for call in calls:
            with pytest.raises(errors.InvalidName):
                call(key)
    for pattern in ("", "a>", "a b", "..", None):
        with pytest.raises(errors.InvalidName):
            kv.watch(pattern)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidName):
            kv.keys(pattern)  # type: ignore[arg-type]
    for bucket in ("", "a b", "a.b", "*", "ü", "x" * 10_000):
        for make in (keyvalue.key_value, keyvalue.delete_key_value):
            with pytest.raises(errors.InvalidName):
                make(js, bucket)
        with pytest.raises(errors.InvalidName):
            KeyValueConfig(bucket=bucket)
    assert js.nc.stats().bytes_out == before


def longest(kv: KeyValue) -> str:
    """The longest key that the bucket accepts, as its refusal of a longer one says."""
    with pytest.raises(errors.InvalidName) as caught:
        kv.get("x" * 10_000)
    limit = re.search(r"longer than the (\d+) that", str(caught.value))
    assert limit is not None
    return "x" * int(limit[1])


def test_the_longest_key_goes_everywhere(kv: KeyValue) -> None:
    key = longest(kv)
    kv.put(key, b"1")
    assert kv.get(key).value == kv.get(key, direct=False).value == b"1"
    assert list(kv.keys()) == [key]
    assert [entry.key for entry in kv.history(key)] == [key]
    kv.purge(key)
    assert kv.purge_deletes(0) == 1


def test_the_longest_bucket_name(js: JetStream) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="b" * 250, storage="memory"))
    key = longest(kv)
    kv.put(key, b"1")
    assert kv[key] == b"1"
    assert list(kv) == [key]


# --- many keys ----------------------------------------------------------------------------------------------


def test_keys_are_filtered_and_lazy(kv: KeyValue) -> None:
    assert list(kv.keys()) == []
    for key in ("a.x", "a.y", "c.x", "d"):
        kv.put(key, b"1")
        kv.put(key, b"2")
    kv.delete("d")
    assert list(kv.keys()) == ["a.x", "a.y", "c.x"]
    assert list(kv) == ["a.x", "a.y", "c.x"]
    assert list(kv.keys("a.*")) == ["a.x", "a.y"]
    assert list(kv.keys("*.x")) == ["a.x", "c.x"]
    assert list(kv.keys("a.x", "c.>")) == ["a.x", "c.x"]
    assert list(kv.keys("none")) == []
    first = next(iter(kv.keys()))
    assert first == "a.x"


def test_history_oldest_first(kv: KeyValue) -> None:
    for number in range(8):
        kv.put("a", b"%d" % number)
        kv.put("other", b"x")
    kv.delete("a")
    entries = kv.history("a")
    assert [entry.value for entry in entries] == [b"4", b"5", b"6", b"7", b""]
    assert [entry.is_put for entry in entries] == [True] * 4 + [False]
    assert [entry.revision for entry in entries] == [9, 11, 13, 15, 17]
    assert all(entry.value == b"" for entry in kv.history("a", meta_only=True))
    with pytest.raises(errors.KeyNotFound):
        kv.history("none")


def test_purge_all_leaves_one_marker_per_key(kv: KeyValue) -> None:
    for number in range(300):
        kv.put(f"k{number}", b"1")
        kv.put(f"k{number}", b"2")
    assert kv.purge_all() == 300
    assert kv.status().values == 300
    assert list(kv.keys()) == []
    with kv.watch() as watcher:
        assert {entry.operation for entry in watcher.initial()} == {Operation.PURGE}


def test_purge_deletes_by_age_and_not_what_came_after(kv: KeyValue) -> None:
    for key in ("a", "b", "c"):
        kv.put(key, b"1")
    kv.delete("a")
    kv.delete("b")
    assert kv.status().values == 5
    assert kv.purge_deletes() == 0  # younger than half an hour: only what the markers cover goes
    assert kv.status().values == 3
    kv.put("b", b"again")
    assert kv.purge_deletes(dt.timedelta(0)) == 1
    assert sorted(kv) == ["b", "c"]
    assert kv.status().values == 3
    with pytest.raises(errors.ConfigError):
        kv.purge_deletes(-1)


def test_all_keys_are_listed(js: JetStream, count: Count) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="many", storage="memory"))
    total = count(120_000, 12_000)
    for number in range(total):
        js.publish_async(f"$KV.many.key.{number}", b"v")
    js.publish_async_complete(timeout=60)
    assert {int(key.split(".")[1]) for key in kv.keys(timeout=30)} == set(range(total))
    assert kv.status().values == total


def test_all_buckets_are_listed(js: JetStream, count: Count) -> None:
    total = count(1025, 103)
    wanted = {f"bucket-{number}" for number in range(total)}
    for bucket in sorted(wanted):
        keyvalue.create_key_value(js, KeyValueConfig(bucket=bucket, storage="memory"))
    js.create_stream(StreamConfig(name="other", subjects=["other"], storage="memory"))
    assert sorted(keyvalue.key_value_store_names(js)) == sorted(wanted)
    assert {status.bucket for status in keyvalue.key_value_stores(js)} == wanted


def test_counters_of_many_threads(server: NatsServer, js: JetStream, count: Count) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="counters"))
    each, threads = count(500, 50), 16
    kv.put("n", b"0")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(each):
                while True:
                    entry = kv.get("n")
                    try:
                        kv.update("n", b"%d" % (int(entry.value) + 1), entry.revision)
                        break
                    except errors.RevisionMismatch:
                        continue
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert int(kv["n"]) == threads * each


test_counters_of_many_threads = pytest.mark.timeout(300)(test_counters_of_many_threads)


# --- buckets ------------------------------------------------------------------------------------------------


def test_making_finding_and_deleting(js: JetStream) -> None:
    config = KeyValueConfig(bucket="b", description="one", history=3, ttl=3600, max_bytes=1 << 20, max_value_size=100)
    kv = keyvalue.create_key_value(js, config)
    keyvalue.create_key_value(js, config)
    with pytest.raises(errors.BucketExists) as exists:
        keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=4))
    assert isinstance(exists.value.__cause__, errors.StreamNameInUse)
    status = kv.status()
    assert (status.bucket, status.history, status.ttl, status.backing_store) == ("b", 3, 3600.0, "JetStream")
    assert (status.values, status.bytes, status.is_compressed) == (0, 0, False)
    assert status.config.description == "one"
    assert (status.config.max_bytes, status.config.max_value_size) == (1 << 20, 100)
    with pytest.raises(errors.MessageTooLarge):
        kv.put("a", b"x" * 200)
    changed = keyvalue.update_key_value(js, KeyValueConfig(bucket="b", description="two", history=3, ttl=3600))
    assert changed.status().config.description == "two"
    keyvalue.create_or_update_key_value(js, KeyValueConfig(bucket="b", history=5))
    assert keyvalue.key_value(js, "b").status().history == 5
    keyvalue.delete_key_value(js, "b")
    for call in (keyvalue.key_value, keyvalue.delete_key_value):
        with pytest.raises(errors.BucketNotFound):
            call(js, "b")
    with pytest.raises(errors.BucketNotFound):
        keyvalue.update_key_value(js, KeyValueConfig(bucket="b"))
    with pytest.raises(errors.BucketNotFound):
        kv.status()


def test_a_handle_without_asking(js: JetStream, kv: KeyValue) -> None:
    kv.put("a", b"1")
    before = js.nc.stats().messages_out
    blind = keyvalue.key_value(js, "b", fetch_info=False)
    assert js.nc.stats().messages_out == before
    assert blind["a"] == b"1"
    gone = keyvalue.key_value(js, "gone", fetch_info=False)
    with pytest.raises(errors.BucketGone):
        gone.put("a", b"1")


def test_a_stream_that_is_no_bucket(js: JetStream) -> None:
    js.create_stream(StreamConfig(name="KV_x", subjects=["x"]))
    with pytest.raises(errors.BadBucket):
        keyvalue.key_value(js, "x")


def test_a_bucket_without_direct_reads(js: JetStream) -> None:
    config = KeyValueConfig(bucket="b").to_stream()
    js.create_stream(config.replace(allow_direct=False))
    kv = keyvalue.key_value(js, "b")
    kv.put("a", b"1")
    assert kv["a"] == b"1"
    # What an old client made is brought up to date by the next create.
    keyvalue.create_key_value(js, KeyValueConfig(bucket="b"))
    info = js.stream("KV_b").cached_info
    assert info is not None
    assert info.config.allow_direct


def test_compression_and_metadata_or_a_reason(server: NatsServer, js: JetStream) -> None:
    config = KeyValueConfig(bucket="b", compression=True, metadata={"owner": "me"})
    if server.version < (2, 10):
        with pytest.raises(errors.NotSupported, match=r"2\.10"):
            keyvalue.create_key_value(js, config)
        return
    status = keyvalue.create_key_value(js, config).status()
    assert status.is_compressed
    assert status.metadata == {"owner": "me"}
    keyvalue.create_key_value(js, config)


def test_values_expire_with_the_bucket(js: JetStream) -> None:
    kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="b", ttl=0.5))
    kv.put("a", b"1")
    wait_until(lambda: "a" not in kv, 10)
    assert list(kv) == []


def test_ttl_of_keys_and_markers_or_a_reason(server: NatsServer, js: JetStream) -> None:
    config = KeyValueConfig(bucket="b", limit_marker_ttl=60)
    if server.version < (2, 11):
        with pytest.raises(errors.NotSupported, match=r"2\.11"):
            keyvalue.create_key_value(js, config)
        kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="b"))
        with pytest.raises(errors.NotSupported, match=r"2\.11"):
            kv.create("a", b"1", ttl=1)
        assert "a" not in kv
        return
    kv = keyvalue.create_key_value(js, config)
    assert kv.status().limit_marker_ttl == 60
    with kv.watch() as watcher:
        assert watcher.next(5) is None
        kv.create("a", b"1", ttl=1)
        entry = watcher.next(5)
        assert entry is not None
        assert entry.is_put
        marker = watcher.next(15)
        assert marker is not None
        assert (marker.key, marker.operation, marker.value) == ("a", Operation.PURGE, b"")
    with pytest.raises(errors.KeyDeleted):
        kv.get("a")
    assert kv.create("a", b"2") > marker.revision
    kv.purge("a", ttl=dt.timedelta(seconds=5))
    assert "a" not in kv


def test_ttl_in_a_bucket_that_does_not_allow_it(server: NatsServer, kv: KeyValue) -> None:
    refused = errors.NotSupported if server.version < (2, 11) else errors.MessageTtlRefused
    with pytest.raises(refused):
        kv.create("a", b"1", ttl=5)
    with pytest.raises(errors.ConfigError):
        kv.create("a", b"1", ttl=0.2)


def test_a_mirror_reads_its_copy_and_writes_to_the_origin(js: JetStream) -> None:
    origin = keyvalue.create_key_value(js, KeyValueConfig(bucket="origin"))
    origin.put("a", b"1")
    mirror = keyvalue.create_key_value(js, KeyValueConfig(bucket="copy", mirror=StreamSource(name="origin")))
    wait_until(lambda: "a" in mirror, 10)
    assert mirror.get("a").value == mirror.get("a", direct=False).value == b"1"
    revision = mirror.put("b", b"2")
    assert origin.get("b", direct=False).revision == revision  # a direct get may be served by the mirror
    wait_until(lambda: "b" in mirror, 10)
    assert sorted(mirror.keys()) == ["a", "b"]
    assert sorted(keyvalue.key_value(js, "copy").keys()) == ["a", "b"]
    mirror.delete("a")
    with pytest.raises(errors.KeyDeleted):
        origin.get("a", direct=False)


def test_sources_are_mapped_to_the_bucket_or_a_reason(server: NatsServer, js: JetStream) -> None:
    for bucket in ("one", "two"):
        keyvalue.create_key_value(js, KeyValueConfig(bucket=bucket)).put(f"from.{bucket}", b"1")
    config = KeyValueConfig(bucket="all", sources=[StreamSource(name="one"), StreamSource(name="KV_two")])
    if server.version < (2, 10):
        with pytest.raises(errors.NotSupported, match=r"2\.10"):
            keyvalue.create_key_value(js, config)
        return
    both = keyvalue.create_key_value(js, config)
    wait_until(lambda: len(list(both)) == 2, 10)
    assert sorted(both) == ["from.one", "from.two"]
    both.put("own", b"3")
    assert both["own"] == b"3"


def test_a_bucket_in_another_domain(js: JetStream) -> None:
    with LeafPair() as pair, jsclient.connect(pair.leaf.url) as nc:
        pair.wait_ready()
        hub = JetStream(nc, domain="hub")
        kv = keyvalue.create_key_value(hub, KeyValueConfig(bucket="b"))
        revision = kv.put("a", b"1")
        assert kv.get("a").revision == kv.get("a", direct=False).revision == revision
        copy = KeyValueConfig(bucket="copy", mirror=StreamSource(name="b", domain="hub"))
        mirror = keyvalue.create_key_value(JetStream(nc), copy)
        wait_until(lambda: "a" in mirror, 10)
        kv.update("a", b"2", revision)
        wait_until(lambda: mirror["a"] == b"2", 10)
        for bucket in (kv, mirror):
            with bucket.watch() as watcher:
                assert [entry.value for entry in watcher.initial()] == [b"2"]
        mirror.put("c", b"3")
        assert kv["c"] == b"3"
        wait_until(lambda: "c" in mirror, 10)


def test_handles_do_not_pickle_and_say_what_does(kv: KeyValue) -> None:
    with kv.watch() as watcher:
        for thing in (kv, watcher):
            with pytest.raises(TypeError):
                pickle.dumps(thing)
