"""Redis streams by redis-py on a private redis-server, as an anchor from another world; shown, not gated.

XADD is a publish, a pipeline of XADDs is a window of publishes, XREADGROUP and XACK are a fetch. Nothing reaches a
disk, so compare with streams in memory.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import redis

from tools.bench.measure import Timed, percentiles


@contextlib.contextmanager
def server() -> Iterator[redis.Redis]:
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        socket = f"{folder}/socket"
        settings = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(unix_socket_path=socket)
            while True:
                with contextlib.suppress(redis.exceptions.ConnectionError):
                    client.ping()
                    break
                time.sleep(0.01)
            yield client
        finally:
            process.terminate()
            process.wait()


def publish_sync(client: redis.Redis, case: dict[str, Any], timed: Timed) -> None:
    payload, times = bytes(case["size"]), []
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            client.xadd("bench", {"data": payload})
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))


def publish_async(client: redis.Redis, case: dict[str, Any], timed: Timed) -> None:
    payload, window = bytes(case["size"]), case["params"]["window"]
    with timed:
        for start in range(0, case["count"], window):
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(window, case["count"] - start)):
                pipeline.xadd("bench", {"data": payload})
            pipeline.execute()
    assert client.xlen("bench") == case["count"]


def fetch(client: redis.Redis, case: dict[str, Any], timed: Timed) -> None:
    case["params"]["window"] = 1000
    publish_async(client, case, Timed())
    client.xgroup_create("bench", "group", id="0")
    got = 0
    with timed:
        while got < case["count"]:
            ((_, entries),) = client.xreadgroup("group", "me", {"bench": ">"}, count=case["params"]["batch"])
            pipeline = client.pipeline(transaction=False)
            for number, _ in entries:
                pipeline.xack("bench", "group", number)
            pipeline.execute()
            got += len(entries)


if __name__ == "__main__":
    case = json.loads(sys.argv[2])
    timed = Timed()
    with server() as client:
        globals()[case["work"]](client, case, timed)
    print(json.dumps(timed.result))
