"""A pull consumer that brings to a finite read what the test says, without a server."""

from __future__ import annotations

import datetime as dt
import random
from types import SimpleNamespace
from typing import Any

from tests.pull_rig import Connection, Server

from jsclient import errors, waiting
from jsclient.jetstream.consuming.fetch import Batch, Ended
from jsclient.jetstream.message import JetStreamMsg
from jsclient.message import Msg

END = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)


LOST = errors.ConnectionLost("the link was lost")


class Consumer:
    """A pull consumer that answers as the test says; without a script it has nothing."""

    def __init__(self, *, ack_none: bool = False, last: int = 100) -> None:
        self.nc: Any = Connection(Server(random.Random(1), []))
        self._source = SimpleNamespace(ack_none=ack_none)
        self.stream_name = "S"
        self.last = last
        self.batches: list[Any] = []
        self.infos: list[Any] = []
        self.asked = 0
        self.js: Any = SimpleNamespace(api=SimpleNamespace(timeout=5.0, request=self._stream_info))

    def _stream_info(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(config=SimpleNamespace(num_replicas=1), state=SimpleNamespace(last_seq=self.last))

    def message(self, sequence: int, *, beyond: bool = False, delivery: int = 0) -> JetStreamMsg:
        moment = int((END.timestamp() + (10 if beyond else -10)) * 1e9)
        reply = b"$JS.ACK.S.C.1.%d.%d.%d.0" % (sequence, delivery or sequence, moment)
        return JetStreamMsg(Msg(b"s", b"1", reply, b"x"), self.nc)

    def brings(self, *messages: JetStreamMsg, error: Exception | None = None) -> None:
        self.batches.append(Batch(list(messages), Ended.NO_MESSAGES if error is None else Ended.ERROR, error))

    def says(self, *, ack_pending: int = 0, pending: int = 0, delivered: int = 0) -> None:
        sent = SimpleNamespace(consumer_seq=delivered, stream_seq=delivered)
        self.infos.append(SimpleNamespace(num_ack_pending=ack_pending, num_pending=pending, delivered=sent))

    def fetch_no_wait(self, want: int, within: float) -> Batch:
        return self._next_batch()

    def fetch(self, want: int, *, no_wait_then: float, cancel: Any) -> Batch:
        cancel.check()
        if not self.batches:
            waiting.Gate().wait(min(no_wait_then, 1.0))
        return self._next_batch()

    def _next_batch(self) -> Batch:
        found: Any = self.batches.pop(0) if self.batches else Batch([], Ended.NO_MESSAGES)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def info(self, timeout: float | None = None) -> Any:
        self.asked += 1
        found = self.infos.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def __str__(self) -> str:
        return "the consumer"
