"""A connection to a server that answers publishes one by one as the test says, without a socket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.publish_rig import FakeConnection, FakeJetStream

from jsclient import errors
from jsclient.message import Msg
from jsclient.protocol import frames

COMMITTED = b'{"stream":"S","seq":3,"batch":"b","count":3}'
REFUSED = b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}'
NO_LEADER = b'{"error":{"code":503,"err_code":10008,"description":"no leader"},"stream":"S","seq":0}'
SILENCE = errors.RequestTimeout("nothing")
UNSENT = errors.RequestTimeout("nothing was sent", sent=False)
LOST = errors.ConnectionLost("lost")
NOBODY = errors.NoResponders("nobody", "s")


class Line(FakeConnection):
    """Answers requests in turn; then each message is taken, and a commit is committed."""

    options = SimpleNamespace(instrumentation=None)

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requested: list[bytes] = []
        self.full = False
        self.later: list[Any] = []  # further answers to the same request
        self.enqueue_now = self._enqueue_now

    def pub_start(self, subject: str, reply: bytes = b"") -> bytes:
        return super().pub_start(subject, reply) if reply else frames.pub_start(subject.encode())

    def _enqueue_now(self, frame: bytes, deadline: Any = None) -> None:
        if self.full:
            raise errors.BufferFull("full")
        self.enqueue(frame)

    def request(self, subject: str, payload: bytes, *, timeout: Any, headers: bytes | None, **_: Any) -> Msg:
        self.requested.append(headers or b"")
        found = self.answers.pop(0) if self.answers else COMMITTED if b"Nats-Batch-Commit" in (headers or b"") else b""
        if isinstance(found, Exception):
            raise found
        return Msg(b"_INBOX.1", b"1", None, found)

    def later_reply(self, reply: Msg, timeout: float | None) -> Msg | None:
        found = self.later.pop(0) if self.later else None
        if isinstance(found, Exception):
            raise found
        return None if found is None else Msg(b"_INBOX.1", b"1", None, found)

    def nothing(self, *_: Any) -> None:
        pass

    forget_reply = add_link_listener = remove_link_listener = nothing

    def refuse_pickle(self, what: object) -> None:
        raise TypeError("cannot be pickled")


def stream(*answers: Any) -> Any:
    js: Any = FakeJetStream()
    js.nc = Line(*answers)
    js.publish_timeout = 5.0
    js.publish_streams = SimpleNamespace(
        ask=lambda *_: None, facts=lambda *_: None, replicas=lambda *_: 1, ask_about=lambda *_: None, stated=None
    )
    return js
