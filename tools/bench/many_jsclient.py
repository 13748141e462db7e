"""Workloads of many threads, callbacks and confirmations on jsclient; part of client_jsclient."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig, double_ack_many
from tools.bench.measure import Timed, asker, feeder, in_processes, listener, responder, until_answered


def _in_threads(case: dict[str, Any], timed: Timed, step: Callable[[], object]) -> None:
    """The messages of the case, shared by its threads; each waits for its own answers."""
    threads = case["params"]["threads"]

    def work() -> None:
        for _ in range(case["count"] // threads):
            step()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    with timed:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def threads_publish(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    js, payload = JetStream(nc), bytes(case["size"])
    js.create_stream(StreamConfig(name="THREADS", subjects=["threads"], storage="memory"))
    _in_threads(case, timed, lambda: js.publish("threads", payload))
    js.delete_stream("THREADS")


def threads_request(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    with responder(case):
        until_answered(lambda: nc.request("bench.echo", payload, timeout=0.5), jsclient.errors.JsClientError)
        _in_threads(case, timed, lambda: nc.request("bench.echo", payload))


def _unacked(nc: jsclient.Connection, case: dict[str, Any]) -> list[Any]:
    config = ConsumerConfig(name="unacked", ack_policy="explicit", max_ack_pending=-1)
    consumer = JetStream(nc).stream(case["stream"]).create_consumer(config)
    messages: list[Any] = []
    while len(messages) < case["count"]:
        messages += consumer.fetch(1000, timeout=10)
    return messages


def threads_double_ack(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    messages = _unacked(nc, case)
    _in_threads(case, timed, lambda: messages.pop().double_ack())
    JetStream(nc).stream(case["stream"]).delete_consumer("unacked")


def confirmed_acks(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    messages, batch = _unacked(nc, case), case["params"]["batch"]
    with timed:
        for first in range(0, case["count"], batch):
            assert double_ack_many(messages[first : first + batch])
    JetStream(nc).stream(case["stream"]).delete_consumer("unacked")


def messages_read(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    """With what a handler usually looks at."""
    config = ConsumerConfig(name="read", ack_policy="none", inactive_threshold=60)
    consumer = JetStream(nc).stream(case["stream"]).create_consumer(config)
    left, total = case["count"], 0
    with timed, consumer.messages(leave_buffered=True) as iterator:
        for message in iterator:
            total += len(message.data) + len(message.subject) + message.metadata.stream_seq
            left -= 1
            if not left:
                break
    JetStream(nc).stream(case["stream"]).delete_consumer("read")


def many_callbacks(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    subjects, done = case["params"]["subjects"], threading.Event()
    left = case["count"]
    lock = threading.Lock()

    def handle(message: Any) -> None:
        nonlocal left
        with lock:
            if left == case["count"]:
                timed.__enter__()
            left -= 1
            if not left:
                timed.__exit__()
                done.set()

    for index in range(subjects):
        nc.subscribe(f"bench.many.{index}", handle)
    nc.flush(60)
    with feeder(case, "bench.many.{}", subjects):
        assert done.wait(100)


def callback_responder(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    nc.subscribe("bench.asked", lambda message: message.respond(message.data))
    nc.flush()
    with timed:
        found = asker(case, "bench.asked")
    timed.result.update(found)


def first_publish(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    with listener(case, "bench.first") as heard:
        with timed:
            for _ in range(case["count"]):
                nc.publish("bench.first", b"%d" % time.monotonic_ns())
                time.sleep(0.001)
        nc.flush()
        timed.result.update(heard())


def processes_publish(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    in_processes("tools.bench.client_jsclient", case, timed, "publish_sync")


def processes_fetch(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    in_processes("tools.bench.client_jsclient", case, timed, "fetch")
