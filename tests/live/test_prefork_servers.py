"""The recipes of the README for servers that fork: gunicorn --preload, Celery's prefork pool, multiprocessing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import jsclient
from jsclient.jetstream import JetStream, StreamConfig
from jsclient.testing import NatsServer, free_port, wait_until

APPS = Path(__file__).with_name("apps")


def environment(server: NatsServer, **more: str) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "NATS_URL": server.url, "PYTHONPATH": f"{root}{os.pathsep}{APPS}", **more}


def ended(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
        raise


@pytest.fixture
def js(js: JetStream) -> JetStream:
    js.create_or_update_stream(StreamConfig(name="PREFORK", subjects=["web.>", "tasks.>", "mp.>"]))
    return js


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_gunicorn_preload(server: NatsServer, js: JetStream) -> None:
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    port = free_port()
    command = ["gunicorn", "--preload", "--workers", "3", "--bind", f"127.0.0.1:{port}", "wsgi_inherited:app"]
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env=environment(server), stderr=subprocess.DEVNULL, cwd=APPS
    )
    try:
        wait_until(lambda: _answers(port), 20)
        first = int(get(port, "/"))
        numbers = [int(get(port, "/")) for _ in range(30)]
        assert numbers == list(range(first + 1, first + 31))
        assert get(port, "/inherited") == "ForkedConnection"
    finally:
        ended(process)
    assert process.returncode == 0


def _answers(port: int) -> bool:
    try:
        return bool(get(port, "/"))
    except OSError:
        return False


@pytest.mark.slow
def test_celery_prefork(server: NatsServer, js: JetStream, tmp_path: Path) -> None:
    pytest.importorskip("celery", reason="celery is not installed")
    for name in ("queue", "control", "results"):
        (tmp_path / name).mkdir()
    more = {"CELERY_FOLDER": str(tmp_path)}
    worker = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "prefork", "--concurrency", "2"]
    process = subprocess.Popen(
        [*worker, "--without-gossip", "--without-mingle", "--without-heartbeat"],
        env=environment(server, **more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=APPS,
    )
    caller = "from celery_app import store; [store.delay(str(i)) for i in range(20)]"
    try:
        subprocess.run(
            [sys.executable, "-c", caller], env=environment(server, **more), check=True, timeout=20, cwd=APPS
        )
        wait_until(lambda: js.stream("PREFORK").info().state.messages == 20, 25)
    finally:
        ended(process)
    texts = {js.stream("PREFORK").get_msg(seq).data for seq in range(1, 21)}
    assert texts == {b"%d" % i for i in range(20)}


def in_child(options: jsclient.ConnectOptions, number: int) -> Any:
    return JetStream(jsclient.shared(options)).publish("mp.x", b"%d" % number).stream


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("spawn", "forkserver"))]
)
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")  # Python 3.12 warns of threads and fork
def test_multiprocessing(server: NatsServer, js: JetStream, method: str) -> None:
    options = jsclient.ConnectOptions(servers=server.url)
    with multiprocessing.get_context(method).Pool(3) as pool:
        names = pool.starmap(in_child, [(options, number) for number in range(30)])
    assert names == ["PREFORK"] * 30
    assert js.stream("PREFORK").info().state.messages == 30
