"""The pieces of a restore on their way to the server: several at a time, each answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from jsclient import errors
from jsclient._connection import LargeLinkFrame, LinkFrame
from jsclient.connection import Connection, engine_of
from jsclient.durations import Deadline
from jsclient.jetstream.api.requests import check_error
from jsclient.message import Msg
from jsclient.protocol.frames import LARGE_PAYLOAD, Frame, pub, pub_parts

STEP_TIMEOUT: Final = 30.0
"""Seconds for the server to take one piece."""

UNDER_WAY: Final = 2 * 1024 * 1024
"""Bytes that may be unanswered."""

PATIENCE: Final = 5.0
"""Seconds without an answer after which one more piece goes out. If no server listens any more, it fails immediately.
"""

_NO_RESPONDERS: Final = 503


def upload(
    nc: Connection, target: str, pieces: Iterable[bytes], deadline: Deadline, patience: float = PATIENCE
) -> Iterator[int]:
    """Send pieces to the subject that the server has given. Yields the size of each once the server has it.

    The last piece waits until the others are answered. If the server received the pieces and then died, no answer will
    come. This last piece then serves as a probe.

    Raises NoResponders when the server has given up, ApiError when it refuses a piece, RequestTimeout, ConnectionLost.
    """
    pieces = iter(pieces)
    for piece in islice(pieces, 1):  # a request fails immediately if this user has no permission to send there
        answer = nc.request(target, piece, timeout=deadline.at_most(STEP_TIMEOUT))
        if answer.data:
            check_error(answer.data)
        yield len(piece)
    window = _Window(nc, target, deadline)
    try:
        for piece, last in _with_last(pieces):
            while True:
                if not window.sizes or not (last or window.bytes + len(piece) > UNDER_WAY):
                    break
                size = window.next(patience)
                if size is None:
                    break
                yield size
            window.send(piece)
        while True:
            if not window.sizes:
                return
            yield window.oldest()
    finally:
        window.close()


def _with_last(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each piece, and whether it is the last one."""
    for held in islice(pieces, 1):
        for piece in pieces:
            yield held, False
            held = piece
        yield held, True


class _Window:
    """The pieces under way. Each has its own reply subject, and only the answer to the oldest piece is accepted next.
    So a piece that was lost with its link, or came twice, is always noticed."""

    def __init__(self, nc: Connection, target: str, deadline: Deadline) -> None:
        self.sizes: deque[int] = deque()
        self.bytes = 0
        self._engine = engine_of(nc)
        self._target = target
        self._deadline = deadline
        self._sent = 0
        base = nc.new_inbox()
        self._inbox = self._engine.open_inbox(f"{base}.*")
        self._prefix = f"{base}.".encode()

    def close(self) -> None:
        self._inbox.close()

    def send(self, piece: bytes) -> None:
        start = self._engine.pub_start(self._target, self._prefix + b"%d" % self._sent)
        # Never on another link: its server does not know this restore.
        large = len(piece) >= LARGE_PAYLOAD
        frame: Frame = LargeLinkFrame(pub_parts(start, piece)) if large else LinkFrame(pub(start, piece))
        self._engine.enqueue_now(frame, Deadline(self._deadline.at_most(STEP_TIMEOUT)))
        self._sent += 1
        self.sizes.append(len(piece))
        self.bytes += len(piece)

    def oldest(self) -> int:
        """The size of the oldest, once it was answered. Raises RequestTimeout."""
        timeout = self._deadline.at_most(STEP_TIMEOUT)
        size = self.next(timeout)
        if size is None:
            raise errors.RequestTimeout(f"no reply from {self._target!r} within {timeout:g} s")
        return size

    def next(self, timeout: float) -> int | None:
        """The size of the oldest, once it was answered. Returns None if no answer arrives within `timeout`."""
        answer = self._inbox.next(self._deadline.at_most(timeout))
        if answer is None:
            return None
        if not isinstance(answer, Msg):
            raise errors.ConnectionLost("the link went down while pieces of a backup were under way")
        if answer.data:
            check_error(answer.data)
        if answer.status is not None and answer.status.code == _NO_RESPONDERS:
            raise errors.NoResponders(f"nobody listens on {self._target!r}", self._target)
        if answer.raw_subject != self._prefix + b"%d" % (self._sent - len(self.sizes)):
            raise errors.ConnectionLost("an answer came out of turn: a piece of the backup was lost")
        size = self.sizes.popleft()
        self.bytes -= size
        return size
