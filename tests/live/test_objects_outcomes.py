"""What an object store says and keeps when links are cut, and how long its calls take."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectMeta, ObjectStore, ObjectStoreConfig
from jsclient.testing import NatsServer, Proxy, wait_until

at: dict[Any, JetStream] = {}  # the context of each bucket


@pytest.fixture
def store(server: NatsServer, proxy: Proxy) -> Iterator[ObjectStore]:
    with jsclient.connect(proxy.url) as nc, jsclient.connect(server.url) as direct:
        js = JetStream(nc)
        made = objectstore.create_object_store(js, ObjectStoreConfig(bucket="o", storage="memory"))
        at[made] = js
        yield made
        with contextlib.suppress(errors.JsClientError):  # behind a request that was held back, and makes a store
            js.account_info(timeout=10)
        home = JetStream(direct)
        for name in list(home.stream_names()):
            with contextlib.suppress(errors.StreamNotFound):  # a request that was held back deletes it, too
                home.delete_stream(name)


DATA = os.urandom(400_000)


def sources() -> dict[str, Any]:
    return {
        "bytes": DATA,
        "file": io.BytesIO(DATA),
        "pieces": iter([DATA[start : start + 10_000] for start in range(0, len(DATA), 10_000)]),
    }


@pytest.mark.parametrize("kind", ["bytes", "file", "pieces"])
def test_a_put_lives_through_cuts(store: ObjectStore, proxy: Proxy, kind: str) -> None:
    """Every chunk is stored once and in order, also where the answer to some was lost."""
    meta = ObjectMeta(name="a", chunk_size=1000)
    for direction, nbytes in (("up", 150_000), ("down", 3_000)):
        proxy.cut_after(nbytes, direction)  # type: ignore[arg-type]
        info = store.put(meta, sources()[kind])
        assert (info.size, info.chunks) == (len(DATA), 400)
        assert store.get_bytes("a") == DATA
        counts = {subject.rsplit(".", 1)[1]: count for subject, count in at[store].stream("OBJ_o").subjects("$O.o.C.>")}
        wait_until(lambda counts=counts, info=info: counts == {info.nuid: 400}, 5)  # type: ignore[misc]


def test_reads_live_through_cuts(store: ObjectStore, proxy: Proxy) -> None:
    store.put(ObjectMeta(name="a", chunk_size=1000), DATA)
    for nbytes in (50, 5_000, 200_000):
        proxy.cut_after(nbytes, "down")
        assert store.get_bytes("a") == DATA
        proxy.cut_after(nbytes, "down")
        assert [info.name for info in store.list()] == ["a"]
