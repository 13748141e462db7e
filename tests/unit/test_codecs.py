"""Codecs by themselves: cached decoders, what is said of bytes that are no value, and pickling."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from jsclient import codecs, errors


class Order(msgspec.Struct):
    id: int


class Words:
    """Text of one word."""

    def encode(self, value: str, /) -> Any:
        return value  # no bytes: a mistake

    def decode(self, data: bytes, type: Any, /) -> Any:
        word = data.decode()
        if " " in word:
            raise KeyError(word)
        return type(word)


@pytest.mark.parametrize("codec", [codecs.JSON, codecs.MSGPACK], ids=repr)
def test_there_and_back(codec: codecs.MsgspecCodec) -> None:
    data = codec.encode([Order(1), Order(2)])
    assert codec.decode(data, list[Order]) == [Order(1), Order(2)]
    with pytest.raises(errors.DecodeFailed, match=r"bytes are no list\[.*Order\]: Expected `array`"):
        codec.decode(codec.encode({"a": 1}), list[Order])
    with pytest.raises(errors.EncodeFailed, match="cannot encode object"):
        codec.encode(object())
    assert pickle.loads(pickle.dumps(codec)) is codec


def test_a_decoder_is_made_once() -> None:
    assert codecs.decoder(codecs.JSON, Order) is codecs.decoder(codecs.JSON, Order)
    assert codecs.decoder(codecs.JSON, Order) is not codecs.decoder(codecs.MSGPACK, Order)


@pytest.mark.parametrize("wrong", ["Order", 5, Order(1)], ids=repr)
def test_what_is_no_type_is_refused(wrong: Any) -> None:
    with pytest.raises(errors.ConfigError, match="type must be the type of the values|cannot decode"):
        codecs.decoder(codecs.JSON, wrong)


def test_a_codec_of_two_functions() -> None:
    words = Words()
    codecs.check(words)
    assert codecs.decode(words, b"one", str) == "one"
    with pytest.raises(errors.DecodeFailed) as failed:
        codecs.decode(words, b"two words", str, subject="a", seq=7)
    assert isinstance(failed.value.__cause__, KeyError)
    assert (failed.value.payload, failed.value.subject, failed.value.seq) == (b"two words", "a", 7)
    with pytest.raises(errors.EncodeFailed, match="made str"):
        codecs.encode(words, "one")


@pytest.mark.parametrize(
    "wrong",
    [None, 5, "json", Words, msgspec.json, object()],
    ids=["None", "5", "str", "class", "module", "object"],
)
def test_what_is_no_codec_is_refused(wrong: Any) -> None:
    with pytest.raises(errors.ConfigError, match="a codec is"):
        codecs.check(wrong)


def test_payloads_go_out_as_they_are() -> None:
    for payload in (b"a", "a", bytearray(b"a"), memoryview(b"a")):
        assert codecs.payload_of(codecs.JSON, payload) is payload
    assert codecs.payload_of(codecs.JSON, Order(1)) == b'{"id":1}'
    value = Order(1)
    assert codecs.payload_of(None, value) is value


def test_broken_bytes_do_not_show_in_the_text() -> None:
    with pytest.raises(errors.DecodeFailed) as failed:
        codecs.from_json(b'{"password": "secret"', "a", 3)
    assert "secret" not in str(failed.value)
    assert "secret" not in repr(failed.value)
