"""Chunks of small messages are read by splitting them: the events must be those of the general way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from jsclient.protocol import Event, Msg, Parser, ProtocolError
from jsclient.protocol import parser as module

WARM = b"MSG w 1 2\r\nok\r\n" * 40


def frame(rng: random.Random) -> bytes:
    payload = bytes(rng.choice((65, 13, 10, 9, 0)) for _ in range(rng.choice((0, 1, 3, 12, 200))))
    reply = rng.choice((b"", b"r.s ", b"$JS.ACK.S.C.1.2.3.4.5 "))
    return b"MSG a.b %d %b%d\r\n%b\r\n" % (rng.randrange(1, 4), reply, len(payload), payload)


def headed(rng: random.Random) -> bytes:
    """HMSG, with payloads that look like what chunks are split at."""
    block = b"NATS/1.0\r\n" + b"A: b\r\n" * rng.randrange(3) + b"\r\n"
    payload = rng.choice((b"", b"x", b"\r\n", b"\r\nHMSG ", b"HMSG a 1 12 12\r\n", bytes(150)))
    reply = rng.choice((b"", b"r.s ", b"$JS.ACK.S.C.1.2.3.4.5 "))
    sizes = b"%d %d" % (len(block), len(block) + len(payload))
    return b"HMSG a.b %d %b%b\r\n%b%b\r\n" % (rng.randrange(1, 4), reply, sizes, block, payload)


ODD = (
    b"PING\r\n",
    b"HMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    b"MSG a 1 9\r\nMSG b 1 0\r\n",
    b"MSG  a 1 1\r\nx\r\n",
    b"MSG a 1 07\r\n1234567\r\n",
    b"MSG a 1 -1\r\n\r\n",
    b"MSG a 1 2\r\nabc\r\n",
    b"+OK\r\nMSG a 1 0\r\n\r\n",
    b"MSG a\t1 1\r\nx\r\n",
    b"MSG a 1 1 1 1 1\r\nx\r\n",
    b"HMSG a 1 13 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 1 12 -1\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 1 x 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG  a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a\t1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 1 12 13\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a 1 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"hmsg a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
)


def read(chunks: list[bytes]) -> tuple[list[Event], str]:
    parser: Parser[Msg] = Parser()
    events: list[Event] = []
    try:
        for chunk in chunks:
            events += parser.feed(chunk)
    except ProtocolError as error:
        return events + error.events, str(error)
    return events, ""


@pytest.mark.parametrize("make", [frame, headed])
@pytest.mark.parametrize("seed", range(60))
def test_the_same_events_whatever_the_way(
    seed: int, make: Callable[[random.Random], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    frames = [make(rng) for _ in range(40)]
    for _ in range(rng.randrange(3)):
        frames.insert(rng.randrange(len(frames)), rng.choice(ODD))
    data = b"".join(frames)
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(4)))
    chunks = [WARM, *(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b)]
    split = read(chunks)
    monkeypatch.setattr(module, "_SMALL_MESSAGE", 0)
    assert split == read(chunks)
    assert len(split[0]) >= 40


def test_small_messages_are_read_by_splitting() -> None:
    parser: Parser[Msg] = Parser()
    assert len(parser.feed(WARM)) == 40
    events: list[Event] = []
    data = b"MSG a 1 3\r\nabc\r\nMSG b 1 r 2\r\nde\r\nMSG c 1 5\r\nf"
    assert parser._parse_small(data, events) == len(data)
    assert events == [Msg(b"a", b"1", None, b"abc"), Msg(b"b", b"1", b"r", b"de")]
    assert parser.feed(b"ghij\r\n") == [Msg(b"c", b"1", None, b"fghij")]


def test_small_messages_with_headers_are_read_by_splitting() -> None:
    parser: Parser[Msg] = Parser()
    assert len(parser.feed(WARM)) == 40
    events: list[Event] = []
    block = b"NATS/1.0\r\n\r\n"
    head = b"HMSG a 1 12 15\r\n%babc\r\nHMSG b 1 r 12 12\r\n%b\r\n" % (block, block)
    whole = [Msg(b"a", b"1", None, b"abc", block), Msg(b"b", b"1", b"r", b"", block)]
    assert parser._parse_headed(head + b"HMSG c 1 12 20\r\nf", events) == len(head)
    assert events == whole
    events.clear()
    assert parser._parse_headed(head + b"PING\r\nHMSG c", events) == head.index(b"HMSG b")
    assert events == whole[:1]
    parser = Parser(max_control_line=20)
    assert parser._parse_headed(head, events) == 0


def test_a_status_between_messages_does_not_end_the_splitting() -> None:
    status = b"HMSG i.1 1 32 32\r\nNATS/1.0 409 Batch Completed\r\n\r\n\r\n"
    parser: Parser[Msg] = Parser()
    assert len(parser.feed(WARM)) == 40
    assert len(parser.feed(WARM + status + WARM + b"PING\r\n" + WARM + b"MSG w 1 2\r\no")) == 122
    assert parser._pause == 0
    assert len(parser.feed(b"k\r\n" + (status + WARM) * 5)) == 206
    assert parser._pause == module._SPLIT_PAUSE - 1


@pytest.mark.parametrize("most", [1, 4, 5, 9])
def test_long_lines_are_found_wherever_they_are(most: int) -> None:
    for lengths in itertools.product([0, 1, 3, 4, 5, 6, 9, 10], repeat=3):
        data = b"\r\n".join(b"a" * length for length in lengths)
        for text in (data, data.replace(b"a", b"\r"), data.replace(b"a", b"\n")):
            parts = text.split(b"\r\n")
            assert module._lines_fit(text, most) == (max(map(len, parts)) <= most), text
