"""The workloads on mq-bridge (blocking calls over async-nats, in Rust), those that it has; shown, not gated."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import mq_bridge

import jsclient
from jsclient.jetstream import JetStream
from tools.bench.measure import Timed, percentiles


def core_publish(case: dict[str, Any], timed: Timed) -> None:
    """Each call returns when the message is handed to the writer of its runtime."""
    publisher = mq_bridge.Publisher.from_config(
        {"nats": {"url": case["url"], "subject": "bench.publish", "no_jetstream": True}}
    )
    payload = bytes(case["size"])
    publisher.send(payload)
    with timed:
        for _ in range(case["count"]):
            publisher.send(payload)


def publish_sync(case: dict[str, Any], timed: Timed) -> None:
    name, payload, times = f"PUB{os.getpid()}", bytes(case["size"]), []
    with jsclient.connect(case["url"]) as nc:
        js = JetStream(nc)
        stream = js.create_stream(name=name, subjects=[name.lower()], storage="memory")
        settings = {"url": case["url"], "stream": name, "subject": name.lower()}
        publisher = mq_bridge.Publisher.from_config({"nats": settings})
        publisher.send(payload)
        with timed:
            for _ in range(case["count"]):
                start = time.perf_counter()
                publisher.send(payload)
                times.append(time.perf_counter() - start)
        assert stream.info().state.messages == case["count"] + 1
        js.delete_stream(name)
    timed.result.update(percentiles(times))


def fetch(case: dict[str, Any], timed: Timed) -> None:
    """`poll` and `commit`: an ack of each message."""
    settings = {"url": case["url"], "stream": case["stream"], "subject": case["subject"], "deliver_policy": "all"}
    consumer, got = mq_bridge.Consumer.from_config({"nats": settings}), 0
    with timed:
        while got < case["count"]:
            got += len(consumer.poll(case["params"]["batch"], 10_000))
            consumer.commit()


if __name__ == "__main__":
    case = json.loads(sys.argv[2])
    case["url"] = sys.argv[1]
    timed = Timed()
    globals()[case["work"]](case, timed)
    print(json.dumps(timed.result), flush=True)
    os._exit(0)  # its runtime panics at the end of the interpreter
