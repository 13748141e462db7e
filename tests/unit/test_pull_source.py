"""What pulls know of a consumer of which nothing is known: how often to ask, pins, and the consumer of an ack."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.pull_rig import Connection, Server

from jsclient import errors
from jsclient.jetstream.consuming.sources import AckedConsumer, PullSource, QuestionLimit
from jsclient.message import Msg


def source() -> PullSource:
    connection: Any = Connection(Server(random.Random(1), []))
    return PullSource(connection, "P")


def test_questions_are_rare(monkeypatch: Any) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limit = QuestionLimit(10.0)
    assert [limit.allow(), limit.allow()] == [True, False]
    now[0] += 10
    assert limit.allow()
    limit.shorten(2.0)
    now[0] += 2
    assert limit.allow()
    limit.shorten(20.0)
    now[0] += 10
    assert limit.allow(), "it is never made longer"


def test_a_pin_is_learned_from_a_message_that_has_one() -> None:
    of = source()
    of.learn_pin("g", Msg(b"s", b"1", None, b"", b"NATS/1.0\r\nA: b\r\n\r\n"))
    assert of.pins == {}
    of.learn_pin("g", Msg(b"s", b"1", None, b"", b"NATS/1.0\r\nNats-Pin-Id: one\r\n\r\n"))
    assert of.pins == {"g": "one"}


def test_nothing_more_is_known_of_it() -> None:
    of, nobody, deleted = source(), errors.PullNoResponders("nobody", "P"), errors.ConsumerDeleted(409, "")
    assert of.examine(1.0) is None
    assert of.why_nobody(nobody, 1.0) is nobody
    assert of.why_deleted(deleted, 1.0) is deleted


def test_the_next_pull_of_an_acked_message_is_its_ack() -> None:
    consumer = AckedConsumer(source().nc, b"$JS.ACK.S.C.1.1.1.1.0")
    assert (consumer.pull_subject, consumer.pull_prefix) == ("$JS.ACK.S.C.1.1.1.1.0", b"+NXT ")
    assert str(consumer) == "the consumer of an acked message"
