"""Ends the servers of a process that was killed before it could end them, and removes their folders.

`note` runs this file, once per process, as `python watcher.py PID-OF-THE-PROCESS`. Each line of its input is
`PID FOLDER` of a server that runs, `0 FOLDER` of one that was stopped, or `-1 FOLDER` of one whose folder is gone.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

#: Seconds between two looks whether the process lives. A fork of it may keep the other end of our input open.
LOOK = 0.5

#: A killed server may still be writing when its folder is removed first.
TRIES = 5

_lock = threading.Lock()
_watchers: dict[int, subprocess.Popen[bytes]] = {}  # by the process that started it: a forked child has its own


def note(server: int, folder: str) -> None:
    """Tell the watcher of this process the number of a server's process (or 0, or -1, as above)."""
    with _lock:
        watcher = _watchers.get(os.getpid())
        if watcher is None:
            command = [sys.executable, "-IS", __file__, str(os.getpid())]
            watcher = _watchers[os.getpid()] = subprocess.Popen(
                command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True
            )
    assert watcher.stdin is not None
    with contextlib.suppress(OSError):  # somebody has killed it
        watcher.stdin.write(os.fsencode(f"{server} {folder}\n"))


def end() -> None:
    """The process ends in order, and so does the watcher."""
    watcher = _watchers.pop(os.getpid(), None)
    if watcher is not None:
        watcher.communicate()


def watch(parent: int) -> None:
    """Return when the process has ended."""
    servers: dict[str, int] = {}
    rest = b""
    while True:
        if not select.select([0], [], [], LOOK)[0]:
            if os.getppid() == parent:
                continue
            break
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            pid, _, folder = os.fsdecode(line).partition(" ")
            servers[folder] = int(pid)
    for folder, server in servers.items():
        if server < 0:
            continue
        with contextlib.suppress(OSError):
            if server:
                os.kill(server, signal.SIGKILL)
        for _ in range(TRIES):
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.exists(folder):
                break
            time.sleep(LOOK)


if __name__ == "__main__":
    watch(int(sys.argv[1]))
