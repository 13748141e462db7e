"""The case `processes-worker-2`: `jsclient worker` with one process and with two, for handlers that compute.

Beside it, in the same run, the same work in one plain Python process and in two: what two processes bring at all on
this machine, without anything of ours. The rate is that of the steady state: from a fifth of the messages to nine
tenths, when all are stored, every process works, and none has come to its last ones.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, Stream, StreamConfig
from tools.bench.measure import Timed

STREAM, CONSUMER, KEYS = "JOBS", "workers", 400
FROM, TO = 0.2, 0.9


def bare(processes: int, count: int) -> float:
    """Calls per second of so many processes that do nothing else."""
    command = [sys.executable, "-m", "tools.bench.computing", str(count // processes)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0]) for process in started)


def service(nc: jsclient.Connection, url: str, processes: int, count: int) -> float:
    """Messages per second of a service with so many processes."""
    js = JetStream(nc)
    stream = js.create_stream(StreamConfig(name=STREAM, subjects=["jobs.*"], retention="workqueue"))
    consumer = stream.create_consumer(ConsumerConfig(durable_name=CONSUMER, max_ack_pending=5000))
    command = [sys.executable, "-m", "jsclient", "worker", "tools.bench.computing:handle", "--stream", STREAM]
    command += ["--consumer", CONSUMER, "--processes", str(processes), "--threads", "4", "-s", url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        try:
            while consumer.info().num_waiting < processes:
                time.sleep(0.05)
            for number in range(count):
                js.publish_async(f"jobs.k{number % KEYS}", b"x")
            js.publish_async_complete(30)
            began = _handled(stream, count, FROM)
            ended = _handled(stream, count, TO)
            return (ended[1] - began[1]) / (ended[0] - began[0])
        finally:
            worker.terminate()
            stream.delete()


def _handled(stream: Stream, count: int, part: float) -> tuple[float, int]:
    """When at least so many were, and how many."""
    while (left := stream.info().state.messages) > count * (1 - part):
        time.sleep(0.02)
    return time.perf_counter(), count - left


def processes_worker(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    count, url = case["count"], nc.connected_url
    processes = case["params"]["processes"]
    alone = bare(1, count)
    plain = bare(processes, count) / alone
    one = service(nc, url, 1, count)
    with timed:
        many = service(nc, url, processes, count)
    timed.result["wall"] = count / many
    timed.result["figures"] = {"x of one process": many / one, "x of one bare loop": plain}
    timed.result["figures"]["of what the machine gives"] = many / one / plain
    timed.result["figures"]["us beside the handler"] = (1 / one - 1 / alone) * 1e6
