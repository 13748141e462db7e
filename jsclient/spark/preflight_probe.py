"""The part of `check` that Spark sends to executors as code: it also runs where jsclient is not installed.

So it imports only the standard library, and the rest when a function needs it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import pickle
import platform
import socket
import sys
import time
from collections.abc import Callable

PACKAGES = ("jsclient", "msgspec", "attrs", "pyarrow", "pyspark")
HOLD = 1.0
"""Seconds for which a task keeps its core, so the next task goes to another one."""


def version(name: str) -> str:
    """The version of an imported package. A zip and a plain folder have no metadata."""
    try:
        return str(sys.modules[name].__version__)
    except Exception:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "?"


def probe(settings: bytes | None) -> str:
    """The findings of this process as JSON. `settings` is a pickled `preflight_server.Settings`."""
    versions, findings = {"python": platform.python_version()}, []
    for name in PACKAGES:
        try:
            importlib.import_module(name)
            versions[name] = version(name)
        except Exception as error:
            text = f"{name}: {type(error).__name__}: {error}"
            findings.append(("fail", "import", text, "install jsclient[arrow] in the Python of this process"))
    clock = None
    if settings is not None and not findings:
        from jsclient.spark.preflight_server import look

        found, clock = look(pickle.loads(settings))
        findings += found
    # All workers of an executor have the same parent: Spark's daemon, or the executor itself.
    place = f"{socket.gethostname()}, process {os.getppid()}"
    answer = {"place": place, "versions": versions, "findings": findings, "clock": clock, "now": time.time()}
    return json.dumps(answer)


def in_task(settings: bytes) -> Callable[[int], str]:
    """The function for a task."""

    def run(_: int) -> str:
        started = time.monotonic()
        answer = probe(settings)
        time.sleep(max(0.0, HOLD - (time.monotonic() - started)))
        return answer

    return run
