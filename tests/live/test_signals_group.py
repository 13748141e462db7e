"""Signals that reach every process of a service: a stop of systemd or a container, Ctrl-C in a terminal, `timeout`."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.test_cli import environ
from tests.pauses import time_passes

import jsclient
from jsclient import groups
from jsclient.jetstream import ConsumerConfig, JetStream, StreamConfig
from jsclient.testing import NatsServer, wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

#: The short tier takes the command and SIGTERM; each other combination starts programs for seconds.
KINDS = ["worker", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("pool", "group"))]
NUMBERS = [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]

HANDLES = """
import time

def note(text):
    with open("log", "a") as log:
        print(text, file=log, flush=True)

def handle(message):
    note("begun")
    time.sleep({seconds})
    note("ended")
"""

SCRIPT = """
import app, os, signal, sys, threading, jsclient
from jsclient import groups
from jsclient.jetstream import JetStream
from jsclient.workers import WorkerPool

def tell():
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        threading.Event().wait(0.01)
    print("it works", flush=True)

threading.Thread(target=tell, daemon=True).start()
with jsclient.connect(os.environ["NATS_URL"]) as nc:
    js = JetStream(nc)
    if sys.argv[1] == "pool":
        pool = WorkerPool(js.consumer("JOBS", "workers"), app.handle, threads=2)
    else:
        pool = groups.GroupPool(groups.open_group(js, "JOBS", "work"), app.handle, threads=2)
    with pool:
        report = pool.run_until_signal({stop})
        print("finished", report.finished, len(report.cut_off), flush=True)
"""


@pytest.fixture
def js(js: JetStream) -> JetStream:
    stream = js.create_stream(StreamConfig(name="JOBS", subjects=["jobs.*"]))
    stream.create_consumer(ConsumerConfig(durable_name="workers", ack_wait=30.0))
    return js


class Program:
    """A program in a process group of its own, or in a terminal (a session and its foreground group)."""

    def __init__(self, folder: Path, url: str, *command: str, terminal: bool = False) -> None:
        self.folder = folder
        path = os.pathsep.join([str(folder), str(Path(jsclient.__file__).parents[1])])
        environment = {**environ(url), "NATS_URL": url, "PYTHONPATH": path}
        self.told = folder / "told"
        self.terminal = -1
        with self.told.open("wb") as told:
            if terminal:
                self.terminal, inner = pty.openpty()
                # The terminal belongs to the new session, so its Ctrl-C is a signal.
                command = ("setsid", "--ctty", "--wait", *command)
            self.process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=environment,
                stdin=inner if terminal else subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=not terminal,
            )
            if terminal:
                os.close(inner)

    def count(self, word: str) -> int:
        log = self.folder / "log"
        return log.read_text().split().count(word) if log.exists() else 0

    def text(self) -> str:
        return self.told.read_text()

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def press_ctrl_c(self) -> None:
        os.write(self.terminal, b"\x03")

    def wait(self, timeout: float = 20) -> int:
        return self.process.wait(timeout)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1


Start = Callable[..., Program]


@pytest.fixture
def start(server: NatsServer, js: JetStream, tmp_path: Path) -> Iterator[Start]:
    """Starts a service (`worker`), or a script with a pool or a group, whose handlers take `seconds`."""
    with contextlib.ExitStack() as programs:

        def started(kind: str, seconds: float, *, stop: float = 15.0, terminal: bool = False) -> Program:
            (tmp_path / "app.py").write_text(HANDLES.format(seconds=seconds))
            (tmp_path / "script.py").write_text(SCRIPT.format(stop=stop))
            if kind == "group":
                groups.create_elastic(js, "JOBS", "work", partitions=2, filters=[groups.Filter("jobs.*", [1])])
            command = [sys.executable, "script.py", kind]
            if kind == "worker":
                service = ("worker", "app:handle", "--stream", "JOBS", "--consumer", "workers", "--threads", "2")
                command = [sys.executable, "-m", "jsclient", *service, "--stop-timeout", str(stop)]
            return programs.enter_context(Program(tmp_path, server.url, *command, terminal=terminal))

        yield started


def begin(js: JetStream, program: Program, messages: int = 2, works: bool = True) -> None:
    """Its handlers run; `works`: and signals stop it. Before, a signal ends a script as any other."""
    for number in range(messages):
        js.publish(f"jobs.{number}", str(number))
    wait_until(lambda: program.count("begun") == messages, 20)
    wait_until(lambda: not works or "work" in program.text(), 20)


def unacked(js: JetStream) -> int:
    return js.consumer("JOBS", "workers").info().num_ack_pending


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", KINDS)
def test_handlers_may_end_when_the_whole_group_is_told(
    start: Start, js: JetStream, server: NatsServer, kind: str, number: int
) -> None:
    if kind == "group" and server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    with start(kind, 1.5) as program:
        begin(js, program)
        program.signal(number)
        program.signal(number)
        wait_until(lambda: not program.count("ended"), 5)
        program.signal(signal.SIGTERM)
        assert program.wait() == 0, program.text()
        assert program.count("ended") == 2
        assert "Traceback" not in program.text()
        assert "ended with status" not in program.text()
    if kind != "group":
        wait_until(lambda: unacked(js) == 0, 5)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_manager_tells_the_process_and_then_its_group(start: Start, js: JetStream, kind: str) -> None:
    """As `timeout` does."""
    with start(kind, 1.5) as program:
        begin(js, program)
        program.process.terminate()
        program.signal(signal.SIGTERM)
        assert program.wait() == 0, program.text()
        assert program.count("ended") == 2
        assert unacked(js) == 0


def test_signals_go_on_until_an_idle_worker_has_ended(start: Start, js: JetStream) -> None:
    """None of them may strike while a process that has stopped its pool ends: the status would be a failure."""
    with start("worker", 0) as program:
        begin(js, program)
        wait_until(lambda: program.count("ended") == 2, 20)
        while program.process.poll() is None:
            program.signal(signal.SIGTERM)
            time_passes(0.002, "a manager that does not wait")
        assert program.wait() == 0, program.text()
        assert "ended with status" not in program.text()


@pytest.mark.skipif(sys.platform != "linux", reason="setsid")
@pytest.mark.parametrize("kind", KINDS[:2])
def test_ctrl_c_in_a_terminal(start: Start, js: JetStream, kind: str) -> None:
    with start(kind, 1.5, terminal=True) as program:
        begin(js, program)
        program.press_ctrl_c()
        assert program.wait() == 0, program.text()
        assert program.count("ended") == 2
        assert unacked(js) == 0
        assert "Traceback" not in program.text()


@pytest.mark.skipif(sys.platform != "linux", reason="setsid")
@pytest.mark.parametrize("kind", KINDS)
def test_the_third_ctrl_c_ends_it(start: Start, js: JetStream, server: NatsServer, kind: str) -> None:
    """The second changes nothing. What was cut off shows in the exit status."""
    if kind == "group" and server.version < (2, 11):
        pytest.skip("partitioned groups begin with nats-server 2.11")
    with start(kind, 60, terminal=True) as program:
        begin(js, program)
        for _ in range(2):
            program.press_ctrl_c()
            with pytest.raises(subprocess.TimeoutExpired):
                program.wait(0.7)
        begun = time.monotonic()
        program.press_ctrl_c()
        assert program.wait() != 0, program.text()
        assert time.monotonic() - begun < 5
        assert program.count("ended") == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_a_handler_that_is_cut_off_shows_in_the_exit_status(start: Start, js: JetStream, number: int) -> None:
    with start("worker", 60, stop=0.5) as program:
        begin(js, program)
        program.signal(number)
        assert program.wait() == 1, program.text()
        assert re.search(r"ended with status 1 when told to stop", program.text())


def test_the_report_names_what_was_cut_off(start: Start, js: JetStream) -> None:
    with start("pool", 60, stop=0.5) as program:
        begin(js, program)
        program.signal(signal.SIGTERM)
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        assert "finished False 2" in program.text()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_service_that_has_nothing_in_hand_ends_with_0(start: Start, js: JetStream, number: int) -> None:
    """Also while it starts: nothing was begun, so nothing was cut off."""
    with start("worker", 0) as program:
        wait_until(lambda: len(_children(program.process.pid)) == 1, 20)
        program.signal(number)
        assert program.wait() == 0, program.text()


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


SLOW_START = """
import signal
from jsclient.cli import worker

make = worker._pool

def slow(*args):
    pool = make(*args)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 5)  # if the signal came before the pause
    signal.pause()
    return pool

worker._pool = slow
"""


def test_a_signal_while_the_pool_is_made_cuts_off_no_handler(start: Start, js: JetStream, tmp_path: Path) -> None:
    """Handlers run before the constructor of the pool returns."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    with start("worker", 1.0) as program:
        begin(js, program, works=False)
        program.signal(signal.SIGTERM)
        assert program.wait() == 0, program.text()
        assert program.count("ended") == 2
        assert unacked(js) == 0
