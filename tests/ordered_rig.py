"""A stream without a server, for ordered consumers: the API is scripted, messages are put where they come in."""

from __future__ import annotations

import datetime as dt
import random
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.pull_rig import Connection, Server

from jsclient import errors
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.api.models import ConsumerInfo
from jsclient.message import Msg
from jsclient.states import LinkEvent

MADE = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
SILENCE = errors.RequestTimeout("nothing")
GONE = errors.ConsumerNotFound(404, 10014, "gone")


class Silent(Server):
    """Takes pulls and sends nothing by itself."""

    def step(self) -> bool:
        return False


class Api:
    """Answers what the test has laid down for an operation, in turn (errors are raised, functions called); else all is
    well: consumers are made, and the stream is as old as they are."""

    timeout = 5.0
    is_imported = False
    passes_many = True
    prefix = "$JS.API."

    def __init__(self, nc: Any = None) -> None:
        self.nc = nc
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[str] = []
        self.patience: dict[str, list[Any]] = {}  # the timeout of each question

    def subject(self, operation: str) -> str:
        return self.prefix + operation

    def request(self, operation: str, body: Any = None, response: Any = None, **options: Any) -> Any:
        verb = ".".join(operation.split(".")[:2])
        self.asked.append(verb)
        self.patience.setdefault(verb, []).append(options.get("timeout"))
        script = self.answers.get(verb)
        found = script.pop(0) if script else None
        if callable(found):
            found = found()
        if isinstance(found, Exception):
            raise found
        if found is not None:
            return found
        if verb == "STREAM.INFO":
            state = SimpleNamespace(last_seq=0)
            return SimpleNamespace(created=MADE, config=SimpleNamespace(num_replicas=1), state=state)
        return ConsumerInfo(stream_name="S", name=operation.split(".")[3], config=ConsumerConfig(), created=MADE)


def stream() -> Any:
    """What stands for a JetStream object."""
    capabilities = SimpleNamespace(check_config=lambda *_: None, check_echo=lambda *_: None)
    nc = Connection(Silent(random.Random(1), []))
    return SimpleNamespace(nc=nc, api=Api(nc), capabilities=capabilities)


def sent(name: bytes, stream_seq: int, consumer_seq: int, headers: bytes | None = None) -> Msg:
    """A message of the consumer of that name."""
    reply = b"$JS.ACK.S.%b.1.%d.%d.1700000000000000000.0" % (name, stream_seq, consumer_seq)
    return Msg(b"s", b"1", reply, b"x", headers)


def a_question_ends_with_the_call(rig: Any) -> None:
    """For the rigs of both iterators, with questions that are due at once: after a server has left the cluster the call
    asks for its consumer. That took half a second, also of a call that waits for 20 ms."""
    rig.api.answers["CONSUMER.INFO"] = [SILENCE, SILENCE]
    rig.comes(LinkEvent.SERVER_LEFT)
    assert rig.taken() == []
    rig.mailbox.last_frame = time.monotonic() - 1
    assert rig.taken() == []
    assert "CONSUMER.INFO" not in rig.api.patience, "a call that does not wait asks nothing"
    with pytest.raises(errors.NoMessages):
        rig.messages.next(timeout=0.02)
    (asked,) = rig.api.patience["CONSUMER.INFO"]
    assert 0 < asked <= 0.02
    assert rig.messages.resets == 0, "no answer within 20 ms proves nothing"
