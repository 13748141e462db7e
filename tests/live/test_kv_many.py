"""`kv.get_many()` on a real server: several keys at one sequence."""

from __future__ import annotations

import threading

import pytest

from jsclient import errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig


@pytest.fixture
def kv(js: JetStream) -> KeyValue:
    if not js.nc.server_info.at_least(2, 11):
        pytest.skip("reading many keys at one sequence needs nats-server 2.11")
    return keyvalue.create_key_value(js, KeyValueConfig(bucket="b", storage="memory"))


def test_get_many_gives_the_keys_that_have_values(kv: KeyValue) -> None:
    kv.put("a", b"1")
    kv.put("b", b"2")
    kv.put("gone", b"3")
    kv.delete("gone")
    found = kv.get_many(["b", "none", "gone", "a", "a"])
    assert {key: entry.value for key, entry in found.items()} == {"b": b"2", "a": b"1"}
    assert list(found) == ["b", "a"]
    assert found["a"] == kv.get("a")
    assert kv.get_many(["none"]) == kv.get_many([]) == {}
    assert [entry.value for entry in kv.typed(int).get_many(iter(["a"])).values()] == [1]
    paths = kv.encoded(keys=keyvalue.PATH_KEYS)
    paths["/etc/hosts"] = b"x"
    assert [(key, entry.key, entry.value) for key, entry in paths.get_many(["/etc/hosts", "/none"]).items()] == [
        ("/etc/hosts", "/etc/hosts", b"x")
    ]


def test_what_cannot_be_read_is_refused(kv: KeyValue, js: JetStream) -> None:
    with pytest.raises(errors.InvalidName):
        kv.get_many(["a", "b.*"])
    for keys in ("abc", [f"k.{number}" for number in range(1001)]):
        with pytest.raises(errors.ConfigError):
            kv.get_many(keys)
    keyvalue.delete_key_value(js, "b")
    with pytest.raises(errors.BucketNotFound):
        kv.get_many(["a"])


def test_a_thousand_keys_in_one_answer(kv: KeyValue, js: JetStream) -> None:
    keys = [f"k.{number}" for number in range(1000)]
    for key in keys:
        js.publish_async(f"$KV.b.{key}", key.encode())
    js.publish_async_complete(timeout=10)
    found = kv.get_many(keys)
    assert list(found) == keys
    assert all(entry.value == key.encode() for key, entry in found.items())


def test_the_entries_are_those_of_one_sequence(kv: KeyValue, js: JetStream) -> None:
    """A writer raises ten keys one after the other: at each sequence none is ahead by more than one, in order."""
    keys = [f"k.{number}" for number in range(10)]
    for key in keys:
        kv.put(key, b"0")
    stop = threading.Event()

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            for key in keys:
                kv.put(key, b"%d" % turn)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            values = [int(entry.value) for entry in kv.get_many(keys).values()]
            assert len(values) == 10
            assert values == sorted(values, reverse=True)
            assert values[0] - values[-1] <= 1
    finally:
        stop.set()
        writer.join()


def test_an_older_server_and_a_bucket_without_direct_gets_refuse(js: JetStream) -> None:
    kv = keyvalue.create_key_value(js, bucket="plain", storage="memory")
    kv.put("a", b"1")
    if js.nc.server_info.at_least(2, 11):
        js.update_stream(js.stream("KV_plain").info().config.replace(allow_direct=False))
        kv = keyvalue.key_value(js, "plain")
    with pytest.raises(errors.NotSupported, match="get_many needs nats-server 2.11"):
        kv.get_many(["a"])
