"""`help()` of each main class begins with an example of at most six lines, and the example runs."""

from __future__ import annotations

import importlib
import inspect
import itertools
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests import tutorials
from tests.pauses import time_passes

import jsclient
from jsclient import coordination, groups, jetstream, keyvalue, objectstore
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer, wait_until
from tools.docs import api

SIX = 6
#: The other classes that a reader meets first.
MORE = ["Election", "Lock", "Service", "PartitionedGroup", "GroupPool"]
#: Their examples serve until another thread ends them, which the test does.
SERVE = {"PoolOptions": "pool", "WorkerPool": "pool", "GroupPool": "pool", "Service": "service"}


def main_classes() -> dict[str, type]:
    """The class of each name, as a reader imports it."""
    found: dict[str, type] = {}
    for module in map(importlib.import_module, api.MODULES):
        for name in api.public_names(module):
            value = api.resolve(module, name)
            if name in [*api.FIRST, *MORE] and inspect.isclass(value):
                found.setdefault(name, value)
    return found


CLASSES = main_classes()


def example(cls: type) -> str:
    """The block of code after the first paragraph, without its indentation; "" if there is none."""
    _, _, rest = (inspect.getdoc(cls) or "").partition("\n\n")
    block = itertools.takewhile(lambda line: not line or line.startswith("    "), rest.splitlines())
    return textwrap.dedent("\n".join(block)).strip()


@pytest.fixture
def world(server: NatsServer) -> Iterator[dict[str, Any]]:
    """The names that the examples use: all public ones, a stream with a message, its consumer, buckets and a group."""
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        js.create_or_update_stream(name="ORDERS", subjects=["ORDERS.*"])
        js.create_or_update_consumer("ORDERS", durable_name="CONS")
        keyvalue.create_or_update_key_value(js, bucket="settings")
        objectstore.create_or_update_object_store(js, bucket="files")
        names: dict[str, Any] = {}
        for module in map(importlib.import_module, api.MODULES):
            names |= {name: api.resolve(module, name) for name in api.public_names(module)}
            names[module.__name__.rpartition(".")[2]] = module
        names |= CLASSES | {"jsclient": jsclient, "nc": nc, "js": js, "consumer": js.consumer("ORDERS", "CONS")}
        names |= dict.fromkeys(("handle", "resize", "write_report"), lambda given: None)
        names["work"] = lambda: time_passes(0.01, "the leader works until another thread ends the election")
        yield names


@pytest.mark.parametrize("name", CLASSES)
def test_an_example_of_six_lines_that_runs(server: NatsServer, world: dict[str, Any], name: str) -> None:
    code = example(CLASSES[name])
    assert 1 < len(code.splitlines()) <= SIX, code
    names = dict(world)
    js: JetStream = names["js"]
    if name in ("PartitionedGroup", "GroupPool", "Lock", "Election") and not js.nc.server_info.at_least(2, 11):
        pytest.skip("leases with a ttl of their own, and groups, need nats-server 2.11")
    if name in ("PartitionedGroup", "GroupPool"):
        filters = [groups.Filter("ORDERS.*", wildcards=[1])]
        names["group"] = groups.create_elastic(js, "ORDERS", "billing", partitions=2, filters=filters)
    js.publish("ORDERS.new", b"hello")

    def end() -> None:
        wait_until(lambda: SERVE[name] in names, 20)
        if name == "Service":
            wait_until(lambda: names["service"].info().endpoints, 20)
        names[SERVE[name]].stop()

    ending = threading.Thread(target=end)
    if name in SERVE:
        ending.start()
    exec(compile(code.replace(tutorials.USUAL, server.url), f"help({name})", "exec"), names)
    if name in SERVE:
        ending.join()
    for connection in jsclient.live_connections():
        if connection is not js.nc:
            connection.close()


def test_they_are_counted() -> None:
    named = [name for name in [*api.FIRST, *MORE] if not inspect.isfunction(getattr(jsclient, name, None))]
    assert sorted(CLASSES) == sorted(named)
    assert example(coordination.Lease) == "", "a class without an example has none"
    assert "consumer.fetch" in example(jetstream.Batch)
