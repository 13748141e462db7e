"""`kv.batch()` on a real server: several keys together or not at all."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import PATH_KEYS, KeyValue, KeyValueConfig, Operation


@pytest.fixture
def kv(js: JetStream) -> KeyValue:
    if not js.nc.server_info.at_least(2, 12):
        pytest.skip("atomic batches need nats-server 2.12")
    config = KeyValueConfig(bucket="b", history=3, storage="memory", allow_atomic=True, limit_marker_ttl=60)
    return keyvalue.create_key_value(js, config)


def test_a_batch_stores_every_kind_of_change_with_its_revision(kv: KeyValue) -> None:
    old = kv.put("update", b"1")
    kv.put("delete", b"1")
    kv.put("purge", b"1")
    kv.put("again", b"1")
    kv.delete("again")
    with kv.batch() as batch:
        batch.put("put", bytearray(b"p"))
        batch.create("create", "c", ttl=60)
        batch.create("again", b"a")
        batch.update("update", b"2", old)
        batch.delete("delete", revision=2)
        batch.purge("purge", ttl=60)
        assert len(batch) == 6
        assert list(kv.keys()) == ["update", "delete", "purge"]  # nothing is sent before the end
    assert batch.closed
    assert list(batch.revisions) == ["put", "create", "again", "update", "delete", "purge"]
    for key in ("put", "create", "again", "update"):
        assert kv.get(key).revision == batch.revisions[key]
    assert [kv[key] for key in ("put", "create", "again", "update")] == [b"p", b"c", b"a", b"2"]
    assert [e.operation for e in kv.history("delete")] == [Operation.PUT, Operation.DELETE]
    assert [e.operation for e in kv.history("purge")] == [Operation.PURGE]
    assert kv.history("delete")[-1].revision == batch.revisions["delete"]


def test_one_key_at_another_revision_refuses_the_whole_batch(kv: KeyValue) -> None:
    first, second = kv.put("a", b"1"), kv.put("b", b"1")
    kv.put("b", b"2")
    before = kv.status().stream_info.state.last_seq
    batch = kv.batch()
    batch.update("a", b"3", first)
    batch.update("b", b"3", second)
    with pytest.raises(errors.RevisionMismatch, match="'b' in bucket 'b' is at revision 3, not 2") as caught:
        batch.commit()
    assert caught.value.key == "b"
    batch = kv.batch()
    batch.put("c", b"3")
    batch.create("a", b"3")
    with pytest.raises(errors.KeyExists) as existing:
        batch.commit()
    assert existing.value.key == "a"
    assert kv.status().stream_info.state.last_seq == before
    with pytest.raises(errors.BatchClosed):
        batch.put("d", b"")


def test_an_exception_and_discard_store_nothing(kv: KeyValue) -> None:
    with pytest.raises(ZeroDivisionError), kv.batch() as batch:
        batch.put("a", b"1")
        raise ZeroDivisionError
    other = kv.batch()
    other.put("a", b"1")
    other.discard()
    with kv.batch():
        pass
    assert (batch.revisions, list(kv.keys())) == ({}, [])


def test_bad_changes_are_refused_before_anything_is_sent(kv: KeyValue) -> None:
    batch = kv.batch()
    batch.put("a", b"1")
    wrong: list[tuple[type[Exception], Any]] = [
        (errors.ConfigError, lambda: batch.put("a", b"2")),
        (errors.InvalidName, lambda: batch.put("a.*", b"2")),
        (errors.ConfigError, lambda: batch.update("b", b"2", -1)),
        (errors.ConfigError, lambda: batch.update("b", b"2", None)),  # type: ignore[arg-type]
        (errors.ConfigError, lambda: batch.delete("b", revision=True)),
        (errors.ConfigError, lambda: kv.batch().commit()),
        (errors.ConfigError, lambda: kv.batch(timeout=-1)),
        (errors.ConfigError, lambda: batch.put("b", 7)),  # type: ignore[arg-type]
    ]
    for kind, call in wrong:
        with pytest.raises(kind):
            call()
    assert batch.commit() == {"a": 1}


def test_a_batch_has_at_most_a_thousand_keys(kv: KeyValue) -> None:
    batch = kv.batch()
    for number in range(1000):
        batch.create(f"k.{number}", b"x")
    with pytest.raises(errors.BatchTooLarge):
        batch.put("one.more", b"x")
    revisions = batch.commit()
    assert list(revisions.values()) == list(range(1, 1001))


def test_rivals_move_amounts_without_losing_any(kv: KeyValue, js: JetStream) -> None:
    kv.put("a", b"100")
    kv.put("b", b"100")
    refused = []

    def move(source: str, target: str) -> None:
        for _ in range(10):
            while True:
                there, here = kv.get(source, direct=False), kv.get(target, direct=False)
                batch = kv.batch()
                batch.update(source, str(int(there.value) - 1), there.revision)
                batch.update(target, str(int(here.value) + 2), here.revision)
                try:
                    revisions = batch.commit()
                except errors.RevisionMismatch:
                    refused.append(1)
                    continue
                assert kv.get_revision(source, revisions[source]).value == str(int(there.value) - 1).encode()
                break

    threads = [threading.Thread(target=move, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (kv["a"], kv["b"]) == (b"110", b"110")


def test_typed_and_encoded_buckets_have_batches(kv: KeyValue) -> None:
    numbers = kv.typed(int)
    with numbers.batch() as typed:
        typed.create("n", 5)
    assert numbers["n"] == 5
    with pytest.raises(errors.EncodeFailed), numbers.batch() as typed:
        typed.put("n", "text")  # type: ignore[arg-type]
    paths = kv.encoded(keys=keyvalue.PATH_KEYS)
    with paths.batch() as encoded:
        encoded.create("/etc/hosts", b"x")
    assert (list(encoded.revisions), paths["/etc/hosts"]) == (["/etc/hosts"], b"x")
    again = paths.batch()
    again.create("/etc/hosts", b"y")
    with pytest.raises(errors.KeyExists, match="'/etc/hosts'"):
        again.commit()


def test_a_bucket_without_batches_says_how_to_allow_them(kv: KeyValue, js: JetStream) -> None:
    plain = keyvalue.create_key_value(js, bucket="plain", storage="memory")
    batch = plain.batch()
    batch.put("a", b"1")
    with pytest.raises(errors.ConfigError, match="allow_atomic=True"):
        batch.commit()
    assert plain.status().config.allow_atomic is False
    changed = keyvalue.update_key_value(js, bucket="plain", storage="memory", allow_atomic=True)
    with changed.batch() as allowed:
        allowed.put("a", b"1")
    again = keyvalue.update_key_value(js, bucket="plain", storage="memory", description="text")
    assert again.status().config.allow_atomic is True
    assert plain["a"] == b"1"
    keyvalue.delete_key_value(js, "plain")
    gone = changed.batch()
    gone.put("a", b"1")
    with pytest.raises(errors.BucketGone):
        gone.commit(timeout=2)


def test_an_older_server_refuses_a_batch_and_stores_nothing(js: JetStream) -> None:
    if js.nc.server_info.at_least(2, 12):
        pytest.skip("this server has atomic batches")
    kv = keyvalue.create_key_value(js, bucket="old", storage="memory")
    batch = kv.batch()
    batch.put("a", b"1")
    batch.put("b", b"1")
    with pytest.raises(errors.NotSupported, match=r"2\.12"):
        batch.commit()
    assert list(kv.keys()) == []
    with pytest.raises(errors.NotSupported):
        keyvalue.create_key_value(js, bucket="new", storage="memory", allow_atomic=True)


def test_a_batch_knows_a_key_in_two_spellings(kv: KeyValue) -> None:
    paths = kv.encoded(keys=PATH_KEYS)
    batch = paths.batch()
    batch.put("/a", b"1")
    with pytest.raises(errors.ConfigError, match="give each key once"):
        batch.put("/a/", b"2")
    with pytest.raises(errors.ConfigError, match="a value is bytes or text, not int"):
        batch.put("/b", 5)  # type: ignore[arg-type]
    batch.commit()
    assert paths.get_many(["/a", "/a/"]).keys() == {"/a", "/a/"}
