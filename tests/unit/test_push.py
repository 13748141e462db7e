"""The handle of a push consumer and its iterator, without a server."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.ordered_rig import MADE, sent, stream

from jsclient import errors
from jsclient.jetstream import ConsumerConfig
from jsclient.jetstream.api.models import ConsumerInfo
from jsclient.jetstream.consuming.push import PushConsumer, PushSource
from jsclient.message import Msg

CONFIG = ConsumerConfig(deliver_subject="d", deliver_group="g", ack_policy="explicit")
GONE = errors.ConsumerDeleted(409, "Consumer Deleted")


def consumer_of(**answers: list[Any]) -> PushConsumer:
    js = stream()
    js.api.answers = {name.replace("_", "."): script for name, script in answers.items()}
    info = ConsumerInfo(stream_name="S", name="C", config=CONFIG, created=MADE)
    return PushConsumer(js, "S", "C", CONFIG, info)


def deliver(consumer: Any, *items: Msg) -> None:
    consumer.js.nc.sinks["d"].deliver(list(items), 100)


def test_a_pull_consumer_is_none() -> None:
    with pytest.raises(errors.NotPushConsumer):
        PushConsumer(stream(), "S", "C", ConsumerConfig())


def test_messages_come_and_what_is_left_goes_back() -> None:
    consumer = consumer_of()
    messages = consumer.messages()
    deliver(consumer, *[sent(b"C", number, number) for number in (1, 2, 3)])
    assert messages.next(timeout=0).stream_seq == 1
    assert (messages.missed_heartbeats, messages.delivered) == (0, 1)
    assert repr(messages) == "<Messages of push consumer 'C' of stream 'S' open buffered=2>"
    messages.stop()
    assert list(messages) == []
    nc: Any = consumer.nc
    assert len(nc.server.returned) == 2


def test_what_is_taken_just_after_the_end_goes_back() -> None:
    consumer = consumer_of()
    messages = consumer.messages()

    def late(deadline: Any, until: float = 0.0) -> Msg:
        """Is stopped between the look and the take."""
        messages.stop()
        return sent(b"C", 1, 1)

    iterator: Any = iter(messages)
    iterator._intake.take = late
    assert list(messages) == []
    nc: Any = consumer.nc
    assert len(nc.server.returned) == 1


@pytest.mark.parametrize(
    ("answers", "found"),
    [([], errors.ConsumerDeleted), ([errors.StreamNotFound(404, 10059, "no")] * 2, errors.StreamNotFound)],
)
def test_a_deletion_may_be_that_of_the_stream(answers: list[Any], found: type[Exception]) -> None:
    js = stream()
    js.api.answers = {"STREAM.INFO": answers}
    source = PushSource(js, "S", "C", CONFIG, ConsumerInfo(stream_name="S", name="C", config=CONFIG, created=MADE))
    assert type(source.why_deleted(GONE, 1.0)) is found


def test_it_belongs_to_its_process() -> None:
    consumer = consumer_of()
    assert repr(consumer) == "<PushConsumer 'C' of 'S'>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(consumer)
