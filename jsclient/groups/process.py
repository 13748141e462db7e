"""The process behind a member, and the check for its death, which only its own machine can make.

A server cannot detect the death. A process that is stopped, or cut off, or about to connect again, is as silent as a
dead one. "No responders" from its inbox means that its connection is gone. Its handlers may still run. Only the system
that ran it can confirm that the process no longer exists: then nothing of it can run, or wake up.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
PIDS: Final = Path("/proc/self/ns/pid")


def here() -> str:
    """The scope in which a process id is unique: this start of this machine, and of this container in it.

    Empty if it cannot be found out (systems other than Linux). Read again each time: a child may have been moved.
    """
    try:
        return f"{BOOT.read_text(encoding='ascii').strip()}/{os.readlink(PIDS)}"
    except (OSError, ValueError):
        return ""


def is_dead(place: str, pid: int) -> bool:
    """True if it is proven that process `pid` of `place` does not exist. False means that it may exist.

    An id that another process has got meanwhile is not proof, and neither is a process that nobody has waited for.
    """
    if not place or pid <= 0 or place != here():
        return False
    try:
        os.kill(pid, 0)  # no signal is sent
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # of another user, or no number of a process
    return False
