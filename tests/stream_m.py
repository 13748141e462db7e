"""The stream `M` of tests about messages: publishes to it, and a durable consumer of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jsclient.jetstream import ConsumerConfig, JetStream
from jsclient.jetstream.consumer import Consumer


def publish(js: JetStream, count: int, size: int = 10) -> None:
    for number in range(1, count + 1):
        js.nc.publish("m.a", (b"%d " % number).ljust(size, b"."))
    js.nc.flush()


def durable(js: JetStream, **config: Any) -> Consumer:
    return js.create_consumer("M", ConsumerConfig(durable_name="C", **config))


def inner(messages: Iterable[Any]) -> Any:
    """The iterator that a loop over the messages uses."""
    return iter(messages)
