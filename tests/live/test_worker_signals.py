"""Signals to all processes of `jsclient worker`: handlers finish, and the exit status tells if one did not."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.test_cli import environ

import jsclient
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

#: Each message names the seconds that its handler takes.
APP = """
import time

def handle(message):
    with open("log", "a") as log:
        print("begun", file=log)
    end = time.monotonic() + float(message.data)
    while time.monotonic() < end:
        time.sleep(0.05)
    with open("log", "a") as log:
        print("done", file=log)
"""


@pytest.fixture
def js(server: NatsServer) -> Iterator[JetStream]:
    with jsclient.connect(server.url) as nc:
        js = JetStream(nc)
        stream = js.create_stream(StreamConfig(name="JOBS", subjects=["jobs.*"]))
        stream.create_consumer(ConsumerConfig(durable_name="workers", ack_wait=60))
        yield js
        js.delete_stream("JOBS")


class Service:
    """A worker service with two processes, in a session and process group of its own."""

    def __init__(self, server: NatsServer, folder: Path, *before: str, terminal: bool = False) -> None:
        (folder / "app.py").write_text(APP)
        self.log = folder / "log"
        words = "worker app:handle --stream JOBS --consumer workers --processes 2 --threads 2 --stop-timeout 20"
        command = [*before, sys.executable, "-m", "jsclient", *words.split()]
        environment = {**environ(server.url), "PYTHONPATH": str(Path(jsclient.__file__).parents[1])}
        if not terminal:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.pid = self.process.pid
            return
        self.pid, self.keyboard = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)

    def count(self, word: str) -> int:
        return self.log.read_text().split().count(word) if self.log.exists() else 0

    def press(self, times: int) -> None:
        """Ctrl-C on its terminal, which sends SIGINT to all its processes."""
        for _ in range(times):
            os.write(self.keyboard, b"\x03")
            end = time.monotonic() + 0.3
            wait_until(lambda end=end: time.monotonic() > end)  # type: ignore[misc]

    def status(self) -> int:
        """The exit status; what its terminal shows is read meanwhile."""
        if hasattr(self, "process"):
            return self.process.wait(40)
        with contextlib.suppress(OSError):
            while piece := os.read(self.keyboard, 65536):
                print(piece.decode(), end="")
        os.close(self.keyboard)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def begun(js: JetStream, service: Service, seconds: str, count: int) -> None:
    for _ in range(count):
        js.publish("jobs.a", seconds)
    wait_until(lambda: service.count("begun") == count, 30)


def unacked(js: JetStream) -> int:
    return js.consumer_info("JOBS", "workers").num_ack_pending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_group_lets_handlers_finish(
    server: NatsServer, js: JetStream, tmp_path: Path, number: int
) -> None:
    service = Service(server, tmp_path)
    begun(js, service, "1.5", 4)
    for _ in range(2):  # as impatient managers do
        os.killpg(service.pid, number)
    assert service.status() == 0
    assert service.count("done") == 4
    assert unacked(js) == 0


def test_the_end_of_timeout_lets_handlers_finish(server: NatsServer, js: JetStream, tmp_path: Path) -> None:
    if shutil.which("timeout") is None:
        pytest.skip("this system has no `timeout`")
    service = Service(server, tmp_path, "timeout", "4")
    begun(js, service, "4", 2)
    assert service.status() == 124  # by which `timeout` says that it ended the command
    wait_until(lambda: unacked(js) == 0, 20)  # it does not wait for its command
    assert service.count("done") == 2


def test_one_ctrl_c_lets_handlers_finish(server: NatsServer, js: JetStream, tmp_path: Path) -> None:
    service = Service(server, tmp_path, terminal=True)
    begun(js, service, "1.5", 2)
    service.press(1)
    assert service.status() == 0
    assert service.count("done") == 2
    assert unacked(js) == 0


def test_a_third_ctrl_c_ends_it_and_says_so(server: NatsServer, js: JetStream, tmp_path: Path) -> None:
    service = Service(server, tmp_path, terminal=True)
    begun(js, service, "30", 2)
    started = time.monotonic()
    service.press(3)
    assert service.status() == 1
    assert time.monotonic() - started < 10
    assert service.count("done") == 0


ALONE = """
import sys, time
import jsclient
from jsclient.jetstream import JetStream
from jsclient.workers import WorkerPool

def handle(message):
    time.sleep(0.5)  # the main thread waits for signals by then
    print("begun", flush=True)
    end = time.monotonic() + float(message.data)
    while time.monotonic() < end:
        time.sleep(0.05)
    print("done", flush=True)

with jsclient.connect(sys.argv[1]) as nc:
    pool = WorkerPool(JetStream(nc).consumer("JOBS", "workers"), handle, threads=2, stop_timeout=20)
    print("finished", pool.run_until_signal().finished, flush=True)
"""


@pytest.mark.parametrize(("seconds", "interrupts", "finished"), [("1.5", 2, True), ("30", 3, False)])
def test_a_pool_stops_once_and_at_once_at_the_third_interrupt(
    server: NatsServer, js: JetStream, seconds: str, interrupts: int, finished: bool
) -> None:
    js.publish("jobs.a", seconds)
    program = [sys.executable, "-c", ALONE, server.url]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(interrupts):
            process.send_signal(signal.SIGINT)
            end = time.monotonic() + 0.3
            wait_until(lambda end=end: time.monotonic() > end)  # type: ignore[misc]
        rest = process.stdout.read()
        status = process.wait(30)
    assert (rest == "done\nfinished True\n") == finished
    assert (status == 0) == finished
