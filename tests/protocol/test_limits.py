"""Hostile input: every limit is checked before memory is taken, and costs linear time in any chunks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from jsclient.protocol import Info, InvalidInfo, LimitExceeded, Msg, Parser, ProtocolError

KIB, MIB = 1024, 1024 * 1024


def peak(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(chunks: Iterable[bytes]) -> Callable[[], None]:
    def run() -> None:
        parser: Parser[Msg] = Parser()
        with pytest.raises(LimitExceeded):
            for chunk in chunks:
                assert parser.feed(chunk) == []
        assert parser.held == 0

    return run


def test_a_line_without_an_end() -> None:
    endless = (b"MSG " if i == 0 else b"a" * 4096 for i in range(100_000))
    assert peak(refused(endless)) < 400 * KIB


def test_an_info_without_an_end() -> None:
    endless = (b"INFO " if i == 0 else b"{" * 65536 for i in range(100_000))
    assert peak(refused(endless)) < 3 * MIB


@pytest.mark.parametrize("size", [b"67108865", b"10000000000", b"9" * 5000])
@pytest.mark.parametrize("verb", [b"MSG a 1 ", b"HMSG a 1 12 "])
def test_a_payload_beyond_the_limit(verb: bytes, size: bytes) -> None:
    assert peak(refused([verb + size + b"\r\n"])) < 100 * KIB


def test_a_header_block_beyond_the_limit() -> None:
    assert peak(refused([b"HMSG a 1 99999999999 12\r\n"])) < 100 * KIB


def test_the_promised_size_takes_no_memory_before_it_comes() -> None:
    parser: Parser[Msg] = Parser()
    assert peak(lambda: parser.feed(b"MSG a 1 67108864\r\n" + b"x" * 100)) < 100 * KIB
    assert parser.held == 100


def test_a_payload_in_tiny_chunks_takes_no_more_than_its_size() -> None:
    parser: Parser[Msg] = Parser()
    parser.feed(b"MSG a 1 100000\r\n")

    def run() -> None:
        for _ in range(10_000):
            parser.feed(b"xx")

    assert peak(run) < 100 * KIB
    assert parser.held == 20_000


@pytest.mark.parametrize("step", [1, 2, 5])
def test_an_info_in_tiny_chunks_with_line_feeds(step: int) -> None:
    """Looking for the end again from the start at every chunk would take minutes."""
    parser: Parser[Msg] = Parser()
    text = b"INFO " + b"\n" * 30_000 + b"\r\n"
    events = [event for i in range(0, len(text), step) for event in parser.feed(text[i : i + step])]
    assert events == [Info(b"\n" * 30_000)]


@pytest.mark.parametrize("chunk", [1, 100, 100_000])
def test_limits_are_exact_whatever_the_chunking(chunk: int) -> None:
    def feed(data: bytes) -> int:
        parser: Parser[Msg] = Parser(max_payload=100, max_control_line=50, max_info=80)
        return sum(len(parser.feed(data[i : i + chunk])) for i in range(0, len(data), chunk))

    fits = [
        b"MSG " + b"s" * 42 + b" 1 1\r\nx\r\n",
        b"INFO " + b"x" * 75 + b"\r\n",
        b"MSG a 1 100\r\n" + b"x" * 100 + b"\r\n",
    ]
    beyond = [
        b"MSG " + b"s" * 43 + b" 1 1\r\nx\r\n",
        b"INFO " + b"x" * 76 + b"\r\n",
        b"INFOX" + b"x" * 76 + b"\r\n",
        b"MSG a 1 101\r\n" + b"x" * 101 + b"\r\n",
    ]
    for data in fits:
        assert feed(data) == 1
    for data in beyond:
        with pytest.raises(ProtocolError):
            feed(data)


def test_the_longest_legal_line_of_a_server() -> None:
    """4,004 bytes of subject with stream and consumer names of 200 characters come back as 4,450 bytes."""
    reply = b"$JS.ACK.%b.%b.1.1.1.1700000000000000000.0" % (b"s" * 200, b"c" * 200)
    (event,) = Parser().feed(b"MSG %b 1 %b 2\r\nhi\r\n" % (b"x" * 4004, reply))
    assert isinstance(event, Msg)
    assert len(event.raw_subject) == 4004


def test_headers_larger_than_a_stream_takes() -> None:
    block = b"NATS/1.0\r\nK: %b\r\n\r\n" % (b"v" * 100_000)
    (event,) = Parser().feed(b"HMSG a 1 %d %d\r\n%b\r\n" % (len(block), len(block), block))
    assert isinstance(event, Msg)
    assert event.headers is not None
    assert len(event.headers["K"]) == 100_000


@pytest.mark.parametrize("key", [b"unknown", b"connect_urls", b"compression", b"max_payload"])
@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
def test_info_nested_deeply(key: bytes, bracket: bytes) -> None:
    (event,) = Parser().feed(b'INFO {"' + key + b'":' + bracket * 100_000 + b"\r\n")
    assert isinstance(event, Info)
    with pytest.raises(InvalidInfo):
        event.decode()


def test_info_with_twenty_thousand_urls() -> None:
    urls = b",".join(b'"10.0.%d.%d:4222"' % divmod(i, 256) for i in range(20_000))
    (event,) = Parser().feed(b'INFO {"connect_urls":[' + urls + b"]}\r\n")
    assert isinstance(event, Info)
    assert len(event.decode().connect_urls) == 2_000
