from __future__ import annotations

import pytest

from jsclient.protocol import Acks, ProtocolError

ACK = b"$JS.ACK.S.C.%d.%d.%d.%d.%d"


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
