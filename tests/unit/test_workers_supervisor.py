"""The parent of a service: how many processes it starts, and what it does when the system gives none."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from jsclient import errors
from jsclient.testing import wait_until
from jsclient.workers.health import Endpoint
from jsclient.workers.supervisor import MOST_BACKOFF, SILENT_AFTER, Child, Slot, Supervisor, backoff, processes_of


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.max": "what is this"}, 8),
    ],
)
def test_auto_is_what_the_container_is_given(files: dict[str, str], count: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with mock.patch.object(os, "sched_getaffinity", create=True, return_value=set(range(8))):
        assert processes_of("auto", tmp_path) == count


def test_a_number_is_itself() -> None:
    assert processes_of("3") == 3
    with pytest.raises(ValueError, match="many"):
        processes_of("many")


PROGRAM = """#!{python}
import json, signal, sys, time
spared = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
while True:
    told = json.dumps({{"running": True, "spared": spared}})
    print(told, file=open(int(sys.argv[1]), "w", closefd=False), flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """What a process of the service runs: it tells that all is well."""
    path = tmp_path / "program"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return path


def rewrite(program: Path, text: str) -> None:
    """Put another program in its place: a file that is being started cannot be written."""
    new = program.with_name("new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(program)


def supervised(supervisor: Supervisor, drive: Callable[[], None]) -> int:
    """Run it until `drive`, which is called in a thread of its own as soon as it works, has ended."""

    def driven() -> None:
        try:
            drive()
        except BaseException as error:
            failed.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    failed: list[BaseException] = []
    driver = threading.Thread(target=driven)
    status = supervisor.run(driver.start)
    driver.join()
    if failed:
        raise failed[0]
    return status


def test_the_processes_go_on_when_no_other_can_be_started(program: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A reload, then a crash, while the program cannot be started: a venv is being replaced, or there is no room."""
    supervisor = Supervisor([str(program)], 2, 5.0)
    away = program.with_name("away")

    def pids() -> list[int]:
        return [child.process.pid for child in supervisor.children]

    def drive() -> None:
        first = pids()
        program.rename(away)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: "the old ones go on" in caplog.text)
        assert pids() == first
        assert supervisor.healthy
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: caplog.text.count("no process could be started") > 2)
        assert pids() == first[1:], "the other one goes on"
        away.rename(program)
        wait_until(lambda: supervisor.healthy, 20)

    with caplog.at_level(logging.ERROR, "jsclient.workers"):
        supervised(supervisor, drive)


DIES = """#!{python}
import json, os, sys, time
open({begun!r}, "w").close()
while not os.path.exists({gate!r}):
    time.sleep(0.01)
if {figures!r}:
    print(json.dumps({figures!r}), file=open(int(sys.argv[1]), "w"), flush=True)
sys.exit(1)
"""


def dies(begun: Path, gate: Path, figures: dict[str, bool]) -> str:
    """A program that notes that it has begun, waits for the gate, reports the figures if there are any, and fails."""
    return DIES.format(python=sys.executable, begun=str(begun), gate=str(gate), figures=figures)


def test_a_reload_ends_with_the_first_new_process_that_reports_and_dies(
    program: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It was started again without a pause, 20 times a second."""
    supervisor = Supervisor([str(program)], 2, 5.0)

    def drive() -> None:
        first = [child.process.pid for child in supervisor.children]
        rewrite(program, dies(begun=tmp_path / "begun", gate=program, figures={"running": False}))
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: "the old ones go on" in caplog.text)
        assert [child.process.pid for child in supervisor.children] == first
        assert supervisor.healthy
        assert supervisor.restarts == 0

    with caplog.at_level(logging.ERROR, "jsclient.workers"):
        supervised(supervisor, drive)


def test_an_old_process_that_fails_while_it_starts_does_not_end_a_reload(
    program: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    supervisor = Supervisor([str(program)], 2, 5.0)
    begun, fail, go = tmp_path / "begun", tmp_path / "fail", tmp_path / "go"
    gate = f"import os\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\nwhile True:"
    slow = PROGRAM.format(python=sys.executable).replace("while True:", gate)

    def drive() -> None:
        first = [child.process.pid for child in supervisor.children]
        rewrite(program, dies(begun, fail, {}))
        os.kill(first[0], signal.SIGKILL)
        wait_until(begun.exists)
        starting = supervisor.children[-1]
        rewrite(program, slow)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: len(supervisor.children) == 3)
        fail.touch()
        wait_until(lambda: starting not in supervisor.children)
        turn = supervisor._turned
        wait_until(lambda: supervisor._turned > turn + 0.3)
        assert len(supervisor.children) == 2, "the next place waits until the first successor works"
        go.touch()
        wait_until(lambda: first[1] not in [child.process.pid for child in supervisor.children])
        wait_until(lambda: supervisor.healthy)
        assert "the old ones go on" not in caplog.text

    with caplog.at_level(logging.ERROR, "jsclient.workers"):
        supervised(supervisor, drive)


CLOSES = """#!{python}
import json, os, sys, time
print(json.dumps({{"running": True}}), file=open(int(sys.argv[1]), "w"), flush=True)  # closed with the file
time.sleep(60)
"""


def test_a_process_that_tells_nothing_any_more_does_not_keep_its_parent_busy(program: Path) -> None:
    """It has closed its end of the pipe, and lives on: it is not healthy for long, and costs the parent nothing."""
    rewrite(program, CLOSES.format(python=sys.executable))
    supervisor = Supervisor([str(program)], 1, 5.0)
    turns = mock.Mock(wraps=supervisor._listen)

    def drive() -> None:
        (child,) = supervisor.children
        wait_until(lambda: child.pipe is None)
        child.heard -= SILENT_AFTER
        assert not supervisor.healthy
        wait_until(lambda: turns.call_count > 5)

    reads = mock.patch.object(Child, "read", autospec=True, side_effect=Child.read)
    with reads as reads_done, mock.patch.object(supervisor, "_listen", turns):
        supervised(supervisor, drive)
    assert reads_done.call_count <= 2, "one for the figures, and one for the end of the pipe"


def test_an_interrupt_waits_until_a_process_has_its_handlers(program: Path) -> None:
    """Ctrl-C in the first half second was a traceback of each process, from wherever it imported."""
    supervisor = Supervisor([str(program)], 1, 5.0)

    def drive() -> None:
        assert [figures["spared"] for _, figures in supervisor.figures()] == [True]
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, []), "the parent has it still"

    supervised(supervisor, drive)


def test_a_service_that_crashes_for_days_is_started_again(program: Path) -> None:
    assert backoff(Slot(0)) < 1
    assert backoff(Slot(0, failures=100_000)) == MOST_BACKOFF


def test_probes_are_answered_without_a_thread(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor([str(program)], 1, 5.0)

    def refuse(thread: threading.Thread) -> Any:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(errors.NoThread, match="raise the system's limit"):
            Endpoint(supervisor, "127.0.0.1:0")

    def drive() -> None:
        endpoint = Endpoint(supervisor, "127.0.0.1:0")
        try:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/healthz", timeout=10) as answer:
                    assert answer.status == 200
        finally:
            endpoint.close()

    assert supervised(supervisor, drive) == 1, "it was killed by the signal to stop"


def test_the_pause_begins_again_once_a_process_has_lived(
    program: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsclient.workers.supervisor.HEALTHY_AFTER", 0.0)
    supervisor = Supervisor([str(program)], 1, 5.0)

    def drive() -> None:
        for restarts in (1, 2, 3):
            os.kill(supervisor.children[0].process.pid, signal.SIGKILL)
            wait_until(lambda restarts=restarts: supervisor.restarts == restarts and supervisor.healthy)  # type: ignore[misc]

    with caplog.at_level(logging.ERROR, "jsclient.workers"):
        supervised(supervisor, drive)
    assert caplog.text.count("another one starts in 0.2 s") == 3


def test_the_pause_doubles_with_every_crash_up_to_its_limit() -> None:
    slot = Slot(0)
    pauses = [backoff(slot) for _ in range(9)]
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0])


def test_a_process_that_has_not_reported_for_ten_seconds_is_not_healthy(program: Path) -> None:
    supervisor = Supervisor([str(program)], 1, 5.0)

    def drive() -> None:
        (child,) = supervisor.children
        os.kill(child.process.pid, signal.SIGSTOP)
        heard = child.heard
        child.heard = heard - SILENT_AFTER
        try:
            wait_until(lambda: not supervisor.healthy)
        finally:
            os.kill(child.process.pid, signal.SIGCONT)

    supervised(supervisor, drive)


def test_a_process_that_has_reached_its_limit_is_replaced_without_a_pause(
    program: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor([str(program)], 1, 5.0)
    good = program.read_text()

    def drive() -> None:
        (first,) = supervisor.children
        rewrite(program, good.replace("while True:", "if True:").replace("time.sleep(0.05)", "sys.exit(75)"))
        os.kill(first.process.pid, signal.SIGKILL)
        wait_until(lambda: caplog.text.count("has reached its limit") > 3, 20)
        assert supervisor._slots[0].failures == 0
        assert supervisor.restarts == 1, "only the one that was killed"
        rewrite(program, good)
        wait_until(lambda: supervisor.healthy, 20)

    with caplog.at_level(logging.INFO, "jsclient.workers"):
        supervised(supervisor, drive)


@pytest.mark.parametrize("status", [2, 3])
def test_a_process_that_cannot_work_ends_the_service(program: Path, status: int) -> None:
    """Wrong usage, or a stream that does not exist: another start would fail, too."""
    rewrite(program, f"#!/bin/sh\nexit {status}\n")
    late = threading.Timer(20, os.kill, (os.getpid(), signal.SIGTERM))
    late.start()
    try:
        assert Supervisor([str(program)], 1, 5.0).run() == status
    finally:
        late.cancel()
