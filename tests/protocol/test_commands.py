from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol import PING, PONG, Headers, LineTooLong, SubjectError, hpub, pub, sub, unsub
from protocol.commands import MAX_CONTROL_LINE

BLOCK = Headers({"A": "b"}).encode()


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (pub("a.b", b"hi"), b"PUB a.b 2\r\nhi\r\n"),
        (pub(b"a.b", b"hi", b"r"), b"PUB a.b r 2\r\nhi\r\n"),
        (pub("a.b", reply="r.1"), b"PUB a.b r.1 0\r\n\r\n"),
        (pub("é", b"\r\n"), b"PUB \xc3\xa9 2\r\n\r\n\r\n"),
        (hpub("a", BLOCK, b"hi"), b"HPUB a 18 20\r\n" + BLOCK + b"hi\r\n"),
        (hpub(b"a", BLOCK, b"", "r"), b"HPUB a r 18 18\r\n" + BLOCK + b"\r\n"),
        (sub("a.*", 1), b"SUB a.* 1\r\n"),
        (sub(b"a.>", b"12", "q"), b"SUB a.> q 12\r\n"),
        (unsub(1), b"UNSUB 1\r\n"),
        (unsub(b"1", 5), b"UNSUB 1 5\r\n"),
        (PING, b"PING\r\n"),
        (PONG, b"PONG\r\n"),
    ],
)
def test_every_operation(frame: bytes, expected: bytes) -> None:
    assert frame == expected


@pytest.mark.parametrize("bad", ["", "a b", "a\r\nPUB x 0", "a\n", "a\tb", "a..b"])
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: pub(text),
        lambda text: pub("a", b"", text or " "),
        lambda text: hpub(text, BLOCK),
        lambda text: hpub("a", BLOCK, b"", text or " "),
        lambda text: sub(text, 1),
        lambda text: sub("a", 1, text.replace(".", " ") or " "),
    ],
)
def test_text_that_must_not_reach_the_wire(encode: Callable[[str], bytes], bad: str) -> None:
    with pytest.raises(SubjectError):
        encode(bad)


def test_wildcards_are_not_published_to() -> None:
    for bad in ("a.*", ">"):
        with pytest.raises(SubjectError):
            pub(bad)
        with pytest.raises(SubjectError):
            pub("a", b"", bad)


@pytest.mark.parametrize(
    ("encode", "overhead"),
    [
        (lambda subject: pub(subject), len(" 0")),
        (lambda subject: pub(subject, b"x" * 100, b"reply"), len(" reply 100")),
        (lambda subject: hpub(subject, BLOCK), len(" 18 18")),
        (lambda subject: sub(subject, 12), len(" 12")),
        (lambda subject: sub(subject, 12, "q"), len(" q 12")),
    ],
)
def test_the_control_line_is_as_long_as_a_server_reads(encode: Callable[[bytes], bytes], overhead: int) -> None:
    room = MAX_CONTROL_LINE - overhead
    line, _, _ = encode(b"s" * room).partition(b"\r\n")
    assert len(line.partition(b" ")[2]) == MAX_CONTROL_LINE
    with pytest.raises(LineTooLong):
        encode(b"s" * (room + 1))
