"""The workloads on nats.c: a small C program against Debian's libnats-dev, fetched and compiled below .tools.

Shown beside the others, not gated. `program()` says why when there is no compiler, or the library cannot be had.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.bench.measure import feeder, responder
from tools.private_apt import AptError, fetch_packages

SOURCE = Path(__file__).with_suffix(".c")
FOLDER = Path(__file__).resolve().parents[2] / ".tools" / "natsc"
MORE = ["libprotobuf-c1"]
"""What Debian's libnats wants beside itself, where Python does not already."""


class Unavailable(RuntimeError):
    """nats.c does not take part; the text says why."""


def program() -> Path:
    """The compiled client; made at first use. Raises Unavailable."""
    made = FOLDER / "client"
    if made.exists() and made.stat().st_mtime > SOURCE.stat().st_mtime:
        return made
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("there is no C compiler on this machine")
    include, library = _library()
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-o", str(made), str(SOURCE), f"-I{include}", f"-L{library}", "-lnats"]
    command += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{library}", "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Unavailable(f"it does not compile: {(done.stderr.splitlines() or ['no output'])[0]}")
    return made


def _library() -> tuple[Path, Path]:
    """(headers, libraries) of the machine's own release; what is installed already is taken."""
    if Path("/usr/include/nats/nats.h").exists():
        return Path("/usr/include"), Path("/usr/lib")
    tree = FOLDER / "tree"
    if not tree.exists():
        suite = re.search(r"^VERSION_CODENAME=(\w+)", _os_release(), re.M)
        if suite is None:
            raise Unavailable("libnats-dev comes from Debian, and this is another system")
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=FOLDER) as work:
                headers = fetch_packages(suite[1], ["libnats-dev"], Path(work) / "dev")
                link = next(path for path in headers.glob("usr/lib/*/*") if path.name == "libnats.so")
                runtime = f"libnats{os.readlink(link).partition('.so.')[2]}"
                both = fetch_packages(suite[1], ["libnats-dev", runtime, *MORE], Path(work) / "all")
                both.rename(tree)
        except (AptError, OSError, StopIteration) as error:
            raise Unavailable(f"libnats-dev cannot be fetched: {error}") from None
    return tree / "usr/include", next(tree.glob("usr/lib/*/libnats.so")).parent


def _os_release() -> str:
    try:
        return Path("/etc/os-release").read_text()
    except OSError:
        return ""


def run(case: dict[str, Any]) -> str:
    """The JSON line of one run."""
    work, params, own = case["work"], case["params"], f"C{os.getpid()}"
    subject = {"core_publish": "bench.publish", "core_subscribe": "bench.subscribe", "request": "bench.echo"}.get(work)
    arguments = [
        work,
        case["url"],
        case["count"],
        case["size"],
        subject or case.get("subject") or f"bench.{own}",
        case.get("stream") or own,
        params.get("batch") or params.get("window") or 1000,
        params.get("ack") or params.get("storage") or "memory",
    ]
    with contextlib.ExitStack() as stack:
        if work == "request":
            stack.enter_context(responder(case))
        command = [str(program()), *map(str, arguments)]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert process.stdout is not None
        line = process.stdout.readline()
        if line == "ready\n":
            stack.enter_context(feeder(case, arguments[4]))
            line = process.stdout.readline()
        if process.wait(60) != 0:
            raise SystemExit(process.returncode)  # it has said why
    return line.strip()


core_publish = core_subscribe = request = publish_sync = publish_async = run
fetch = messages = consume = ordered = kv_get = kv_put = run


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    print(run({**told, "url": sys.argv[1]}))
