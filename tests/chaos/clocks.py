"""The clock of one server is set while it runs: Linux on x86-64.

A Go program asks the kernel's vDSO for the time, a page of code that every process has, and not the C library; so no
library that is loaded first can change what it is told. The page can be written to from outside, though, as debuggers
do to set breakpoints, and is then a copy of that process alone. What stands there afterwards asks the kernel by a
system call, and adds some seconds to CLOCK_REALTIME. The monotonic clock, by which timers run, stays as it is: so it
is when somebody sets the clock of a machine, or when NTP steps it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from jsclient.testing import NatsServer, wait_until

CODE: Final = bytes.fromhex(
    "b8e4000000"  # mov eax, 228 (clock_gettime)
    "0f05"  # syscall
    "85ff"  # test edi, edi: is it CLOCK_REALTIME?
    "750a"  # jne to the end
    "488b0d06000000"  # mov rcx, [rip + 6]: the seconds
    "48010e"  # add [rsi], rcx
    "c3"  # ret
    "0000"  # up to a multiple of eight, where the seconds stand
)

SYMBOL: Final = b"__vdso_clock_gettime"

DYNAMIC_SYMBOLS: Final = 11  # the type of an ELF section


def settable() -> bool:
    """Whether the clocks of servers can be set here."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and _place()[1] > 0


def set_clock(server: NatsServer, seconds: int) -> None:
    """From now on its clock is so many seconds ahead of the right one (behind it, if negative), until it ends."""
    place = _vdso(server.pid)[0] + _place()[0]
    with Path(f"/proc/{server.pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(place)
        if memory.read(len(CODE)) != CODE:
            _patch(server, memory.fileno(), place)
        os.pwrite(memory.fileno(), struct.pack("q", seconds), place + len(CODE))


def _patch(server: NatsServer, memory: int, place: int) -> None:
    """While no thread of it is in the function that is written over."""
    end = place + _place()[1]

    def quiet() -> bool:
        server.pause()
        if not any(place <= counter < end for counter in _program_counters(server.pid)):
            return True
        server.resume()
        return False

    try:
        wait_until(quiet, 10)
        os.pwrite(memory, CODE + bytes(8), place)
    finally:
        server.resume()


def _program_counters(pid: int) -> Iterator[int]:
    """Where the threads of a stopped process stand."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        told: list[str] = []

        def stands(task: Path = task, told: list[str] = told) -> bool:
            told[:] = (task / "syscall").read_text().split()
            return told != ["running"]

        with contextlib.suppress(FileNotFoundError):  # a thread that has ended
            wait_until(stands, 10)
            yield int(told[-1], 16)


def _vdso(pid: int | str) -> tuple[int, int]:
    """The first address of its page, and the one behind the last; (0, 0) if it has none."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            first, _, last = line.split()[0].partition("-")
            return int(first, 16), int(last, 16)
    return 0, 0


@cache
def _place() -> tuple[int, int]:
    """How far behind the start of the page the function begins, and its length: the same in all processes.
    (0, 0): it is not to be had."""
    first, last = _vdso("self")
    if not first:
        return 0, 0
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        memory.seek(first)
        image = memory.read(last - first)
    sections = _sections(image)
    for kind, offset, size, link in sections:
        if kind != DYNAMIC_SYMBOLS or link >= len(sections):
            continue
        names = sections[link][1]
        for at in range(offset, offset + size, 24):
            name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", image, at)
            if image[names + name :].startswith(SYMBOL + b"\0") and length >= len(CODE) + 8 and value % 8 == 0:
                return value, length
    return 0, 0


def _sections(image: bytes) -> list[tuple[int, int, int, int]]:
    """Type, offset, size and link of every section of an ELF file of 64 bits."""
    (start,) = struct.unpack_from("<Q", image, 0x28)
    width, count = struct.unpack_from("<HH", image, 0x3A)
    found = []
    for number in range(count):
        _, kind, _, _, offset, size, link = struct.unpack_from("<IIQQQQI", image, start + number * width)
        found.append((kind, offset, size, link))
    return found
