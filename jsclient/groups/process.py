"""Which process a member is, and whether that process is dead: the one thing that only the machine it ran on knows.

A server cannot tell it. A process that is stopped, or cut off, or about to connect again, is as silent as a dead one,
and "no responders" from its inbox says that its connection is gone, not that its handlers have ended. Only the system
that ran it knows that there is no such process any more: then nothing of it can run, or wake up.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
PIDS: Final = Path("/proc/self/ns/pid")


def here() -> str:
    """Within what a process id means one process: this start of this machine, and of this container in it.

    Empty where that is not known (systems other than Linux). Asked anew each time: a child may have been moved.
    """
    try:
        return f"{BOOT.read_text(encoding='ascii').strip()}/{os.readlink(PIDS)}"
    except (OSError, ValueError):
        return ""


def is_dead(place: str, pid: int) -> bool:
    """Whether this is proven: process `pid` of `place` does not exist. False means that nothing is known.

    An id that has been given to another process proves nothing, and neither does a process that nobody has waited for.
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
