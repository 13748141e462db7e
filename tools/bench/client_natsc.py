"""The workloads on nats.c: a small C program against Debian's libnats-dev, fetched and compiled below .tools.

Shown beside the others, not gated. `program()` says why when there is no compiler, or the library cannot be had.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.bench import compiled
from tools.bench.compiled import Unavailable
from tools.private_apt import AptError, fetch_packages

SOURCE = Path(__file__).with_suffix(".c")
FOLDER = compiled.FOLDER / "natsc"
MORE = ["libprotobuf-c1"]
"""What Debian's libnats wants beside itself, where Python does not already."""


def program() -> Path:
    """The compiled client; made at first use. Raises Unavailable."""
    made = FOLDER / "client"
    if compiled.is_current(made, SOURCE):
        return made
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("there is no C compiler on this machine")
    include, library = _library()
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-o", str(made), str(SOURCE), f"-I{include}", f"-L{library}", "-lnats"]
    command += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{library}", "-Wl,--allow-shlib-undefined"]
    compiled.build(command)
    return made


def _library() -> tuple[Path, Path]:
    """(headers, libraries) of the machine's own release; what is installed already is taken."""
    if Path("/usr/include/nats/nats.h").exists():
        return Path("/usr/include"), Path("/usr/lib")
    tree = FOLDER / "tree"
    if not tree.exists():
        suite = compiled.suite()
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=FOLDER) as work:
                headers = fetch_packages(suite, ["libnats-dev"], Path(work) / "dev")
                link = next(path for path in headers.glob("usr/lib/*/*") if path.name == "libnats.so")
                runtime = f"libnats{os.readlink(link).partition('.so.')[2]}"
                both = fetch_packages(suite, ["libnats-dev", runtime, *MORE], Path(work) / "all")
                both.rename(tree)
        except (AptError, OSError, StopIteration) as error:
            raise Unavailable(f"libnats-dev cannot be fetched: {error}") from None
    return tree / "usr/include", next(tree.glob("usr/lib/*/libnats.so")).parent


def run(case: dict[str, Any]) -> str:
    return compiled.run(program(), case)


core_publish = core_subscribe = request = publish_sync = publish_async = run
fetch = messages = consume = ordered = kv_get = kv_put = run


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    print(run({**told, "url": sys.argv[1]}))
