"""The reader's loop: when it lends the right to read."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from jsclient import ConnectOptions, errors, protocol
from jsclient._connection.link import Link
from jsclient._connection.outbox import Outbox
from jsclient._connection.reading import LARGE
from jsclient._connection.session import Session
from jsclient.message import Msg

SMALL = b"MSG s 1 2\r\nhi\r\n"
LONG = b"MSG s 1 %d\r\n%b\r\n" % (5 * LARGE, bytes(5 * LARGE))


class Stream:
    """Chunks, and then the end."""

    can_take = True
    needs_flush = False

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = deque(chunks)

    def recv(self) -> bytes:
        return self.chunks.popleft() if self.chunks else b""


def asked_to_lend(chunks: list[bytes]) -> list[int]:
    """The chunks, by their number, after which the reader asks whether to lend."""
    stream, asked = Stream(chunks), []

    def lends() -> bool:
        asked.append(len(chunks) - len(stream.chunks) - 1)
        return False

    owner: Any = SimpleNamespace(subscriptions=SimpleNamespace(dispatch=lambda events, nbytes: []), lends=lends)
    outbox = Outbox(kick=lambda: None, broken=lambda *_: None, limit=1 << 20)
    session = Session(owner, ConnectOptions(), outbox)
    server: Any = SimpleNamespace(url="nats://there")
    link = Link(stream, protocol.Parser(message=Msg), protocol.ServerInfo(), server)  # type: ignore[arg-type]
    assert isinstance(session._read_until_end(link), errors.ConnectionLost)
    return asked


@pytest.mark.parametrize(
    ("chunks", "asked"),
    [
        ([SMALL, SMALL * 10, SMALL + SMALL[:5], SMALL[5:]], [0, 1, 2, 3]),
        ([LONG, SMALL], [1]),
        ([LONG[:-9], LONG[-9:], SMALL], [2]),
        # The last bytes of a large message come alone, behind a chunk that has ended the one before.
        ([SMALL, LONG + LONG[:-9], LONG[-9:], SMALL], [0, 3]),
        ([LONG[:-9], LONG[-9:] + LONG[:-9], LONG[-9:]], []),
    ],
)
def test_the_reader_lends_nothing_amid_large_messages(chunks: list[bytes], asked: list[int]) -> None:
    assert asked_to_lend(chunks) == asked
