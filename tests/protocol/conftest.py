"""The reference stream: every operation a server sends, in every spelling seen, with the event it must become."""

from __future__ import annotations

import pytest

from jsclient.protocol import Err, Event, Info, Msg, Ok, Ping, Pong

ACK = b"$JS.ACK.ORDERS.CONS.1.42.7.1700000000123456789.3"
BLOCK = b"NATS/1.0\r\nA: 1\r\na: 2\r\nA: 3\r\n\r\n"
STATUS = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"

STREAM: list[tuple[bytes, Event]] = [
    (b'INFO {"server_id":"A"}\r\n', Info(b'{"server_id":"A"}')),
    (b'info\t{"max_payload":1}  \r\n', Info(b'{"max_payload":1}  ')),
    (b"PING\r\n", Ping()),
    (b"pong\r\n", Pong()),
    (b"+OK\r\n", Ok()),
    (b"+ok \r\n", Ok()),
    (b"-ERR 'Stale Connection'\r\n", Err("Stale Connection")),
    (b"-err no quotes\r\n", Err("no quotes")),
    (b"-ERR\r\n", Err("")),
    (
        b"-ERR 'Permissions Violation for Publish to \"\xff\"'\r\n",
        Err('Permissions Violation for Publish to "\\xff"'),
    ),
    (b"MSG a.b 1 5\r\nhello\r\n", Msg(b"a.b", b"1", None, b"hello")),
    (b"MSG a.b 1  5\r\nhello\r\n", Msg(b"a.b", b"1", None, b"hello")),  # nats-server 2.9
    (b"MSG a.b 1 r.s 0\r\n\r\n", Msg(b"a.b", b"1", b"r.s", b"")),
    (b"MSG a.b 1 4 3\r\nabc\r\n", Msg(b"a.b", b"1", b"4", b"abc")),
    (b"msg\ta.b \t 1\tr\t2 \r\n\r\n\r\n", Msg(b"a.b", b"1", b"r", b"\r\n")),
    (b"MSG o.n 20 " + ACK + b" 8\r\nMSG a 1 \r\n", Msg(b"o.n", b"20", ACK, b"MSG a 1 ")),
    (b"MSG a\x0bb\x0cc 7 3\r\n\x00\r\n\r\n", Msg(b"a\x0bb\x0cc", b"7", None, b"\x00\r\n")),
    (b"MSG \xff\x00\xc3\xa9 7 1\r\n\t\r\n", Msg(b"\xff\x00\xc3\xa9", b"7", None, b"\t")),
    (b"HMSG a 1 %d %d\r\n%bhi\r\n" % (len(BLOCK), len(BLOCK) + 2, BLOCK), Msg(b"a", b"1", None, b"hi", BLOCK)),
    (b"HMSG a 1 r %d %d\r\n%b\r\n" % (len(BLOCK), len(BLOCK), BLOCK), Msg(b"a", b"1", b"r", b"", BLOCK)),
    (b"hmsg a 1\t%d  %d \r\n%b\r\n" % (len(STATUS), len(STATUS), STATUS), Msg(b"a", b"1", None, b"", STATUS)),
    (b"HMSG a 1 0 2\r\nhi\r\n", Msg(b"a", b"1", None, b"hi", b"")),
]


@pytest.fixture(scope="session")
def stream() -> list[tuple[bytes, Event]]:
    return STREAM
