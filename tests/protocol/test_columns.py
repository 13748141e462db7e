from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsclient.protocol import Acks, Msg, Parser, ProtocolError, complete_frames, parse_columns

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"
STATUS = b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"
ACK = b"$JS.ACK.S.C.%d.%d.%d.%d.%d"
FITTING = [
    b"MSG a.b 7 r 5\r\nhello\r\n",
    b"MSG a.b 7 0\r\n\r\n",
    b"MSG a\x0bb 7 r 3\r\na\tb\r\n",
    b"HMSG a 7 r 18 20\r\n" + BLOCK + b"hi\r\n",
    b"HMSG a 7 18 18\r\n" + BLOCK + b"\r\n",
    b"HMSG a 7 r 0 1\r\nx\r\n",
    b"HMSG a 7 r 8 8\r\nNATS/1.0\r\n",
]
STATUS_FRAME = b"HMSG _INBOX.1 7 %d %d\r\n%b\r\n" % (len(STATUS), len(STATUS), STATUS)
OTHERS = [
    b"",
    b"PING\r\n",
    b"MSG a 8 r 1\r\nx\r\n",
    b"MSG a 77 r 1\r\nx\r\n",
    b"MSG a 7 r 2\r\nx",
    b"MSG a 7 r 2",
    b"MSG a 7  1\r\nx\r\n",
    b"MSG a\t7 r 1\r\nx\r\n",
    b"MSG  7 r 1\r\nx\r\n",
    b"msg a 7 r 1\r\nx\r\n",
    b"MSG a 7 r 1\r\nxy\r\n",
    b"MSG a 7 r +1\r\nx\r\n",
    b"MSG a 7 r 99999999999\r\nx\r\n",
    b"HMSG a 7 r 19 18\r\n" + BLOCK + b"\r\n",
    b"HMSG a 7 r x 18\r\n" + BLOCK + b"\r\n",
    b"MSG " + b"a" * 70_000 + b" 7 1\r\nx\r\n",
    b"\r\n",
    b"+OK\r\n",
]


def rows(data: bytes, start: int = 0) -> list[Msg]:
    columns = parse_columns(data, b"7", start)
    assert len(columns) == len(columns.subjects) == len(columns.replies) == len(columns.headers)
    together = zip(columns.subjects, columns.replies, columns.payloads, columns.headers, strict=True)
    return [Msg(subject, b"7", reply, payload, block) for subject, reply, payload, block in together]


@pytest.mark.parametrize("other", OTHERS)
def test_stops_exactly_at_what_does_not_fit(other: bytes) -> None:
    good = b"".join(FITTING)
    data = good + other + FITTING[0] * bool(other)
    assert rows(data) == Parser().feed(good)
    assert parse_columns(data, b"7").end == complete_frames(data, b"7") == len(good)


def test_a_status_ends_the_columns_but_not_the_walk() -> None:
    data = FITTING[0] + STATUS_FRAME + FITTING[3] + b"PING\r\n"
    first = parse_columns(data, b"7")
    assert first.end == len(FITTING[0])
    end = complete_frames(data, b"7", first.end, limit=1)
    (message,) = Parser().feed(data[first.end : end])
    assert isinstance(message, Msg)
    assert message.status == (100, "Idle Heartbeat")
    assert rows(data, end) == Parser().feed(FITTING[3])
    assert complete_frames(data, b"7") == len(data) - len(b"PING\r\n")


def test_every_cut() -> None:
    data = b"".join(FITTING)
    ends = [sum(map(len, FITTING[:n])) for n in range(len(FITTING) + 1)]
    for cut in range(len(data) + 1):
        end = max(end for end in ends if end <= cut)
        assert parse_columns(data[:cut], b"7").end == complete_frames(data[:cut], b"7") == end


@given(st.lists(st.sampled_from([*FITTING, *OTHERS[:15], STATUS_FRAME, b"x"]), max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_takes_what_the_parser_would(frames: list[bytes]) -> None:
    data = b"".join(frames)
    taken = rows(data)
    expected: list[Any] = []
    try:
        expected = list(Parser().feed(data))
    except ProtocolError as error:
        expected = error.events
    assert taken == expected[: len(taken)]
    end = complete_frames(data, b"7")
    assert end >= parse_columns(data, b"7").end
    assert all(event.sid == b"7" for event in Parser().feed(data[:end]))


def test_acks() -> None:
    replies: list[bytes | None] = [ACK % (i % 3 + 1, i + 100, i, 10**18 + i, 50 - i) for i in range(50)]
    acks = Acks(replies)
    assert len(acks) == 50
    assert acks.deliveries() == [i % 3 + 1 for i in range(50)]
    assert acks.sequences() == list(range(100, 150))
    assert acks.consumer_sequences() == list(range(50))
    assert acks.timestamps() == [10**18 + i for i in range(50)]
    assert acks.pending() == list(range(50, 0, -1))


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.S.C.1.12.11.1700000000000000000.5",
        b"$JS.ACK.hub.ACCHASH.S.C.1.12.11.1700000000000000000.5",
        b"$JS.ACK._.ACCHASH.S.C.1.12.11.1700000000000000000.5.random",
        b"$JS.ACK._.ACCHASH.S.C.1.12.11.1700000000000000000.5.random.more",
    ],
)
def test_both_forms_alone_and_mixed(reply: bytes) -> None:
    for replies in ([reply], [reply, reply], [reply, ACK % (1, 12, 11, 17 * 10**17, 5)]):
        acks = Acks(replies)
        assert set(acks.sequences()) == {12}
        assert set(acks.timestamps()) == {17 * 10**17}
        assert set(acks.pending()) == {5}
        assert len(acks.deliveries()) == len(replies)


def test_no_acks() -> None:
    assert Acks([]).sequences() == []


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"",
        b"_INBOX.a",
        b"$JS.ACK.S.C.1.12.11.17",
        b"$JS.ACK.S.C.1.12.11.17.5.6",
        b"$JS.ACK.S.C.1.x.11.17.5",
        b"$JS.ACK.S.C.1.1e5.11.17.5",
        b"$JS.ACK.S.C.1..11.17.5",
        b"$JS.ACK.S.C.1.+1.11.17.5",
        b"$JS.ACK.S.C.1.1],[1.11.17.5",
        b"$JS.NAK.S.C.1.12.11.17.5",
    ],
)
def test_what_is_no_ack(reply: bytes | None) -> None:
    for replies in ([reply], [ACK % (1, 2, 3, 4, 5), reply]):
        with pytest.raises(ProtocolError):
            Acks(replies).sequences()
