"""Buckets that are mirrors of one in another domain: writes, listings, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors, keyvalue, objectstore
from jsclient.cli import main
from jsclient.jetstream import JetStream, StreamConfig, StreamSource
from jsclient.testing import LeafPair, Proxy, wait_until


class Rig:
    """A hub with the bucket `o`, and a leaf node with its mirror `m`; the link between them is a proxy's."""

    def __init__(self, pair: LeafPair, proxy: Proxy, hub: JetStream, leaf: JetStream) -> None:
        self.pair, self.proxy, self.hub, self.leaf = pair, proxy, hub, leaf


@pytest.fixture
def rig() -> Iterator[Rig]:
    proxies: list[Proxy] = []

    def via(port: int) -> int:
        proxies.append(Proxy(port).start())
        return proxies[0].port

    try:
        with LeafPair(via=via) as pair, jsclient.connect(pair.hub.url) as hub, jsclient.connect(pair.leaf.url) as leaf:
            found = Rig(pair, proxies[0], JetStream(hub), JetStream(leaf, publish_timeout=1.5))
            keyvalue.create_key_value(found.hub, bucket="o", history=5)
            origin = StreamSource(name="o", domain="hub")
            wait_until(lambda: _found(lambda: JetStream(leaf, domain="hub").account_info(timeout=1)), 10)
            keyvalue.create_key_value(found.leaf, bucket="m", history=5, mirror=origin)
            yield found
    finally:
        proxies[0].close()


def _found(call: Callable[[], object]) -> bool:
    try:
        call()
    except errors.JsClientError:
        return False
    return True


@pytest.mark.slow
def test_a_write_over_a_link_that_is_down_is_not_said_to_find_no_bucket(rig: Rig) -> None:
    kv = keyvalue.key_value(rig.leaf, "m")
    kv.put("a", b"1")
    remote = keyvalue.key_value(JetStream(rig.leaf.nc, domain="hub", publish_timeout=1.5), "o")
    wait_until(lambda: "a" in kv, 10)
    rig.proxy.refuse()
    rig.proxy.cut()
    for server in (rig.pair.hub, rig.pair.leaf):
        wait_until(lambda server=server: not server.monitor("leafz").get("leafnodes"), 10)  # type: ignore[misc]
    try:
        for write in (
            lambda: kv.put("a", b"2"),
            lambda: kv.create("b", b"2"),
            lambda: kv.delete("a"),
            lambda: remote.put("a", b"2"),
            lambda: remote.create("b", b"2"),
        ):
            with pytest.raises(errors.NotStored) as caught:
                write()
            assert not isinstance(caught.value, errors.BucketNotFound), caught.value
        with pytest.raises(errors.JsClientError) as caught_all:
            kv.purge_all(timeout=3)
        assert not isinstance(caught_all.value, errors.BucketNotFound)
    finally:
        rig.proxy.accept()
    wait_until(lambda: rig.pair.hub.monitor("leafz").get("leafnodes"), 15)

    wait_until(lambda: _found(lambda: kv.put("a", b"3")), 15)


def test_a_bucket_that_is_gone_is_still_said_to_be_gone(rig: Rig) -> None:
    keyvalue.create_key_value(rig.hub, bucket="gone")
    kv = keyvalue.create_key_value(rig.hub, bucket="mirror", mirror=StreamSource(name="gone"))
    remote = keyvalue.key_value(JetStream(rig.hub.nc, domain="hub", publish_timeout=3), "gone")
    for one in (kv, remote):
        one.put("a", b"1")
    keyvalue.delete_key_value(rig.hub, "gone")
    with pytest.raises(errors.BucketGone, match="gone"):
        kv.put("a", b"3")


def test_what_a_refused_write_says_is_read_from_the_origin(rig: Rig) -> None:
    """The mirror does not have it yet."""
    kv = keyvalue.create_key_value(
        rig.leaf, bucket="late", mirror=StreamSource(name="o", domain="hub", opt_start_seq=1_000_000)
    )
    origin = keyvalue.key_value(rig.hub, "o")
    revision = origin.put("refused", b"1")
    with pytest.raises(errors.KeyExists):
        kv.create("refused", b"2")
    with pytest.raises(errors.RevisionMismatch, match="is not at revision"):
        kv.update("refused", b"2", revision + 1)
    keyvalue.delete_key_value(rig.leaf, "late")


def test_listings_have_mirrors(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    objectstore.create_object_store(rig.hub, bucket="files")
    rig.leaf.create_stream(
        StreamConfig(
            name="OBJ_files",
            mirror=StreamSource(name="OBJ_files", domain="hub"),
            mirror_direct=True,
            allow_rollup_hdrs=True,  # without it 2.9 and 2.10 do not copy meta information
        )
    )
    keyvalue.create_key_value(rig.leaf, bucket="plain")
    rig.leaf.create_stream(StreamConfig(name="OTHER", subjects=["other"]))
    assert sorted(keyvalue.key_value_store_names(rig.leaf)) == ["m", "plain"]
    assert sorted(status.bucket for status in keyvalue.key_value_stores(rig.leaf)) == ["m", "plain"]
    assert list(objectstore.object_store_names(rig.leaf)) == ["files"]
    assert [status.bucket for status in objectstore.object_stores(rig.leaf)] == ["files"]
    for group, expected in (("kv", ["m", "plain"]), ("object", ["files"])):
        assert main([group, "ls", "--names", "-s", rig.pair.leaf.url]) == 0
        assert sorted(capsys.readouterr().out.split()) == expected
    objectstore.object_store(rig.hub, "files").put("a", b"x" * 300_000)
    copy = objectstore.object_store(rig.leaf, "files")
    wait_until(lambda: "a" in copy, 10)
    assert copy.get_bytes("a") == b"x" * 300_000
