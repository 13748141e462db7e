"""`check` tries a delivery: what breaks in practice is found before a service is started."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.live.test_cli import cli, environ
from tests.live.test_complete import PREFIX, Import

import jsclient
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer


def program(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jsclient", *words]
    return subprocess.run(command, env=environ(url), capture_output=True, text=True, timeout=30, check=False)


def findings(url: str, *words: str) -> dict[str, dict[str, Any]]:
    done = cli(url, "check", "--json", *words)
    return {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}


def test_a_delivery_is_tried_and_nothing_is_left(server: NatsServer) -> None:
    done = program(server.url, "check", "--json")
    found = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0
    for what in ("clock", "duplicate window", "pull", "acks"):
        assert found[what]["level"] == "ok", found
    with jsclient.connect(server.url) as nc:
        assert list(JetStream(nc).stream_names()) == []


@pytest.mark.slow
def test_an_import_that_passes_one_response_is_found() -> None:
    with Import("singleton") as imported:
        imported.home.create_stream(StreamConfig(name="S", subjects=["s"]))
        for _ in range(3):
            imported.home.publish("s", b"x")
        words = ["--user", "guest", "--password", "x", "--api-prefix", PREFIX, "--timeout", "3"]
        found = findings(imported.server.url, *words)
    assert found["pull"]["level"] == "fail", found
    assert "response_type: stream" in found["pull"]["advice"]


ACKLESS = """
accounts {
  A { jetstream: enabled
      users: [ { user: few, password: p, permissions { publish: { deny: "$JS.ACK.>" } } } ] }
}
"""


def test_acks_that_are_not_permitted_are_found() -> None:
    with NatsServer(ACKLESS) as server:
        done = program(server.url, "check", "--json", "--user", "few", "--password", "p")
    found = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert done.stderr == "", "a finding is told once"
    assert done.returncode == 1, "a finding failed"
    assert found["pull"]["level"] == "ok", found
    assert found["acks"]["level"] == "fail", found
    assert "$JS.ACK.>" in found["acks"]["advice"]


READER = """
accounts {
  A { jetstream: enabled
      users: [
        { user: all, password: p },
        { user: few, password: p, permissions { publish: { deny: "$JS.API.STREAM.CREATE.>" } } }
      ] }
}
"""


def test_a_user_that_cannot_create_a_stream() -> None:
    with NatsServer(READER) as server:
        with jsclient.connect(server.url, user="all", password="p") as nc:
            js = JetStream(nc)
            js.create_stream(StreamConfig(name="S", subjects=["s"]))
            for _ in range(2):
                js.publish("s", b"x")
        found = findings(server.url, "--user", "few", "--password", "p", "--timeout", "2")
    assert "not tried" in found["acks"]["text"]
    assert found["pull"]["level"] == "ok", found
