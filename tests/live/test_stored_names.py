"""What others have stored becomes part of a subject only if it passes the checks that arguments pass."""

from __future__ import annotations

import logging

import pytest

from jsclient import errors, keyvalue, objectstore, services
from jsclient.checks import FilterInSubject
from jsclient.connection import engine_of
from jsclient.jetstream import JetStream, StreamConfig, StreamInfo, StreamSource
from jsclient.jetstream.api.models_stream_parts import ExternalStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.objectstore import ObjectInfo, ObjectLink, ObjectStore, ObjectStoreConfig
from jsclient.objectstore.models import meta_subject
from jsclient.testing import wait_until


@pytest.fixture
def kv(js: JetStream) -> KeyValue:
    return keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=5, storage="memory"))


@pytest.fixture
def store(js: JetStream) -> ObjectStore:
    return objectstore.create_object_store(js, ObjectStoreConfig(bucket="o", storage="memory"))


def publish_raw(js: JetStream, subject: str, payload: bytes = b"x", headers: dict[str, str] | None = None) -> None:
    """As a client does that does not check its subjects; the server stores it."""

    def stored() -> int:
        info = js.account_info()
        return info.storage + info.memory

    before = stored()
    engine_of(js.nc).enqueue(engine_of(js.nc).encode(FilterInSubject(subject), payload, b"", headers))
    js.nc.flush()
    wait_until(lambda: stored() > before, 5)  # a server stores first, and counts then


def store_meta(js: JetStream, name: str, nuid: str, link: ObjectLink | None = None) -> None:
    info = ObjectInfo(name=name, bucket="o", nuid=nuid, size=4, chunks=1, link=link)
    js.publish(meta_subject("o", name), info.to_json(), headers={"Nats-Rollup": "sub"})


@pytest.mark.parametrize("nuid", [">", "*", "a.>", "a b", "a\r\nPUB x 0"])
def test_the_nuid_of_an_object_is_no_wildcard(
    js: JetStream, store: ObjectStore, nuid: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        store.put(f"innocent {number}", b"data")
    store_meta(js, "a", nuid)
    with pytest.raises(errors.BadObjectMeta, match="nuid"):
        store.get_bytes("a")
    with caplog.at_level(logging.WARNING, "jsclient.objectstore"):
        store.put("a", b"new")
    assert "nuid" in caplog.text
    assert store.get_bytes("a") == b"new"
    store_meta(js, "b", nuid)
    store.delete("b")
    store_meta(js, "c", nuid)
    store.add_link("d", store.info("a"))
    assert store.get_bytes("d") == b"new"
    for number in range(4):
        assert store.get_bytes(f"innocent {number}") == b"data"


@pytest.mark.slow
def test_a_repair_purges_no_wildcard(js: JetStream, store: ObjectStore) -> None:
    store.put("innocent", b"data")
    publish_raw(js, "$O.o.C.>")
    publish_raw(js, "$O.o.C.*")
    store_meta(js, "a", ">")
    js.publish("$O.o.C.orphan", b"x")
    assert store.status(repair=True).repaired == 1
    assert store.get_bytes("innocent") == b"data"


def test_a_link_leads_to_no_other_subject(js: JetStream, store: ObjectStore) -> None:
    for number, bucket in enumerate((">", "a.b", "*", "")):
        store_meta(js, f"link {number}", "n", ObjectLink(bucket, "x"))
        with pytest.raises(errors.ObjectLinkError):
            store.get(f"link {number}")
    with pytest.raises(errors.InvalidName):
        store.add_link("l", ObjectInfo(name="x", bucket="a.>", nuid="n"))


@pytest.mark.parametrize("subject", ["$KV.b.>", "$KV.b.*", "$KV.b.a.>"])
def test_a_key_is_no_wildcard(js: JetStream, kv: KeyValue, subject: str) -> None:
    for number in range(5):
        kv.put(f"a.{number}", b"x")
    kv.put("gone", b"x")
    kv.delete("gone")
    publish_raw(js, subject, b"", {"KV-Operation": "DEL"})
    assert kv.purge_deletes(0) == 1
    assert [kv[f"a.{number}"] for number in range(5)] == [b"x"] * 5
    publish_raw(js, subject)
    assert len(kv.history("a.0")) == 1
    assert kv.purge_all() == 5
    for key in (">", "*", "a.>"):
        with pytest.raises(errors.InvalidName):
            kv.purge(key)


def test_subjects_of_a_listing_are_no_filters(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the newest messages are asked for by subject, one by one or in parts, each must mean itself."""
    from jsclient.jetstream import batch_get

    monkeypatch.setattr(batch_get, "serves_many", lambda stream, timeout: False)
    stream = js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
    js.publish("s.a", b"1")
    assert [message.data for message in stream.get_last_msgs("s.>")] == [b"1"]
    publish_raw(js, "s.>")
    with pytest.raises(errors.InvalidSubject, match="stored subject"):
        list(stream.get_last_msgs("s.>"))


def test_a_mirror_writes_to_no_other_subject(js: JetStream) -> None:
    """Name and prefix of the origin come from the server's answer."""
    config = KeyValueConfig(bucket="m", mirror=StreamSource(name="b")).to_stream()
    info = js.create_stream(StreamConfig(name="KV_m", subjects=["m"])).info()
    for source in (
        StreamSource(name="KV_b.>"),
        StreamSource(name="KV_b", external=ExternalStream(api="a.>")),
        StreamSource(name="KV_b", external=ExternalStream(api="a b")),
    ):
        forged = msgspec_replace(info, config.replace(mirror=source))
        with pytest.raises(errors.BadBucket):
            KeyValue(js, "m", forged)


def msgspec_replace(info: StreamInfo, config: StreamConfig) -> StreamInfo:
    import msgspec

    return msgspec.structs.replace(info, config=config)


def test_names_and_ids_of_services_are_tokens(js: JetStream) -> None:
    for name, id in ((">", ""), ("a.b", ""), ("a", "*"), ("a", "b.>"), ("a b", "")):
        with pytest.raises(errors.InvalidName):
            services.ping(js.nc, name, id)
