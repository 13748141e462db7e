"""Settings of buckets and stores: what an update leaves alone, what a source filters, what a mirror lets expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jsclient import errors, keyvalue, objectstore
from jsclient.jetstream import JetStream, Stream, StreamSource
from jsclient.testing import wait_until

KINDS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "bucket": (
        "KV_b",
        keyvalue.create_key_value,
        keyvalue.update_key_value,
        keyvalue.create_or_update_key_value,
    ),
    "store": (
        "OBJ_b",
        objectstore.create_object_store,
        objectstore.update_object_store,
        objectstore.create_or_update_object_store,
    ),
}


@pytest.mark.parametrize("either", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_leaves_alone_what_it_does_not_know(js: JetStream, kind: str, either: bool) -> None:
    stream, create, update, create_or_update = KINDS[kind]
    create(js, bucket="b", storage="memory")
    others: dict[str, Any] = {"max_consumers": -1, "max_msgs": 1000, "duplicate_window": 60.0, "allow_direct": False}
    server = js.nc.server_info
    if server.at_least(2, 12):
        others["allow_atomic"] = True
    if server.at_least(2, 14):
        others["allow_batched"] = True
    set_by_others = js.stream(stream).info().config.replace(**others)
    js.update_stream(set_by_others)
    (create_or_update if either else update)(js, bucket="b", storage="memory", description="new", ttl=30)
    now = js.stream(stream).info().config
    assert (now.description, now.max_age) == ("new", 30)
    assert {name: getattr(now, name) for name in others} == {**others, "duplicate_window": 30.0}
    update(js, bucket="b", storage="memory")
    now = js.stream(stream).info().config
    assert not now.description, "what the configuration of a bucket has is replaced"
    assert not now.max_age
    assert {name: getattr(now, name) for name in others} == {**others, "duplicate_window": 30.0}
    delete = keyvalue.delete_key_value if kind == "bucket" else objectstore.delete_object_store
    delete(js, "b")
    with pytest.raises(errors.BucketNotFound):
        update(js, bucket="b")
    create_or_update(js, bucket="b", storage="memory")


def test_a_source_may_be_filtered(js: JetStream) -> None:
    if not js.nc.server_info.at_least(2, 10):
        return  # transforms of sources came with 2.10
    origin = keyvalue.create_key_value(js, bucket="origin", storage="memory")
    sources = [
        StreamSource(name="origin", filter_subject="$KV.origin.red.>"),
        StreamSource(name="KV_origin", filter_subject="$KV.origin.*.new"),
        StreamSource(name="origin", filter_subject="$KV.origin.one"),
    ]
    for number, source in enumerate(sources):
        keyvalue.create_key_value(js, bucket=f"copy{number}", storage="memory", sources=[source])
    for key in ("red.a", "red.b.c", "blue.a", "blue.new", "red.new", "one"):
        origin.put(key, key.encode())
    for number, expected in enumerate(
        [["red.a", "red.b.c", "red.new"], ["blue.new", "red.new"], ["one"]],
    ):
        copy = keyvalue.key_value(js, f"copy{number}")
        wait_until(lambda copy=copy, expected=expected: sorted(copy.keys()) == expected, 10)  # type: ignore[misc]
        assert copy.get(expected[0]).value == expected[0].encode()
    with pytest.raises(errors.ConfigError, match="origin"):
        keyvalue.create_key_value(js, bucket="x", sources=[StreamSource(name="origin", filter_subject="red.>")])


def test_a_mirror_lets_markers_expire(js: JetStream) -> None:
    if not js.nc.server_info.at_least(2, 11):
        with pytest.raises(errors.NotSupported):
            keyvalue.create_key_value(js, bucket="m", allow_msg_ttl=True)
        return
    origin = keyvalue.create_key_value(js, bucket="origin", storage="memory", limit_marker_ttl=1)
    settings: dict[str, Any] = {"bucket": "m", "storage": "memory", "mirror": StreamSource(name="origin")}
    with pytest.raises(errors.ConfigError, match="allow_msg_ttl"):
        keyvalue.create_key_value(js, limit_marker_ttl=1, **settings)
    mirror = keyvalue.create_key_value(js, allow_msg_ttl=True, **settings)
    assert mirror.status().config.allow_msg_ttl
    assert keyvalue.create_key_value(js, allow_msg_ttl=True, **settings).status().bucket == "m"
    origin.create("a", b"1", ttl=1)
    origin.put("b", b"1")
    origin.purge("b", ttl=1)
    wait_until(lambda: mirror.status().values >= 2, 5)
    wait_until(lambda: mirror.status().values == origin.status().values == 0, 15)
    keyvalue.update_key_value(js, **settings)
    assert mirror.status().config.allow_msg_ttl, "a server never switches it off"


WRONG: dict[str, Callable[[keyvalue.KeyValue, objectstore.ObjectStore], object]] = {
    "revision of update": lambda kv, store: kv.update("a", b"2", None),  # type: ignore[call-overload]
    "older_than": lambda kv, store: kv.purge_deletes("1h"),  # type: ignore[arg-type]
    "older_than None": lambda kv, store: kv.purge_deletes(None),  # type: ignore[arg-type]
    "timeout of watch": lambda kv, store: kv.watch(timeout="1"),  # type: ignore[arg-type]
    "timeout of watch of a store": lambda kv, store: store.watch(timeout="1"),  # type: ignore[arg-type]
    "include_history": lambda kv, store: kv.watch(include_history=None),  # type: ignore[arg-type]
    "ttl of a bucket": lambda kv, store: keyvalue.KeyValueConfig(bucket="x", ttl=1e-10),
    "longest ttl of a bucket": lambda kv, store: keyvalue.KeyValueConfig(bucket="x", ttl=float("inf")),
    "limit_marker_ttl": lambda kv, store: keyvalue.KeyValueConfig(bucket="x", limit_marker_ttl=1e12),
    "ttl of a store": lambda kv, store: objectstore.ObjectStoreConfig(bucket="x", ttl=1e-10),
    "longest ttl of a store": lambda kv, store: objectstore.ObjectStoreConfig(bucket="x", ttl=1e12),
    "target of a link": lambda kv, store: store.add_link("l", None),  # type: ignore[arg-type]
    "nameless target": lambda kv, store: store.add_link("l", objectstore.ObjectInfo(name="", bucket="b", nuid="n")),
    "store of a link": lambda kv, store: store.add_bucket_link("l", 5),  # type: ignore[arg-type]
    "path of put_file": lambda kv, store: store.put_file(None),  # type: ignore[arg-type]
    "destination": lambda kv, store: store.get_file("a", None),  # type: ignore[arg-type]
    "repair": lambda kv, store: store.status(repair="no"),  # type: ignore[arg-type]
}


def test_wrong_arguments_are_refused_and_nothing_is_sent(js: JetStream) -> None:
    kv = keyvalue.create_key_value(js, bucket="b", storage="memory")
    store = objectstore.create_object_store(js, bucket="b", storage="memory")
    kv.put("a", b"1")
    before = js.nc.stats().messages_out
    for name, call in WRONG.items():
        with pytest.raises(errors.ConfigError):
            call(kv, store)
        assert js.nc.stats().messages_out == before, name


def test_a_ttl_is_refused_in_words_of_buckets(js: JetStream) -> None:
    if not js.nc.server_info.at_least(2, 11):
        return
    kv = keyvalue.create_key_value(js, bucket="b", storage="memory")
    for call in (lambda: kv.create("a", b"1", ttl=5), lambda: kv.purge("a", ttl=5)):
        with pytest.raises(errors.MessageTtlRefused, match="limit_marker_ttl") as caught:
            call()
        assert "stream" not in str(caught.value)


def test_compacting_keeps_values_that_come_meanwhile(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a young marker only what is before it goes: not the first of two values that were stored since."""
    kv = keyvalue.create_key_value(js, bucket="b", storage="memory", history=10)
    kv.put("a", b"1")
    kv.delete("a")
    purge = Stream.purge

    def later(stream: Stream, **options: Any) -> int:
        kv.put("a", b"2")
        kv.put("a", b"3")
        return purge(stream, **options)

    monkeypatch.setattr(Stream, "purge", later)
    assert kv.purge_deletes() == 0
    assert [(entry.operation.name, entry.value) for entry in kv.history("a")] == [
        ("DELETE", b""),
        ("PUT", b"2"),
        ("PUT", b"3"),
    ]
