"""A Ctrl-C within a loop does the cleaning of the `with` or `try` around it, also as CPython 3.13 compiles loops.

CPython 3.13 jumps back to the condition of a loop with an instruction that its exception table leaves out. If a signal
handler raises an exception there, `finally` and `__exit__` are skipped (python/cpython#130279). A loop `while True`
with a `break` or `return` in it has no such jump.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

import jsclient

PACKAGES = ["_connection", "_transport", "jetstream", "keyvalue", "objectstore", "coordination", "services", "backup"]

LEFT_OUT = [
    "with lock:\n    while more():\n        work()\n",
    "try:\n    while more():\n        work()\nfinally:\n    end()\n",
    "try:\n    while a and b:\n        work()\nexcept BaseException:\n    end()\n    raise\n",
]
COVERED = [
    "with lock:\n    while True:\n        if done():\n            break\n        work()\n",
    "with lock:\n    for item in items:\n        work()\n",
    "try:\n    while more():\n        work()\nexcept OSError:\n    end()\n",
]

if sys.version_info < (3, 13):
    pytest.skip("earlier compilers leave no jump out", allow_module_level=True)


def cleaning(code: CodeType) -> Iterator[range]:
    """The offsets within `with` blocks and within `try` blocks that handle every exception."""
    steps = list(dis.get_instructions(code))
    places = {step.offset: place for place, step in enumerate(steps)}
    for entry in getattr(dis, "_parse_exception_table")(code):  # noqa: B009
        handler = steps[places[entry.target] :][:4]
        if handler[0].opname != "PUSH_EXC_INFO":
            continue  # of a comprehension
        typed = any(step.opname == "CHECK_EXC_MATCH" for step in handler)
        if not typed or any(step.argval == "BaseException" for step in handler):
            yield range(entry.start, entry.end)


def left_out(code: CodeType) -> Iterator[int]:
    """The lines of jumps that leave such a block and go back into it."""
    blocks = list(cleaning(code))
    for step in dis.get_instructions(code):
        back = step.opname == "JUMP_BACKWARD" and any(step.argval in block for block in blocks)
        if back and not any(step.offset in block for block in blocks):
            yield getattr(step, "positions").lineno or 0  # noqa: B009
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from left_out(inner)


@pytest.mark.parametrize("text", LEFT_OUT)
def test_such_a_loop_is_found(text: str) -> None:
    assert list(left_out(compile(text, "a", "exec"))) == [2]


@pytest.mark.parametrize("text", COVERED)
def test_other_loops_are_not(text: str) -> None:
    assert list(left_out(compile(text, "a", "exec"))) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_library_has_none(package: str) -> None:
    found = []
    for path in sorted((Path(jsclient.__file__).parent / package).rglob("*.py")):
        lines = left_out(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
        found += [f"{package}/{path.name}:{line}" for line in sorted(set(lines))]
    assert found == []
