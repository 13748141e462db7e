"""A connection to a server that answers acks, and questions about consumers, as the test says."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.pull_rig import Connection, Server

from jsclient import errors
from jsclient.durations import Deadline
from jsclient.jetstream.consuming.pull_inboxes import pool_of
from jsclient.jetstream.message import JetStreamMsg
from jsclient.message import Msg

SILENCE = errors.RequestTimeout("nothing")
CONFIRMED = Msg(b"_INBOX.1", b"1", None, b"")
NOBODY = Msg(b"_INBOX.1", b"1", None, b"", b"NATS/1.0 503\r\n\r\n")


def info(consumer_seq: int, stream_seq: int) -> bytes:
    sent = {"consumer_seq": consumer_seq, "stream_seq": stream_seq}
    return json.dumps({"stream_name": "S", "name": "C", "config": {}, "delivered": sent}).encode()


class Asked(Connection):
    """Answers requests in turn: acks and CONSUMER.INFO."""

    def __init__(self, *answers: Any, knows: str = "$JS.API.CONSUMER.MSG.NEXT.S.C") -> None:
        super().__init__(Server(random.Random(1), []))
        self.answers = list(answers)
        self.subjects: list[str] = []
        pool: Any = pool_of(self)  # type: ignore[arg-type]
        for subject in knows.split():
            pool.remember(subject)

    @property
    def forgetful(self) -> set[str]:
        found: set[str] = pool_of(self).forgetful  # type: ignore[arg-type]
        return found

    def request(self, subject: str, payload: bytes = b"", *, timeout: Any, start: bytes = b"") -> Msg:
        self.subjects.append(subject)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, Msg) else Msg(b"_INBOX.1", b"1", None, found)

    def request_each(self, subjects: list[bytes], payload: bytes, deadline: Deadline) -> tuple[dict[int, Msg], Any]:
        self.subjects.append(f"{len(subjects)} acks")
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]


def delivered(connection: Any, sequence: int, reply: bytes | None = None) -> JetStreamMsg:
    reply = reply or b"$JS.ACK.S.C.1.%d.%d.1700000000000000000.0" % (sequence, sequence)
    return JetStreamMsg(Msg(b"s", b"1", reply, b"x"), connection)
