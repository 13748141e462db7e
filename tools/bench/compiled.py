"""Clients in other languages: how a compiled program runs a case, and what is said when it cannot be had."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tools.bench.measure import feeder, responder

FOLDER = Path(__file__).resolve().parents[2] / ".tools"

SUBJECTS = {
    "core_publish": "bench.publish",
    "core_subscribe": "bench.subscribe",
    "request": "bench.echo",
    "threads_request": "bench.echo",
}


class Unavailable(RuntimeError):
    """The client does not take part; the text says why."""


def suite() -> str:
    """The name of the Debian release of this machine. Raises Unavailable on another system."""
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        text = ""
    found = re.search(r"^VERSION_CODENAME=(\w+)", text, re.M)
    if found is None or "debian" not in text.lower():
        raise Unavailable("its parts come from Debian, and this is another system")
    return found[1]


def is_current(made: Path, source: Path) -> bool:
    return made.exists() and made.stat().st_mtime > source.stat().st_mtime


def build(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a compiler. Raises Unavailable with its first line."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    if done.returncode != 0:
        raise Unavailable(f"it does not compile: {(done.stderr.splitlines() or ['no output'])[0]}")


def run(program: Path, case: dict[str, Any]) -> str:
    """The JSON line of one run."""
    work, params, own = case["work"], case["params"], f"C{os.getpid()}"
    arguments = [
        work,
        case["url"],
        case["count"],
        case["size"],
        SUBJECTS.get(work) or case.get("subject") or f"bench.{own}",
        case.get("stream") or own,
        params.get("batch") or params.get("window") or params.get("threads") or 1000,
        params.get("ack") or params.get("storage") or "memory",
    ]
    with contextlib.ExitStack() as stack:
        if work.endswith("request"):
            stack.enter_context(responder(case))
        command = [str(program), *map(str, arguments)]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert process.stdout is not None
        line = process.stdout.readline()
        if line == "ready\n":
            stack.enter_context(feeder(case, arguments[4]))
            line = process.stdout.readline()
        if process.wait(60) != 0:
            raise SystemExit(process.returncode)  # it has said why
    return line.strip()
