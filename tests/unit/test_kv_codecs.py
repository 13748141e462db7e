"""The key and value codecs of buckets, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsclient import errors
from jsclient.keyvalue import BASE64_KEYS, BASE64_VALUES, PATH_KEYS, KeyChain, ValueChain
from jsclient.keyvalue.key_codecs import filter_of
from jsclient.keyvalue.keys import valid_key

#: path -> what orbit's kvcodec stores for it
PATHS = {
    "/": "_root_",
    "/a": "_root_.a",
    "/a/b": "_root_.a.b",
    "a/b": "a.b",
    "a/b/": "a.b",
    "/a/": "_root_.a",
    "a": "a",
}


@pytest.mark.parametrize(("path", "stored"), PATHS.items())
def test_paths_are_stored_as_orbit_stores_them(path: str, stored: str) -> None:
    assert PATH_KEYS.encode(path) == stored
    assert PATH_KEYS.decode(stored) == (path if path == "/" else path.removesuffix("/"))


@pytest.mark.parametrize("path", ["a.b", "/etc/app.conf", "_root_", "_root_/a"])
def test_a_path_that_would_not_come_back_is_refused(path: str) -> None:
    with pytest.raises(errors.InvalidName):
        PATH_KEYS.encode(path)


def test_names_that_look_like_the_root() -> None:
    for path in ("_root_x", "a/_root_", "_root_x/b"):
        assert PATH_KEYS.decode(PATH_KEYS.encode(path)) == path


def test_base64_is_that_of_orbit() -> None:
    assert BASE64_KEYS.encode("Acme Inc.contact") == "QWNtZSBJbmM.Y29udGFjdA"
    assert BASE64_KEYS.decode("QWNtZSBJbmM.Y29udGFjdA") == "Acme Inc.contact"
    assert BASE64_VALUES.encode(b"\xff\xfe") == b"__4"
    assert BASE64_VALUES.decode(b"__4") == b"\xff\xfe"


@given(st.lists(st.text(min_size=1).filter(lambda token: "." not in token), min_size=1).map(".".join))
def test_any_text_is_a_key_in_base64(key: str) -> None:
    stored = BASE64_KEYS.encode(key)
    assert valid_key(stored)
    assert BASE64_KEYS.decode(stored) == key


@given(st.binary())
def test_any_bytes_are_a_value_in_base64(value: bytes) -> None:
    assert BASE64_VALUES.decode(BASE64_VALUES.encode(value)) == value


@pytest.mark.parametrize("stored", ["a", "YR", "a b", "YQ==", "YQ\n", "_w", "Y*"])
def test_what_is_no_base64_is_refused(stored: str) -> None:
    with pytest.raises(ValueError, match=r"base64|[Ii]ncorrect padding|utf-8|[Nn]on-base64|Invalid"):
        BASE64_KEYS.decode(stored)


def test_patterns_keep_their_wildcards() -> None:
    assert BASE64_KEYS.encode_filter("a.*.b.>") == "YQ.*.Yg.>"
    assert PATH_KEYS.encode_filter("/etc/*/x") == "_root_.etc.*.x"
    assert PATH_KEYS.encode_filter("/>") == "_root_.>"
    assert KeyChain(PATH_KEYS, BASE64_KEYS).encode_filter("/a/>") == "X3Jvb3Rf.YQ.>"


class Upper:
    """Keys in small letters are stored in large ones; no patterns."""

    def encode(self, key: str, /) -> str:
        return key.upper()

    def decode(self, stored: str, /) -> str:
        return stored.lower()


class Backwards:
    """Values backwards."""

    def encode(self, value: bytes, /) -> bytes:
        return value[::-1]

    decode = encode


def test_a_codec_without_patterns() -> None:
    assert filter_of(Upper(), "a.b") == "A.B"
    for pattern in ("a.*", ">"):
        with pytest.raises(errors.ConfigError, match="encode_filter"):
            filter_of(Upper(), pattern)
        with pytest.raises(errors.ConfigError, match="encode_filter"):
            KeyChain(PATH_KEYS, Upper()).encode_filter(pattern.replace(".", "/"))


def test_chains_decode_in_the_other_order() -> None:
    keys = KeyChain(PATH_KEYS, Upper(), BASE64_KEYS)
    assert keys.encode("/a/b") == BASE64_KEYS.encode("_ROOT_.A.B")
    assert keys.decode(keys.encode("a/b")) == "a/b"
    values = ValueChain(Backwards(), BASE64_VALUES)
    assert values.encode(b"ab") == BASE64_VALUES.encode(b"ba")
    assert values.decode(values.encode(b"ab")) == b"ab"


def test_what_is_no_codec_is_refused() -> None:
    wrong: Any
    for wrong in (Upper, 5, None, "base64"):
        with pytest.raises(errors.ConfigError, match="encode and decode"):
            KeyChain(wrong)
        with pytest.raises(errors.ConfigError, match="encode and decode"):
            ValueChain(wrong)
    for chain in (KeyChain, ValueChain):
        with pytest.raises(errors.ConfigError, match="at least one"):
            chain()
