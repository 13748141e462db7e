"""A connection that answers requests of the API as the test says, without a socket."""

from __future__ import annotations

import json
from typing import Any

from jsclient.durations import DEFAULT, Deadline
from jsclient.message import Msg
from jsclient.protocol import ServerInfo


class FakeConnection:
    """Answers requests from a list: bytes or dict (the reply), an exception, or a function of (subject, body)."""

    def __init__(self, *answers: Any, version: str = "2.15.1", level: int = 5) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, Any, float | None]] = []
        self._engine = self
        self.server_info = ServerInfo(server_id="A", client_id=1, version=version, jetstream=True, api_lvl=level)

    def request(self, subject: str, payload: bytes = b"", *, timeout: Any = DEFAULT, **_: Any) -> Msg:
        seconds = timeout.seconds if isinstance(timeout, Deadline) else timeout
        self.calls.append((subject, json.loads(payload) if payload else None, seconds))
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer(subject, payload)
        if isinstance(answer, Exception):
            raise answer
        return Msg(b"reply", b"1", None, answer if isinstance(answer, bytes) else json.dumps(answer).encode())
