"""The workloads of many_jsclient on nats-py, with tasks in the place of threads; part of client_natspy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from tools.bench.measure import Timed, asker, feeder, in_processes, listener, responder


async def _in_tasks(case: dict[str, Any], timed: Timed, step: Callable[[], Awaitable[object]]) -> None:
    tasks = case["params"]["threads"]

    async def work() -> None:
        for _ in range(case["count"] // tasks):
            await step()

    with timed:
        await asyncio.gather(*(work() for _ in range(tasks)))


async def threads_publish(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    js, payload = nc.jetstream(), bytes(case["size"])
    await js.add_stream(StreamConfig(name="THREADS", subjects=["threads"], storage=StorageType.MEMORY))
    await _in_tasks(case, timed, lambda: js.publish("threads", payload))
    await js.delete_stream("THREADS")


async def threads_request(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    with responder(case):
        while True:
            try:
                await nc.request("bench.echo", payload, timeout=0.5)
                break
            except Exception:
                await asyncio.sleep(0.02)
        await _in_tasks(case, timed, lambda: nc.request("bench.echo", payload))


async def _unacked(nc: Any, case: dict[str, Any]) -> list[Any]:
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1)
    sub = await nc.jetstream().pull_subscribe(
        case["subject"], durable="unacked", stream=case["stream"], config=config, pending_msgs_limit=10**8
    )
    messages: list[Any] = []
    while len(messages) < case["count"]:
        messages += await sub.fetch(1000, timeout=10)
    return messages


async def threads_double_ack(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    messages = await _unacked(nc, case)
    await _in_tasks(case, timed, lambda: messages.pop().ack_sync(timeout=5))
    await nc.jetstream().delete_consumer(case["stream"], "unacked")


async def confirmed_acks(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    messages, batch = await _unacked(nc, case), case["params"]["batch"]
    with timed:
        for first in range(0, case["count"], batch):
            await asyncio.gather(*(message.ack_sync(timeout=5) for message in messages[first : first + batch]))
    await nc.jetstream().delete_consumer(case["stream"], "unacked")


async def messages_read(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    done, left, total = asyncio.Event(), case["count"], 0

    async def handle(message: Any) -> None:
        nonlocal left, total
        total += len(message.data) + len(message.subject) + message.metadata.sequence.stream
        left -= 1
        if not left:
            done.set()

    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    with timed:
        sub = await nc.jetstream().subscribe(
            case["subject"], stream=case["stream"], cb=handle, config=config, pending_msgs_limit=10**8,
            pending_bytes_limit=10**11,
        )  # fmt: skip
        await done.wait()
    await sub.unsubscribe()


async def many_callbacks(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    subjects, done, left = case["params"]["subjects"], asyncio.Event(), case["count"]

    async def handle(message: Any) -> None:
        nonlocal left
        if left == case["count"]:
            timed.__enter__()
        left -= 1
        if not left:
            timed.__exit__()
            done.set()

    for index in range(subjects):
        await nc.subscribe(f"bench.many.{index}", cb=handle)
    await nc.flush(60)
    with feeder(case, "bench.many.{}", subjects):
        await done.wait()


async def callback_responder(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    async def respond(message: Any) -> None:
        await message.respond(message.data)

    await nc.subscribe("bench.asked", cb=respond)
    await nc.flush()
    with timed:
        found = await asyncio.get_running_loop().run_in_executor(None, asker, case, "bench.asked")
    timed.result.update(found)


async def first_publish(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    with listener(case, "bench.first") as heard:
        with timed:
            for _ in range(case["count"]):
                await nc.publish("bench.first", b"%d" % time.monotonic_ns())
                await asyncio.sleep(0.001)
        await nc.flush()
        timed.result.update(heard())


async def processes_publish(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    in_processes("tools.bench.client_natspy", case, timed, "publish_sync")


async def processes_fetch(nc: Any, case: dict[str, Any], timed: Timed) -> None:
    in_processes("tools.bench.client_natspy", case, timed, "fetch")
