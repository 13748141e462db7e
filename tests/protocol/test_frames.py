from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from jsclient.protocol import (
    PING,
    PONG,
    Headers,
    LargeFrame,
    LineTooLong,
    encode_connect,
    frames,
    hpub,
    pub,
    pub_start,
    sub,
    unsub,
)
from jsclient.protocol.frames import (
    KNOWN_SIZES,
    LARGE_PAYLOAD,
    MAX_CONTROL_LINE,
    NAMES_ROOM,
    Frame,
    has_headers,
    hpub_parts,
    pub_each,
    pub_parts,
    pub_to,
    reply_of,
    size_of,
    with_reply,
)
from jsclient.protocol.info import ConnectInfo

BLOCK = Headers({"A": "b"}).encode()
START = pub_start(b"a.b")
ASKING = with_reply(START, b"r.1")


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (pub(START, b"hi"), b"PUB a.b 2\r\nhi\r\n"),
        (pub(ASKING, b"hi"), b"PUB a.b r.1 2\r\nhi\r\n"),
        (pub(pub_start("é".encode()), b"\r\n"), b"PUB \xc3\xa9 2\r\n\r\n\r\n"),
        (hpub(START, BLOCK, b"hi"), b"HPUB a.b 18 20\r\n" + BLOCK + b"hi\r\n"),
        (hpub(ASKING, BLOCK, b""), b"HPUB a.b r.1 18 18\r\n" + BLOCK + b"\r\n"),
        (pub_to(b"+ACK")(b"$JS.ACK.1"), b"PUB $JS.ACK.1 4\r\n+ACK\r\n"),
        (pub_to(b"50 %d %")(b"a"), b"PUB a 7\r\n50 %d %\r\n"),
        (sub(b"a.*", b"1"), b"SUB a.* 1\r\n"),
        (sub(b"a.>", b"12", b"q"), b"SUB a.> q 12\r\n"),
        (unsub(b"1"), b"UNSUB 1\r\n"),
        (unsub(b"1", 5), b"UNSUB 1 5\r\n"),
        (PING, b"PING\r\n"),
        (PONG, b"PONG\r\n"),
    ],
)
def test_every_operation(frame: bytes, expected: bytes) -> None:
    assert frame == expected


def test_connect() -> None:
    assert encode_connect(ConnectInfo()).startswith(b"CONNECT {")


def test_every_size_is_written_right_however_many_there_were() -> None:
    for size in range(KNOWN_SIZES + 10):
        assert pub(START, bytes(size)).startswith(b"PUB a.b %d\r\n" % size)
        assert hpub(START, BLOCK, bytes(size)).startswith(b"HPUB a.b 18 %d\r\n" % (size + 18))


@pytest.mark.parametrize("size", [LARGE_PAYLOAD, LARGE_PAYLOAD + 1, 8 << 20])
def test_a_large_frame_has_the_bytes_of_a_joined_one(size: int) -> None:
    payload = bytes(size)
    for parts, joined in (
        (pub_parts(ASKING, payload), pub(ASKING, payload)),
        (hpub_parts(ASKING, BLOCK, payload), hpub(ASKING, BLOCK, payload)),
    ):
        large = LargeFrame(parts)
        assert b"".join(large.parts) == joined
        assert len(large) == len(joined)
        assert large != cast(object, joined)
        assert large != LargeFrame(parts), "two messages with the same line are two"


@pytest.mark.parametrize(
    ("frame", "reply", "headers"),
    [
        (pub(START, b"x"), b"", False),
        (pub(ASKING, b"x"), b"r.1", False),
        (hpub(START, BLOCK, b"x"), b"", True),
        (hpub(ASKING, BLOCK, b"x"), b"r.1", True),
        (LargeFrame(pub_parts(ASKING, b"x")), b"r.1", False),
        (LargeFrame(hpub_parts(ASKING, BLOCK, b"x")), b"r.1", True),
        (LargeFrame(hpub_parts(START, BLOCK, b"a b c d")), b"", True),
        (sub(b"a", b"1", b"q"), b"", False),
        (unsub(b"1", 5), b"", False),
        (PING, b"", False),
    ],
)
def test_a_frame_that_was_not_sent_is_known_by_its_reply(frame: Frame, reply: bytes, headers: bool) -> None:
    assert reply_of(frame) == reply
    assert has_headers(frame) == headers


def test_the_size_of_a_frame_is_what_counts_against_max_payload() -> None:
    payload = bytes(200_000)
    assert size_of(LargeFrame(pub_parts(START, payload))) == 200_000
    assert size_of(LargeFrame(hpub_parts(ASKING, BLOCK, payload))) == 200_000 + len(BLOCK)
    assert size_of(b"".join(pub_parts(ASKING, b"abc"))) == 3
    assert size_of(PING) == 0


def test_names_leave_room_for_the_sizes_of_any_message() -> None:
    longest = pub_start(b"s" * NAMES_ROOM)
    line = hpub_parts(longest, b"h" * 9_999_999, b"")[0].partition(b"\r\n")[0]
    assert len(line) - len(b"HPUB ") <= MAX_CONTROL_LINE
    with pytest.raises(LineTooLong, match=f"{NAMES_ROOM + 1} bytes"):
        pub_start(b"s" * (NAMES_ROOM + 1))
    asking = with_reply(pub_start(b"s" * 1000), b"r" * (NAMES_ROOM - 1001))
    assert len(asking) == len(longest)
    with pytest.raises(LineTooLong):
        with_reply(longest, b"r")


@pytest.mark.parametrize(
    ("encode", "overhead"),
    [
        (lambda subject: sub(subject, b"12"), len(" 12")),
        (lambda subject: sub(subject, b"12", b"q"), len(" q 12")),
    ],
)
def test_the_control_line_is_as_long_as_a_server_reads(encode: Callable[[bytes], bytes], overhead: int) -> None:
    room = MAX_CONTROL_LINE - overhead
    line, _, _ = encode(b"s" * room).partition(b"\r\n")
    assert len(line.partition(b" ")[2]) == MAX_CONTROL_LINE
    with pytest.raises(LineTooLong):
        encode(b"s" * (room + 1))


@pytest.mark.parametrize(
    ("headers", "block"), [(None, None), (b"NATS/1.0\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n\r\n")]
)
def test_a_frame_is_taken_apart_again(headers: bytes | None, block: bytes | None) -> None:
    start = pub_start(b"a.b")
    frame = pub(start, b"hello") if headers is None else hpub(start, headers, b"hello")
    assert frames.split(bytes(frame)) == (b"a.b", headers, b"hello")


def test_one_message_to_many() -> None:
    made = pub_each([b"a", b"b.%d"], b"_INBOX.%s.", [b"1", b"22"], b"50 %")
    assert made == [b"PUB a _INBOX.%s.1 4\r\n50 %\r\n", b"PUB b.%d _INBOX.%s.22 4\r\n50 %\r\n"]
    assert pub_each([], b"_INBOX.", [], b"") == []
    with pytest.raises(LineTooLong):
        pub_each([b"a", b"b" * 5000], b"_INBOX.", [b"1", b"2"], b"")
