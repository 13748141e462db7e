"""Buckets and objects against nats-py in one interleaved run: CPU per call, and the time of a large object.

Only ratios within one run mean anything. Of several rounds the best of each side counts: what else runs on the machine
makes a round slower, never faster. Wall-clock ratios are asked for only while the machine has a core to spare.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

import jsclient
from jsclient import keyvalue, objectstore
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig
from jsclient.objectstore import ObjectStoreConfig
from jsclient.testing import NatsServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROUNDS = 5
CALLS = 1500
VALUE = b"v" * 128
SIZE = 64 << 20

Times = dict[str, list[tuple[float, float]]]


class Stopwatch:
    """(wall, CPU of this process) by name."""

    def __init__(self) -> None:
        self.times: Times = defaultdict(list)

    def __call__(self, name: str) -> Any:
        return _Lap(self, name)

    def ratio(self, name: str, which: int) -> float:
        """How many times more the best round of nats-py took than our best one."""
        ours = min(lap[which] for lap in self.times[f"ours {name}"])
        theirs = min(lap[which] for lap in self.times[f"theirs {name}"])
        return theirs / ours


class _Lap:
    def __init__(self, watch: Stopwatch, name: str) -> None:
        self.watch, self.name = watch, name

    def __enter__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *exc: object) -> None:
        lap = (time.perf_counter() - self.wall, time.process_time() - self.cpu)
        self.watch.times[self.name].append(lap)


@pytest.fixture
def watch() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    yield watch
    for name, laps in sorted(watch.times.items()):
        print(name, " ".join(f"{wall:.3f}s/{cpu:.3f}c" for wall, cpu in laps))


def interleaved(ours: Callable[[], None], theirs: Callable[[], Any]) -> None:
    for number in range(ROUNDS):
        for side in (ours, theirs) if number % 2 else (theirs, ours):
            side()


def test_get_and_put_cost_less_cpu(server: NatsServer, watch: Stopwatch) -> None:
    def ours() -> None:
        with jsclient.connect(server.url) as nc:
            kv = keyvalue.create_key_value(JetStream(nc), KeyValueConfig(bucket="ours"))
            kv.put("warm", VALUE)
            kv.get("warm")
            with watch("ours put"):
                for number in range(CALLS):
                    kv.put(f"key{number % 100}", VALUE)
            with watch("ours get"):
                for number in range(CALLS):
                    kv.get(f"key{number % 100}")

    async def theirs() -> None:
        nc = await nats.connect(server.url)
        kv = await nc.jetstream().create_key_value(bucket="theirs", direct=True)
        await kv.put("warm", VALUE)
        await kv.get("warm")
        with watch("theirs put"):
            for number in range(CALLS):
                await kv.put(f"key{number % 100}", VALUE)
        with watch("theirs get"):
            for number in range(CALLS):
                await kv.get(f"key{number % 100}")
        await nc.close()

    interleaved(ours, lambda: asyncio.run(theirs()))
    assert watch.ratio("put", 1) >= 1.5
    assert watch.ratio("get", 1) >= 1.5


def test_large_objects_go_faster(server: NatsServer, watch: Stopwatch, tmp_path: Path) -> None:
    data = os.urandom(SIZE)

    def ours() -> None:
        with jsclient.connect(server.url) as nc:
            store = objectstore.create_object_store(JetStream(nc), ObjectStoreConfig(bucket="ours"))
            with watch("ours put"):
                store.put("a", data)
            with watch("ours get"), (tmp_path / "ours").open("wb") as file:
                store.get_file("a", file)

    async def theirs() -> None:
        nc = await nats.connect(server.url)
        store = await nc.jetstream().create_object_store(bucket="theirs")
        source = io.BytesIO(data)
        with watch("theirs put"):
            await store.put("a", source)
        with watch("theirs get"), (tmp_path / "theirs").open("wb") as file:
            await store.get("a", writeinto=file)
        await nc.close()

    interleaved(ours, lambda: asyncio.run(theirs()))
    assert (tmp_path / "ours").read_bytes() == data
    assert watch.ratio("put", 1) >= 1.5
    assert watch.ratio("get", 1) >= 1.5
    if os.getloadavg()[0] <= (os.cpu_count() or 1):
        assert watch.ratio("put", 0) >= 1.5
        assert watch.ratio("get", 0) >= 2
