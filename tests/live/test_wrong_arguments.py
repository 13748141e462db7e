"""Each argument of each public call replaced by a value of another type: an error of ours, and nothing is sent.

The calls come from the classes themselves, and the wrong values from their annotations. What an annotation accepts is
tried in `test_wrong_options` and `test_bad_input`.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.annotations import accepts, evaluated

import jsclient
from jsclient import backup, coordination, errors, groups, services, system, workers
from jsclient import jetstream as jets
from jsclient import keyvalue as kvs
from jsclient import objectstore as objs
from jsclient.coordination import Election, Lock, Semaphore, lease_bucket
from jsclient.groups import PartitionedGroup
from jsclient.services import ServiceConfig, add_service
from jsclient.system import SystemClient
from jsclient.testing import NatsServer
from jsclient.workers import DeadLetters, WorkerPool

INJECTED = "a\r\nPUB evil 0\r\n\r\n"


class Wrong:
    """What no argument takes."""

    def __repr__(self) -> str:
        return "Wrong()"


EXTREMES: list[Any] = [
    2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0, -1, 1e300, float("inf"), -1.5, dt.timedelta.max, dt.timedelta.min,
    dt.datetime.max, dt.datetime.min, "", "a" * 70_000, "\ud800", "\0", "*", ">", "a..b", "é", b"", b"\xff" * 2_000_000,
    [], {}, [""], ["\ud800"], {"a": "\ud800"},
]  # fmt: skip

ENDS = {"close", "drain"}

OPEN = {
    "Connection.publish(reply)",  # None is taken for no reply: another look would cost each publish
    "Connection.subscribe(queue)",  # None is taken for no group
    "OrderedConsumer.info(timeout)",  # says first that there is no consumer yet
    "Stream.reads_direct(direct)",  # asks nobody
    "AsyncPublisher.publish(subject)",  # is closed by then
}
"""What does not end as a ConfigError, or not at once."""

NOT_TRIED = {
    "acked", "failed", "frame", "wake", "watch", "deliver", "end", "fail", "finish_drain", "link_event", "count",
    "deliveries", "not_started", "take_for", "why_deleted", "why_nobody", "put_stream", "when_closed",
}  # fmt: skip
"""What the parts of the library call on each other."""

MODULES = (jsclient, jets, kvs, objs, backup, coordination, groups, services, system, workers)
MADE = (
    Election,
    Lock,
    Semaphore,
    PartitionedGroup,
    DeadLetters,
    WorkerPool,
    SystemClient,
    ServiceConfig,
    jets.JetStream,
)
"""Classes that a program makes itself; those of options have a test of their own."""

VALUES: list[Any] = [Wrong(), None, INJECTED, INJECTED.encode(), 7, 1.5, True, [Wrong()], {"a": Wrong()}, float("nan")]

GOOD: dict[str, Any] = {
    "subject": "wa.a",
    "payload": b"",
    "data": b"",
    "value": b"",
    "key": "a",
    "name": "a",
    "stream": "WA",
    "consumer": "c",
    "bucket": "b",
    "handler": print,
    "callback": print,
    "seq": 1,
    "batch": 1,
    "revision": 1,
    "max_messages": 1,
    "max_bytes": 1024,
    "names": ["a"],
    "keys": ["a"],
    "subjects": ["wa.a"],
    "servers": "nats://127.0.0.1:1",
    "timeout": 0.01,
    "decode": int,
    "endpoint": "VARZ",
    "members": ["m"],
    "mappings": [("m", [0])],
    "group": "g",
    "pattern": "a",
    "path": "/nonexistent/file",
    "file": "/nonexistent/file",
    "meta": objs.ObjectMeta(name="a"),
    "target": objs.ObjectInfo(name="a", bucket="b", nuid="n"),
    "store": "b",
    "message": None,
    "msg": None,
    "until": None,
    "filters": [],
}


def objects_of(nc: jsclient.Connection) -> dict[str, Any]:
    js = jets.JetStream(nc)
    stream = js.create_stream(name="WA", subjects=["wa.*"], allow_direct=True)
    consumer = stream.create_consumer(durable_name="c")
    bucket = kvs.create_key_value(js, kvs.KeyValueConfig(bucket="b"))
    store = objs.create_object_store(js, objs.ObjectStoreConfig(bucket="b"))
    return {
        "Connection": nc,
        "Subscription": nc.subscribe("wa.sub"),
        "Msg": jsclient.Msg(b"a", b"1", b"b", b""),
        "JetStream": js,
        "Stream": stream,
        "Consumer": consumer,
        "OrderedConsumer": js.ordered_consumer("WA"),
        "OrderedPushConsumer": stream.ordered_push_consumer(),
        "AsyncPublisher": jets.AsyncPublisher(js),
        "AtomicBatch": js.atomic_batch(),
        "FastBatch": js.fast_batch(),
        "KeyValue": bucket,
        "ObjectStore": store,
        "Service": add_service(nc, ServiceConfig(name="s", version="1.0.0")),
        "DeadLetters": DeadLetters(js, "WA"),
        "WorkerPool": WorkerPool(consumer, print),
        "SystemClient": SystemClient(nc),
        "PartitionedGroup": PartitionedGroup(js, "WA", "g", elastic=True),
        "Lock": Lock(lease_bucket(js, "leases", ttl=5), "lock"),
    }


def good_for(what: str, objects: dict[str, Any]) -> dict[str, Any]:
    good = GOOD | {"nc": objects["Connection"], "js": objects["JetStream"], "kv": objects["KeyValue"]}
    return good | {"consumer": objects["Consumer"]} if what == "WorkerPool" else good


def calls(objects: dict[str, Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for kind, instance in objects.items():
        if instance is None:
            continue
        for name, method in inspect.getmembers(type(instance), callable):
            doc = inspect.getdoc(method) or ""
            plumbing = name in NOT_TRIED and "Key" not in kind and "Store" not in kind
            if not name.startswith("_") and not doc.startswith("For layers") and not plumbing:
                yield f"{kind}.{name}", getattr(instance, name)
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and name not in NOT_TRIED:
                yield f"{module.__name__}.{name}", value
    for made in MADE:
        yield made.__name__, made


def parts(call: Callable[..., Any], good: dict[str, Any]) -> tuple[dict[str, Callable[[Any], bool]], dict[str, Any]]:
    """What each argument that is not open to everything accepts, and values for those that have no default."""
    function = inspect.unwrap(getattr(call, "__func__", call))
    parameters = [
        p for p in inspect.signature(call).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    accepted = {p.name: accepts(evaluated(p.annotation, function.__module__)) for p in parameters}
    needed = {p.name: good.get(p.name) for p in parameters if p.default is p.empty}
    return {name: takes for name, takes in accepted.items() if not takes(Wrong())}, needed


def wrong(call: Callable[..., Any], good: dict[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Argument, wrong value, and the other arguments."""
    accepted, needed = parts(call, good)
    for name, takes in accepted.items():
        for value in VALUES:
            if not takes(value):
                yield name, value, {**needed, name: value}


SENT = "something was sent"


def fault_of(nc: jsclient.Connection, call: Callable[[], Any]) -> str:
    before = nc.stats().bytes_out
    try:
        call()
    except errors.ConfigError:
        return "" if nc.stats().bytes_out == before else SENT
    except errors.NotSupported:
        return ""  # an old server, whatever the argument is
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    nc.flush()
    return "was taken"


def test_each_argument_of_each_call(server: NatsServer) -> None:
    faults: list[str] = []
    tried: set[str] = set()
    with jsclient.connect(server.url) as other, jsclient.connect(server.url, ping_interval=3600) as nc:
        spy = other.subscribe("evil")
        other.flush()
        objects = objects_of(nc)
        objects["Msg"].connection = nc
        nc.flush()
        for what, call in calls(objects):
            good = good_for(what, objects)
            for name, value, args in wrong(call, good):
                tried.add(what)
                case = f"{what}({name}={value!r})"
                fault = fault_of(nc, lambda call=call, args=args: call(**args))  # type: ignore[misc]
                if fault == SENT:  # by something else, at the same time? Once more
                    nc.flush()
                    fault = fault_of(nc, lambda call=call, args=args: call(**args))  # type: ignore[misc]
                if fault and f"{what}({name})" not in OPEN:
                    faults.append(f"{case}: {fault}")
        nc.flush()
        other.flush()
        assert not spy.pending
    assert not faults, "\n".join(faults[:500])
    assert len(tried) > 150
    assert "Parser Error" not in server.log_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_extremes_of_the_right_type(server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be refused by us or by the server, or work; nothing else is raised, and the link stays."""
    monkeypatch.chdir(tmp_path)
    faults: list[str] = []
    with jsclient.connect(server.url, ping_interval=3600) as nc:
        objects = objects_of(nc)
        objects["Msg"].connection = nc
        for what, call in calls(objects):
            if what.split(".")[-1] in ENDS:
                continue
            accepted, needed = parts(call, good_for(what, objects))
            if accepted.pop("timeout", None):
                needed["timeout"] = 0.1
            for name, takes in accepted.items():
                for value in EXTREMES:
                    if takes(value):
                        try:
                            result = call(**{**needed, name: value})
                        except (errors.JsClientError, OSError):
                            continue
                        except Exception as error:
                            faults.append(f"{what}({name}={value!r:.40}): {error!r:.200}")
                            continue
                        if hasattr(result, "close") and result is not nc:
                            result.close()
        assert nc.stats().reconnects == 0
    assert not faults, "\n".join(faults)
