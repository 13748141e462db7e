"""Ends client processes with all that they have started, and the bench itself on SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from tools.bench.measure import path_of

GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""


def end_on_signals() -> None:
    """SIGTERM, SIGINT and SIGHUP leave every `with` block of this program, so servers and clients end; once."""
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]

    def end(number: int, frame: object) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, end)


def run(command: list[str], folder: str, env: dict[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run`, in a new process group. No process of the group is left, also after an exception."""
    process = subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        _end(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    Path(path_of(process.pid)).unlink(missing_ok=True)
