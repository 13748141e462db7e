"""The chunks of a backup: which end is a good one, and what a server says instead."""

from __future__ import annotations

import hashlib
import io
from types import SimpleNamespace

import pytest

from jsclient.backup import BackupError
from jsclient.backup.taking import _receive
from jsclient.durations import Deadline
from jsclient.errors import TimedOut
from jsclient.message import Msg


class Chunks:
    """What arrives at the inbox of a backup."""

    def __init__(self, *messages: Msg) -> None:
        self.left = list(messages)

    def next(self, timeout: float) -> Msg:
        if not self.left:
            raise TimedOut("no chunk")
        return self.left.pop(0)


def ended(status: bytes) -> Msg:
    return Msg(b"inbox", b"1", None, b"", status)


def received(*messages: Msg, deadline: Deadline | None = None) -> tuple[str, int, bytes]:
    file, js = io.BytesIO(), SimpleNamespace(nc=SimpleNamespace(publish=lambda subject: None))
    whole = Deadline(None) if deadline is None else deadline
    digest, size = _receive(js, Chunks(*messages), file, "S", 6, None, 5.0, whole)  # type: ignore[arg-type]
    return digest, size, file.getvalue()


PIECE = Msg(b"inbox", b"1", b"reply", b"abc")


@pytest.mark.parametrize("end", [ended(b"NATS/1.0 204 EOF\r\n\r\n"), Msg(b"inbox", b"1", None, b"")])
def test_a_backup_ends_with_204_or_an_empty_chunk(end: Msg) -> None:
    digest, size, stored = received(PIECE, PIECE, end)
    assert (size, stored) == (6, b"abcabc")
    assert digest == hashlib.sha256(b"abcabc").hexdigest()


@pytest.mark.parametrize("status", ["408 Request Timeout", "500 disk full", "503", "205 X", "100 Idle"])
def test_every_other_status_is_a_failure(status: str) -> None:
    with pytest.raises(BackupError, match=status.split()[0]):
        received(PIECE, ended(f"NATS/1.0 {status}\r\n\r\n".encode()))


@pytest.mark.parametrize(("deadline", "why"), [(None, "no chunk for 5 s"), (Deadline(0.0), "its time was over")])
def test_a_backup_that_stalls_is_a_failure(deadline: Deadline | None, why: str) -> None:
    with pytest.raises(TimedOut, match=why):
        received(PIECE, deadline=deadline)
