"""The workloads on natsio (asyncio, Python 3.13), those that it has; shown next to the others, not gated."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import natsio
from natsio.jetstream import ConsumerConfig, StorageType, StreamConfig
from natsio.kv import KeyValueConfig

from tools.bench.measure import Timed, feeder, percentiles, responder


async def core_publish(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    with timed:
        for _ in range(case["count"]):
            await nc.publish("bench.publish", payload)
        await nc.flush(60)


async def core_subscribe(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    async with nc.subscribe("bench.subscribe", pending_msgs_limit=10**7, pending_bytes_limit=10**10) as messages:
        await nc.flush()
        with feeder(case, "bench.subscribe"):
            await messages.next_msg()
            with timed:
                for _ in range(case["count"] - 1):
                    await messages.next_msg()


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
    js, payload, name = nc.jetstream(), bytes(case["size"]), f"PUB{os.getpid()}"
    await js.create_stream(StreamConfig(name=name, subjects=[name.lower()], storage=StorageType.MEMORY))
    await repeat(case, timed, lambda: js.publish(name.lower(), payload))
    await js.delete_stream(name)


async def publish_async(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    window = case["params"]["window"]
    js = nc.jetstream(publish_async_max_pending=window, publish_async_stall_wait=60)
    payload, name = bytes(case["size"]), f"PUB{os.getpid()}"
    storage = StorageType(case["params"].get("storage", "memory"))
    await js.create_stream(StreamConfig(name=name, subjects=[name.lower()], storage=storage))
    with timed:
        for _ in range(case["count"]):
            await js.publish_async(name.lower(), payload)
        await js.publish_async_complete()
    assert (await js.stream_info(name)).state.messages == case["count"]
    await js.delete_stream(name)


async def fetch(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    stream, got = await nc.jetstream().stream(case["stream"]), 0
    config = ConsumerConfig(durable_name=f"F{os.getpid()}", max_ack_pending=-1)
    consumer = await stream.create_consumer(config)
    with timed:
        while got < case["count"]:
            messages = await consumer.fetch(case["params"]["batch"], timeout=10)
            for message in messages:
                await message.ack()
            got += len(messages)
        await nc.flush(60)


async def _bucket(nc: Any, case: dict[str, Any]) -> Any:
    config = KeyValueConfig(bucket=f"b{os.getpid()}", storage=StorageType.MEMORY)
    bucket = await nc.jetstream().create_key_value(config)
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
    timed = Timed()
    async with await natsio.connect(sys.argv[1]) as nc:
        await globals()[case["work"]](nc, case, timed)
    print(json.dumps(timed.result))


if __name__ == "__main__":
    asyncio.run(run())
