"""`info` of the command line shows everything that the server tells, for people and with `--json`."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator

import pytest

import jsclient
from jsclient import keyvalue, objectstore
from jsclient.cli import main
from jsclient.cli.output import duration
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig, StreamSource
from jsclient.testing import NatsServer, wait_until


@pytest.fixture(scope="module")
def js(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        yield JetStream(nc)


def shown(server: NatsServer, *words: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*words, "-s", server.url]) == 0
    return printed.getvalue()


def value(text: str, name: str) -> str:
    """The value behind a name on its line."""
    (found,) = [line.split("  ", 1)[1].strip() for line in text.splitlines() if line.strip().startswith(f"{name}  ")]
    return found.removeprefix(name).strip()


def test_a_stream(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="ORIGIN", subjects=["origin.>"]))
    config = StreamConfig(
        name="ALL",
        subjects=["all.*"],
        description="of everything",
        max_age=26 * 3600,
        max_bytes=10 << 20,
        max_msgs=12_345,
        discard="new",
        duplicate_window=90,
        sources=[StreamSource(name="ORIGIN", filter_subject="origin.a")],
        metadata={"team": "x"},
    )
    js.create_stream(config)
    js.publish("all.1", b"x")
    text = shown(server, "stream", "info", "ALL")
    assert value(text, "max age") == "1d2h"
    assert value(text, "max bytes") == "10.0 MiB"
    assert value(text, "max msgs") == "12,345"
    assert value(text, "max msg size") == "unlimited"
    assert value(text, "duplicate window") == "1m30s"
    assert value(text, "discard") == "new"
    assert value(text, "messages") == "1"
    assert "team=x" in value(text, "metadata")
    assert "lag 0" in value(text, "ORIGIN")
    assert text.index("Configuration:") < text.index("State:") < text.index("Sources:")
    wire = json.loads(shown(server, "--json", "stream", "info", "ALL"))
    assert (wire["config"]["max_age"], wire["state"]["messages"]) == (26 * 3600 * 10**9, 1)


def test_a_mirror(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="MAIN", subjects=["main"]))
    js.create_stream(StreamConfig(name="COPY", mirror=StreamSource(name="MAIN")))
    js.publish("main", b"x")
    wait_until(lambda: js.stream("COPY").info().state.messages == 1)
    text = shown(server, "stream", "info", "COPY")
    assert "Mirror:" in text
    assert value(text, "lag") == "0"


def test_a_consumer(server: NatsServer, js: JetStream) -> None:
    js.create_stream(StreamConfig(name="READ", subjects=["read.*"]))
    config = ConsumerConfig(
        durable_name="C", backoff=[1, 60], max_deliver=5, filter_subject="read.a", max_ack_pending=20
    )
    js.create_consumer("READ", config)
    text = shown(server, "consumer", "info", "READ", "C")
    assert value(text, "backoff") == "1s, 1m"
    assert value(text, "max deliver") == "5"
    assert value(text, "max ack pending") == "20"
    assert value(text, "filter subject") == "read.a"
    assert value(text, "kind") == "pull"
    assert value(text, "pending") == "0"


def test_buckets(server: NatsServer, js: JetStream) -> None:
    keyvalue.create_key_value(js, bucket="shown", history=3, ttl=90).put("k", b"v")
    store = objectstore.create_object_store(js, bucket="shown", description="files")
    store.put("o", b"hello")
    text = shown(server, "kv", "info", "shown")
    assert (value(text, "ttl"), value(text, "values")) == ("1m30s", "1")
    assert "$KV.shown.>" in text
    wire = json.loads(shown(server, "kv", "info", "shown", "--json"))
    assert wire["stream"]["config"]["name"] == "KV_shown"
    text = shown(server, "obj", "info", "shown")
    assert "Configuration:" in text
    assert "files" in text
    assert value(shown(server, "obj", "info", "shown", "o"), "size") == "5 B"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25s"), (1, "1s"), (90, "1m30s"), (3600, "1h"), (93_784, "1d2h3m"), (7 * 86_400, "7d"), (0, "0s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
