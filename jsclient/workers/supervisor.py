"""The parent of a worker service: starts its processes, restarts crashed ones, replaces them one by one, stops them.

It handles no messages and has no connection. Children send their statistics as JSON lines on a pipe. If no parent reads
them any more, they end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

import attrs

from jsclient.durations import doubled
from jsclient.workers.signals import IMPATIENT, SIGNALS

log: logging.Logger = logging.getLogger("jsclient.workers")

FIRST_BACKOFF: Final = 0.2
MOST_BACKOFF: Final = 30.0
"""Seconds before a crashed process is started again: doubled each time, from the start again once one has lived."""

HEALTHY_AFTER: Final = 10.0
READY_TIMEOUT: Final = 60.0
REPORTS_EVERY: Final = 0.5
SILENT_AFTER: Final = 10.0
"""Seconds without a report after which a process is not healthy: it may hang, or be stopped."""

KILL_AFTER: Final = 5.0
"""Seconds beyond the stop timeout after which a process that still runs is killed."""

CGROUPS: Final = Path("/sys/fs/cgroup")

RECYCLED: Final = 75
"""Exit status of a process that has reached its limit: another one takes its place immediately."""

HOPELESS: Final = (2, 3)
"""Exit status of wrong usage, and of a stream or consumer that does not exist."""


State = Literal["starting", "working", "leaving"]


class Child:
    """One process of the service. It works from its first report on, and leaves after the order to stop."""

    def __init__(self, slot: Slot, command: list[str]) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        # A Ctrl-C while it imports would be a traceback: it waits until the process has its own handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen([*command, str(writing)], pass_fds=[writing])
        except BaseException:
            os.close(reading)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(writing)
        self.slot = slot
        self.pipe: int | None = reading  # None: it has closed its end, and may live on
        self.state: State = "starting"
        self.started: float = time.monotonic()
        self.kill_at: float = math.inf
        self.heard: float = 0.0
        self.figures: dict[str, Any] = {}
        self._rest = b""

    @property
    def healthy(self) -> bool:
        return bool(self.figures.get("running")) and time.monotonic() - self.heard < SILENT_AFTER

    def read(self) -> None:
        """Read its reports."""
        assert self.pipe is not None
        try:
            text = os.read(self.pipe, 65536)
        except BlockingIOError:
            return
        if not text:
            self.close()
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            self.figures = json.loads(line)
            self.heard = time.monotonic()
            self.state = "working" if self.state == "starting" else self.state

    def leave(self, timeout: float) -> None:
        """Tell it once to stop. It is killed if it does not end in time."""
        if self.state != "leaving":
            self.state, self.kill_at = "leaving", time.monotonic() + timeout + KILL_AFTER
            self.tell(signal.SIGTERM)

    def tell(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def close(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


@attrs.define(eq=False)
class Slot:
    """One of the places for a process, and how its processes have fared."""

    number: int
    failures: int = 0
    start_at: float = 0.0


class Supervisor:
    """Run `processes` children of `command` (the number of a pipe is added) until SIGTERM or SIGINT. See `run`."""

    def __init__(self, command: list[str], processes: int, stop_timeout: float) -> None:
        self._command = command
        self._stop_timeout = stop_timeout
        self._slots = [Slot(number) for number in range(processes)]
        self.children: list[Child] = []
        self.restarts: int = 0
        self._stopping = False
        self._replace_before = 0.0  # children that started earlier are replaced
        self._asked: list[int] = []
        self._interrupts = 0
        self._turned = time.monotonic()
        self._was_ready = False
        self._status = 0

    # --- what others see --------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """This process does its work. Its children may be starting, and the link may be down."""
        return time.monotonic() - self._turned < SILENT_AFTER

    @property
    def healthy(self) -> bool:
        """All children run."""
        return not self._stopping and all(any(child.healthy for child in self._in(slot)) for slot in self._slots)

    @property
    def ready(self) -> bool:
        """All children run, and each has its link to the server."""
        return self.healthy and all(child.figures.get("connected") for child in self.children if child.figures)

    def figures(self) -> Iterable[tuple[Mapping[str, str], Mapping[str, Any]]]:
        """Labels and statistics of each process that has sent some."""
        for slot in self._slots:
            for child in [child for child in self._in(slot) if child.figures][:1]:
                yield {"process": str(slot.number)}, child.figures

    def _in(self, slot: Slot) -> list[Child]:
        """The processes of a place, the oldest one first; two while one replaces the other."""
        return [child for child in list(self.children) if child.slot is slot]

    # --- running ----------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[], Any] = lambda: None, last: bool = False) -> int:
        """Until a signal: SIGTERM and SIGINT stop, SIGHUP replaces the processes one by one. Returns the exit status.

        A third SIGINT kills the processes. The status is 1 if a process was killed or cut off handlers.

        The main thread only. `on_ready` is called when all processes work for the first time. `last`: this process
        ends after it, so further signals are ignored; else they are handled as before.
        """
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            while self.children or not self._stopping:
                self._turn(on_ready)
        finally:
            for child in self.children:
                child.tell(signal.SIGKILL)
                child.process.wait()
                child.close()
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if last else handler)
        return self._status

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked.append(number)

    def _turn(self, on_ready: Callable[[], Any]) -> None:
        self._turned = now = time.monotonic()
        while self._asked:
            self._obey(self._asked.pop(0))
        for child in list(self.children):
            if child.process.poll() is not None:
                self._ended(child)
            elif now > child.kill_at:
                log.error("process %d does not end: killed", child.process.pid)
                child.tell(signal.SIGKILL)
        for slot in self._slots:
            if not self._stopping and now >= slot.start_at and not self._in(slot) and not self._start(slot):
                slot.start_at = now + backoff(slot)
        if not self._was_ready and self.healthy:
            self._was_ready = True
            on_ready()
        self._replace_next(now)
        self._listen(0.1)

    def _obey(self, number: int) -> None:
        if number == signal.SIGHUP:
            log.info("the processes are replaced one by one")
            self._replace_before = time.monotonic()
            return
        self._interrupts += number == signal.SIGINT
        if self._interrupts == IMPATIENT:
            log.error("interrupted again: the processes are killed, and their messages are redelivered")
            for child in self.children:
                child.tell(signal.SIGKILL)
        self._stop(0)

    def _stop(self, status: int) -> None:
        if not self._stopping:
            log.info("the processes stop; running handlers may end within %g s", self._stop_timeout)
        self._stopping, self._status = True, self._status or status
        for child in self.children:
            child.leave(self._stop_timeout)

    def _listen(self, seconds: float) -> None:
        """Read the reports of children for this time."""
        with selectors.DefaultSelector() as selector:
            for child in self.children:
                if child.pipe is not None and child.process.poll() is None:
                    selector.register(child.pipe, selectors.EVENT_READ, child)
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0 and not self._asked:
                for key, _ in selector.select(left):
                    key.data.read()
                    if key.data.pipe is None:  # it is closed, and would be readable forever
                        selector.unregister(key.fileobj)
                    if key.data.process.poll() is not None:
                        return

    def _start(self, slot: Slot) -> bool:
        """A new process. Returns False if the system gives none: those that run go on."""
        try:
            self.children.append(Child(slot, self._command))
        except OSError as error:
            log.error("no process could be started: %s", error, exc_info=error)
            return False
        return True

    def _ended(self, child: Child) -> None:
        code, lived, slot = child.process.returncode, time.monotonic() - child.started, child.slot
        child.close()
        self.children.remove(child)
        if child.state == "leaving":
            unborn = not child.figures and -code in SIGNALS  # it had no handlers of signals, nor messages
            if code not in (0, RECYCLED) and not unborn:
                log.warning("process %d ended with status %d when told to stop", child.process.pid, code)
                self._status = self._status or (1 if self._stopping else 0)
        elif child.state == "starting" and code in HOPELESS and not self._was_ready:
            self._stop(code)  # its log has the reason, and another start would fail, too
        elif code == RECYCLED:
            log.info("process %d has reached its limit after %.1f s; another one starts", child.process.pid, lived)
            slot.start_at = slot.failures = 0
        elif child.started >= self._replace_before and any(self._is_old(other) for other in self._in(slot)):
            log.error("the new process %d does not work: the old ones go on", child.process.pid)
            self._replace_before = 0.0
        else:
            self._crashed(child, lived)

    def _crashed(self, child: Child, lived: float) -> None:
        code, slot = child.process.returncode, child.slot
        if lived > HEALTHY_AFTER:
            slot.failures = 0
        pause = backoff(slot)
        slot.start_at = time.monotonic() + pause
        self.restarts += 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        log.error("process %d %s after %.1f s; another one starts in %.1f s", child.process.pid, how, lived, pause)

    def _is_old(self, child: Child) -> bool:
        """True if a reload has still to replace it."""
        return child.started < self._replace_before and child.state != "leaving"

    def _replace_next(self, now: float) -> None:
        """One place at a time: a successor starts, and when it works its predecessor ends."""
        old = [child for child in self.children if self._is_old(child)]
        if not old or self._stopping:
            return
        first = min(old, key=lambda child: child.slot.number)
        new = [child for child in self.children if child.started >= self._replace_before]
        late = [child for child in new if not child.healthy and now > child.started + READY_TIMEOUT]
        if any(not child.healthy and child not in late for child in new):
            return  # one of them is starting
        stuck = [child for child in late if child.slot is first.slot]
        if stuck:
            stuck[0].tell(signal.SIGKILL)
        elif any(child.slot is first.slot for child in new):
            first.leave(self._stop_timeout)
        elif not self._start(first.slot):
            log.error("the processes are not replaced: the old ones go on")
            self._replace_before = 0.0


def backoff(slot: Slot) -> float:
    """Seconds until the next start, after one more failure."""
    slot.failures += 1
    return doubled(FIRST_BACKOFF, slot.failures - 1, MOST_BACKOFF)


def processes_of(text: str, groups: Path = CGROUPS) -> int:
    """`auto`: as many as this process may use cores; else a number. A container may see 64 and be given two."""
    if text != "auto":
        return int(text)
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    given = _given(groups)
    return cores if given is None else max(1, min(cores, math.ceil(given)))


def _given(groups: Path) -> float | None:
    """The cores that the container may use on average. Returns None without a limit."""
    with contextlib.suppress(OSError, ValueError):  # version 2: "200000 100000", or "max 100000"
        quota, period = (groups / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):  # version 1
        microseconds = int((groups / "cpu" / "cpu.cfs_quota_us").read_text())
        return microseconds / int((groups / "cpu" / "cpu.cfs_period_us").read_text()) if microseconds > 0 else None
    return None


def this_program(arguments: Iterable[str]) -> list[str]:
    """The command that starts `python -m jsclient` with these arguments."""
    return [sys.executable, "-m", "jsclient", *arguments]
