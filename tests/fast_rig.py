"""A connection to a server that takes fast batches, and answers as the test says; without a socket."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.publish_rig import FakeConnection, FakeJetStream

from jsclient.jetstream.publishing.fast_batch import COMMIT, COMMIT_END, START
from jsclient.message import Msg

Answer = Callable[[int, int], Any]
"""What the server says to message (number, operation): plain JSON, bytes, a link event, nothing, or an error of the
connection that is raised."""

NOBODY = Msg(b"_INBOX.x", b"1", None, b"", b"NATS/1.0 503\r\n\r\n")


def ack(seq: int, msgs: int = 100) -> dict[str, Any]:
    return {"type": "ack", "seq": seq, "msgs": msgs}


def end(count: int) -> dict[str, Any]:
    return {"stream": "S", "seq": count, "batch": "b", "count": count}


class Inbox:
    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.closed = False

    def __len__(self) -> int:
        return len(self.items)

    def take(self) -> Any:
        return self.items.popleft() if self.items else None

    def next(self, wait: float) -> Any:
        return self.take()

    def close(self) -> None:
        self.closed = True


class Line(FakeConnection):
    def __init__(self, answer: Answer | None = None) -> None:
        super().__init__()
        self.answer = answer or (lambda number, operation: None)
        self.inbox = Inbox()
        self.operations: list[int] = []
        self.enqueue_now = self._enqueue_now

    def open_inbox(self, subject: str) -> Inbox:
        self.inbox = Inbox()
        return self.inbox

    def _enqueue_now(self, frame: bytes, deadline: Any = None) -> None:
        self.enqueue(frame)

    def enqueue(self, frame: bytes) -> None:
        for number, operation in re.findall(rb"\.(\d+)\.(\d)\.\$FI ", bytes(frame)):
            self._sent(int(number), int(operation))

    def _sent(self, number: int, operation: int) -> None:
        self.operations.append(operation)
        said = self.answer(number, operation)
        if said is None:
            said = {START: ack(0), COMMIT: end(number), COMMIT_END: end(number - 1)}.get(operation)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, dict):
            said = json.dumps(said).encode()
        if isinstance(said, bytes):
            said = Msg(b"_INBOX.x", b"1", None, said)
        if said not in (None, ""):
            self.inbox.items.append(said)

    def nothing(self, *_: Any) -> None:
        pass

    add_link_listener = remove_link_listener = nothing


def stream(answer: Answer | None = None) -> Any:
    js: Any = FakeJetStream()
    js.nc = Line(answer)
    js.publish_timeout = 5.0
    return js


def on(operation: int, said: Any, number: int = 0) -> Answer:
    """Says it to messages of that operation (and number)."""
    return lambda given, kind: said if kind == operation and number in (0, given) else None
