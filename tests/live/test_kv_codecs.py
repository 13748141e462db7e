"""Buckets with keys and values written by codecs, against a real server."""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import jsclient
from jsclient import errors
from jsclient.jetstream import JetStream
from jsclient.keyvalue import (
    BASE64_KEYS,
    BASE64_VALUES,
    PATH_KEYS,
    KeyChain,
    KeyValue,
    create_key_value,
    delete_key_value,
)
from jsclient.testing import NatsServer, wait_until


class Packed:
    """Compressed values."""

    def encode(self, value: bytes, /) -> bytes:
        return zlib.compress(value)

    def decode(self, stored: bytes, /) -> bytes:
        return zlib.decompress(stored)


@pytest.fixture
def kv(nc: jsclient.Connection) -> Iterator[KeyValue]:
    js = JetStream(nc)
    yield create_key_value(js, bucket="CODED", history=5, storage="memory")
    delete_key_value(js, "CODED")


@pytest.mark.parametrize(
    ("codec", "keys"),
    [
        (PATH_KEYS, ["/etc/hosts", "/etc/ssh/config", "home/anna"]),
        (BASE64_KEYS, ["Acme Inc.näme", "a b.c", "*.>"]),
        (KeyChain(PATH_KEYS, BASE64_KEYS), ["/Program Files/ä", "/b", "c"]),
    ],
    ids=repr,
)
def test_every_operation_knows_the_key_as_the_program_does(kv: KeyValue, codec: Any, keys: list[str]) -> None:
    coded = kv.encoded(keys=codec, values=Packed())
    first, second, third = keys
    revision = coded.put(first, b"one")
    assert kv.get(codec.encode(first)).value == zlib.compress(b"one")
    entry = coded.get(first)
    assert (entry.key, entry.value, entry.revision) == (first, b"one", revision)
    revision = coded.update(first, "two", revision)
    assert coded.create(second, bytearray(b"three")) == revision + 1
    coded[third] = memoryview(b"four")
    assert coded.get_revision(first, revision).value == b"two"
    assert (coded[first], first in coded, "nothing" in coded) == (b"two", True, False)
    assert sorted(coded) == sorted(coded.keys()) == sorted(keys)
    with coded.watch(timeout=5) as watcher:
        assert {entry.key: entry.value for entry in watcher.initial()} == dict(
            zip(keys, [b"two", b"three", b"four"], strict=True)
        )
        del coded[third]
        assert (watcher.next() or watcher.next()).key == third  # type: ignore[union-attr]
    assert [(entry.key, entry.value) for entry in coded.history(first)] == [(first, b"one"), (first, b"two")]
    assert [entry.is_put for entry in coded.history(third)] == [True, False]
    coded.purge(second)
    assert list(coded.keys()) == [first]
    assert coded.purge_all() == 1
    assert list(coded) == []
    assert coded.purge_deletes(0) == 3


def test_errors_name_the_key_of_the_program(kv: KeyValue) -> None:
    paths = kv.encoded(keys=PATH_KEYS)
    revision = paths.put("/a/b", b"1")
    failing: list[tuple[type[errors.BucketError], Any]] = [
        (errors.KeyNotFound, lambda: paths.get("/a/c")),
        (errors.KeyNotFound, lambda: paths.get_revision("/a/c", revision)),
        (errors.KeyNotFound, lambda: paths.history("/a/c")),
        (errors.KeyExists, lambda: paths.create("/a/b", b"2")),
        (errors.RevisionMismatch, lambda: paths.update("/a/b", b"2", revision + 7)),
        (errors.RevisionMismatch, lambda: paths.delete("/a/b", revision=revision + 7)),
        (errors.RevisionMismatch, lambda: paths.purge("/a/b", revision=revision + 7)),
    ]
    for kind, call in failing:
        with pytest.raises(kind, match="'/a/[bc]'") as caught:
            call()
        assert vars(caught.value)["key"] in ("/a/b", "/a/c")
        assert "_root_" not in str(caught.value)
    assert paths.get("/a/c", default=None) is None
    assert paths.get("/a/b").value == b"1"


def test_patterns_are_encoded(kv: KeyValue) -> None:
    paths = kv.encoded(keys=PATH_KEYS)
    for key in ("/etc/hosts", "/etc/ssh/config", "/home/anna", "etc/hosts"):
        paths.put(key, b"x")
    assert sorted(paths.keys("/etc/>")) == ["/etc/hosts", "/etc/ssh/config"]
    assert sorted(paths.keys("/home/*", "/etc/*")) == ["/etc/hosts", "/home/anna"]
    with paths.watch("/etc/*", timeout=5) as watcher:
        assert [entry.key for entry in watcher.initial()] == ["/etc/hosts"]


class Shift:
    """A key codec without patterns."""

    def encode(self, key: str, /) -> str:
        return "x" + key

    def decode(self, stored: str, /) -> str:
        if not stored.startswith("x"):
            raise LookupError("no x")
        return stored[1:]


def test_a_codec_without_patterns_lists_everything(kv: KeyValue) -> None:
    shifted = kv.encoded(keys=Shift())
    shifted.put("a", b"1")
    assert list(shifted.keys()) == list(shifted.keys("a")) == ["a"]
    for call in (lambda: shifted.keys("*"), lambda: shifted.watch(">")):
        with pytest.raises(errors.ConfigError, match="encode_filter"):
            call()


def test_what_the_codecs_cannot_read_is_told_in_its_place(kv: KeyValue, caplog: pytest.LogCaptureFixture) -> None:
    coded = kv.encoded(keys=Shift(), values=BASE64_VALUES)
    coded.put("a", b"1")
    kv.put("foreign", b"x")
    kv.put("xbad", b"no base64!")
    coded.put("z", b"2")
    with coded.watch(timeout=5) as watcher:
        assert next(watcher).key == "a"
        with pytest.raises(errors.DecodeFailed, match="'foreign' in bucket 'CODED' is no key") as failed:
            watcher.next()
        assert (failed.value.seq, isinstance(failed.value.__cause__, LookupError)) == (2, True)
        unread = next(watcher)
        with pytest.raises(errors.DecodeFailed, match="'bad' in bucket 'CODED', revision 3, are no value") as failed:
            unread.value  # noqa: B018
        assert failed.value.payload == b"no base64!"
        assert next(watcher).value == b"2"
        assert watcher.next() is None
    with pytest.raises(errors.DecodeFailed):
        coded.get("bad")
    assert "bad" in coded
    with pytest.raises(errors.DecodeFailed):
        list(coded.keys())
    (unread,) = coded.history("bad")
    with pytest.raises(errors.DecodeFailed):
        unread.value  # noqa: B018
    with pytest.raises(errors.DecodeFailed):
        coded.get_many(["a", "bad"])["bad"].value  # noqa: B018
    with coded.watch(meta_only=True, timeout=5) as watcher:  # no values came, so none is decoded
        keys = []
        for _ in range(4):
            try:
                keys.append(next(watcher).key)
            except errors.DecodeFailed:
                keys.append("?")
    assert keys == ["a", "?", "bad", "z"]
    skipping = kv.encoded(keys=Shift(), values=BASE64_VALUES, on_bad="skip")
    with caplog.at_level(logging.WARNING, "jsclient.keyvalue"):
        with skipping.watch(timeout=5) as watcher:
            assert [entry.key for entry in watcher.initial()] == ["a", "z"]
        assert list(skipping.keys()) == ["a", "bad", "z"]
        assert skipping.history("bad") == []
    assert len(caplog.records) == 4
    with pytest.raises(errors.DecodeFailed):
        skipping.get("bad")


def test_a_callback_goes_on_after_what_cannot_be_read(server: NatsServer) -> None:
    told: list[Any] = []
    with jsclient.connect(server.url, on_error=lambda *what: told.extend(what)) as nc:
        js = JetStream(nc)
        kv = create_key_value(js, bucket="CALLED", storage="memory")
        try:
            seen: list[bytes] = []
            with kv.encoded(values=BASE64_VALUES).watch(callback=lambda entry: seen.append(entry.value)):
                kv.put("a", b"no base64!")
                kv.put("b", b"YQ")
                wait_until(lambda: seen == [b"a"], 10)
            wait_until(lambda: [type(one) for one in told].count(errors.DecodeFailed) == 1, 10)
        finally:
            delete_key_value(js, "CALLED")


@dataclasses.dataclass
class Profile:
    color: str


def test_values_of_a_type_under_encoded_keys(kv: KeyValue) -> None:
    profiles = kv.encoded(keys=PATH_KEYS, values=Packed()).typed(Profile)
    profiles.put("/people/anna", Profile("red"))
    assert profiles["/people/anna"] == Profile("red")
    with profiles.watch("/people/*", timeout=5) as watcher:
        (entry,) = watcher.initial()
    assert (entry.key, entry.value) == ("/people/anna", Profile("red"))


def test_what_cannot_be_encoded_is_not_sent(kv: KeyValue) -> None:
    class Broken:
        def encode(self, value: Any, /) -> Any:
            raise LookupError("broken")

        decode = encode

    for coded in (kv.encoded(keys=Broken()), kv.encoded(values=Broken())):
        with pytest.raises(errors.EncodeFailed, match="broken"):
            coded.put("a", b"1")
    for value in (5, None, [1, 2], 1.5):  # bytes() would make zeros of an int
        with pytest.raises(errors.EncodeFailed, match="a value of type"):
            kv.encoded(values=BASE64_VALUES).put("a", value)  # type: ignore[call-overload]
    with pytest.raises(errors.EncodeFailed, match="broken"):
        kv.encoded(keys=Broken()).watch("a")
    with pytest.raises(errors.InvalidName, match=r"has a '\.'"):
        kv.encoded(keys=PATH_KEYS).put("app.conf", b"1")
    with pytest.raises(errors.InvalidName):
        kv.encoded(keys=PATH_KEYS).put("a//b", b"1")
    assert list(kv) == []
    with pytest.raises(errors.ConfigError, match="encode and decode"):
        kv.encoded(keys=Shift)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="on_bad"):
        kv.encoded(keys=Shift(), on_bad="reject")  # type: ignore[arg-type]
    coded = kv.encoded(keys=PATH_KEYS)
    with pytest.raises(errors.ConfigError, match="KeyChain"):
        coded.encoded(values=BASE64_VALUES)
