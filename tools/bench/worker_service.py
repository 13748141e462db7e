"""The case `processes-worker-2`: `jsclient worker` with one process and with two, for handlers that compute.

Beside it, in the same run, the same work in one plain Python process and in two: what two processes bring at all on
this machine, without anything of ours.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from tools.bench.measure import Timed

STREAM, CONSUMER, KEYS = "JOBS", "workers", 400


def bare(processes: int, count: int) -> float:
    """Calls per second of so many processes that do nothing else."""
    command = [sys.executable, "-m", "tools.bench.computing", str(count // processes)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0]) for process in started)


def service(nc: jsclient.Connection, url: str, processes: int, count: int) -> float:
    """Messages per second of a service with so many processes, from the first publish to the last ack."""
    js = JetStream(nc)
    stream = js.create_stream(StreamConfig(name=STREAM, subjects=["jobs.*"], retention="workqueue"))
    consumer = stream.create_consumer(ConsumerConfig(durable_name=CONSUMER, max_ack_pending=5000))
    command = [sys.executable, "-m", "jsclient", "worker", "tools.bench.computing:handle", "--stream", STREAM]
    command += ["--consumer", CONSUMER, "--processes", str(processes), "--threads", "4", "-s", url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        try:
            while consumer.info().num_waiting < processes:
                time.sleep(0.05)
            start = time.perf_counter()
            for number in range(count):
                js.publish_async(f"jobs.k{number % KEYS}", b"x")
            while stream.info().state.messages:
                time.sleep(0.02)
            return count / (time.perf_counter() - start)
        finally:
            worker.terminate()
            stream.delete()


def processes_worker(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    count, url = case["count"], nc.connected_url
    processes = case["params"]["processes"]
    plain = bare(processes, count) / bare(1, count)
    one = service(nc, url, 1, count)
    with timed:
        many = service(nc, url, processes, count)
    timed.result["wall"] = count / many
    timed.result["figures"] = {"x of one process": many / one, "x of one bare loop": plain}
    timed.result["figures"]["of what the machine gives"] = many / one / plain
