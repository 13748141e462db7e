"""`bench`: how fast this machine and this server are together. A rough figure; comparisons need interleaved runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain

import jsclient
from jsclient import errors, nuid
from jsclient.cli.arguments import Options, arg, positive
from jsclient.cli.commands import Commands
from jsclient.cli.connection import connect, jetstream
from jsclient.cli.output import result
from jsclient.jetstream import ConsumerConfig, StreamConfig

cli: Commands = Commands(connect)


@cli(
    "bench",
    arg("--msgs", type=positive, default=50_000),
    arg("--size", type=int, default=128, help="bytes of a payload (default 128)"),
    arg("--storage", choices=("file", "memory"), default="memory"),
    arg("--core-only", action="store_true", help="leave JetStream out"),
)
def run(nc: jsclient.Connection, options: Options) -> None:
    for name, seconds in chain(_core(nc, options), () if options.core_only else _stream(nc, options)):
        rate = options.msgs / max(seconds, 1e-9)
        told = {"case": name, "messages": options.msgs, "size": options.size, "seconds": seconds, "rate": rate}
        result(options, told, f"{name:16} {rate:12,.0f} messages/s")


def _core(nc: jsclient.Connection, options: Options) -> Iterator[tuple[str, float]]:
    payload, subject = bytes(options.size), f"jsclient.bench.{nuid.next_nuid()}"
    start = time.perf_counter()
    for _ in range(options.msgs):
        nc.publish(subject, payload)
    nc.flush(60)
    yield "publish", time.perf_counter() - start
    with nc.subscribe(subject, pending_messages=options.msgs + 1, pending_bytes=1 << 40) as subscription:
        nc.flush()
        start = time.perf_counter()
        for _ in range(options.msgs):
            nc.publish(subject, payload)
        for _ in range(options.msgs):
            subscription.next(30)
        yield "publish and take", time.perf_counter() - start


def _stream(nc: jsclient.Connection, options: Options) -> Iterator[tuple[str, float]]:
    js, payload = jetstream(nc, options), bytes(options.size)
    name = f"BENCH-{nuid.next_nuid()}"
    stream = js.create_stream(StreamConfig(name=name, subjects=[f"{name}.x"], storage=options.storage))
    try:
        start = time.perf_counter()
        for _ in range(options.msgs):
            js.publish_async(f"{name}.x", payload)
        js.publish_async_complete(60)
        yield "store", time.perf_counter() - start
        consumer = stream.create_consumer(ConsumerConfig(name=f"c{nuid.next_nuid()}", max_ack_pending=-1))
        start, left = time.perf_counter(), options.msgs
        while left > 0:
            batch = consumer.fetch(min(left, 1000), timeout=30)
            for message in batch:
                message.ack()
            if not batch:
                text = f"{left} messages of {name} did not come within 30 s"
                raise errors.TimedOut(f"{text}. They may be lost or late. Look at the server, or send fewer.")
            left -= len(batch)
        yield "fetch and ack", time.perf_counter() - start
    finally:
        stream.delete()
