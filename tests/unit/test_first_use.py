"""Threads that decode a class for the first time at the same moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = '''
from __future__ import annotations
import sys, threading, types
from jsclient import codecs
from jsclient.jetstream.api import model_base

SOURCE = """
from __future__ import annotations
import msgspec
from jsclient.jetstream.api.model_base import Wire
class Inner(WIRE):
    one: int = 0
    two: str | None = None
class Outer(WIRE):
    a: int | None = None
    b: str | None = None
    c: list[int] | None = None
    d: dict[str, int] | None = None
    e: list[Inner] | None = None
    f: Inner | None = None
    j: dict[str, Inner] | None = None
class Other(WIRE):
    e: list[Inner] | None = None
    f: Outer | None = None
"""
way = sys.argv[1]
sys.setswitchinterval(1e-6)
for number in range(60):
    module = types.ModuleType(f"made_{number}")
    sys.modules[module.__name__] = module
    exec(SOURCE.replace("WIRE", "Wire" if way == "answers" else "msgspec.Struct"), module.__dict__)
    barrier = threading.Barrier(8)

    def work(kind):
        barrier.wait()
        if way == "answers":
            model_base.from_wire({"a": 1, "f": {"one": 1}, "e": [{"one": 2}], "j": {"x": {}}}, kind)
        else:
            codecs.decoder(codecs.JSON, kind)(b'{"a":1,"f":{"one":1},"e":[{"one":2}]}')

    threads = [threading.Thread(target=work, args=([module.Outer, module.Other][n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
'''


@pytest.mark.parametrize("way", ["answers", "codecs"])
def test_threads_that_begin_with_the_same_class_do_not_end_the_process(way: str) -> None:
    """msgspec 0.22.0 reads a null pointer: the process died of signal 11."""
    # Without the interpreter lock the import warns.
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", PROGRAM, way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
