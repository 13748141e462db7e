"""Taking the time of a region, and the helper processes a workload needs (publisher, responder)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""Here the helpers start: they use this checkout's library, also for clients that use an earlier one."""

MICRO = 1e6
PIECE = 1 << 20


class Timed:
    """A `with` block; its wall and CPU seconds (user and system, this process alone) go into `result`."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}

    def __enter__(self) -> Timed:
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        wall = time.perf_counter() - self._start
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu = usage.ru_utime + usage.ru_stime - self._usage.ru_utime - self._usage.ru_stime
        switches = usage.ru_nvcsw - self._usage.ru_nvcsw
        self.result.update(wall=wall, cpu=cpu, rss=self.rss_peak(), switches=switches)

    @staticmethod
    def rss_peak() -> float:
        """Peak resident megabytes of this program; ru_maxrss would carry that of the parent along through exec."""
        try:
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
        except (OSError, StopIteration):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    @staticmethod
    def rss_now() -> float:
        """Resident megabytes at this moment; 0 where /proc does not tell."""
        try:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1048576
        except OSError:
            return 0.0


def destination(size: int) -> str:
    """A path for `size` bytes, in memory where there is such a folder. Its pages have been in use before: a virtual
    machine takes 170 ms for 64 MiB instead of 20 if its host has to find them first: one client would pay for it."""
    path = path_of(os.getpid())
    try:
        with open(path, "wb") as file:
            for _ in range(0, size, PIECE):
                file.write(bytes(PIECE))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return path


def path_of(pid: int) -> str:
    """The path that `destination` gives to a process."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    return f"{folder}/bench-{pid}"


def percentiles(times: list[float]) -> dict[str, float]:
    """p50 and p99 in microseconds."""
    times = sorted(times)
    return {"p50": times[len(times) // 2] * MICRO, "p99": times[len(times) * 99 // 100] * MICRO}


@contextlib.contextmanager
def _helper(case: dict[str, Any], role: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tools.bench.helper", case["url"], json.dumps(case), role, *arguments]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        if role == "respond":
            process.terminate()
        process.wait(60)


def feeder(case: dict[str, Any], subject: str, subjects: int = 1) -> Any:
    """A process that publishes the messages of the case; the same one for every client."""
    return _helper(case, "feed", subject, str(subjects))


def responder(case: dict[str, Any]) -> Any:
    """A process that answers requests on bench.echo; the same one for every client."""
    return _helper(case, "respond")


def asker(case: dict[str, Any], subject: str) -> dict[str, float]:
    """Percentiles of requests, one at a time, that a process of its own makes; the same one for every client."""
    command = [sys.executable, "-m", "tools.bench.helper", case["url"], json.dumps(case), "ask", subject]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=100, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def listener(case: dict[str, Any], subject: str) -> Iterator[Callable[[], dict[str, float]]]:
    """A process that notes how long the messages were on their way (their payload says when they were sent). Yields a
    function that waits for the last of them and returns the percentiles."""
    command = [sys.executable, "-m", "tools.bench.helper", case["url"], json.dumps(case), "listen", subject]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has subscribed

        def heard() -> dict[str, float]:
            assert process.stdout is not None
            found: dict[str, float] = json.loads(process.stdout.readline())
            return found

        yield heard


def in_processes(module: str, case: dict[str, Any], timed: Timed, work: str) -> None:
    """The messages of the case, shared by processes with a connection each: CPU and memory are those of all of them,
    the time is that of the slowest, without the start of the interpreters."""
    number = case["params"]["processes"]
    told = json.dumps({**case, "work": work, "count": case["count"] // number})
    running = [
        subprocess.Popen([sys.executable, "-m", module, case["url"], told], stdout=subprocess.PIPE)
        for _ in range(number)
    ]
    found = [json.loads(process.communicate(timeout=100)[0]) for process in running]
    for key in ("cpu", "rss", "switches"):
        timed.result[key] = sum(one[key] for one in found)
    timed.result["wall"] = max(one["wall"] for one in found)


def until_answered(ask: Callable[[], object], failures: type[Exception]) -> None:
    """The responder needs a moment to start."""
    while True:
        try:
            ask()
            return
        except failures:
            time.sleep(0.02)
