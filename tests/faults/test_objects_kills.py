"""Object stores when the server or the client dies in the middle of a put."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import jsclient
from jsclient import errors, objectstore
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectStore, ObjectStoreConfig
from jsclient.testing import NatsServer, Proxy, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

OLD = os.urandom(300_000)
NEW = os.urandom(5_000_000)


def orphans(js: JetStream, store: ObjectStore) -> set[str]:
    there = {
        subject.rsplit(".", 1)[1] for subject, _ in js.stream(f"OBJ_{store.bucket}").subjects(f"$O.{store.bucket}.C.>")
    }
    return there - {info.nuid for info in store.list()}


def killing(server: NatsServer, at: int) -> Iterator[bytes]:
    """NEW in pieces; the server dies while some of them are under way: it was stopped a moment before."""
    for number, start in enumerate(range(0, len(NEW), 131_072)):
        if number == at:
            server.pause()
            threading.Timer(0.3, os.kill, (server.pid, signal.SIGKILL)).start()
        yield NEW[start : start + 131_072]


@pytest.mark.parametrize("at", [1, 10, 25, 35])
def test_killing_the_server_during_a_put_keeps_the_old_object(at: int) -> None:
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        store = objectstore.create_object_store(JetStream(nc), ObjectStoreConfig(bucket="o"))
        store.put("a", OLD)
        with pytest.raises(errors.JsClientError):
            store.put("a", killing(server, at), timeout=3)
        server.kill()
        server.start()
        wait_until(lambda: nc.is_connected, 30)
        assert store.get_bytes("a") == OLD
        store.put("a", NEW)
        assert store.get_bytes("a") == NEW
        assert orphans(JetStream(nc), store) == set()


def test_a_restart_during_a_pause_of_a_put_is_all_or_nothing() -> None:
    """The client may send again what the link lost, in another order: then the put fails rather than store that."""
    with NatsServer() as server, jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        store = objectstore.create_object_store(js, ObjectStoreConfig(bucket="o"))

        def source() -> Iterator[bytes]:
            yield NEW[:131_072]
            wait_until(lambda: list(js.stream("OBJ_o").subjects("$O.o.C.>")), 20)
            server.restart()
            yield NEW[131_072:]

        try:
            store.put("a", source())
        except errors.JsClientError:
            assert "a" not in store
            store.put("a", NEW)
        assert store.get_bytes("a") == NEW
        assert orphans(JetStream(nc), store) == set()


@pytest.mark.parametrize("after", [100_000, 1_500_000, 4_900_000, 5_015_000])
def test_a_cut_link_during_a_put_keeps_the_old_or_the_new_object(server: NatsServer, after: int) -> None:
    with Proxy(server.port) as proxy, jsclient.connect(f"nats://127.0.0.1:{proxy.port}") as nc:
        store = objectstore.create_or_update_object_store(JetStream(nc), ObjectStoreConfig(bucket=f"o{after}"))
        store.put("a", OLD)
        proxy.cut_after(after, "up", reset=True)
        failed = False
        try:
            store.put("a", NEW)
        except errors.JsClientError:
            failed = True
        wait_until(lambda: nc.is_connected, 20)
        proxy.heal()
        assert store.get_bytes("a") in ((OLD, NEW) if failed else (NEW,))
        store.put("a", NEW)
        assert store.get_bytes("a") == NEW
        assert orphans(JetStream(nc), store) == set()


def test_a_restart_during_a_get_delivers_the_object(server: NatsServer) -> None:
    with NatsServer() as own, jsclient.connect(own.url) as nc:
        store = objectstore.create_object_store(JetStream(nc), ObjectStoreConfig(bucket="o"))
        big = NEW * 6
        store.put("a", big)
        with store.get("a", timeout=60) as reader:
            got = reader.read(131_072)
            own.restart()
            got += reader.readall()
        assert got == big


KILLED_PROGRAM = """
import os, signal, sys, jsclient
from jsclient import objectstore
from jsclient.jetstream import JetStream

def chunks():
    for _ in range(60):
        yield os.urandom(131072)
    os.kill(os.getpid(), signal.SIGKILL)

with jsclient.connect(sys.argv[1]) as nc:
    objectstore.object_store(JetStream(nc), "killed").put("a", chunks())
"""


def test_killing_the_client_during_a_put_leaves_what_repair_removes(server: NatsServer) -> None:
    with jsclient.connect(server.url) as nc:
        store = objectstore.create_object_store(JetStream(nc), ObjectStoreConfig(bucket="killed"))
        store.put("a", OLD)
        ran = subprocess.run([sys.executable, "-c", KILLED_PROGRAM, server.url], capture_output=True, timeout=60)
        assert ran.returncode == -9, ran.stderr
        assert store.get_bytes("a") == OLD
        assert len(orphans(JetStream(nc), store)) == 1
        assert store.status(repair=True).repaired == 1
        assert orphans(JetStream(nc), store) == set()
        assert store.get_bytes("a") == OLD
        store.put("a", NEW)
        assert store.get_bytes("a") == NEW
