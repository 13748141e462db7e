from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsclient.protocol import Headers, LimitExceeded, MalformedHeaders, Msg, Parser, Ping, ProtocolError
from jsclient.protocol.parser import MAX_PAYLOAD, only_message, payload_limit

REJECTED = [
    b"\r\n",
    b"PING PONG\r\n",
    b" PING\r\n",
    b"PUB a 1\r\n",
    b"XMSG a 1 1\r\n",
    b"MSG\r\n",
    b"MSG a 1\r\n",
    b"MSG a 1 r x 1\r\n",
    b"MSG a 1 \r\n",
    b"MSG a 1 +1\r\nx\r\n",
    b"MSG a 1 -1\r\nx\r\n",
    b"MSG a 1 1_1\r\n",
    b"MSG a 1 0x1\r\n",
    b"MSG a 1 \xb2\r\n",
    b"MSG a 1 1.0\r\n",
    b"MSG a 1 2\r\nabc\r\n",
    b"MSG a 1 2\r\nab\n\n",
    b"MSG a 1 2\r\nab\r\r",
    b"HMSG a 1 12\r\n",
    b"HMSG a 1 r x 12 12\r\n",
    b"HMSG a 1 13 12\r\n",
    b"HMSG a 1 +2 12\r\n",
    b"INFO\r\n",
    b"INFO{}\r\n",
    b"+OKAY\r\n",
    b"HTTP/1.1 400 Bad Request\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x15\x03\x01",  # a TLS alert: no line end will ever come
    b"\x00",
]


def parse(chunks: list[bytes]) -> list[Any]:
    parser: Parser[Msg] = Parser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    assert parser.held == 0
    return events


def outcome(chunks: list[bytes]) -> tuple[list[Any], bool]:
    parser: Parser[Msg] = Parser()
    events: list[Any] = []
    for chunk in chunks:
        try:
            events += parser.feed(chunk)
        except ProtocolError as error:
            return events + error.events, True
    return events, False


def test_every_operation(stream: list[tuple[bytes, Any]]) -> None:
    for data, event in stream:
        assert parse([data]) == [event], data


def test_every_split_point(stream: list[tuple[bytes, Any]]) -> None:
    whole = b"".join(data for data, _ in stream)
    expected = [event for _, event in stream]
    for at in range(len(whole) + 1):
        assert parse([whole[:at], whole[at:]]) == expected, at


def test_every_two_split_points_of_each_operation(stream: list[tuple[bytes, Any]]) -> None:
    for data, event in stream:
        for first in range(len(data) + 1):
            for second in range(first, len(data) + 1):
                assert parse([data[:first], data[first:second], data[second:]]) == [event]


def test_byte_by_byte(stream: list[tuple[bytes, Any]]) -> None:
    whole = b"".join(data for data, _ in stream)
    assert parse([whole[i : i + 1] for i in range(len(whole))]) == [event for _, event in stream]


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_chunking_never_matters(data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.sampled_from([*REJECTED[:20], b"PING\r\n", b"MSG a 1 r 3\r\nabc\r\n", b"MSG a 1 "])))
    noise = data.draw(st.binary(max_size=20))
    whole = b"".join(frames) + noise
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert outcome(chunks) == outcome([whole])


@given(st.lists(st.binary(max_size=50), max_size=10))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_garbage_is_a_protocol_error_and_nothing_else(chunks: list[bytes]) -> None:
    outcome(chunks)


@pytest.mark.parametrize("data", REJECTED)
def test_rejected(data: bytes) -> None:
    for chunks in ([data], [data[i : i + 1] for i in range(len(data))]):
        assert outcome([b"PING\r\n", *chunks]) == ([Ping()], True)


def test_an_error_names_the_bytes_shortly() -> None:
    with pytest.raises(ProtocolError, match=r"'XXXX.*\(5000 bytes\)") as info:
        Parser().feed(b"X" * 5000 + b"\r\n")
    assert len(info.value.what) < 200


def test_events_before_an_error_are_on_the_error_and_given_once() -> None:
    parser: Parser[Msg] = Parser()
    with pytest.raises(ProtocolError) as first:
        parser.feed(b"PING\r\nMSG a 1 1\r\nx\r\nJUNK\r\nPING\r\n")
    assert first.value.events == [Ping(), Msg(b"a", b"1", None, b"x")]
    with pytest.raises(ProtocolError, match="JUNK") as second:
        parser.feed(b"PING\r\n")
    assert second.value.events == []
    assert type(second.value) is type(first.value)


def test_a_failed_parser_keeps_the_class_of_its_error() -> None:
    parser: Parser[Msg] = Parser(max_payload=5)
    for _ in range(2):
        with pytest.raises(LimitExceeded, match="limit of 5 bytes"):
            parser.feed(b"MSG a 1 6\r\n")


def test_blanks_inside_a_subject_cannot_forge_sid_and_reply() -> None:
    """Servers pass on vertical tab and form feed in subjects; `bytes.split()` would separate there."""
    (event,) = parse([b"MSG foo.\x0c9 7 2\r\nhi\r\n"])
    assert (event.raw_subject, event.sid, event.raw_reply) == (b"foo.\x0c9", b"7", None)


def test_the_class_of_messages_is_the_callers() -> None:
    class Mine(Msg, gc=False):
        connection: object = None

    (event,) = Parser(Mine).feed(b"MSG a 1 r 2\r\nhi\r\n")
    assert isinstance(event, Mine)
    assert event.connection is None
    (event,) = Parser(Mine).feed(b"HMSG a 1 r 12 12\r\nNATS/1.0\r\n\r\n\r\n")
    assert isinstance(event, Mine)


def test_every_event_has_a_sid(stream: list[tuple[bytes, Any]]) -> None:
    for _, event in stream:
        assert event.sid == (event.sid if isinstance(event, Msg) else None)


def test_what_a_message_tells() -> None:
    block = b"NATS/1.0\r\nK: v\r\n\r\n"
    message = Msg(b"s\xc3\xa9", b"1", b"r\xff", b"p", block)
    assert (message.subject, message.reply, message.data, message.status) == ("sé", "r\udcff", b"p", None)
    assert message.headers is not None
    assert message.headers["K"] == "v"
    bare = Msg(b"s", b"1", None, b"")
    assert (bare.reply, bare.headers, bare.status) == ("", Headers(), None)


@pytest.mark.parametrize("block", [b"", b"abcd", b"NATS/1.01", b"nats/1.0\r\nx: y\r\n\r\n", b"NATS/1.1 404\r\n\r\n"])
def test_a_broken_header_block_is_an_error_of_its_message_only(block: bytes) -> None:
    """nats-server passes on whatever a publisher calls headers: it must not cost us the connection."""
    frame = b"HMSG a 1 %d %d\r\n%b\r\n" % (len(block), len(block), block)
    message, ping = parse([frame + b"PING\r\n"])
    assert ping == Ping()
    assert message.status is None
    with pytest.raises(MalformedHeaders):
        _ = message.headers


def test_more_different_sizes_than_the_table_holds() -> None:
    sizes = range(4200)
    data = b"".join(b"MSG a 1 %d\r\n%b\r\n" % (size, b"x" * size) for size in sizes)
    assert [len(event.data) for event in parse([data])] == list(sizes)


def test_what_is_held_is_completed_by_its_rest() -> None:
    parser: Parser[Msg] = Parser()
    assert parser.completed_by(b"any")
    parser.feed(b"MSG a 1 5\r\nab")
    assert [parser.completed_by(data) for data in (b"cde\r", b"cde\r\n")] == [False, True]


@pytest.mark.parametrize("header_size", [b"12", b"99", b"x", b"1" * 30])
def test_an_answer_that_comes_alone_is_read_without_the_parser(header_size: bytes) -> None:
    body = b"NATS/1.0\r\n\r\nhello"
    found = only_message(b"HMSG a 1 r %b %d\r\n%b\r\n" % (header_size, len(body), body), b"a", Msg)
    if header_size == b"12":
        assert found == Msg(b"a", b"1", b"r", b"hello", b"NATS/1.0\r\n\r\n")
    else:
        assert found is None


def test_answers_of_the_server_are_not_held_to_the_limit_of_messages() -> None:
    parser: Parser[Msg] = Parser(max_payload=10)
    parser.unlimited = {b"7"}
    assert parser.feed(b"MSG a 7 20\r\n%b\r\n" % bytes(20)) == [Msg(b"a", b"7", None, bytes(20))]
    with pytest.raises(LimitExceeded):
        parser.feed(b"MSG a 8 20\r\n")


@pytest.mark.parametrize("frame", [b"MSG a 1 2\r\nxy\r\n", b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n"])
@pytest.mark.parametrize("odd", [b"HMSG a 1 r x 12 12\r\n", b"MSG a 1 %b 2\r\n" % (b"r" * 5000)])
def test_a_line_that_is_wrong_or_too_long_among_small_messages(frame: bytes, odd: bytes) -> None:
    parser: Parser[Msg] = Parser()
    count = len(parser.feed(frame * 50))
    with pytest.raises(ProtocolError):
        parser.feed(frame * 50 + odd + frame * 50)
    assert count == 50


def test_a_large_message_among_small_ones() -> None:
    parser: Parser[Msg] = Parser(max_control_line=4096)
    small, large = b"MSG a 1 2\r\nxy\r\n", b"MSG a 1 5000\r\n%b\r\n" % (b"z" * 5000)
    for _ in range(3):
        assert len(parser.feed(small * 1000)) == 1000
        sizes = [len(event.data) for event in parser.feed(small * 100 + large + small) if isinstance(event, Msg)]
        assert sizes == [2] * 100 + [5000, 2]


def test_headers_that_are_longer_than_their_message() -> None:
    with pytest.raises(ProtocolError):
        Parser().feed(b"MSG a 1 500\r\n%b\r\nHMSG a 1 13 12\r\nNATS/1.0\r\n\r\n\r\n" % bytes(500))


def test_the_limit_follows_the_server() -> None:
    assert payload_limit(0) == payload_limit(1 << 40) == MAX_PAYLOAD
    assert payload_limit(1 << 22) == 1 << 23
    parser: Parser[Msg] = Parser()
    for limit in (10, 10):
        parser.restrict(limit)
    with pytest.raises(LimitExceeded):
        parser.feed(b"MSG a 1 11\r\n")
