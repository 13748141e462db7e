"""What an object store says and keeps when links are cut, and how long its calls take."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator
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


LINKED = objectstore.ObjectInfo(name="a", bucket="o", nuid="n")
CONFIG = ObjectStoreConfig(bucket="o", storage="memory", description="x")
CALLS: dict[str, Callable[[ObjectStore, float], object]] = {
    "put": lambda store, timeout: store.put(ObjectMeta(name="b", chunk_size=1000), DATA, timeout=timeout),
    "put one chunk": lambda store, timeout: store.put("b", b"x", timeout=timeout),
    "put_file": lambda store, timeout: store.put_file(__file__, "f", timeout=timeout),
    "get": lambda store, timeout: store.get("a", timeout=timeout),
    "open": lambda store, timeout: store.open("a", timeout=timeout),
    "get_bytes": lambda store, timeout: store.get_bytes("a", timeout=timeout),
    "get_string": lambda store, timeout: store.get_string("a", encoding="latin-1", timeout=timeout),
    "get_file": lambda store, timeout: store.get_file("a", io.BytesIO(), timeout=timeout),
    "info": lambda store, timeout: store.info("a", timeout=timeout),
    "update_meta": lambda store, timeout: store.update_meta("a", ObjectMeta(name="a"), timeout=timeout),
    "delete": lambda store, timeout: store.delete("a", timeout=timeout),
    "add_link": lambda store, timeout: store.add_link("l", LINKED, timeout=timeout),
    "add_bucket_link": lambda store, timeout: store.add_bucket_link("l", "o", timeout=timeout),
    "seal": lambda store, timeout: store.seal(timeout=timeout),
    "watch": lambda store, timeout: store.watch(timeout=timeout),
    "list": lambda store, timeout: list(store.list(timeout=timeout)),
    "status": lambda store, timeout: store.status(timeout=timeout),
    "status with repair": lambda store, timeout: store.status(repair=True, timeout=timeout),
    "object_store": lambda store, timeout: objectstore.object_store(at[store], "o", timeout=timeout),
    "create_object_store": lambda store, timeout: objectstore.create_object_store(at[store], CONFIG, timeout=timeout),
    "update_object_store": lambda store, timeout: objectstore.update_object_store(at[store], CONFIG, timeout=timeout),
    "create_or_update_object_store": lambda store, timeout: objectstore.create_or_update_object_store(
        at[store], CONFIG, timeout=timeout
    ),
    "object_store_names": lambda store, timeout: list(objectstore.object_store_names(at[store], timeout=timeout)),
    "object_stores": lambda store, timeout: list(objectstore.object_stores(at[store], timeout=timeout)),
    "delete_object_store": lambda store, timeout: objectstore.delete_object_store(at[store], "o", timeout=timeout),
}


def late_calls(store: ObjectStore, timeout: float) -> dict[str, float]:
    late = {}
    for name, call in CALLS.items():
        started = time.monotonic()
        with contextlib.suppress(errors.TimedOut, errors.JetStreamError):
            found = call(store, timeout)
            if hasattr(found, "close"):
                found.close()
        took = time.monotonic() - started
        if took > timeout + 0.2:
            late[name] = took
    return late


@pytest.mark.slow  # test_deadlines.py does it side by side, with four kinds of peers
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_timeout_bounds_every_call(store: ObjectStore, proxy: Proxy, direction: Any) -> None:
    """The peer takes nothing more, or answers nothing."""
    store.put(ObjectMeta(name="a", chunk_size=1000), DATA)
    proxy.stall(direction)
    late = late_calls(store, 0.1)
    proxy.resume()
    assert late == {}


@pytest.mark.slow
def test_a_timeout_bounds_every_call_over_a_slow_link(store: ObjectStore, proxy: Proxy) -> None:
    """Each answer takes a part of the time, and the call many of them."""
    store.put(ObjectMeta(name="a", chunk_size=1000), DATA)
    proxy.delay(0.06)
    late = late_calls(store, 0.2)
    proxy.delay(0)
    assert late == {}


def test_every_call_is_in_that_list() -> None:
    methods = {name for name in dir(ObjectStore) if not name.startswith("_")} - {"bucket", "stream_name"}
    assert methods <= {name.split()[0] for name in CALLS}
    functions = {name for name in objectstore.__all__ if name[0].islower() and not name.endswith("_digest")}
    assert functions <= set(CALLS)
