"""The case `decode`: what a `msg.value` costs, beside msgspec alone on the same bytes.

All in one process, by turns: messages that are read and not decoded, the same with `decode=`, and a bare loop of a
msgspec decoder. What the second takes more than the first is compared with the third.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

import jsclient
from jsclient import codecs
from jsclient.jetstream import JetStream, StreamConfig
from tools.bench.measure import Timed

TURNS = 7


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


def seconds(work: Callable[[], None]) -> float:
    """CPU of this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def decode(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    """Ordered reads: nothing but taking and decoding."""
    js, count = JetStream(nc, codec=codecs.JSON), case["count"]
    stream = js.create_stream(StreamConfig(name="DECODE", subjects=["decode"], storage="memory"))
    data = codecs.JSON.encode(ORDER)
    for _ in range(count):
        nc.publish("decode", data)
    nc.flush()
    decoder = msgspec.json.Decoder(Order).decode

    def alone() -> None:
        for _ in range(count):
            decoder(data)

    def plain() -> None:
        with stream.ordered_consumer().messages(stop_after=count) as messages:
            for message in messages:
                message.msg  # noqa: B018

    def typed() -> None:
        with stream.ordered_consumer().messages(stop_after=count, decode=Order) as messages:
            for message in messages:
                message.value  # noqa: B018

    least = {work: min(seconds(work) for _ in range(TURNS)) for work in (alone, plain)}
    with timed:
        typed()
    least[typed] = min(seconds(typed) for _ in range(TURNS))
    stream.delete()
    times = (least[typed] - least[plain]) / least[alone]
    timed.result["figures"] = {"x msgspec alone": times, "of msgspec's speed": 1 / times}
