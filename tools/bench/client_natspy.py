"""The workloads on nats-py, each in its fastest form; with `uvloop` as third argument on that event loop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import ssl
import sys
import time
from typing import Any

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StorageType, StreamConfig

from tools.bench.many_natspy import (  # noqa: F401 - found by name
    callback_responder,
    confirmed_acks,
    first_publish,
    many_callbacks,
    messages_read,
    processes_fetch,
    processes_publish,
    threads_double_ack,
    threads_publish,
    threads_request,
)
from tools.bench.measure import Timed, destination, feeder, percentiles, responder

HEADERS = {"X-Bench": "0123456789"}
BIG = {"pending_msgs_limit": 10**8, "pending_bytes_limit": 10**11}


async def core_publish(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    headers = HEADERS if case["params"].get("headers") else None
    with timed:
        for _ in range(case["count"]):
            await nc.publish("bench.publish", payload, headers=headers)
        await nc.flush(60)


async def core_subscribe(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    done, left = asyncio.Event(), case["count"]

    async def handle(message: Any) -> None:
        nonlocal left
        if left == case["count"]:
            timed.__enter__()
        left -= 1
        if not left:
            timed.__exit__()
            done.set()

    await nc.subscribe("bench.subscribe", cb=handle, **BIG)
    await nc.flush()
    with feeder(case, "bench.subscribe"):
        await done.wait()


async def request(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    payload, times = bytes(case["size"]), []
    with responder(case):
        while True:
            try:
                await nc.request("bench.echo", payload, timeout=0.5)
                break
            except Exception:
                await asyncio.sleep(0.02)
        with timed:
            for _ in range(case["count"]):
                start = time.perf_counter()
                await nc.request("bench.echo", payload)
                times.append(time.perf_counter() - start)
        timed.result.update(percentiles(times))


async def new_stream(js: JetStreamContext, storage: str = "memory") -> str:
    name = f"PUB{os.getpid()}"
    await js.add_stream(StreamConfig(name=name, subjects=[f"pub{os.getpid()}"], storage=StorageType(storage)))
    return name


async def publish_sync(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    js, payload, times = nc.jetstream(), bytes(case["size"]), []
    name = await new_stream(js)
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            await js.publish(name.lower(), payload)
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))
    await js.delete_stream(name)


async def publish_async(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    window = case["params"]["window"]
    js, payload = nc.jetstream(**({"publish_async_max_pending": window} if window else {})), bytes(case["size"])
    name = await new_stream(js, case["params"].get("storage", "memory"))
    with timed:
        for _ in range(case["count"]):
            await js.publish_async(name.lower(), payload, wait_stall=None)
        await js.publish_async_completed()
    assert (await js.stream_info(name)).state.messages == case["count"]
    await js.delete_stream(name)


async def fetch(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    js, got = nc.jetstream(), 0
    sub = await js.pull_subscribe(
        case["subject"],
        durable=f"F{os.getpid()}",
        stream=case["stream"],
        config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1),
        **BIG,
    )
    with timed:
        while got < case["count"]:
            messages = await sub.fetch(case["params"]["batch"], timeout=10)
            for message in messages:
                await message.ack()
            got += len(messages)
        await nc.flush(60)


batches = fetch  # a loop of fetches is what it has


async def _push(nc: Any, case: dict[str, Any], timed: Timed, ordered: bool = False) -> None:
    """nats-py has no messages or consume on pull consumers: a push subscription with a callback is its fastest."""
    js, done, left = nc.jetstream(), asyncio.Event(), case["count"]
    explicit = case["params"].get("ack", "none") == "explicit"

    async def handle(message: Any) -> None:
        nonlocal left
        if explicit:
            await message.ack()
        left -= 1
        if not left:
            done.set()

    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT if explicit else AckPolicy.NONE)
    if explicit:
        config.max_ack_pending = -1
    with timed:
        await js.subscribe(
            case["subject"],
            stream=case["stream"],
            cb=handle,
            manual_ack=True,
            ordered_consumer=ordered,
            config=None if ordered else config,
            **BIG,
        )
        await done.wait()
        await nc.flush(60)


async def messages(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    await _push(nc, case, timed)


consume = messages


async def ordered(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    await _push(nc, case, timed, ordered=True)


async def _bucket(nc: Any, case: dict[str, Any]) -> Any:
    config = KeyValueConfig(bucket=f"b{os.getpid()}", storage=StorageType.MEMORY)
    bucket = await nc.jetstream().create_key_value(config)
    await bucket.put("key", bytes(case["size"]))
    return bucket


async def kv_get(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    bucket, times = await _bucket(nc, case), []
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            await bucket.get("key")
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))


async def kv_put(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    bucket, payload, times = await _bucket(nc, case), bytes(case["size"]), []
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            await bucket.put("key", payload)
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))


async def _store(nc: Any) -> Any:
    config = ObjectStoreConfig(bucket=f"o{os.getpid()}", storage=StorageType.MEMORY)
    return await nc.jetstream().create_object_store(config.bucket, config=config)


async def object_put(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    data, store = os.urandom(case["size"]), await _store(nc)
    with timed:
        await store.put("blob", data)


async def object_get(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    data, store = os.urandom(case["size"]), await _store(nc)
    await store.put("blob", data)
    path = destination(case["size"])
    with open(path, "wb") as file, timed:
        await store.get("blob", writeinto=file)
    with open(path, "rb") as written:
        assert hashlib.sha256(written.read()).digest() == hashlib.sha256(data).digest()
    os.unlink(path)


async def run() -> None:
    case = json.loads(sys.argv[2])
    case["url"] = sys.argv[1]
    tls = {"tls": ssl.create_default_context(cafile=case["ca"])} if case.get("ca") else {}
    nc = await nats.connect(sys.argv[1], **tls)
    timed = Timed()
    await globals()[case["work"]](nc, case, timed)
    await nc.close()
    print(json.dumps(timed.result))


def main() -> None:
    if sys.argv[3:] == ["uvloop"]:
        import uvloop

        uvloop.run(run())
    else:
        asyncio.run(run())


if __name__ == "__main__":
    main()
