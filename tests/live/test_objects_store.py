"""Object stores on a real server, whatever its version."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.objectstore import ObjectLink, ObjectMeta, ObjectStore, ObjectStoreConfig
from jsclient.testing import LeafPair, NatsServer, Proxy, wait_until

Count = Callable[[int, int], int]


@pytest.fixture
def store(js: JetStream) -> ObjectStore:
    return objectstore.create_object_store(js, ObjectStoreConfig(bucket="o", storage="memory"))


def chunk_subjects(store: ObjectStore) -> dict[str, int]:
    """What chunks there are, by their last token."""
    return {subject.rsplit(".", 1)[1]: count for subject, count in store._stream.subjects(f"$O.{store.bucket}.C.>")}


def no_rubbish(store: ObjectStore) -> None:
    """Every chunk belongs to an object, and every object has all its chunks."""
    assert chunk_subjects(store) == {info.nuid: info.chunks for info in store.list() if info.chunks}


DATA = os.urandom(700_000)


def test_put_and_get_in_every_way(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    pieces = [DATA[start : start + 50_000] for start in range(0, len(DATA), 50_000)]
    sources: dict[str, Any] = {
        "bytes": DATA,
        "bytearray": bytearray(DATA),
        "path": path,
        "file": io.BytesIO(DATA),
        "iterator": iter(pieces),
        "list": pieces,
    }
    for name, source in sources.items():
        info = store.put(name, source)
        assert (info.name, info.bucket, info.size, info.chunks) == (name, "o", len(DATA), 6)
        assert store.get_bytes(name) == DATA
    store.put("text", "grüße")
    assert store.get_string("text") == "grüße"
    store.put_file(path, "named")
    store.get_file("named", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA
    target = io.BytesIO()
    assert store.get_file("named", target).size == len(DATA)
    assert target.getvalue() == DATA
    with store.get("named") as reader, (tmp_path / "again").open("wb") as file:
        shutil.copyfileobj(reader, file)
    assert (tmp_path / "again").read_bytes() == DATA
    store.put("empty", b"")
    assert store.get_bytes("empty") == b""
    assert store.put_file(path).name == str(path)
    no_rubbish(store)


def test_reading_in_small_pieces(store: ObjectStore) -> None:
    store.put(ObjectMeta(name="a", chunk_size=1000), DATA[:5500])
    assert store.info("a").chunks == 6
    with store.get("a") as reader:
        assert reader.info.chunk_size == 1000
        got = b"".join(iter(lambda: reader.read(333), b""))
    assert got == DATA[:5500]
    with store.get("a") as reader:
        assert reader.read(10) == DATA[:10]
    wait_until(lambda: not list(store._js.consumer_names("OBJ_o")), 10, "a consumer was left behind")


def test_any_thread_may_close_a_reader(server: NatsServer, store: ObjectStore) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
        store.put("a", DATA * 20)
        reader = ObjectStore(JetStream(nc), "o").get("a")
        reader.read(10)
        proxy.stall()
        failed: list[BaseException] = []

        def read_all() -> None:
            try:
                reader.readall()
            except (ValueError, errors.JsClientError) as error:
                failed.append(error)

        thread = threading.Thread(target=read_all)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        closer = threading.Thread(target=reader.close)
        closer.start()
        thread.join(5)
        assert isinstance(failed[0], ValueError)
        proxy.resume()
        closer.join(10)
        assert not closer.is_alive()


@pytest.mark.spark  # pandas is installed with the extra of that name only
def test_pandas_reads_it(store: ObjectStore) -> None:
    import pandas

    store.put("table.csv", "a,b\n" + "".join(f"{n},{n * n}\n" for n in range(20_000)))
    with store.get("table.csv") as reader:
        table = pandas.read_csv(reader)
    assert list(table["b"][:4]) == [0, 1, 4, 9]
    assert len(table) == 20_000


def test_what_an_info_tells(store: ObjectStore) -> None:
    meta = ObjectMeta(name="a", description="d", headers={"h": "1", "i": ["2", "3"]}, metadata={"m": "n"})
    put = store.put(meta, b"12345")
    info = store.info("a")
    assert (info.description, info.headers, info.metadata) == ("d", {"h": ["1"], "i": ["2", "3"]}, {"m": "n"})
    assert info.digest == put.digest
    assert hashlib.sha256(b"12345").digest() == objectstore.decode_digest(info.digest)
    assert (info.revision, info.nuid, info.deleted, info.is_link) == (put.revision, put.nuid, False, False)
    assert info.mtime is not None
    assert put.mtime is not None
    assert abs((info.mtime - put.mtime).total_seconds()) < 10
    assert "a" in store
    assert "none" not in store


NAMES = ["a b", "*", ">", "a.b..", "名前/🙂", "\r\n", "x" * 2000, "$O.o.C.x", "=", "."]


def test_any_text_is_a_name(store: ObjectStore) -> None:
    for name in NAMES:
        store.put(name, name)
    assert {info.name for info in store.list()} == set(NAMES)
    for name in NAMES:
        assert store.get_string(name) == name


def test_names_that_cannot_travel_never_reach_the_wire(js: JetStream, store: ObjectStore) -> None:
    before = js.nc.stats().bytes_out
    bad: list[Any] = ["", "x" * 10_000, "é" * 5_000, "\ud800", None, 7, b"a"]
    calls: list[Callable[[Any], object]] = [
        lambda name: store.put(name, b"x"),
        store.get,
        store.info,
        store.delete,
        lambda name: store.add_bucket_link(name, "other"),
    ]
    for name in bad:
        for call in calls:
            with pytest.raises(errors.ConfigError):  # also InvalidName
                call(name)
    for bucket in ("", "a b", "a.b", "*", "ü", "x" * 10_000):
        for make in (objectstore.object_store, objectstore.delete_object_store):
            with pytest.raises(errors.InvalidName):
                make(js, bucket)
    assert js.nc.stats().bytes_out == before


def test_overwriting_and_deleting_free_the_chunks(store: ObjectStore) -> None:
    first = store.put("a", DATA)
    second = store.put("a", DATA[:200_000])
    assert chunk_subjects(store) == {second.nuid: 2}
    assert first.nuid != second.nuid
    assert store.get_bytes("a") == DATA[:200_000]
    store.delete("a")
    assert chunk_subjects(store) == {}
    with pytest.raises(errors.ObjectNotFound):
        store.get("a")
    with pytest.raises(errors.ObjectNotFound):
        store.delete("never was")
    gone = store.info("a", show_deleted=True)
    assert (gone.deleted, gone.size, gone.chunks, gone.digest) == (True, 0, 0, "")
    assert store.get("a", show_deleted=True).read() == b""
    assert ([*store.list()], [info.name for info in store.list(show_deleted=True)]) == ([], ["a"])
    store.put("a", b"again")
    assert store.get_bytes("a") == b"again"


def test_threads_that_replace_the_same_object_leave_one_whole(js: JetStream, store: ObjectStore) -> None:
    contents = [os.urandom(300_000) for _ in range(6)]
    failures: list[BaseException] = []

    def work(data: bytes) -> None:
        try:
            for _ in range(3):
                ObjectStore(js, "o").put("a", data)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.get_bytes("a") in contents
    no_rubbish(store)


def test_meta_information_and_renaming(store: ObjectStore) -> None:
    store.put("a", DATA)
    store.put("other", b"x")
    changed = store.update_meta("a", ObjectMeta(name="a", description="new", metadata={"k": "v"}))
    assert (changed.description, changed.size) == ("new", len(DATA))
    with pytest.raises(errors.ObjectExists):
        store.update_meta("a", ObjectMeta(name="other"))
    store.update_meta("a", ObjectMeta(name="b"))
    assert store.get_bytes("b") == DATA
    assert "a" not in store
    assert "a" not in [info.name for info in store.list(show_deleted=True)]
    store.delete("other")
    store.update_meta("b", ObjectMeta(name="other"))
    assert store.get_bytes("other") == DATA
    with pytest.raises(errors.ObjectNotFound):
        store.update_meta("b", ObjectMeta(name="c"))
    no_rubbish(store)


def test_links(js: JetStream, store: ObjectStore) -> None:
    target = store.put("a", b"data")
    link = store.add_link("l", target)
    assert link.link == ObjectLink("o", "a")
    assert store.get_bytes("l") == b"data"
    assert store.get("l").info.name == "a"
    assert store.info("l").is_link
    other = objectstore.create_object_store(js, ObjectStoreConfig(bucket="p"))
    other.add_link("far", target)
    assert other.get_bytes("far") == b"data"
    other.add_bucket_link("far", store)  # a link may replace a link
    with pytest.raises(errors.ObjectLinkError):
        other.get("far")
    with pytest.raises(errors.ObjectExists):
        store.add_link("a", target)
    with pytest.raises(errors.ObjectLinkError):
        store.add_link("m", store.info("l"))
    store.delete("a")
    with pytest.raises(errors.ObjectLinkError):
        store.add_link("m", store.info("a", show_deleted=True))
    with pytest.raises(errors.ObjectNotFound):
        store.get("l")
    store.delete("l")
    assert "l" not in store


def test_watching(store: ObjectStore) -> None:
    store.put("a", b"1")
    store.put("b", b"2")
    store.delete("b")
    with store.watch() as watcher:
        first, second = watcher.next(5), watcher.next(5)
        assert first is not None
        assert second is not None
        assert [(first.name, first.deleted), (second.name, second.deleted)] == [("a", False), ("b", True)]
        assert watcher.next(5) is None
        store.put("c", b"3")
        third = watcher.next(5)
        assert third is not None
        assert (third.name, third.size) == ("c", 1)
        with pytest.raises(errors.TimedOut):
            watcher.next(0.2)
    with store.watch(ignore_deletes=True, timeout=5) as watcher:
        assert [info.name for info in watcher.initial()] == ["a", "c"]
    with store.watch(updates_only=True) as watcher:
        store.delete("a")
        info = watcher.next(5)
        assert info is not None
        assert info.deleted
    with store.watch(include_history=True, timeout=5) as watcher:
        assert len(watcher.initial()) == 3


def test_somebody_elses_rubbish_does_not_end_a_listing(js: JetStream, store: ObjectStore) -> None:
    store.put("a", b"1")
    js.publish("$O.o.M.bm9uc2Vuc2U=", b"not json")
    store.put("b", b"2")
    assert [info.name for info in store.list()] == ["a", "b"]
    with pytest.raises(errors.BadObjectMeta):
        store.info("nonsense")


def test_a_flipped_byte_is_found_and_no_file_is_left(js: JetStream, store: ObjectStore, tmp_path: Path) -> None:
    for size in (700_000, 100):
        info = store.put("a", DATA[:size])
        chunks = [message.data for message in store._stream.get_batch(10, seq=1, subject=f"$O.o.C.{info.nuid}")]
        middle = len(chunks) // 2
        chunks[middle] = bytes([chunks[middle][0] ^ 1]) + chunks[middle][1:]
        store._stream.purge(subject=f"$O.o.C.{info.nuid}")
        for chunk in chunks:
            js.publish(f"$O.o.C.{info.nuid}", chunk)
        with pytest.raises(errors.DigestMismatch):
            store.get_bytes("a")
        old = tmp_path / "old"
        old.write_bytes(b"kept")
        for path in (old, tmp_path / "new"):
            with pytest.raises(errors.DigestMismatch):
                store.get_file("a", path)
        assert [path.name for path in tmp_path.iterdir()] == ["old"]
        assert old.read_bytes() == b"kept"


def test_missing_chunks_are_found(store: ObjectStore) -> None:
    for size in (700_000, 100):
        info = store.put("a", DATA[:size])
        reader = store.get("a")
        store._stream.purge(subject=f"$O.o.C.{info.nuid}")
        with pytest.raises((errors.ObjectChanged, errors.DigestMismatch)):
            store.get_bytes("a")
        reader.close()


class Broken(Exception):
    pass


def failing_after(pieces: int) -> Iterator[bytes]:
    for _ in range(pieces):
        yield os.urandom(131_072)
    raise Broken


def test_a_put_that_fails_leaves_the_old_object_and_no_rubbish(store: ObjectStore) -> None:
    store.put("a", b"old")
    for pieces in (0, 1, 50):
        with pytest.raises(Broken):
            store.put("a", failing_after(pieces))
        with pytest.raises(Broken):
            store.put("never", failing_after(pieces))
        assert store.get_bytes("a") == b"old"
        no_rubbish(store)
    assert "never" not in store
    with pytest.raises(FileNotFoundError):
        store.put("a", Path("/nonexistent/file"))
    with pytest.raises(errors.ConfigError):
        store.put("a", io.StringIO("text"))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        store.put("a", DATA * 20, progress=interrupt)
    assert store.get_bytes("a") == b"old"
    no_rubbish(store)


def interrupt(done: int, total: int | None) -> None:
    raise KeyboardInterrupt


def test_a_full_store_refuses_and_keeps_what_it_has(js: JetStream) -> None:
    config = ObjectStoreConfig(bucket="small", max_bytes=500_000, storage="memory")
    store = objectstore.create_object_store(js, config)
    store.put("a", DATA[:200_000])
    with pytest.raises(errors.StoreFailed):
        store.put("b", DATA)
    assert store.get_bytes("a") == DATA[:200_000]
    no_rubbish(store)
    store.put("c", DATA[:100_000])


def test_progress(store: ObjectStore) -> None:
    seen: list[tuple[int, int | None]] = []
    store.put("a", DATA * 10, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (7_000_000, 7_000_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 5
    seen.clear()
    store.get_bytes("a", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (7_000_000, 7_000_000)
    assert len(seen) == 54


@pytest.mark.slow
def test_repair_removes_what_killed_writers_left(js: JetStream, store: ObjectStore) -> None:
    kept = store.put("kept", DATA)
    for nuid in ("orphan1", "orphan2"):
        for _ in range(3):
            js.publish(f"$O.o.C.{nuid}", b"x" * 1000)
    assert store.status().repaired == 0
    assert len(chunk_subjects(store)) == 3
    assert store.status(repair=True).repaired == 2
    assert chunk_subjects(store) == {kept.nuid: 6}
    assert store.status(repair=True).repaired == 0


@pytest.mark.slow
def test_repair_leaves_uploads_under_way_alone(js: JetStream, store: ObjectStore) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        for number in range(40):
            yield DATA[number * 1000 : (number + 1) * 1000]
            if number == 10:
                started.set()
            go_on.wait(0.1)

    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(store.put(ObjectMeta(name="slow", chunk_size=1000), slow())))
    thread.start()
    assert started.wait(20)
    js.publish("$O.o.C.orphan", b"x")
    assert ObjectStore(js, "o").status(repair=True).repaired == 1
    go_on.set()
    thread.join()
    assert store.get_bytes("slow") == DATA[:40_000]
    no_rubbish(store)


@pytest.mark.slow
def test_an_upload_that_paused_too_long_fails_and_replaces_nothing(js: JetStream, store: ObjectStore) -> None:
    store.put("a", b"old")
    repaired: list[int] = []

    def pausing() -> Iterator[bytes]:
        yield from [DATA[:1000]] * 40
        wait_until(lambda: any(count >= 5 for count in chunk_subjects(store).values()), 10)
        repaired.append(ObjectStore(js, "o").status(repair=True).repaired)
        yield from [DATA[:1000]] * 40

    with pytest.raises(errors.ObjectChanged):
        store.put(ObjectMeta(name="a", chunk_size=1000), pausing())
    assert repaired == [1]
    assert store.get_bytes("a") == b"old"
    no_rubbish(store)


def test_making_finding_and_deleting(server: NatsServer, js: JetStream) -> None:
    config = ObjectStoreConfig(bucket="o", description="one", ttl=3600, max_bytes=1 << 20)
    store = objectstore.create_object_store(js, config)
    objectstore.create_object_store(js, config)
    with pytest.raises(errors.BucketExists):
        objectstore.create_object_store(js, ObjectStoreConfig(bucket="o"))
    status = store.status()
    assert (status.bucket, status.description, status.ttl, status.sealed) == ("o", "one", 3600.0, False)
    assert (status.storage, status.replicas, status.backing_store, status.size) == ("file", 1, "JetStream", 0)
    objectstore.update_object_store(js, ObjectStoreConfig(bucket="o", description="two"))
    objectstore.create_or_update_object_store(js, ObjectStoreConfig(bucket="p"))
    assert sorted(objectstore.object_store_names(js)) == ["o", "p"]
    assert {status.description for status in objectstore.object_stores(js)} == {"two", ""}
    assert objectstore.object_store(js, "o").status().description == "two"
    js.create_stream(StreamConfig(name="OBJ_x", subjects=["x"]))
    with pytest.raises(errors.BadBucket):
        objectstore.object_store(js, "x")
    objectstore.delete_object_store(js, "o")
    for call in (objectstore.object_store, objectstore.delete_object_store):
        with pytest.raises(errors.BucketNotFound):
            call(js, "o")
    with pytest.raises(errors.BucketNotFound):
        store.info("a")
    with pytest.raises(errors.BucketNotFound):
        store.status()
    with pytest.raises(errors.JetStreamError):
        store.put("a", b"x")


def test_a_sealed_store_changes_no_more(store: ObjectStore) -> None:
    store.put("a", b"1")
    store.seal()
    assert store.status().sealed
    assert store.get_bytes("a") == b"1"
    for change in (lambda: store.put("b", b"2"), lambda: store.delete("a")):
        with pytest.raises(errors.JetStreamError):
            change()
    assert store.get_bytes("a") == b"1"


def test_compression_and_metadata_or_a_reason(server: NatsServer, js: JetStream) -> None:
    config = ObjectStoreConfig(bucket="o", compression=True, metadata={"owner": "me"})
    if server.version < (2, 10):
        with pytest.raises(errors.NotSupported, match=r"2\.10"):
            objectstore.create_object_store(js, config)
        return
    status = objectstore.create_object_store(js, config).status()
    assert status.is_compressed
    assert status.metadata == {"owner": "me"}


def test_a_store_in_another_domain() -> None:
    """API calls take the domain's prefix; the subjects of objects do not, and reach the hub over the leaf link."""
    with LeafPair() as pair, jsclient.connect(pair.leaf.url) as nc:
        pair.wait_ready()
        store = objectstore.create_object_store(JetStream(nc, domain="hub"), ObjectStoreConfig(bucket="far"))
        store.put("a", DATA)
        assert store.get_bytes("a") == DATA
        assert [info.name for info in store.list()] == ["a"]
        store.delete("a")
        no_rubbish(store)


def test_a_put_that_is_not_permitted_says_so_soon() -> None:
    denied = """
        authorization { users = [
            {user: all, password: p}
            {user: few, password: p, permissions: {publish: {deny: ["$O.>"]}}}
        ] }
    """
    with NatsServer(denied) as own:
        host = own.url.removeprefix("nats://")
        with jsclient.connect(f"nats://all:p@{host}") as nc:
            objectstore.create_object_store(JetStream(nc), ObjectStoreConfig(bucket="o"))
        with jsclient.connect(f"nats://few:p@{host}") as nc:
            store = objectstore.object_store(JetStream(nc), "o")
            for data in (b"small", DATA):
                with pytest.raises(errors.JsClientError) as caught:
                    store.put("a", data)
                assert "ermission" in repr(caught.value) + repr(caught.value.__cause__)


def test_handles_do_not_pickle(store: ObjectStore) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(store)


MEMORY_PROGRAM = """
import resource, sys, jsclient
from jsclient import objectstore
from jsclient.jetstream import JetStream

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def chunks(size):
    piece = bytes(range(256)) * 4096
    for _ in range(size):
        yield piece

class Sink:
    got = 0
    def write(self, data):
        self.got += len(data)

url, size = sys.argv[1], int(sys.argv[2])
with jsclient.connect(url) as nc:
    store = objectstore.create_object_store(JetStream(nc), objectstore.ObjectStoreConfig(bucket="big"))
    store.put("warm", b"x" * 1_000_000)
    store.get_bytes("warm")
    before = peak()
    store.put("big", chunks(size))
    put = peak()
    sink = Sink()
    store.get_file("big", sink)
    assert sink.got == size << 20, sink.got
    print(put - before, peak() - before)
"""


@pytest.mark.timeout(600)
def test_memory_stays_small_whatever_the_size(server: NatsServer, js: JetStream, count: Count) -> None:
    size = count(1024, 103)
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM, server.url, str(size)], capture_output=True, text=True, timeout=500
    )
    assert ran.returncode == 0, ran.stderr
    put, both = map(int, ran.stdout.split())
    assert put < 64
    assert both < 64
