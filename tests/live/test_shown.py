"""A user who has configured no logging sees what handlers and callbacks raise, with type and traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jsclient.testing import NatsServer

SCRIPT = '''
import sys
import jsclient
from jsclient import services
from jsclient.jetstream import JetStream
from jsclient.keyvalue import KeyValueConfig, create_key_value
from jsclient.services import ServiceConfig
from jsclient.testing import wait_until
from jsclient.workers import WorkerPool

url = sys.argv[1]
called = []

def bad(where):
    def fails(*arguments):
        called.append(where)
        raise ValueError(f"raised by {where}")
    return fails

with jsclient.connect(url) as nc, jsclient.connect(url, on_closed=bad("on_closed")) as other:
    js = JetStream(nc)
    stream = js.create_stream(name="S", subjects=["s.>"])
    nc.subscribe("core", callback=bad("subscribe"))
    nc.subscribe("closing", max_messages=1).when_closed(bad("when_closed"))
    other.set_callbacks(on_error=bad("on_error"))
    other.subscribe("core", callback=bad("heard"))
    nc.flush(), other.flush()
    nc.publish("core", b""), nc.publish("closing", b"")
    js.publish_async("s.1", b"").add_done_callback(bad("done"))
    JetStream(nc, publish_async_on_ack=bad("on_ack")).publish_async("s.1", b"").result(5)
    JetStream(nc, on_request=bad("on_request")).stream("S")

    make = lambda name: stream.create_consumer(durable_name=name, max_deliver=-1)
    running = [
        make("consume").consume(bad("consume")),
        make("consume2").consume(lambda m: 1 / 0, on_error=bad("consume.on_error")),
        js.create_push_consumer("S", durable_name="push", deliver_subject="here").consume(bad("push")),
        stream.ordered_consumer().consume(bad("ordered")),
    ]
    pools = [
        WorkerPool(make("pool"), bad("pool"), threads=1),
        WorkerPool(make("last"), bad("last attempt"), threads=1, attempts=1),
        WorkerPool(make("keyed"), bad("keyed"), threads=1, key=lambda m: m.subject),
        WorkerPool(make("key"), lambda m: None, threads=1, key=bad("key")),
        WorkerPool(make("batch"), bad("batch"), threads=1, batch=(5, 0.1)),
        WorkerPool(make("event"), lambda m: m.ack(), threads=1, on_event=bad("on_event")),
    ]
    store = create_key_value(js, KeyValueConfig(bucket="B"))
    watcher = store.watch(callback=bad("watch"))
    store.put("a", b"")
    service = services.add_service(nc, ServiceConfig(name="S", version="1.0.0", on_stop=bad("on_stop")))
    service.add_endpoint("e", bad("endpoint"))
    second = services.add_service(
        nc, ServiceConfig(name="T", version="1.0.0", on_error=bad("service.on_error"), stats_handler=bad("stats"))
    )
    second.add_endpoint("t", lambda r: 1 / 0)
    nc.request("e"), nc.request("t")
    list(services.stats(nc, "T"))
    service.stop()
    other.close()
    wanted = WANTED
    wait_until(lambda: set(wanted) <= set(called), 20)
    for one in (*running, *pools):
        one.close() if hasattr(one, "close") else one.stop()
    watcher.stop()
'''  # fmt: skip

PLACES = [
    "subscribe", "when_closed", "on_error", "on_closed", "done", "on_ack", "on_request", "consume", "consume.on_error",
    "push", "ordered", "pool", "last attempt", "keyed", "key", "batch", "on_event", "watch", "endpoint",
    "service.on_error", "stats", "on_stop",
]  # fmt: skip


@pytest.fixture(scope="module")
def seen(server: NatsServer) -> str:
    """What such a program leaves on stderr."""
    script = SCRIPT.replace("WANTED", repr(PLACES))
    done = subprocess.run([sys.executable, "-c", script, server.url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_is_shown_with_its_type_and_traceback(place: str, seen: str) -> None:
    assert f"ValueError: raised by {place}\n" in seen
    before = seen[: seen.index(f"ValueError: raised by {place}\n")]
    assert "in fails" in before.rpartition("Traceback (most recent call last)")[2]
