"""The value of a message: decoded once, when it comes or when it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from jsclient import errors
from jsclient.jetstream.consuming.typed import Values
from jsclient.jetstream.consuming.typed_message import TypedMsg, UnreadMsg
from jsclient.message import Msg

REPLY = b"$JS.ACK.S.C.1.7.7.1700000000000000000.0"


def values(decoded: list[bytes]) -> Values[int]:
    def decode(payload: bytes) -> int:
        decoded.append(payload)
        return int(payload)

    js: Any = None
    return Values(js, int, decode, "raise", "", False)


def test_the_value_is_decoded_when_it_comes() -> None:
    decoded: list[bytes] = []
    engine: Any = None
    message = values(decoded).maker()(Msg(b"s", b"1", REPLY, b"5"), engine)
    assert type(message) is TypedMsg
    assert decoded == [b"5"]
    assert (message.value, message.value, decoded) == (5, 5, [b"5"])


def test_or_once_when_it_is_asked_for() -> None:
    decoded: list[bytes] = []
    engine: Any = None
    message = values(decoded).later(Msg(b"s", b"1", REPLY, b"5"), engine)
    assert type(message) is UnreadMsg
    assert decoded == []
    assert (message.value, message.value, decoded) == (5, 5, [b"5"])


def test_what_is_none_says_so_each_time() -> None:
    engine: Any = None
    message = values([]).maker()(Msg(b"s", b"1", REPLY, b"no number"), engine)
    for _ in range(2):
        with pytest.raises(errors.DecodeFailed):
            message.value  # noqa: B018
    assert message.data == b"no number"
