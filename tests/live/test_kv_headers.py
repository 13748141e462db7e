"""Headers of entries: each write that takes them, and each way to read them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import jsclient
from jsclient import Headers, errors, keyvalue
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig, KeyValueEntry
from jsclient.testing import Cluster, wait_until

from .test_broken_headers import publish_broken

TRACE = {"traceparent": "00-4bf9", "Author": "sue"}


@pytest.fixture
def kv(js: JetStream) -> KeyValue:
    atomic = js.nc.server_info.at_least(2, 12)
    return keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=5, storage="memory", allow_atomic=atomic))


def batched(kv: KeyValue) -> None:
    if not kv.status().stream_info.config.allow_atomic:
        pytest.skip("batches need nats-server 2.12")
    with kv.batch() as batch:
        batch.create("other", b"1", headers={"Author": "joe"})
        batch.put("a", b"1", headers=TRACE)


WRITES: dict[str, Callable[[KeyValue], Any]] = {
    "put": lambda kv: kv.put("a", b"1", headers=TRACE),
    "put pairs": lambda kv: kv.put("a", b"1", headers=Headers(TRACE.items())),
    "create": lambda kv: kv.create("a", b"1", headers=TRACE),
    "update": lambda kv: kv.update("a", b"1", kv.put("a", b"0", headers={"Old": "x"}), headers=TRACE),
    "typed": lambda kv: kv.typed(int).put("a", 1, headers=TRACE),
    "typed create": lambda kv: kv.typed(int).create("a", 1, headers=TRACE),
    "typed update": lambda kv: kv.typed(int).update("a", 1, kv.put("a", b"0"), headers=TRACE),
    "encoded": lambda kv: kv.encoded().put("a", b"1", headers=TRACE),
    "encoded create": lambda kv: kv.encoded().create("a", b"1", headers=TRACE),
    "encoded update": lambda kv: kv.encoded().update("a", b"1", 0, headers=TRACE),
    "batch": batched,
}


def reads(kv: KeyValue) -> dict[str, KeyValueEntry[Any]]:
    revision = kv.get("a").revision
    found: dict[str, KeyValueEntry[Any]] = {
        "direct": kv.get("a", direct=True),
        "leader": kv.get("a", direct=False),
        "revision": kv.get_revision("a", revision),
        "revision of the leader": kv.get_revision("a", revision, direct=False),
        "history": kv.history("a")[-1],
        "meta": kv.history("a", meta_only=True)[-1],
        "typed": kv.typed(int).get("a"),
    }
    with kv.watch("a") as watcher:
        (found["watch"],) = watcher.initial(5)
    if kv.status().stream_info.config.allow_atomic:
        found["many"] = kv.get_many(["a"])["a"]
    return found


@pytest.mark.parametrize("write", WRITES)
def test_headers_of_each_write_are_in_each_read(kv: KeyValue, write: str) -> None:
    WRITES[write](kv)
    found = reads(kv)
    assert {name: entry.headers.to_dict() for name, entry in found.items()} == {
        name: {"traceparent": ["00-4bf9"], "Author": ["sue"]} for name in found
    }
    assert kv.typed(int).get("a").headers == Headers(TRACE)
    assert {entry.data for name, entry in found.items() if name != "meta"} == {b"1"}


def test_an_entry_has_the_headers_of_its_own_write(kv: KeyValue) -> None:
    first = kv.put("a", b"1", headers={"Tag": ["x", "y"]})
    kv.put("a", b"2")
    assert not kv.get("a").headers
    assert kv.get_revision("a", first).headers.get_all("Tag") == ["x", "y"]
    kv.delete("a")
    assert [len(entry.headers) for entry in kv.history("a")] == [1, 0, 0]


def test_a_read_gives_the_headers_of_other_clients(kv: KeyValue, js: JetStream) -> None:
    js.publish("$KV.b.a", b"1", headers={"Nats-Stream": "forged", "X": "1"}, msg_id="me")
    for name, entry in reads(kv).items():
        assert entry.headers.to_dict() == {"X": ["1"]}, name
        assert entry.data in (b"1", b"")


@pytest.mark.parametrize("name", ["Nats-Rollup", "nats-ttl", "Nats-Expected-Last-Sequence", "KV-Operation"])
def test_headers_of_nats_are_refused(kv: KeyValue, name: str) -> None:
    headers = {name: "sub"}
    calls: list[Callable[[], Any]] = [
        lambda: kv.put("a", b"1", headers=headers),
        lambda: kv.create("a", b"1", headers=headers),
        lambda: kv.update("a", b"1", 0, headers=headers),
        lambda: kv.batch().put("a", b"1", headers=headers),
    ]
    for call in calls:
        with pytest.raises(errors.ConfigError, match=f"header '{name}'.*Nothing was sent"):
            call()
    assert kv.status().values == 0


def test_what_no_header_may_contain_is_refused(kv: KeyValue) -> None:
    wrong: list[Any] = [{"a b": "x"}, {"A": "x\r\nB: y"}, {"A": 1}, "A: b", 5]
    for headers in wrong:
        with pytest.raises((errors.InvalidHeader, errors.ConfigError)):
            kv.put("a", b"1", headers=headers)
    assert kv.status().values == 0


def test_replicas_have_the_headers() -> None:
    with Cluster(3) as cluster, jsclient.connect(cluster.url) as nc:
        kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="b", replicas=3, history=5))
        revision = kv.create("a", b"1", headers=TRACE)
        kv.update("a", b"2", revision, headers={"Author": "joe"})
        for server in cluster.servers:
            with jsclient.connect(server.url) as other:
                read = keyvalue.key_value(JetStream(other), "b")
                assert read.get_revision("a", revision, direct=False).headers == Headers(TRACE)
                wait_until(partial(has_author, read), 10)


def has_author(kv: KeyValue) -> bool:
    """Whether a replica that answers has the second revision."""
    return kv.get("a", direct=True).headers.get("Author") == "joe"


#: Blocks as a client may send them: without their end, with headers of the server, with another first line.
STRANGE: dict[str, tuple[bytes, dict[str, list[str]] | None]] = {
    "cut in a line": (b"NATS/1.0\r\nX: 1\r\nY: hello", {"X": ["1"]}),
    "cut behind a line": (b"NATS/1.0\r\nX: 1\r\n", {}),
    "only a version": (b"NATS/1.0", {}),
    "forged": (b"NATS/1.0\r\nNats-Stream: other\r\nNats-Sequence: 7\r\nX: 1\r\n\r\n", {"X": ["1"]}),
    "forged and cut": (b"NATS/1.0\r\nX: 1\r\nNats-Stream: other\r\nNats-Sequence: 7", {"X": ["1"]}),
    "another version": (b"NATS/2.0\r\nX: 1\r\n\r\n", None),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_read_shows_no_header_of_the_server(kv: KeyValue, js: JetStream, name: str) -> None:
    block, expected = STRANGE[name]
    publish_broken(js.nc, "$KV.b.a", b"1", block)
    wait_until(lambda: "a" in kv)
    for entry in (kv.get("a", direct=True), kv.get_revision("a", 1, direct=True)):
        assert (entry.key, entry.value, entry.revision, entry.is_put) == ("a", b"1", 1, True)
        if expected is None:
            with pytest.raises(errors.MalformedHeaders):
                _ = entry.headers
        else:
            assert entry.headers.to_dict() == expected


def test_a_write_keeps_the_headers_as_they_were_given(kv: KeyValue) -> None:
    given = {"A": "1"}
    if kv.status().stream_info.config.allow_atomic:
        with kv.batch() as batch:
            batch.put("a", b"1", headers=given)
            given["A"] = "2"
        assert kv.get("a").headers == Headers({"A": "1"})
    kv.put("b", b"1", headers=given)
    assert given == {"A": "2"}
    assert kv.get("b").headers == Headers(given)
