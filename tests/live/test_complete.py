"""Complete means proven: listings through an import that passes one response, over cut links, beside updates."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import jsclient
from jsclient import errors, keyvalue, objectstore
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValue, KeyValueConfig
from jsclient.objectstore import ObjectMeta, ObjectStoreConfig
from jsclient.testing import LeafPair, NatsServer, Proxy, wait_until

PREFIX = "JS.acc.API"

ACCOUNTS = """
jetstream {{ }}
accounts {{
  acc {{
    jetstream: enabled
    users: [ {{ user: owner, password: x }} ]
    exports: [ {{ service: "$JS.API.>", response_type: {kind} }} ]
  }}
  guest {{
    users: [ {{ user: guest, password: x }} ]
    imports: [ {{ service: {{ account: acc, subject: "$JS.API.>" }}, to: "JS.acc.API.>" }} ]
  }}
}}
no_auth_user: guest
"""


class Import:
    """Two connections to one server: to the account with JetStream, and to one that imports its API."""

    def __init__(self, kind: str) -> None:
        self.server = NatsServer(ACCOUNTS.format(kind=kind))

    def __enter__(self) -> Import:
        self.server.start()
        self.home = JetStream(jsclient.connect(self.server.url, user="owner", password="x"))
        self.away = JetStream(jsclient.connect(self.server.url, user="guest", password="x"), api_prefix=PREFIX)
        return self

    def __exit__(self, *exc: object) -> None:
        self.away.nc.close()
        self.home.nc.close()
        self.server.stop()


@pytest.fixture
def singleton() -> Iterator[Import]:
    """`response_type: singleton` is the server's default: only the first answer to a request gets through."""
    with Import("singleton") as found:
        yield found


@pytest.mark.slow
def test_a_repair_that_does_not_see_all_objects_removes_none_of_them(singleton: Import) -> None:
    store = objectstore.create_object_store(singleton.home, ObjectStoreConfig(bucket="o"))
    for number in range(5):
        store.put(f"o{number}", b"x" * 10)
    seen = objectstore.object_store(singleton.away, "o")
    try:
        assert seen.status(repair=True).repaired == 0
    except errors.JetStreamError:
        pass  # it could not see them all, and says so
    for number in range(5):
        assert store.get_bytes(f"o{number}") == b"x" * 10


@pytest.mark.slow
def test_a_repair_that_cannot_ask_the_leader_removes_nothing(singleton: Import) -> None:
    """Also where one object's meta information cannot be read: it may be the one that the chunks belong to."""
    js = singleton.home
    store = objectstore.create_object_store(js, ObjectStoreConfig(bucket="o"))
    js.publish("$O.o.C.orphan", b"x")
    js.publish("$O.o.M.YQ==", b"no JSON")
    with pytest.raises(errors.BadObjectMeta):
        store.status(repair=True)
    assert js.stream("OBJ_o").info(subjects_filter="$O.o.C.>").state.subjects == {"$O.o.C.orphan": 1}


def answered(call: Callable[[], object]) -> bool:
    try:
        call()
    except (errors.NoResponders, errors.TimedOut):
        return False
    return True


# --- an import that passes one response -----------------------------------------------------------------------------


@pytest.mark.slow
def test_listings_through_such_an_import_say_what_is_wrong(singleton: Import) -> None:
    """Each in a few seconds, with the remedy in the text; what one response is enough for works."""
    kv = keyvalue.create_key_value(singleton.home, KeyValueConfig(bucket="b", history=3))
    for number in range(5):
        kv.put(f"k{number}", b"x")
    store = objectstore.create_object_store(singleton.home, ObjectStoreConfig(bucket="o"))
    chunked = os.urandom(5000)
    for number in range(3):
        store.put(ObjectMeta(name=f"o{number}", chunk_size=1000), chunked)
    js = singleton.away
    far, shop = keyvalue.key_value(js, "b"), objectstore.object_store(js, "o")
    assert far["k1"] == b"x"
    assert shop.info("o1").size == 5000
    stream = js.stream("KV_b")
    for call in (
        lambda: list(far.keys()),
        lambda: far.watch(include_history=True).initial(),
        lambda: list(shop.list()),
        lambda: shop.get_bytes("o1"),
        lambda: list(stream.ordered_consumer().read_until(drained=True)),
    ):
        started = time.monotonic()
        with pytest.raises(errors.ImportPassesOneResponse, match="response_type: stream"):
            call()
        assert time.monotonic() - started < 5
    assert len(far.history("k1")) == 1


def test_updates_through_such_an_import_do_not_stall(singleton: Import) -> None:
    kv = keyvalue.create_key_value(singleton.home, KeyValueConfig(bucket="b"))
    kv.put("a", b"0")
    with keyvalue.key_value(singleton.away, "b").watch() as watcher:
        assert len(watcher.initial()) == 1
        started = time.monotonic()
        with pytest.raises(errors.ImportPassesOneResponse):
            for number in range(10):
                kv.put("a", b"%d" % number)
                assert watcher.next(8) is not None
        assert time.monotonic() - started < 8


def test_an_import_that_passes_all_responses_is_like_home() -> None:
    with Import("stream") as found:
        kv = keyvalue.create_key_value(found.home, KeyValueConfig(bucket="b", history=2))
        store = objectstore.create_object_store(found.home, ObjectStoreConfig(bucket="o"))
        for number in range(50):
            kv.put(f"k{number}", b"x")
        data = os.urandom(50_000)
        store.put(ObjectMeta(name="a", chunk_size=1000), data)
        far = keyvalue.key_value(found.away, "b")
        assert len(list(far.keys())) == 50
        with far.watch() as watcher:
            assert len(watcher.initial()) == 50
            kv.put("k1", b"y")
            entry = watcher.next(5)
            assert entry is not None
            assert entry.value == b"y"
        assert objectstore.object_store(found.away, "o").get_bytes("a") == data


# --- a link of leaf nodes that is cut -------------------------------------------------------------------------------


@pytest.fixture
def cut_pair() -> Iterator[tuple[LeafPair, Proxy]]:
    proxies: list[Proxy] = []

    def between(port: int) -> int:
        proxies.append(Proxy(port).start())
        return proxies[0].port

    with LeafPair(via=between) as pair:
        yield pair, proxies[0]
    proxies[0].close()


KEYS = 400


def bucket_of(pair: LeafPair, js: JetStream, history: int) -> KeyValue:
    wait_until(lambda: answered(lambda: js.account_info(timeout=1)), 20)
    with jsclient.connect(pair.hub.url) as nc:
        home = JetStream(nc)
        for name in list(home.stream_names()):
            home.delete_stream(name)
        kv = keyvalue.create_key_value(home, KeyValueConfig(bucket="b", history=history))
        for number in range(KEYS):
            home.publish_async(f"$KV.b.k{number}", b"x" * 100)
        home.publish_async_complete(20)
        assert kv.status().values == KEYS
    return keyvalue.key_value(js, "b")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("history", [1, 5])
def test_a_listing_over_a_link_that_is_cut_is_complete(cut_pair: tuple[LeafPair, Proxy], history: int) -> None:
    """Wherever it is cut: all 400 keys, or an error, and never some of them."""
    pair, proxy = cut_pair
    with jsclient.connect(pair.leaf.url) as nc:
        js = JetStream(nc, domain="hub")
        kv = bucket_of(pair, js, history)
        assert len(list(kv.keys())) == KEYS
        complete = 0
        for nbytes in (1_500, 4_000, 12_000, 40_000, 60_000):
            wait_until(lambda: answered(lambda: js.account_info(timeout=1)), 20)
            proxy.cut_after(nbytes, "down")
            try:
                assert len(list(kv.keys(timeout=30))) == KEYS, nbytes
                complete += 1
            except errors.JsClientError as error:  # the request that makes the consumer may have been lost
                assert isinstance(error, (errors.TimedOut, errors.NoResponders)), nbytes  # noqa: PT017
            proxy.resume()
        assert complete >= 3


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_other_readings_over_a_link_that_is_cut_are_complete(cut_pair: tuple[LeafPair, Proxy]) -> None:
    pair, proxy = cut_pair
    with jsclient.connect(pair.leaf.url) as nc:
        js = JetStream(nc, domain="hub")
        kv = bucket_of(pair, js, 1)
        stream = js.stream("KV_b")

        readings: dict[str, Callable[[], int]] = {
            "ordered": lambda: len(list(stream.ordered_consumer().read_until(drained=True))),
            "purge_all": lambda: kv.purge_all(),
        }
        for name, read in readings.items():
            wait_until(lambda: answered(lambda: js.account_info(timeout=1)), 20)
            proxy.cut_after(8_000, "down")
            assert read() == KEYS, name
            proxy.resume()


# --- beside updates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [1, 2])
def test_keys_misses_no_key_that_always_had_a_value(count: Callable[[int, int], int], history: int) -> None:
    """While another connection updates them all the time."""
    names = {f"k{number}" for number in range(200)}
    with NatsServer() as server, jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        js, updating = JetStream(nc), JetStream(other)
        kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=history, storage="memory"))
        for name in names:
            kv.put(name, b"0")
        stop = threading.Event()

        def update() -> None:
            while not stop.is_set():
                for name in names:
                    updating.publish_async(f"$KV.b.{name}", b"1")
                updating.publish_async_complete(10)

        thread = threading.Thread(target=update)
        thread.start()
        try:
            missed = [names - set(kv.keys(timeout=30)) for _ in range(count(200, 20))]
        finally:
            stop.set()
            thread.join()
        assert [each for each in missed if each] == []


def test_short_waits_do_not_break_a_listing_beside_updates() -> None:
    """On a slow link: a step that does not end within a wait of the application is done in the next one."""
    names = {f"k{number}" for number in range(50)}
    with NatsServer() as server, Proxy(server.port) as proxy, jsclient.connect(server.url) as other:
        updating = JetStream(other)
        kv = keyvalue.create_key_value(updating, KeyValueConfig(bucket="b", history=2, storage="memory"))
        for name in names:
            kv.put(name, b"0")
        stop = threading.Event()

        def update() -> None:
            while not stop.is_set():
                for name in names:
                    updating.publish_async(f"$KV.b.{name}", b"1")
                updating.publish_async_complete(10)

        thread = threading.Thread(target=update)
        with jsclient.connect(proxy.url) as nc:
            far = keyvalue.key_value(JetStream(nc), "b")
            thread.start()
            try:
                proxy.delay(0.15, "down")
                with far.watch(timeout=10) as watcher:
                    seen = set()
                    while not watcher.initial_complete:
                        with contextlib.suppress(errors.TimedOut):
                            entry = watcher.next(0.7)
                            seen |= {entry.key} if entry is not None else set()
                assert seen == names
            finally:
                proxy.resume()
                stop.set()
                thread.join()


@pytest.mark.slow
def test_the_current_values_come_before_none_beside_updates() -> None:
    """A watcher's first pass has a value of every key, and what came after is given once, in order."""
    with NatsServer() as server, jsclient.connect(server.url) as nc, jsclient.connect(server.url) as other:
        js, updating = JetStream(nc), JetStream(other)
        kv = keyvalue.create_key_value(js, KeyValueConfig(bucket="b", history=3, storage="memory"))
        for number in range(100):
            kv.put(f"k{number}", b"0")
        for _ in range(10):
            futures = [updating.publish_async(f"$KV.b.k{number % 100}", b"1") for number in range(1000)]
            with kv.watch() as watcher:
                seen = watcher.initial()
                assert {entry.key for entry in seen} == {f"k{number}" for number in range(100)}
                last = futures[-1].result(10).seq
                revisions = [entry.revision for entry in seen]
                while revisions[-1] < last:
                    entry = watcher.next(5)
                    assert entry is not None
                    revisions.append(entry.revision)
                assert revisions == sorted(set(revisions))
