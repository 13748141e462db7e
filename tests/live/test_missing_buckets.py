"""A bucket or object store that was deleted: every public method says BucketNotFound.

The methods come from the classes, so that a new one fails here until it is said how it is called.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import jsclient
from jsclient import coordination, errors, keyvalue, objectstore
from jsclient.jetstream import JetStream, StreamSource
from jsclient.keyvalue import KeyValue
from jsclient.objectstore import ObjectMeta, ObjectStore
from jsclient.testing import NatsServer

Call = Callable[[Any], Any]

GIVEN = {"bucket", "stream_name", "typed", "encoded", "read_only", "raw"}
"""Names and other forms of the bucket: they send nothing."""


def commit_batch(kv: Any) -> None:
    batch = kv.batch()
    batch.put("a", b"1")
    batch.commit()


KEYS: dict[str, Call] = {
    "batch": commit_batch,
    "get_many": lambda kv: kv.get_many(["a"]),
    "get": lambda kv: kv.get("a"),
    "get_revision": lambda kv: kv.get_revision("a", 1),
    "put": lambda kv: kv.put("a", b"1"),
    "create": lambda kv: kv.create("a", b"1"),
    "update": lambda kv: kv.update("a", b"1", 1),
    "delete": lambda kv: kv.delete("a"),
    "purge": lambda kv: kv.purge("a"),
    "watch": lambda kv: kv.watch(),
    "keys": lambda kv: list(kv.keys()),
    "history": lambda kv: kv.history("a"),
    "purge_all": lambda kv: kv.purge_all(),
    "purge_deletes": lambda kv: kv.purge_deletes(),
    "status": lambda kv: kv.status(),
    "__getitem__": lambda kv: kv["a"],
    "__setitem__": lambda kv: kv.__setitem__("a", b"1"),
    "__delitem__": lambda kv: kv.__delitem__("a"),
    "__contains__": lambda kv: "a" in kv,
    "__iter__": lambda kv: list(kv),
}
KEYS_WRITTEN = {"batch", "put", "create", "update", "delete", "purge", "__setitem__", "__delitem__"}

OBJECTS: dict[str, Call] = {
    "put": lambda store: store.put("a", b"1"),
    "put_file": lambda store: store.put_file(__file__),
    "get": lambda store: store.get("a"),
    "open": lambda store: store.open("a"),
    "get_bytes": lambda store: store.get_bytes("a"),
    "get_string": lambda store: store.get_string("a"),
    "get_file": lambda store: store.get_file("a", io.BytesIO()),
    "info": lambda store: store.info("a"),
    "update_meta": lambda store: store.update_meta("a", ObjectMeta(name="b")),
    "delete": lambda store: store.delete("a"),
    "add_link": lambda store: store.add_link("b", objectstore.ObjectInfo(name="a", bucket="other", nuid="x")),
    "add_bucket_link": lambda store: store.add_bucket_link("b", "other"),
    "seal": lambda store: store.seal(),
    "watch": lambda store: store.watch(),
    "list": lambda store: list(store.list()),
    "status": lambda store: store.status(repair=True),
    "__iter__": lambda store: list(store),
    "__contains__": lambda store: "a" in store,
}
OBJECTS_WRITTEN = {"put", "put_file"}

LOCKS: dict[str, Call] = {
    "Lock.acquire": lambda kv: coordination.Lock(kv, "a").acquire(5.0),
    "Semaphore.acquire": lambda kv: coordination.Semaphore(kv, "a", 2).acquire(5.0),
    "once_per": lambda kv: coordination.once_per(kv, "a", 60.0),
    "holders": lambda kv: coordination.holders(kv),
}

SPECIAL = {"__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__len__", "__call__"}


def methods(kind: type) -> set[str]:
    named = {name for name in dir(kind) if not name.startswith("_") or name in SPECIAL}
    return {name for name in named - GIVEN if callable(getattr(kind, name))}


def typed(js: JetStream, kv: KeyValue) -> Any:
    return kv.typed(bytes)


def encoded(js: JetStream, kv: KeyValue) -> Any:
    return kv.encoded(keys=keyvalue.BASE64_KEYS, values=keyvalue.BASE64_VALUES)


def blind(js: JetStream, kv: KeyValue) -> Any:
    return keyvalue.key_value(js, kv.bucket, fetch_info=False)


def plain(js: JetStream, kv: KeyValue) -> Any:
    return kv


FORMS: dict[str, Callable[[JetStream, KeyValue], Any]] = {
    "plain": plain,
    "typed": typed,
    "encoded": encoded,
    "blind": blind,
}
CASES = [(form, name) for form in FORMS for name in KEYS]
CASES += [("objects", name) for name in OBJECTS] + [("locks", name) for name in LOCKS]


@pytest.fixture(scope="module")
def outcomes(server: NatsServer) -> Iterator[dict[tuple[str, str], Future[Any]]]:
    """All calls at once: a write asks twice, a quarter of a second apart, before it says that there is no stream."""
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream()
        kv = keyvalue.create_key_value(js, bucket="gone", history=5)
        store = objectstore.create_object_store(js, bucket="gone")
        keyvalue.delete_key_value(js, "gone")
        objectstore.delete_object_store(js, "gone")
        with ThreadPoolExecutor(16) as pool:
            made = {}
            for form, name in CASES:
                if form == "objects":
                    made[form, name] = pool.submit(OBJECTS[name], store)
                elif form == "locks":
                    made[form, name] = pool.submit(LOCKS[name], kv)
                else:
                    made[form, name] = pool.submit(KEYS[name], FORMS[form](js, kv))
            yield made


@pytest.mark.parametrize(("form", "name"), CASES)
def test_every_method_says_that_the_bucket_is_missing(
    form: str, name: str, outcomes: dict[tuple[str, str], Future[Any]]
) -> None:
    error = outcomes[form, name].exception(30)
    assert isinstance(error, errors.BucketNotFound)
    assert error.bucket == "gone"
    kind = "object store" if form == "objects" else "bucket"
    assert f"there is no {kind} 'gone'" in str(error)
    assert "Create it, or check the name" in str(error)
    written = name in (OBJECTS_WRITTEN if form == "objects" else KEYS_WRITTEN)
    if written:
        assert isinstance(error, errors.NotStored)
        assert isinstance(error, errors.NoStreamForSubject)  # what it was before it had a name of its own
        assert "Nothing was stored" in str(error)


@pytest.mark.parametrize(("kind", "said"), [(KeyValue, KEYS), (ObjectStore, OBJECTS)])
def test_no_method_is_left_out(kind: type, said: dict[str, Call]) -> None:
    assert methods(kind) == set(said)


def test_a_bucket_that_is_deleted_while_it_is_watched(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream()
        kv = keyvalue.create_key_value(js, bucket="watched")
        store = objectstore.create_object_store(js, bucket="watched")
        kv["a"] = b"1"
        store.put("a", b"1")
        coded = kv.encoded(values=keyvalue.BASE64_VALUES)
        watchers: list[Any] = [kv.watch(), coded.watch(meta_only=True), store.watch()]
        for watcher in watchers:
            assert len(watcher.initial(10)) == 1
        keyvalue.delete_key_value(js, "watched")
        objectstore.delete_object_store(js, "watched")
        for watcher in watchers:
            with watcher, pytest.raises(errors.BucketNotFound, match="was deleted while it was read") as gone:
                watcher.next(30)
            assert isinstance(gone.value.__cause__, errors.StreamNotFound)


def test_a_callback_of_a_watch_is_told_of_the_end(server: NatsServer) -> None:
    told: list[Exception] = []
    heard = threading.Event()

    def on_error(nc: Any, error: Exception, *_: Any) -> None:
        told.append(error)
        if isinstance(error, errors.BucketNotFound):
            heard.set()

    with jsclient.connect(server.url, on_error=on_error) as nc:
        js = nc.jetstream()
        kv = keyvalue.create_key_value(js, bucket="called")
        watcher = kv.watch(callback=lambda entry: None)
        keyvalue.delete_key_value(js, "called")
        assert heard.wait(30), told
        watcher.stop()


@pytest.mark.parametrize("size", [10, 24 << 20])
def test_an_object_store_that_is_deleted_while_an_object_is_read(server: NatsServer, size: int) -> None:
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream()
        store = objectstore.create_object_store(js, bucket="read")
        store.put("a", b"x" * size)
        with store.get("a") as reader:
            objectstore.delete_object_store(js, "read")
            with pytest.raises(errors.BucketNotFound, match="What was read is not the whole object") as gone:
                reader.readall()
        assert isinstance(gone.value.__cause__, errors.StreamNotFound)


def test_a_mirror_names_the_bucket_that_takes_its_writes(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        js = nc.jetstream()
        keyvalue.create_key_value(js, bucket="origin")
        mirror = keyvalue.create_key_value(js, bucket="copy", mirror=StreamSource(name="origin"))
        keyvalue.delete_key_value(js, "origin")
        with pytest.raises(errors.BucketGone, match="there is no bucket 'origin'") as gone:
            mirror.put("a", b"1")
        assert gone.value.bucket == "origin"
        assert mirror.status().bucket == "copy"
