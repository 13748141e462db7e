"""tools/compat.py against the requests that the compatibility harness sends: the harness's side is played here."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import jsclient
from jsclient import objectstore, services
from jsclient.jetstream import JetStream
from jsclient.objectstore import ObjectStore
from jsclient.testing import NatsServer, wait_until
from tools import compat

CONTENT = b"content of the harness" * 20_000


class Harness:
    """Sends steps, and says how a test ended."""

    def __init__(self, nc: jsclient.Connection) -> None:
        self.nc, self.js = nc, JetStream(nc)

    def step(self, test: str, **fields: Any) -> bytes:
        return self.nc.request(f"tests.{test}.command", json.dumps(fields).encode(), timeout=10).data

    def store(self, bucket: str) -> ObjectStore:
        return objectstore.create_object_store(self.js, bucket=bucket)


@pytest.fixture
def harness(server: NatsServer) -> Iterator[Harness]:
    with jsclient.connect(server.url) as client, jsclient.connect(server.url) as nc:
        answers = compat.Answers(client)
        harness = Harness(nc)
        yield harness
        for test in [*(f"object-store.{name}" for name in compat.OBJECT_STORE), "service.core"]:
            nc.publish(f"tests.{test}.result.pass", b"")
        assert answers.wait()
        for name in list(harness.js.stream_names()):
            harness.js.delete_stream(name)


def test_buckets_are_created(harness: Harness) -> None:
    assert harness.step("object-store.default-bucket") == b""
    assert harness.js.stream("OBJ_test").info().config.storage == "file"
    config = {
        "bucket": "custom",
        "description": "of the harness",
        "max_age": 60_000_000_000,
        "max_bytes": 1 << 20,
        "storage": "memory",
        "num_replicas": 1,
        "compression": True,
        "metadata": {"k": "v"},
    }
    assert harness.step("object-store.custom-bucket", config=config) == b""
    made = harness.js.stream("OBJ_custom").info().config
    assert (made.description, made.max_age, made.max_bytes, made.storage) == ("of the harness", 60.0, 1 << 20, "memory")
    assert made.compression == "s2"
    assert made.metadata is not None
    assert made.metadata["k"] == "v"


class Content(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Content) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}/"
        web.shutdown()
        thread.join()


def test_objects_are_written_and_read(harness: Harness, url: str) -> None:
    store = harness.store("objects")
    config = {"name": "o", "description": "d", "metadata": {"k": "v"}, "options": {"max_chunk_size": 50_000}}
    harness.step("object-store.put-object", bucket="objects", url=url, config=config)
    info = store.info("o")
    assert (info.description, info.metadata, info.chunks) == ("d", {"k": "v"}, -(-len(CONTENT) // 50_000))
    digest = hashlib.sha256(CONTENT).digest()
    assert harness.step("object-store.get-object", bucket="objects", object="o") == digest
    harness.step("object-store.put-link", bucket="objects", object="o", link_name="link")
    assert store.info("link").is_link
    assert harness.step("object-store.get-link", bucket="objects", object="link") == digest
    changed = {"name": "n", "description": "new", "metadata": {"k": "w"}}
    harness.step("object-store.update-metadata", bucket="objects", object="o", config=changed)
    assert (store.info("n").description, store.info("n").metadata) == ("new", {"k": "w"})


@pytest.mark.parametrize("test", ["watch", "watch-updates"])
def test_changes_are_watched(harness: Harness, test: str) -> None:
    store = harness.store("watched")
    old = store.put("o", b"old").digest
    answer: list[bytes] = []
    step = threading.Thread(
        target=lambda: answer.append(harness.step(f"object-store.{test}", bucket="watched", object="o"))
    )
    step.start()
    wait_until(lambda: harness.js.stream("OBJ_watched").info().state.consumer_count == 1)
    new = store.put("o", b"new").digest
    step.join()
    assert answer == [f"{old},{new}".encode() if test == "watch" else new.encode()]


def test_a_service_is_started_and_stopped(harness: Harness) -> None:
    config = {
        "name": "compat",
        "version": "1.0.0",
        "description": "of the harness",
        "metadata": {"k": "v"},
        "queue_group": "",
        "groups": [{"name": "group", "queue_group": "own"}],
        "endpoints": [
            {"name": "echo", "subject": "echo", "metadata": {"a": "b"}},
            {"name": "grouped", "subject": "grouped", "group": "group"},
            {"name": "other", "subject": "other", "group": "group", "queue_group": "q2"},
            {"name": "faulty", "subject": "faulty"},
        ],
    }
    assert harness.step("service.core", config=config) == b""
    nc = harness.nc
    assert nc.request("group.grouped", b"hi", timeout=5).data == b"hi"
    faulty = nc.request("faulty", b"", timeout=5)
    assert (faulty.headers["Nats-Service-Error-Code"], faulty.headers["Nats-Service-Error"]) == ("500", "handler error")
    (info,) = services.info(nc, "compat")
    assert (info.description, dict(info.metadata or {})) == ("of the harness", {"k": "v"})
    assert [(each.name, each.subject, each.queue_group) for each in info.endpoints] == [
        *(("echo", "echo", "q"), ("grouped", "group.grouped", "own")),
        *(("other", "group.other", "q2"), ("faulty", "faulty", "q")),
    ]
    (stats,) = services.stats(nc, "compat")
    assert [each.data for each in stats.endpoints] == [
        {"endpoint": name} for name in ("echo", "grouped", "other", "faulty")
    ]
    assert harness.step("service.core") == b""
    assert list(services.info(nc, "compat", timeout=1)) == []


def test_a_result_that_is_not_passed_is_told(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> None:
    with jsclient.connect(server.url) as client, jsclient.connect(server.url) as nc:
        answers = compat.Answers(client)
        for test in [*(f"object-store.{name}" for name in compat.OBJECT_STORE), "service.core"]:
            verdict = "fail" if test == "service.core" else "pass"
            nc.publish(f"tests.{test}.result.{verdict}", b"")
        assert not answers.wait()
    assert "tests.service.core: failed" in capsys.readouterr().out


def test_a_step_that_fails_has_no_answer(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    call: Callable[[], object] = lambda: harness.nc.request(  # noqa: E731
        "tests.object-store.get-object.command", b'{"bucket":"none","object":"o"}', timeout=1
    )
    with pytest.raises(jsclient.errors.RequestTimeout):
        call()
    assert "no answer to the step" in capsys.readouterr().err
