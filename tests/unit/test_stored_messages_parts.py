"""Answers to batched direct gets: whole or an error; the server's own headers stand behind what was stored."""

from __future__ import annotations

import pytest

from jsclient.jetstream.api.stored_messages import parts_of
from jsclient.message import Msg

OWN = b"Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 7\r\nNats-Time-Stamp: 2026-01-02T03:04:05.000000006Z\r\n"
BATCH = b"Nats-Num-Pending: 3\r\nNats-Last-Sequence: 6\r\n"


def message(stored: bytes, own: bytes = OWN) -> Msg:
    return Msg(b"s.a", b"1", None, b"payload", b"NATS/1.0\r\n" + stored + own + b"\r\n")


@pytest.mark.parametrize(
    ("stored", "headers"),
    [
        (b"", None),
        (b"A: b\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (OWN.replace(b"7", b"9"), b"NATS/1.0\r\n" + OWN.replace(b"7", b"9") + b"\r\n"),
        (b"Nats-Sequence: 1\r\nB: c\r\n", b"NATS/1.0\r\nNats-Sequence: 1\r\nB: c\r\n\r\n"),
    ],
)
@pytest.mark.parametrize(("tail", "pending"), [(b"", None), (BATCH, 3)])
def test_the_servers_headers_come_last(stored: bytes, headers: bytes | None, tail: bytes, pending: int | None) -> None:
    parts = parts_of(message(stored, OWN + tail))
    assert (parts.subject, parts.sequence, parts.pending) == (b"s.a", 7, pending)
    assert parts.headers == headers


def test_another_order_is_understood() -> None:
    lines = OWN.split(b"\r\n")[:-1]
    moved = b"\r\n".join([lines[2], lines[0], lines[3], lines[1]]) + b"\r\n"
    parts = parts_of(message(b"A: b\r\nNats-Sequence: 1\r\n", moved))
    assert (parts.sequence, parts.headers) == (7, b"NATS/1.0\r\nA: b\r\nNats-Sequence: 1\r\n\r\n")


def test_a_message_without_them_is_an_error() -> None:
    with pytest.raises(ValueError, match="without the header"):
        parts_of(message(b"A: b\r\n", b""))
