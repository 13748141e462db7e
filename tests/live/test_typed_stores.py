"""Values instead of bytes in buckets and services."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.live.test_typed import Order

import jsclient
from jsclient import codecs, errors, services
from jsclient.jetstream import JetStream
from jsclient.keyvalue import (
    BASE64_KEYS,
    BASE64_VALUES,
    KeyValue,
    KeyValueConfig,
    Operation,
    create_key_value,
    delete_key_value,
    key_value,
)
from jsclient.testing import wait_until

# --- buckets ----------------------------------------------------------------------------------------------------


@pytest.fixture
def kv(nc: jsclient.Connection) -> Iterator[KeyValue]:
    js = JetStream(nc)
    yield create_key_value(js, KeyValueConfig(bucket="TYPED", history=5, storage="memory"))
    delete_key_value(js, "TYPED")


def test_a_typed_bucket(kv: KeyValue) -> None:
    orders = kv.typed(Order)
    revision = orders.put("a", Order(1))
    assert orders.get("a").value == Order(1)
    assert orders.update("a", Order(2), revision) == revision + 1
    assert orders.get_revision("a", revision).value == Order(1)
    assert orders.create("b", Order(3)) == 3
    with pytest.raises(errors.KeyExists):
        orders.create("b", Order(4))
    assert orders["b"].id == 3
    orders["c"] = Order(5)
    assert "c" in orders
    assert kv.get("c").json() == {"id": 5, "total": 0.0}
    del orders["c"]
    assert sorted(orders) == ["a", "b"]
    assert orders.get("c", default=None) is None
    first, second = orders.history("a")
    assert (first.value, second.value, second.revision, second.is_put) == (Order(1), Order(2), 2, True)
    put, deleted = orders.history("c")
    assert (put.value.id, deleted.operation, deleted.bucket, deleted.key) == (5, Operation.DELETE, "TYPED", "c")
    with pytest.raises(errors.KeyDeleted, match="there is no value"):
        deleted.value  # noqa: B018
    orders.purge("a")
    with pytest.raises(errors.KeyNotFound):
        orders.get("a")
    with pytest.raises(errors.EncodeFailed):
        orders.put("a", object())  # type: ignore[arg-type]


def test_a_typed_bucket_stores_nothing_that_it_could_not_read(kv: KeyValue) -> None:
    orders: Any = kv.typed(Order)
    wrong: Any = Order(1)
    wrong.id = "no number"
    for value in ("text", b"bytes", None, {"total": 1.0}, [Order(1)], wrong):
        for write in (orders.put, orders.create, partial(orders.update, revision=0), orders.__setitem__):
            with pytest.raises(errors.EncodeFailed, match="cannot be read again as Order.*Nothing was sent"):
                write("a", value)
    assert kv.status().values == 0
    orders["a"] = {"id": 1, "total": 2.0}
    assert orders["a"] == Order(1, 2.0)
    optional: Any = Order | None
    kv.typed(optional).put("b", None)
    assert kv.typed(list[Order]).put("c", [Order(1)]) == 3


def test_a_watch_gives_typed_entries(kv: KeyValue) -> None:
    orders = kv.typed(Order)
    orders.put("a", Order(1))
    kv.put("b", b"no order")
    with orders.watch(timeout=5) as watcher:
        first, second = watcher.initial()
        assert (first.value.id, first.key, second.key, watcher.initial_complete) == (1, "a", "b", True)
        with pytest.raises(errors.DecodeFailed, match=r"of 'b' in bucket 'TYPED', revision 2, are no Order"):
            second.value  # noqa: B018
        orders.put("c", Order(3))
        assert next(watcher).value.id == 3
        watcher.stop()
        assert list(watcher) == []
    with kv.typed(Order, on_bad="skip").watch(timeout=5) as watcher:
        entry = watcher.next()
        assert entry is not None
        assert entry.value.id == 1
        assert next(watcher).value.id == 3
        assert watcher.next(5) is None
        with pytest.raises(errors.TimedOut):
            watcher.next(0.1)
    with pytest.raises(errors.DecodeFailed):
        orders.get("b")
    with pytest.raises(errors.ConfigError, match="on_bad"):
        kv.typed(Order, on_bad="reject")  # type: ignore[arg-type]


def test_a_type_and_codecs_in_either_order(kv: KeyValue) -> None:
    first = kv.encoded(keys=BASE64_KEYS, values=BASE64_VALUES).typed(Order)
    second = kv.typed(Order).encoded(keys=BASE64_KEYS, values=BASE64_VALUES)
    first.put("new order!", Order(1))
    for orders in (first, second):
        entry = orders.get("new order!")
        assert (entry.key, entry.value) == ("new order!", Order(1))
        assert entry.data == BASE64_VALUES.encode(b'{"id":1,"total":0.0}')
        value = entry.value
        assert entry.value is value
    assert first.typed(dict)["new order!"] == {"id": 1, "total": 0.0}


def test_a_typed_watch_without_values_has_none(kv: KeyValue) -> None:
    orders = kv.typed(Order)
    orders.put("a", Order(1))
    orders.put("b", Order(1))
    orders.delete("b")
    with orders.watch(meta_only=True, timeout=5) as watcher:
        value, marker = watcher.initial()
    with pytest.raises(errors.ConfigError, match="no value of 'a': meta_only leaves it out"):
        value.value  # noqa: B018
    with pytest.raises(errors.KeyDeleted):
        marker.value  # noqa: B018
    assert [entry.key for entry in orders.history("a", meta_only=True)] == ["a"]


def test_entries_are_equal_and_can_be_pickled_however_they_are_decoded(kv: KeyValue) -> None:
    class Locked:
        lock = threading.Lock()

        def encode(self, value: bytes, /) -> bytes:
            return value[::-1]

        decode = encode

    kv.put("a", b'{"id": 1}'[::-1])
    locked = kv.encoded(values=Locked())
    entry, again = locked.get("a"), kv.encoded(values=Locked()).get("a")
    assert entry == again
    assert again.json() == entry.json() == {"id": 1}
    assert entry == again
    assert kv.typed(Order).encoded(values=Locked()).get("a") == kv.get("a")
    loaded = pickle.loads(pickle.dumps(entry))
    assert (loaded, loaded.value) == (entry, b'{"id": 1}')
    assert pickle.loads(pickle.dumps(kv.get("a"))).value == kv["a"]


def test_skip_and_attributes_of_a_subclass_stay_with_other_handles(kv: KeyValue, nc: jsclient.Connection) -> None:
    class Audited(KeyValue):
        audit = "none"

    kv.put("no=base64", b"1")
    kv.put(BASE64_KEYS.encode("good"), b"1")
    assert list(kv.encoded(keys=BASE64_KEYS, on_bad="skip").typed(int)) == ["good"]
    assert list(kv.typed(int, on_bad="skip").encoded(keys=BASE64_KEYS)) == ["good"]
    audited = Audited(JetStream(nc), kv.bucket)
    audited.audit = "all"
    assert audited.read_only().audit == "all"  # type: ignore[attr-defined]


def test_the_codec_of_a_bucket(nc: jsclient.Connection, kv: KeyValue) -> None:
    packed = kv.typed(Order, codec=codecs.MSGPACK)
    packed.put("a", Order(1))
    assert kv.get("a").value == codecs.MSGPACK.encode(Order(1))
    again = key_value(JetStream(nc, codec=codecs.MSGPACK), "TYPED").typed(Order)
    assert again.get("a").value == Order(1)
    with pytest.raises(errors.DecodeFailed):
        kv.typed(Order).get("a")


# --- services -----------------------------------------------------------------------------------------------------


class Price(msgspec.Struct):
    of: int
    total: float


def price(request: services.TypedRequest[Order]) -> Price:
    return Price(request.value.id, request.value.total * 2)


def test_services_take_and_give_values(nc: jsclient.Connection) -> None:
    def by_hand(request: services.TypedRequest[Order]) -> None:
        if request.value.id == 7:
            request.error(409, "not this one")
        elif request.value.id == 8:
            request.respond(object())
        else:
            request.respond(Price(request.value.id, 0.5))

    config = services.ServiceConfig(name="prices", version="1.0.0")
    with services.add_service(nc, config) as service:
        endpoint = service.add_endpoint("price", price, decode=Order)
        service.add_endpoint("hand", by_hand, decode=Order)
        assert services.call(nc, "price", Order(3, 1.5), decode=Price, timeout=5) == Price(3, 3.0)
        assert services.call(nc, "price", '{"id": 4}', decode=dict[str, float], timeout=5) == {"of": 4, "total": 0}
        assert services.call(nc, "hand", Order(3), decode=Price, timeout=5) == Price(3, 0.5)
        with pytest.raises(errors.ServiceError, match="the request is no Order") as bad:
            services.call(nc, "price", b"no order", decode=Price, timeout=5)
        assert bad.value.code == "400"
        with pytest.raises(errors.ServiceError, match="not this one"):
            services.call(nc, "hand", Order(7), decode=Price, timeout=5)
        with pytest.raises(errors.ServiceError, match="EncodeFailed"):
            services.call(nc, "hand", Order(8), decode=Price, timeout=5)
        with pytest.raises(errors.DecodeFailed, match="are no Order"):
            services.call(nc, "price", Order(3), decode=Order, timeout=5)
        wait_until(lambda: endpoint.stats().num_requests == 4, 5)
        counted = {one.name: one for one in service.stats().endpoints}
        assert counted["price"].num_errors == 1
        assert counted["price"].last_error.startswith("400:the request is no Order")
        wait_until(lambda: {e.name: e.num_errors for e in service.stats().endpoints}["hand"] == 2, 5)
