"""Handlers whose body would not run are refused where they are given; a coroutine that one returns is never an ack."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.live.test_cli import cli
from tests.unit.test_handlers import Async, async_generator, coroutine, generator

import jsclient
from jsclient import Connection, backup, coordination, errors, groups, keyvalue, objectstore, services
from jsclient.errors import ConfigError
from jsclient.jetstream import JetStream
from jsclient.services import ServiceConfig
from jsclient.testing import NatsServer, wait_until
from jsclient.workers import DeadLetters, WorkerPool

Take = Callable[[Any], Any]


@pytest.fixture
def nc(server: NatsServer) -> Iterator[Connection]:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(name="JOBS", subjects=["jobs.>"])
        stream.create_consumer(durable_name="c", max_deliver=-1, ack_wait=30)
        js.create_push_consumer("JOBS", durable_name="push", deliver_subject="deliver")
        js.publish("jobs.a", b"1")
        yield nc
        for name in list(js.stream_names()):
            js.delete_stream(name)


def places(nc: Connection, tmp_path: Path) -> dict[str, Take]:
    """Everything that takes a function; each gets one as its argument."""
    js = JetStream(nc)
    stream = js.stream("JOBS")
    consumer = stream.consumer("c")
    kv = keyvalue.create_key_value(js, bucket="B")
    store = objectstore.create_object_store(js, bucket="O")
    store.put("a", b"x")
    locks = coordination.lease_bucket(js, ttl=10)
    service = services.add_service(nc, ServiceConfig(name="s", version="1.0.0"))
    push = js.push_consumer("JOBS", "push")
    found: dict[str, Take] = {
        "subscribe": lambda f: nc.subscribe("x", callback=f),
        "set_callbacks": lambda f: nc.set_callbacks(on_error=f),
        "barrier": nc.barrier,
        "sentinel": lambda f: nc.request_many("x", sentinel=f),
        "hooks": lambda f: JetStream(nc, on_request=f),
        "on_ack": lambda f: JetStream(nc, publish_async_on_ack=f).publish_async("jobs.x", b""),
        "on_ack_error": lambda f: JetStream(nc, publish_async_on_error=f).publish_async("jobs.x", b""),
        "advisories": lambda f: js.advisories(callback=f),
        "consume": consumer.consume,
        "consume on_error": lambda f: consumer.consume(print, on_error=f),
        "messages on_event": lambda f: consumer.messages(on_event=f),
        "fetch_each": lambda f: list(consumer.typed(int, on_bad="skip").fetch_each(1, on_error=f)),
        "ordered": stream.ordered_consumer().consume,
        "push": push.consume,
        "push on_error": lambda f: push.consume(print, on_error=f),
        "pool": lambda f: WorkerPool(consumer, f),
        "batch pool": lambda f: WorkerPool(consumer, f, batch=(5, 0.1)),
        "keyed pool": lambda f: WorkerPool(consumer, f, key=lambda m: m.subject),
        "typed pool": lambda f: WorkerPool(consumer.typed(int), f),
        "key": lambda f: WorkerPool(consumer, print, key=f),
        "on_event": lambda f: WorkerPool(consumer, print, on_event=f),
        "letters": lambda f: DeadLetters(js, "JOBS").replay_all(on_letter=f),
        "watch": lambda f: kv.watch(callback=f),
        "encoded watch": lambda f: kv.encoded(keys=keyvalue.PATH_KEYS).watch(callback=f),
        "store watch": lambda f: store.watch(callback=f),
        "put": lambda f: store.put("b", b"x", progress=f),
        "get": lambda f: store.get_bytes("a", progress=f),
        "endpoint": lambda f: service.add_endpoint("e", f),
        "typed endpoint": lambda f: service.add_endpoint("e", f, decode=int),
        "group endpoint": lambda f: service.add_group("g").add_endpoint("e", f),
        "lock": lambda f: coordination.Lock(locks, "l", on_lost=f),
        "semaphore": lambda f: coordination.Semaphore(locks, "l", 2, on_lost=f),
        "on_gain": lambda f: coordination.Election(locks, "e", on_gain=f),
        "on_loss": lambda f: coordination.Election(locks, "e", on_loss=f),
        "backup": lambda f: backup.backup_stream(js, "JOBS", tmp_path / "b", progress=f),
        "account": lambda f: backup.backup_account(js, tmp_path / "c", on_stream=f),
        "codec": lambda f: JetStream(nc, codec=Codec(f)),
        "key codec": lambda f: kv.encoded(keys=Codec(f)),
    }
    if nc.server_info.version_tuple >= (2, 11):
        group = groups.create_elastic(js, "JOBS", "g", partitions=1, filters=[groups.Filter("jobs.*", [1])])
        found |= {
            "group": lambda f: groups.GroupPool(group, f),
            "group key": lambda f: groups.GroupPool(group, print, key=f),
            "group on_event": lambda f: groups.GroupPool(group, print, on_event=f),
        }
    return found


class Codec:
    def __init__(self, function: Any) -> None:
        self.encode = self.decode = function


def test_they_are_refused_wherever_a_function_is_given(nc: Connection, tmp_path: Path) -> None:
    future = JetStream(nc).publish_async("jobs.x", b"")
    future.result(5)
    found = places(nc, tmp_path)
    found["done"] = future.add_done_callback
    waits = nc.subscribe("x")
    found["when_closed"] = waits.when_closed
    before = nc.stats()
    for name, take in found.items():
        for function in (coroutine, generator, async_generator, Async(), Async().method):
            with pytest.raises(ConfigError, match="a call does not run its body"):
                print(name)  # which one it was
                take(function)
        after = nc.stats()
        assert (after.messages_out, after.subscriptions) == (before.messages_out, before.subscriptions), name
    assert not (tmp_path / "b").exists()


def test_a_worker_command_with_an_async_handler_does_not_begin(
    nc: Connection, server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy.py").write_text("async def handle(message): pass\ndef each(message): yield\nprint(1)\n")
    monkeypatch.chdir(tmp_path)
    for function in ("handle", "each"):
        done = cli(server, "worker", f"lazy:{function}", "--stream", "JOBS", "--consumer", "c")
        assert done.returncode != 0
        assert "a call does not run its body" in done.stderr
    assert JetStream(nc).consumer("JOBS", "c").info().num_pending == 1


RETURNED: dict[str, Any] = {
    "coroutine": lambda *_: coroutine(),
    "generator": lambda *_: (one for one in [1]),
    "async generator": lambda *_: async_generator(),
}
"""Plain functions that return what nobody runs, as a lambda around an async function does."""


@pytest.mark.parametrize("name", RETURNED)
def test_what_they_return_is_a_failure_and_no_ack(nc: Connection, name: str) -> None:
    handler = RETURNED[name]
    js = JetStream(nc)
    js.create_stream(name="DEAD", subjects=["dead"])
    ways: dict[str, dict[str, Any]] = {
        "plain": {"threads": 1}, "keyed": {"key": lambda m: m.subject}, "batch": {"batch": (2, 0.1)},
        "manual": {"manual": True}, "typed": {}, "confirm": {"confirm": True},
    }  # fmt: skip
    for way, options in ways.items():
        consumer = js.stream("JOBS").create_consumer(durable_name=way, max_deliver=-1)
        events: list[Any] = []
        taken: Any = consumer.typed(int) if way == "typed" else consumer
        with WorkerPool(taken, handler, attempts=1, dead_letter="dead", on_event=events.append, **options):
            wait_until(lambda seen=events: [event for event in seen if event.kind == "dead"])  # type: ignore[misc]
        assert isinstance(events[0].error, ConfigError), way
        assert not [event for event in events if event.kind == "handled"], way
        reason = js.stream("DEAD").get_last_msg("dead").headers["Dead-Letter-Reason"]
        assert "which nobody runs" in reason, way
    gc.collect()  # "was never awaited" would fail the test


def test_a_member_of_a_group_acks_nothing_either(nc: Connection) -> None:
    if nc.server_info.version_tuple < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    js = JetStream(nc)
    js.create_stream(name="DEAD", subjects=["dead"])
    group = groups.create_elastic(js, "JOBS", "g", partitions=1, filters=[groups.Filter("jobs.*", [1])])
    keyed: dict[str, Any] = {"key": lambda message: coroutine(message)}
    for options in ({}, keyed):
        events: list[Any] = []
        handler: Any = print if options else lambda message: coroutine(message)
        with groups.GroupPool(
            group, handler, attempts=1, dead_letter="dead", settle=0.1, on_event=events.append, **options
        ):
            js.publish("jobs.b", b"")
            wait_until(lambda seen=events: [event for event in seen if event.kind == "dead"], 20)  # type: ignore[misc]
        assert not [event for event in events if event.kind == "handled"]
        assert all("which nobody runs" in str(event.error) for event in events if event.kind == "dead")
    gc.collect()


def test_outcomes_of_a_batch_are_looked_at_one_by_one(nc: Connection) -> None:
    js = JetStream(nc)
    js.publish("jobs.b", b"2")
    events: list[Any] = []
    consumer = js.stream("JOBS").create_consumer(durable_name="b", max_deliver=-1)

    def handle(batch: list[Any]) -> list[Any]:
        return [coroutine(message) if message.subject == "jobs.a" else None for message in batch]

    with WorkerPool(consumer, handler=handle, batch=(2, 5), attempts=1, on_event=events.append):
        wait_until(lambda: len(events) == 2)
    assert {(event.kind, event.message.subject) for event in events} == {("handled", "jobs.b"), ("rejected", "jobs.a")}
    gc.collect()


@pytest.mark.parametrize("name", RETURNED)
def test_what_callbacks_return_is_told(nc: Connection, server: NatsServer, name: str, tmp_path: Path) -> None:
    returning = RETURNED[name]
    told: list[BaseException] = []

    def count() -> int:
        return sum("which nobody runs" in str(error) for error in told)

    nc.set_callbacks(on_error=lambda nc, error, subscription: told.append(error))
    js = JetStream(nc)
    nc.subscribe("told", callback=returning)
    nc.publish("told", b"")
    wait_until(lambda: count() == 1)
    with keyvalue.create_key_value(js, bucket="B").watch(callback=returning):
        keyvalue.key_value(js, "B").put("a", b"")
        wait_until(lambda: count() >= 2)
    consumer = js.consumer("JOBS", "c")
    with consumer.consume(returning, on_error=told.append):
        wait_until(lambda: count() >= 3)
    assert consumer.info().num_ack_pending == 1
    store = objectstore.create_object_store(js, bucket="O")
    with pytest.raises(ConfigError, match="which nobody runs"):
        store.put("b", b"x", progress=returning)
    with pytest.raises(ConfigError, match="which nobody runs"):
        list(nc.request_many("$JS.API.INFO", sentinel=returning))
    service = services.add_service(nc, ServiceConfig(name="s", version="1.0.0"))
    service.add_endpoint("e", returning)
    with pytest.raises(errors.ServiceError, match="which nobody runs"):
        services.check_response(nc.request("e"))
    service.stop()
    for options in ({"token": returning}, {"credentials": returning}, {"auth_callback": returning},
                    {"socket_factory": returning}):  # fmt: skip
        with pytest.raises((ConfigError, errors.ConnectFailed), match="which nobody runs"):
            jsclient.connect(server.url, **options)
    gc.collect()


@pytest.mark.parametrize("name", RETURNED)
def test_what_hooks_return_is_logged(nc: Connection, name: str, caplog: pytest.LogCaptureFixture) -> None:
    returning = RETURNED[name]
    js = JetStream(nc)
    locks, anyhow = coordination.lease_bucket(js, ttl=10), cast("Any", nc)
    caplog.set_level(logging.WARNING, "jsclient")
    elections: list[coordination.Election] = []
    tries: list[Callable[[], Any]] = [
        lambda: js.publish_async("jobs.x", b"").add_done_callback(returning),
        lambda: JetStream(nc, publish_async_on_ack=returning).publish_async("jobs.x", b""),
        lambda: JetStream(nc, on_response=returning).stream("JOBS"),
        lambda: elections.append(coordination.Election(locks, "e", on_gain=returning)),
        lambda: nc.barrier(returning),
        lambda: [anyhow.subscribe("x", max_messages=1).when_closed(returning), anyhow.publish("x", b"")],
        lambda: [js.advisories(callback=returning), js.create_stream(name="X", subjects=["y"])],
        lambda: [
            anyhow.set_callbacks(on_error=returning),
            anyhow.subscribe("z", callback=lambda m: 1 / 0),
            anyhow.publish("z"),
        ],
    ]
    for number, one in enumerate(tries):
        caplog.clear()
        one()
        wait_until(lambda: "which nobody runs" in caplog.text, 5, f"number {number}")
    elections[0].close()
    gc.collect()
