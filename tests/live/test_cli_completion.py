"""Completion in the shell: commands, options, and the names that the server and the folder of contexts know."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.live.test_cli import cli, environ

import jsclient
from jsclient import keyvalue, objectstore
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import FakeClient, FakeServer, NatsServer


@pytest.fixture
def js(js: JetStream) -> JetStream:
    for name in ("ORDERS", "OTHER"):
        js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    js.create_consumer("ORDERS", ConsumerConfig(durable_name="mailer"))
    js.create_consumer("OTHER", ConsumerConfig(durable_name="printer"))
    keyvalue.create_key_value(js, keyvalue.KeyValueConfig(bucket="prices"))
    objectstore.create_object_store(js, objectstore.ObjectStoreConfig(bucket="pictures"))
    return js


def words(url: str, *before: str, **environment: str) -> list[str]:
    done = cli(url, "completion", "words", "--", *before, **environment)
    assert done.returncode == 0
    assert not done.stderr
    return done.stdout.split()


def test_commands_and_options() -> None:
    nowhere = "nats://127.0.0.1:1"
    assert words(nowhere, "str") == ["stream"]
    assert words(nowhere, "stream", "re") == ["restore"]
    assert words(nowhere, "-s", "x", "stream", "info", "ORDERS", "--js") == ["--json"]
    assert words(nowhere, "--tlsf") == ["--tlsfirst"]
    assert words(nowhere, "str", "li") == [], "other spellings are understood, not offered"
    assert words(nowhere, "completion", "") == ["bash", "fish", "words", "zsh"]
    assert words(nowhere, "stream", "add", "X", "--discard", "n") == ["new"]
    assert words(nowhere, "nonsense", "") == words(nowhere, "")
    assert words(nowhere, "stream", "info", "X", "") == []


def test_names_of_the_server(js: JetStream, server: NatsServer) -> None:
    url = server.url
    assert words(url, "stream", "info", "") == ["KV_prices", "OBJ_pictures", "ORDERS", "OTHER"]
    assert words(url, "s", "info", "OR") == ["ORDERS"]
    assert words(url, "consumer", "info", "ORDERS", "") == ["mailer"]
    assert words(url, "worker", "app:f", "--stream", "OTHER", "--consumer", "") == ["printer"]
    assert words(url, "kv", "get", "") == ["prices"]
    assert words(url, "obj", "ls", "p") == ["pictures"]
    assert words("nats://127.0.0.1:1", "-s", url, "next", "OTHER", "") == ["printer"]
    assert words("nats://127.0.0.1:1", "stream", "rm", f"--server={url}", "OT") == ["OTHER"]


def test_contexts(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    for name in ("home", "work"):
        cli("", "context", "add", name, "--server", "nats://127.0.0.1:1", **home)
    assert words("", "context", "select", "", **home) == ["home", "work"]
    assert words("", "stream", "ls", "--context", "w", **home) == ["work"]
    assert words("", "context", "copy", "h", **home) == ["home"]


def test_a_silent_server_is_given_up_soon() -> None:
    with FakeServer(FakeClient.hold) as silent:
        start = time.monotonic()
        assert words(silent.url, "stream", "info", "") == []
        assert time.monotonic() - start < 3


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_names_and_files(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    script = cli(server, "completion", "bash").stdout
    for shell in ("zsh", "fish"):
        assert "completion words" in cli(server, "completion", shell).stdout
        assert " -f" not in cli(server, "completion", shell).stdout.replace(" -F", ""), "file names stay"
    assert "-o default" in script
    program = f"""jsclient() {{ {sys.executable} -m jsclient "$@"; }}
{script}
COMP_WORDS=(jsclient stream info OR); COMP_CWORD=3; _jsclient; echo "${{COMPREPLY[@]}}"
COMP_WORDS=(jsclient stream add X --config ""); COMP_CWORD=5; _jsclient; echo "${{#COMPREPLY[@]}}"
"""
    root = str(Path(jsclient.__file__).parents[1])
    environment = {**environ(server.url), "PYTHONPATH": root}
    done = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["ORDERS", "0"], "without candidates bash completes file names"
