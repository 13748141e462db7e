"""The workloads on natsrpy (Rust below asyncio), those that it has; shown beside the others, not gated."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import natsrpy
from natsrpy.js import KVConfig, PullConsumerConfig, StorageType, StreamConfig

from tools.bench.measure import Timed, feeder, percentiles, responder


async def core_publish(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    with timed:
        for _ in range(case["count"]):
            await nc.publish("bench.publish", payload)
        await nc.flush()


async def core_subscribe(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    async with nc.subscribe("bench.subscribe") as messages:
        await nc.flush()
        with feeder(case, "bench.subscribe"):
            await anext(messages)
            with timed:
                for _ in range(case["count"] - 1):
                    await anext(messages)


async def request(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    with responder(case):
        while True:
            try:
                await nc.request("bench.echo", payload, timeout=0.5)
                break
            except Exception:
                await asyncio.sleep(0.02)
        await repeat(case, timed, lambda: nc.request("bench.echo", payload))


async def publish_sync(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    js, payload, name = await nc.jetstream(), bytes(case["size"]), f"PUB{os.getpid()}"
    await js.streams.create(StreamConfig(name, [name.lower()], storage=StorageType.MEMORY))
    await repeat(case, timed, lambda: js.publish(name.lower(), payload, wait=True))
    await js.streams.delete(name)


async def fetch(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    stream, got = await (await nc.jetstream()).streams.get(case["stream"]), 0
    consumer = await stream.consumers.create(PullConsumerConfig(name=f"F{os.getpid()}", max_ack_pending=-1))
    with timed:
        while got < case["count"]:
            messages = await consumer.fetch(case["params"]["batch"], timeout=10)
            for message in messages:
                await message.ack()
            got += len(messages)
        await nc.flush()


async def _bucket(nc: Any, case: dict[str, Any]) -> Any:
    bucket = await (await nc.jetstream()).kv.create(KVConfig(f"b{os.getpid()}", storage=StorageType.MEMORY))
    await bucket.put("key", bytes(case["size"]))
    return bucket


async def kv_get(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    bucket = await _bucket(nc, case)
    await repeat(case, timed, lambda: bucket.get("key"))


async def kv_put(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    bucket, payload = await _bucket(nc, case), bytes(case["size"])
    await repeat(case, timed, lambda: bucket.put("key", payload))


async def repeat(case: dict[str, Any], timed: Timed, call: Any) -> None:
    times = []
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            await call()
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))


async def run() -> None:
    case = json.loads(sys.argv[2])
    case["url"] = sys.argv[1]
    nc = natsrpy.Nats([sys.argv[1]])
    await nc.startup()
    timed = Timed()
    await globals()[case["work"]](nc, case, timed)
    await nc.shutdown()
    print(json.dumps(timed.result))


if __name__ == "__main__":
    asyncio.run(run())
