"""Objects without a server: names, meta information, sources of data, the reader."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient import errors
from jsclient.objectstore import ObjectInfo, ObjectLink, ObjectMeta, ObjectReader, ObjectStoreConfig
from jsclient.objectstore.digest import decode_digest, encode_digest
from jsclient.objectstore.models import decode_info, meta_subject
from jsclient.objectstore.sources import chunks_of


@pytest.mark.parametrize("name", ["a", "with space", "*", ">", "a.b..c.", "名前", "\n", "x" * 2000, "/etc/passwd"])
def test_any_text_is_an_object_name(name: str) -> None:
    subject = meta_subject("b", name)
    token = subject.removeprefix("$O.b.M.")
    assert base64.urlsafe_b64decode(token).decode() == name
    assert not set(token) & set(" .*>\r\n")


@pytest.mark.parametrize(("name", "reason"), [("", "empty"), ("x" * 10_000, "longer"), ("\ud800", "text"), (7, "str")])
def test_names_that_cannot_travel_are_refused(name: Any, reason: str) -> None:
    with pytest.raises(errors.InvalidName) as caught:
        meta_subject("b", name)
    assert reason in str(caught.value)


@given(st.binary(min_size=32, max_size=32))
def test_digests_are_read_in_every_spelling(raw: bytes) -> None:
    text = encode_digest(raw)
    assert text.startswith("SHA-256=")
    assert decode_digest(text) == raw
    assert decode_digest(text.rstrip("=")) == raw
    assert decode_digest("sha-256=" + text.removeprefix("SHA-256=")) == raw


@pytest.mark.parametrize("text", ["", "SHA-256=", "SHA-256=!!!", "SHA-1=AAAA", "SHA-256=AAAA", "nonsense"])
def test_other_digests_are_refused(text: str) -> None:
    with pytest.raises(errors.BadObjectMeta):
        decode_digest(text)


def test_meta_information_is_what_nats_go_writes() -> None:
    info = ObjectInfo(name="a", bucket="b", nuid="n", size=5, chunks=1, digest="SHA-256=x", chunk_size=131072)
    plain = json.loads(info.to_json())
    assert plain == {
        "name": "a",
        "options": {"max_chunk_size": 131072},
        "bucket": "b",
        "nuid": "n",
        "size": 5,
        "mtime": "0001-01-01T00:00:00Z",
        "chunks": 1,
        "digest": "SHA-256=x",
    }
    link = ObjectInfo(name="a", bucket="b", nuid="n", link=ObjectLink("c", "d"), headers={"h": ["1", "2"]})
    assert json.loads(link.to_json())["options"] == {"link": {"bucket": "c", "name": "d"}}
    # Readers that skip empty objects look for the number, so it is always there.
    assert json.loads(link.to_json())["size"] == 0


def test_meta_information_of_other_clients_is_read() -> None:
    raw = b'{"name":"a","bucket":"b","nuid":"n","size":null,"headers":{"h":"1"},"future":true,"options":null}'
    info = decode_info(raw, "b", None, 3)
    assert (info.size, info.headers, info.revision, info.deleted) == (0, {"h": ["1"]}, 3, False)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"name":7}', b'{"name":"a","size":-1}', b"\xff"])
def test_what_is_no_meta_information_is_refused(raw: bytes) -> None:
    with pytest.raises(errors.BadObjectMeta):
        decode_info(raw, "b", None, 0)


def test_configuration_is_the_stream_that_nats_go_makes() -> None:
    assert ObjectStoreConfig(bucket="b").to_stream().to_dict() == {
        "name": "OBJ_b",
        "subjects": ["$O.b.C.>", "$O.b.M.>"],
        "max_bytes": -1,
        "storage": "file",
        "num_replicas": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
    config = ObjectStoreConfig(bucket="b", ttl=5)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("make", [lambda: ObjectMeta(name="a", chunk_size=0), lambda: ObjectStoreConfig(bucket="a b")])
def test_bad_settings_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        make()


# --- where data comes from ----------------------------------------------------------------------------------


class Trickle(io.RawIOBase):
    """A file that gives at most three bytes at a time, like a pipe."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(memoryview(buffer)[:3])


@given(st.binary(max_size=50), st.integers(1, 9), st.integers(1, 60))
def test_every_source_gives_the_same_chunks(data: bytes, size: int, cut: int) -> None:
    pieces = [data[start : start + cut] for start in range(0, len(data), cut)]
    sources: list[Any] = [
        data,
        bytearray(data),
        memoryview(data),
        io.BytesIO(data),
        Trickle(data),
        iter(pieces),
        pieces,
    ]
    expected = [data[start : start + size] for start in range(0, len(data), size)]
    for source in sources:
        with chunks_of(source, size) as (chunks, total):
            assert list(chunks) == expected
            assert total in (None, len(data))


def test_paths_and_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with chunks_of(path, 2) as (chunks, total):
        assert (list(chunks), total) == ([b"12", b"34", b"5"], 5)
    with chunks_of("grüße", 100) as (chunks, total):
        assert (list(chunks), total) == (["grüße".encode()], 7)
    with path.open("rb") as file:
        file.seek(3)
        with chunks_of(file, 10) as (chunks, total):
            assert (list(chunks), total) == ([b"45"], 2)


@pytest.mark.parametrize("source", [io.StringIO("x"), ["text"], 7, object()])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(errors.ConfigError), chunks_of(source, 5) as (chunks, _):
        list(chunks)


# --- reading ------------------------------------------------------------------------------------------------


def reader_of(data: bytes, cut: int = 4, **changes: Any) -> ObjectReader:
    chunks: Iterator[bytes] = (data[start : start + cut] for start in range(0, len(data), cut))
    settings = {"size": len(data), "digest": encode_digest(hashlib.sha256(data).digest()), **changes}
    return ObjectReader(ObjectInfo(name="a", bucket="b", nuid="n", **settings), chunks)


@given(st.binary(max_size=60), st.integers(1, 9), st.lists(st.integers(1, 12)))
def test_the_reader_is_a_binary_file(data: bytes, cut: int, reads: list[int]) -> None:
    assert reader_of(data, cut).read() == data
    assert reader_of(data, cut).readall() == data
    assert b"".join(reader_of(data, cut).chunks()) == data
    assert io.BufferedReader(reader_of(data, cut)).read() == data
    target = io.BytesIO()
    shutil.copyfileobj(reader_of(data, cut), target, 5)
    assert target.getvalue() == data
    reader, got = reader_of(data, cut), b""
    for size in reads:
        got += reader.read(size)
    assert got + reader.read(-1) == data
    assert reader.read(1) == b""
    assert list(reader_of(data, cut)) == list(io.BytesIO(data))


def test_text_on_top() -> None:
    text = io.TextIOWrapper(io.BufferedReader(reader_of("grüße\nund mehr\n".encode(), 3)), encoding="utf-8")
    assert text.readlines() == ["grüße\n", "und mehr\n"]


def test_damage_is_found_before_the_last_bytes_are_given() -> None:
    reader = reader_of(b"12345678", digest=encode_digest(hashlib.sha256(b"other").digest()))
    assert reader.read(4) == b"1234"
    with pytest.raises(errors.DigestMismatch):
        reader.read(4)
    assert reader.closed
    with pytest.raises(errors.DigestMismatch, match="only 8 of 9"):
        reader_of(b"12345678", size=9).readall()
    with pytest.raises(errors.DigestMismatch, match="more than"):
        reader_of(b"12345678", size=7).readall()


def test_a_closed_reader_says_so() -> None:
    reader = reader_of(b"1234")
    with reader:
        assert reader.readable()
        assert not reader.seekable()
    with pytest.raises(ValueError):
        reader.read()


def test_progress_counts_bytes() -> None:
    seen: list[tuple[int, int]] = []
    info = ObjectInfo(name="a", bucket="b", nuid="n", size=10)
    ObjectReader(info, iter([b"1234", b"567890"]), lambda done, total: seen.append((done, total))).readall()
    assert seen == [(4, 10), (10, 10)]


def test_paths_are_not_mixed_up_with_text() -> None:
    assert isinstance(Path("x"), os.PathLike)
    assert not isinstance("x", os.PathLike)
