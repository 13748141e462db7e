"""The systemd unit and the Kubernetes manifest of the operations page: their commands run, are probed and stop."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.test_cli import environ

from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tools" / "docs" / "pages" / "operations.md").read_text(encoding="utf-8")
APP = """
import os

def handle(msg):
    with open("done", "a") as done:
        print(os.getpid(), msg.data.decode(), file=done, flush=True)
"""


def block(language: str) -> str:
    """The one block of code of this language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return str(found)


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser()
    parser.read_string(block("ini").replace("\\\n", ""))
    return parser["Service"]


def listed(key: str) -> list[str]:
    """The words of a list of the manifest, `key: [one, "two"]`."""
    (found,) = re.findall(rf"\b{key}: \[(.*?)\]", block("yaml"), re.S)
    return [word.strip().strip('"') for word in found.split(",")]


def stop_timeout(words: list[str]) -> int:
    return int(words[words.index("--stop-timeout") + 1])


@pytest.fixture
def js(js: JetStream) -> JetStream:
    stream = js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.*"]))
    stream.create_consumer(ConsumerConfig(durable_name="workers"))
    return js


@contextmanager
def started(program: str, words: list[str], server: NatsServer, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command of a file, with the `jsclient` of this tree."""
    assert Path(program).name == "jsclient"
    (folder / "orders.py").write_text(APP)
    command = [sys.executable, "-m", "jsclient", *words]
    environment = {**environ(server.url), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def workers(folder: Path) -> set[str]:
    done = folder / "done"
    return {line.split()[0] for line in done.read_text().splitlines()} if done.exists() else set()


@pytest.mark.slow
def test_the_systemd_unit(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    service = unit()
    program, *words = shlex.split(service["ExecStart"])
    _, reload_signal, target = shlex.split(service["ExecReload"])
    assert target == "$MAINPID"
    assert service["KillMode"] == "mixed", "SIGTERM goes to the main process only, which stops the others"
    assert int(service["TimeoutStopSec"]) > stop_timeout(words)
    with started(program, words, server, tmp_path) as process:
        assert re.match(r"\d+ process", said(process))
        js.publish("orders.new", b"1")
        wait_until(lambda: workers(tmp_path), 20)
        before = workers(tmp_path)
        process.send_signal(getattr(signal, f"SIG{reload_signal.removeprefix('-')}"))

        def replaced() -> bool:
            js.publish("orders.new", b"2")
            return not before >= workers(tmp_path)

        wait_until(replaced, 20)
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.slow
def test_the_kubernetes_manifest(js: JetStream, server: NatsServer, tmp_path: Path) -> None:
    program, *words = [*listed("command"), *listed("args")]
    (grace,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", block("yaml"))
    probes = re.findall(r"httpGet: \{path: (\S+), port: (\d+)\}", block("yaml"))
    address = words[words.index("--http") + 1]
    assert int(grace) > stop_timeout(words)
    assert [port for _, port in probes] == [address.rpartition(":")[2]] * 2
    words[words.index(address)] = "127.0.0.1:0"
    with started(program, words, server, tmp_path) as process:
        found = re.search(r"http on port (\d+)", said(process))
        assert found
        for path, _ in probes:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=10) as answer:
                assert answer.status == 200
        js.publish("orders.new", b"1")
        wait_until(lambda: workers(tmp_path), 20)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
