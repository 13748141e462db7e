"""`bench`: the throughput of this machine, the network and the server with messages of a given size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import jsclient
from jsclient import nuid
from jsclient.cli.arguments import Options, arg, positive
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect, jetstream
from jsclient.cli.output import result
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig

ONE_BY_ONE: Final = 20
"""A publish that waits for its ack is measured with this part of the messages."""
BATCH: Final = 1000

cli: Commands = Commands(connect)


@cli(
    "bench",
    arg("--messages", type=positive, default=20_000, help="number of messages (default 20000)"),
    arg("--size", type=positive, default=128, help="bytes of each (default 128)"),
    arg("--storage", choices=["file", "memory"], default="file", help="of the temporary stream (default file)"),
)
def run(nc: jsclient.Connection, options: Options) -> int:
    """Measure.

    Creates a temporary stream JSCLIENT_BENCH_..., and deletes it at the end.
    """
    for what, count, seconds in _measured(nc, options):
        rate, each = count / seconds, seconds / count * 1e6
        told = {"what": what, "messages": count, "seconds": seconds, "rate": rate}
        result(options, told, f"{what:<34}{rate:>12,.0f} messages/s  {each:>8,.1f} µs each")
    return 0


def _measured(nc: jsclient.Connection, options: Options) -> Iterator[tuple[str, int, float]]:
    count, payload, name = options.messages, bytes(options.size), f"JSCLIENT_BENCH_{nuid.next_nuid()}"

    def core() -> None:
        for _ in range(count):
            nc.publish(f"{name}.core", payload)
        nc.flush(options.timeout)

    yield "publish, without a stream", count, _seconds(core)
    js = jetstream(nc, options)
    config = StreamConfig(name=name, subjects=[f"{name}.stored"], storage=options.storage)
    stream = js.create_stream(config, timeout=options.timeout)
    try:
        few = max(count // ONE_BY_ONE, 1)
        yield "publish, wait for each ack", few, _seconds(lambda: _one_by_one(js, stream, payload, few, options))
        yield "publish_async, wait at the end", count, _seconds(lambda: _many(js, stream, payload, count, options))
        total = few + count
        yield "fetch and ack", total, _seconds(lambda: _fetch(stream, total, options))
    finally:
        js.delete_stream(name, timeout=options.timeout)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _one_by_one(js: JetStream, stream: Stream, payload: bytes, count: int, options: Options) -> None:
    for _ in range(count):
        js.publish(f"{stream.name}.stored", payload, timeout=options.timeout)


def _many(js: JetStream, stream: Stream, payload: bytes, count: int, options: Options) -> None:
    futures = [js.publish_async(f"{stream.name}.stored", payload) for _ in range(count)]
    for future in futures:
        future.result(timeout=options.timeout)


def _fetch(stream: Stream, count: int, options: Options) -> None:
    config = ConsumerConfig(ack_policy="explicit", max_ack_pending=BATCH)
    consumer = stream.create_consumer(config, timeout=options.timeout)
    while count > 0:
        batch = consumer.fetch(min(BATCH, count), timeout=options.timeout)
        if not batch:
            raise jsclient.errors.NoMessages("the messages of the temporary stream do not arrive")
        for msg in batch:
            msg.ack()
        count -= len(batch)
