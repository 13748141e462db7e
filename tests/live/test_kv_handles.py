"""Handles on a bucket for reading only, and on mirrors: without a lookup, and through a durable consumer (ADR-58)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import jsclient
from jsclient import errors, keyvalue
from jsclient.jetstream import ConsumerConfig, JetStream, SourceConsumer, StreamSource
from jsclient.keyvalue import PATH_KEYS, KeyValue, KeyValueConfig
from jsclient.testing import Cluster, LeafPair, NatsServer, wait_until

WRITES: dict[str, Callable[[Any], Any]] = {
    "put": lambda kv: kv.put("a", 2),
    "create": lambda kv: kv.create("b", 2),
    "update": lambda kv: kv.update("a", 2, 1),
    "delete": lambda kv: kv.delete("a"),
    "purge": lambda kv: kv.purge("a"),
    "batch": lambda kv: kv.batch(),
    "set item": lambda kv: kv.__setitem__("a", 2),
    "del item": lambda kv: kv.__delitem__("a"),
}


@pytest.mark.parametrize("write", [*WRITES, "purge_all", "purge_deletes"])
def test_a_read_only_handle_writes_nothing(js: JetStream, write: str) -> None:
    kv = keyvalue.create_key_value(js, bucket="b", storage="memory")
    kv.put("a", b"1")
    reader = kv.read_only()
    assert (reader["a"], repr(reader), repr(kv)) == (b"1", "<KeyValue b read-only>", "<KeyValue b>")
    assert repr(reader.encoded()) == "<KeyValue b read-only>"
    assert repr(kv.encoded(keys=PATH_KEYS).typed(int)) == f"<KeyValue b of int keys={PATH_KEYS!r}>"
    assert [entry.value for entry in reader.typed(int).history("a")] == [1]
    handles: list[Any] = [reader.typed(int)]
    call = WRITES.get(write)
    if call is None:
        handles, call = [reader, reader.encoded(), kv.encoded().read_only()], lambda kv: getattr(kv, write)()
    elif write in ("delete", "purge", "batch", "del item"):
        handles += [reader, reader.encoded(keys=PATH_KEYS), kv.encoded(keys=PATH_KEYS).read_only()]
    for handle in handles:
        with pytest.raises(errors.ConfigError, match=r"bucket 'b' is for reading.*Nothing was sent"):
            call(handle)
    assert kv.status().stream_info.state.last_seq == 1
    kv.put("a", b"2")
    assert reader.get("a", direct=False).value == b"2"


def test_a_mirror_handle_without_a_lookup_in_another_domain() -> None:
    source = StreamSource(name="o", domain="hub")
    with LeafPair() as pair, jsclient.connect(pair.hub.url) as hub, jsclient.connect(pair.leaf.url) as leaf:
        origin = keyvalue.create_key_value(JetStream(hub), bucket="o", history=5)
        wait_until(lambda: reached(JetStream(leaf, domain="hub")), 10)
        keyvalue.create_key_value(JetStream(leaf), bucket="m", history=5, mirror=source)
        asked = leaf.stats().messages_out
        kv = keyvalue.key_value(JetStream(leaf), "m", fetch_info=False, mirror=source)
        assert leaf.stats().messages_out == asked
        revision = kv.put("a", b"1", headers={"Author": "sue"})
        assert origin.get("a", direct=False).revision == revision
        wait_until(lambda: "a" in kv, 10)
        assert kv["a"] == b"1"
        assert kv.get("a").headers["Author"] == "sue"
        assert kv.update("a", b"2", revision) == revision + 1
        with pytest.raises(errors.RevisionMismatch):
            kv.update("a", b"2", revision)
        reader = kv.read_only()
        wait_until(lambda: reader["a"] == b"2", 10)
        with pytest.raises(errors.ConfigError):
            reader.delete("a")


def reached(js: JetStream) -> bool:
    try:
        js.account_info(timeout=1)
    except errors.JsClientError:
        return False
    return True


def test_where_a_mirror_can_be_named(js: JetStream) -> None:
    with pytest.raises(errors.ConfigError, match="fetch_info=False"):
        keyvalue.key_value(js, "m", mirror=StreamSource(name="o"))
    with pytest.raises(errors.BadBucket):
        keyvalue.key_value(js, "m", fetch_info=False, mirror=StreamSource(name="a.b"))
    wrong: Any = "o"
    with pytest.raises(errors.ConfigError):
        keyvalue.key_value(js, "m", fetch_info=False, mirror=wrong)


def test_purge_deletes_on_a_mirror_cleans_the_copy_only(js: JetStream) -> None:
    origin = keyvalue.create_key_value(js, KeyValueConfig(bucket="o", history=5))
    mirror = keyvalue.create_key_value(js, KeyValueConfig(bucket="m", history=5, mirror=StreamSource(name="o")))
    mirror.put("a", b"1")
    mirror.delete("a")
    wait_until(lambda: mirror.status().values == 2, 10)
    assert mirror.purge_deletes(0) == 1
    with pytest.raises(errors.KeyNotFound):
        mirror.history("a")
    assert len(origin.history("a")) == 2


def mirrored(js: JetStream, replicas: int) -> tuple[KeyValue, KeyValue]:
    """A bucket, and a mirror of it that reads through a durable consumer."""
    origin = keyvalue.create_key_value(js, KeyValueConfig(bucket="o", replicas=replicas))
    js.create_push_consumer(
        "KV_o",
        ConsumerConfig(
            durable_name="M",
            deliver_subject="mirrors.o",
            ack_policy="flow_control",
            flow_control=True,
            idle_heartbeat=1.0,
        ),
    )
    source = StreamSource(name="o", consumer=SourceConsumer(name="M", deliver_subject="mirrors.o"))
    return origin, keyvalue.create_key_value(js, KeyValueConfig(bucket="m", replicas=replicas, mirror=source))


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_mirror_through_a_durable_consumer(server: NatsServer, replicas: int) -> None:
    if server.version < (2, 14, 0):
        pytest.skip("durable consumers of mirrors need nats-server 2.14")
    with Cluster(3) if replicas == 3 else NatsServer() as owner, jsclient.connect(owner.url) as nc:
        js = JetStream(nc)
        origin, mirror = mirrored(js, replicas)
        origin.put("a", b"1", headers={"Author": "sue"})
        wait_until(lambda: "a" in mirror, 15)
        assert mirror.get("a").headers["Author"] == "sue"
        revision = mirror.put("b", b"2")
        assert origin.get("b", direct=False).revision == revision
        wait_until(lambda: sorted(mirror.keys()) == ["a", "b"], 15)
        config = mirror.status().stream_info.config.mirror
        assert config is not None
        assert config.consumer is not None
        assert config.consumer.name == "M"
