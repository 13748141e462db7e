"""The case `decode`: what a `msg.value` costs, beside msgspec alone on the same bytes.

All in one process, by turns: messages that are taken and not decoded, the same decoded by the program itself with
msgspec's decoder (`decoder(payload)`), the same with `typed`, and a bare loop over the payloads. The gate compares
what `typed` takes more than taking with what msgspec takes more than taking: the same payloads, in the same order, as
they lie in memory after they were received. That is what a program would do without `typed`. The bare loop stands
beside it: it does nothing between two payloads, so processor and memory have everything at hand, and msgspec itself
takes 1.4 to 1.6 times as long in a loop that also takes messages.

The messages have all been received before a loop begins: how often it would wait for the next ones, and what the
reader does meanwhile, changes by more from run to run than is measured here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

import jsclient
from jsclient import codecs
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from jsclient.testing import wait_until
from tools.bench.measure import Timed

TURNS = 9


class Item(msgspec.Struct):
    sku: str
    price: float
    count: int


class Order(msgspec.Struct):
    id: int
    customer: str
    total: float
    paid: bool
    items: list[Item]


ORDER = Order(1, "customer 77", 2.5, True, [Item("sku-1", 1.25, 2), Item("sku-2", 0.0, 1)])


def decode(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    """A loop over `messages()` that has nothing to wait for."""
    js, count = JetStream(nc, codec=codecs.JSON), case["count"]
    stream = js.create_stream(StreamConfig(name="DECODE", subjects=["decode"], storage="memory"))
    data = codecs.JSON.encode(ORDER)
    for _ in range(count):
        nc.publish("decode", data)
    nc.flush()
    decoder = msgspec.json.Decoder(Order).decode

    def alone(payloads: Iterable[bytes]) -> None:
        for payload in payloads:
            decoder(payload)

    def plain(messages: Iterable[Any]) -> None:
        for message in messages:
            message.msg  # noqa: B018

    def by_hand(messages: Iterable[Any]) -> None:
        for message in messages:
            decoder(message.msg.data)

    def typed(messages: Iterable[Any]) -> None:
        for message in messages:
            message.value  # noqa: B018

    least = dict.fromkeys((alone, plain, by_hand, typed), math.inf)
    for _ in range(TURNS):
        for loop in least:
            with received(stream, count, values=loop is typed) as messages:
                over = [message.msg.data for message in messages] if loop is alone else messages
                least[loop] = min(least[loop], seconds(loop, over))
    with received(stream, count, values=True) as messages, timed:
        typed(messages)
    stream.delete()
    ours, msgspecs = (least[loop] - least[plain] for loop in (typed, by_hand))
    timed.result["figures"] = {
        "of msgspec's speed": msgspecs / ours,
        "x a bare loop": ours / least[alone],
        "x a bare loop, msgspec by hand": msgspecs / least[alone],
    }


@contextmanager
def received(stream: Stream, count: int, values: bool = False) -> Iterator[Any]:
    """An iterator that has received all messages, without the default bound on their bytes, and has given out one: the
    first take asks for them."""
    consumer = stream.create_consumer(ConsumerConfig(ack_policy="none", inactive_threshold=60))
    taken: Any = consumer.typed(Order) if values else consumer
    with taken.messages(max_messages=count, max_bytes=0, stop_after=count) as messages:
        messages.next(timeout=60)
        wait_until(lambda: messages.buffered >= count - 1, timeout=60)
        yield messages


def seconds(work: Callable[[Any], None], over: Any) -> float:
    """CPU of this thread."""
    start = time.thread_time()
    work(over)
    return time.thread_time() - start
