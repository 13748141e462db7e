"""Parts of objects and seekable files over them, on a real server."""

from __future__ import annotations

import hashlib
import io
import random
import threading
import zipfile
from collections.abc import Iterator

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectMeta, ObjectStore
from jsclient.testing import Cluster

DATA = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(1000))  # 32,000 bytes


@pytest.fixture
def store(js: JetStream) -> ObjectStore:
    store = objectstore.create_object_store(js, bucket="s", storage="memory")
    store.put(ObjectMeta(name="a", chunk_size=1000), DATA)
    return store


@pytest.mark.parametrize(
    ("start", "length"),
    [
        *((0, 0), (0, 1), (0, 1000), (0, 1001), (999, 2), (1000, 1000), (1500, 5000), (31_999, 1), (31_000, 5000)),
        *((32_000, 10), (50_000, None), (5, None), (0, 32_000), (0, 99_999)),
    ],
)
def test_get_reads_a_part(store: ObjectStore, start: int, length: int | None) -> None:
    wanted = DATA[start:] if length is None else DATA[start : start + length]
    with store.get("a", start=start, length=length) as reader:
        assert reader.read() == wanted
        assert reader.read() == b""
        assert reader.info.size == len(DATA)


def test_a_part_that_cannot_be_is_refused(store: ObjectStore) -> None:
    for start, length in ((-1, None), (0, -1), (True, None), (0, 1.5), ("1", None)):
        with pytest.raises(errors.ConfigError):
            store.get("a", start=start, length=length)  # type: ignore[arg-type]
    with pytest.raises(errors.ObjectNotFound):
        store.get("none", start=1)
    with pytest.raises(errors.ObjectNotFound):
        store.open("none")


def test_an_open_object_is_read_as_a_file_is(store: ObjectStore) -> None:
    model, chance = io.BytesIO(DATA), random.Random(47)
    with store.open("a") as file:
        assert (file.readable(), file.seekable(), file.writable(), file.info.name) == (True, True, False, "a")
        for _ in range(200):
            step = chance.randrange(4)
            if step == 0:
                place = chance.randrange(34_000)
                assert file.seek(place) == model.seek(place)
            elif step == 1:
                back = -chance.randrange(32_000)
                assert file.seek(back, io.SEEK_END) == model.seek(back, io.SEEK_END)
            elif step == 2:
                count = chance.randrange(3000)
                assert file.read(count) == model.read(count)
            else:
                assert file.readline() == model.readline()
            assert file.tell() == model.tell()
        file.seek(0)
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(DATA).digest()
        with pytest.raises(ValueError, match="seek"):
            file.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_chunks_between_others_and_of_other_sizes_are_found(js: JetStream, store: ObjectStore) -> None:
    def pieces(text: bytes, mate: threading.Barrier) -> Iterator[bytes]:
        for start in range(0, len(text), 700):
            mate.wait(10)
            yield text[start : start + 700]

    barrier = threading.Barrier(2)
    texts = {"one": DATA[:7000], "two": DATA[7000:14_000]}
    threads = [
        threading.Thread(target=lambda n=n, t=t: store.put(ObjectMeta(name=n, chunk_size=500), pieces(t, barrier)))
        for n, t in texts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, text in texts.items():
        with store.open(name) as file:
            file.seek(3210)
            assert file.read() == text[3210:]
    # Another client may store chunks that are smaller than it says.
    info = store.info("a")
    for start in range(0, 50, 7):
        js.publish("$O.s.C.uneven", DATA[:50][start : start + 7])
    changed = info.changed(name="a", description=None, headers=None, metadata=None)
    meta = {"name": "uneven", "bucket": "s", "nuid": "uneven", "size": 50, "chunks": 8, "digest": changed.digest}
    js.publish("$O.s.M.dW5ldmVu", jsclient.codecs.encode(jsclient.codecs.JSON, meta))
    assert store.get("uneven", start=13, length=20).read() == DATA[13:33]


def test_zipfile_reads_one_member(store: ObjectStore) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("big", DATA * 10)
        archive.writestr("small", b"found")
    store.put(ObjectMeta(name="zip", chunk_size=4096), packed.getvalue())
    with store.open("zip") as file, zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["big", "small"]
        assert archive.read("small") == b"found"
        assert archive.read("big") == DATA * 10


def test_parts_of_a_replicated_store_survive_a_change_of_the_leader() -> None:
    with Cluster() as cluster, jsclient.connect(cluster.url) as nc:
        js = JetStream(nc)
        store = objectstore.create_object_store(js, bucket="s", storage="memory", replicas=3)
        store.put(ObjectMeta(name="a", chunk_size=1000), DATA)
        with store.open("a") as file:
            assert file.read(1500) == DATA[:1500]
            js.stream("OBJ_s").step_down()
            file.seek(30_500)
            assert file.read() == DATA[30_500:]
        with store.get("a", start=1500, length=5000) as reader:
            assert reader.read() == DATA[1500:6500]


def test_pandas_and_pyarrow_read_an_open_object(store: ObjectStore) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"n": list(range(20_000))})
    written = io.BytesIO()
    parquet.write_table(table, written, row_group_size=5000)
    store.put(ObjectMeta(name="p", chunk_size=4096), written.getvalue())
    with store.open("p") as file:
        assert parquet.ParquetFile(file).read_row_group(3)["n"].to_pylist() == list(range(15_000, 20_000))
    pandas = pytest.importorskip("pandas")
    store.put("csv", b"n,m\n1,2\n3,4\n")
    with store.open("csv") as file:
        assert pandas.read_csv(file)["m"].tolist() == [2, 4]


def test_links_empty_and_small_objects_can_be_opened(store: ObjectStore) -> None:
    store.put("empty", b"")
    store.put("small", b"tiny")
    store.add_link("link", store.info("a"))
    with store.open("empty") as file:
        assert (file.read(), file.seek(0, io.SEEK_END)) == (b"", 0)
    with store.open("small") as file:
        file.seek(1)
        assert file.read() == b"iny"
    with store.open("link") as file:
        file.seek(31_990)
        assert file.read() == DATA[31_990:]
    assert store.get("link", start=2, length=3).read() == DATA[2:5]


def test_an_object_that_was_replaced_is_not_mixed_with_the_new_one(store: ObjectStore) -> None:
    file = store.open("a")
    assert file.read(10) == DATA[:10]
    store.put(ObjectMeta(name="a", chunk_size=1000), DATA[::-1])
    file.seek(20_000)
    with pytest.raises(errors.ObjectChanged):
        file.read(10)
    file.close()
    with store.open("a") as again:
        assert again.read(5) == DATA[::-1][:5]


def test_an_object_with_more_data_than_its_size_is_damaged(js: JetStream, store: ObjectStore) -> None:
    js.publish("$O.s.C.longer", DATA[:30])
    js.publish("$O.s.C.longer", DATA[30:60])
    digest = store.info("a").digest
    meta = {"name": "longer", "bucket": "s", "nuid": "longer", "size": 50, "chunks": 2, "digest": digest}
    js.publish("$O.s.M.bG9uZ2Vy", jsclient.codecs.encode(jsclient.codecs.JSON, meta))
    with pytest.raises(errors.DigestMismatch, match="more than its size"):
        store.get("longer", start=1, length=3)


def test_a_store_that_was_made_again_is_not_mixed_with_the_old_one(js: JetStream, store: ObjectStore) -> None:
    with store.open("a") as file:
        assert file.read(10) == DATA[:10]
        objectstore.delete_object_store(js, "s")
        again = objectstore.create_object_store(js, bucket="s", storage="memory")
        again.put(ObjectMeta(name="a", chunk_size=1000), DATA[::-1])
        file.seek(20_000)
        with pytest.raises(errors.ObjectChanged):
            file.read(10)
