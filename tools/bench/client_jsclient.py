"""The workloads on jsclient. Run as a process of its own: URL, case as JSON; prints one JSON line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from tools.bench.decoding import decode  # noqa: F401 - found by name
from tools.bench.many_jsclient import (  # noqa: F401 - found by name
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
from tools.bench.worker_service import processes_worker  # noqa: F401 - found by name

HEADERS = {"X-Bench": "0123456789"}


def connect(case: dict[str, Any], url: str) -> jsclient.Connection:
    return jsclient.connect(url, **({"tls": jsclient.TLSOptions(ca_file=case["ca"])} if case.get("ca") else {}))


def core_publish(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    payload, count, threads = bytes(case["size"]), case["count"], case["params"].get("threads", 1)
    headers = HEADERS if case["params"].get("headers") else None

    def work(number: int) -> None:
        publish = nc.publish
        for _ in range(number):
            publish("bench.publish", payload, headers=headers)

    with timed:
        if threads == 1:
            work(count)
        else:
            workers = [threading.Thread(target=work, args=(count // threads,)) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        nc.flush(60)


def core_subscribe(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    count = case["count"]
    others = [nc.subscribe(f"bench.idle.{index}") for index in range(case["params"].get("open", 0))]
    sub = nc.subscribe("bench.subscribe", pending_messages=10**8, pending_bytes=10**11)
    nc.flush(60)
    with feeder(case, "bench.subscribe"):
        sub.next(60)
        with timed:
            for _ in range(count - 1):
                sub.next(60)
    assert sub.dropped == sum(other.dropped for other in others) == 0


def core_spread(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    subjects, count = case["params"]["subjects"], case["count"]
    subs = [nc.subscribe(f"bench.spread.{index}") for index in range(subjects)]
    nc.flush(60)
    with feeder(case, "bench.spread.{}", subjects):
        subs[0].next(60)
        with timed:
            for turn in range(count // subjects):
                for sub in subs[1:] if turn == 0 else subs:
                    sub.next(60)


def request(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    payload = bytes(case["size"])
    with responder(case):
        while True:
            try:
                nc.request("bench.echo", payload, timeout=0.5)
                break
            except (jsclient.errors.NoResponders, jsclient.errors.TimedOut):
                time.sleep(0.02)
        times = []
        with timed:
            for _ in range(case["count"]):
                start = time.perf_counter()
                nc.request("bench.echo", payload)
                times.append(time.perf_counter() - start)
        timed.result.update(percentiles(times))


def new_stream(js: JetStream, storage: str = "memory") -> str:
    name = f"PUB{os.getpid()}"
    js.create_stream(StreamConfig(name=name, subjects=[f"pub{os.getpid()}"], storage=storage))
    return name


def publish_sync(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    js, payload, times = JetStream(nc), bytes(case["size"]), []
    name = new_stream(js)
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            js.publish(name.lower(), payload)
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))
    js.delete_stream(name)


def publish_async(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    window = case["params"]["window"]
    js, payload = JetStream(nc, **({"publish_async_max_pending": window} if window else {})), bytes(case["size"])
    name = new_stream(js, case["params"].get("storage", "memory"))
    subject = name.lower()
    with timed:
        for _ in range(case["count"]):
            js.publish_async(subject, payload)
        js.publish_async_complete(60)
    assert js.stream(name).info().state.messages == case["count"]
    js.delete_stream(name)


def fetch(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    js, batch, got = JetStream(nc), case["params"]["batch"], 0
    consumer = js.stream(case["stream"]).create_consumer(
        ConsumerConfig(durable_name=f"F{os.getpid()}", ack_policy="explicit", max_ack_pending=-1)
    )
    with timed:
        while got < case["count"]:
            messages = consumer.fetch(batch, timeout=10)
            for message in messages:
                message.ack()
            got += len(messages)
        nc.flush(60)


def batches(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    """Fetch after fetch, as a loop of the library."""
    consumer, got = _consumer(nc, case), 0
    with timed:
        for messages in consumer.batches(case["params"]["batch"], timeout=10):
            for message in messages:
                message.ack()
            got += len(messages)
            if got >= case["count"]:
                break
        nc.flush(60)


def _consumer(nc: jsclient.Connection, case: dict[str, Any]) -> Any:
    return (
        JetStream(nc)
        .stream(case["stream"])
        .create_consumer(
            ConsumerConfig(
                name=f"M{os.getpid()}",
                ack_policy=case["params"].get("ack", "explicit"),
                max_ack_pending=-1 if case["params"].get("ack") != "none" else None,
                inactive_threshold=60,
            )
        )
    )


def messages(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    consumer, left, ack = _consumer(nc, case), case["count"], case["params"]["ack"] == "explicit"
    with timed, consumer.messages(leave_buffered=True) as iterator:
        for message in iterator:
            if ack:
                message.ack()
            left -= 1
            if not left:
                break
        nc.flush(60)


def consume(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    consumer, left, ack, done = (
        _consumer(nc, case),
        case["count"],
        case["params"]["ack"] == "explicit",
        threading.Event(),
    )

    def handle(message: Any) -> None:
        nonlocal left
        if ack:
            message.ack()
        left -= 1
        if not left:
            done.set()

    with timed, consumer.consume(handle, leave_buffered=True):
        assert done.wait(60)
        nc.flush(60)


def ordered(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    consumer, left = JetStream(nc).stream(case["stream"]).ordered_consumer(), case["count"]
    with timed, consumer.messages() as iterator:
        while left:
            last = next(iterator)
            left -= 1
    assert last.metadata.stream_seq == case["count"]


def replay(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    """RSS must stay flat: measured after the first tenth and at the end."""
    consumer, left = _consumer(nc, {**case, "params": {"ack": "none"}}), case["count"]
    early = 0.0
    with timed, consumer.messages(leave_buffered=True) as iterator:
        for _ in iterator:
            left -= 1
            if left == case["count"] * 9 // 10:
                early = timed.rss_now()
            if not left:
                break
    timed.result["rss_first_tenth"] = early


def worker_pool(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    from jsclient.workers import WorkerPool

    pool = WorkerPool(_consumer(nc, case), lambda message: None, threads=case["params"]["threads"])
    with timed, pool:
        while pool.snapshot().handled < case["count"]:
            time.sleep(0.1)
        nc.flush(60)


def kv_get(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    bucket, times = _bucket(nc, case), []
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            bucket.get("key")
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))


def kv_put(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    bucket, payload, times = _bucket(nc, case), bytes(case["size"]), []
    with timed:
        for _ in range(case["count"]):
            start = time.perf_counter()
            bucket.put("key", payload)
            times.append(time.perf_counter() - start)
    timed.result.update(percentiles(times))


def _bucket(nc: jsclient.Connection, case: dict[str, Any]) -> Any:
    from jsclient import keyvalue

    config = keyvalue.KeyValueConfig(bucket=f"b{os.getpid()}", storage="memory")
    bucket = keyvalue.create_key_value(JetStream(nc), config)
    bucket.put("key", bytes(case["size"]))
    return bucket


def object_put(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    data, store = os.urandom(case["size"]), _store(nc)
    with timed:
        store.put("blob", data)


def object_get(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    data, store = os.urandom(case["size"]), _store(nc)
    store.put("blob", data)
    path = destination(case["size"])
    with timed:
        store.get_file("blob", path)
    with open(path, "rb") as file:
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(data).digest()
    os.unlink(path)


def _store(nc: jsclient.Connection) -> Any:
    from jsclient import objectstore

    return objectstore.create_object_store(
        JetStream(nc), objectstore.ObjectStoreConfig(bucket=f"o{os.getpid()}", storage="memory")
    )


def saving(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    from tools.bench import saving as bare  # it uses what is inside the library: no other case depends on that

    bare.saving(nc, case, timed)


def idle(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    with nc.subscribe("bench.idle"), timed:
        time.sleep(5)


def import_time(nc: jsclient.Connection, case: dict[str, Any], timed: Timed) -> None:
    """Without the start of the interpreter, and with compiled bytecode, as every installed package has it."""
    code = "import time; t = time.perf_counter(), time.process_time(); import jsclient; "
    code += "print(time.perf_counter() - t[0], time.process_time() - t[1])"
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(2):  # the first one compiles
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    wall, cpu = map(float, done.stdout.split())
    timed.result.update(wall=wall, cpu=cpu, rss=timed.rss_peak())


def main() -> None:
    case = json.loads(sys.argv[2])
    case["url"] = sys.argv[1]
    with connect(case, sys.argv[1]) as nc:
        timed = Timed()
        globals()[case["work"]](nc, case, timed)
    print(json.dumps(timed.result))


if __name__ == "__main__":
    main()
