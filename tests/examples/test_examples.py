"""Every program of this folder runs unchanged against a private server.

In the full tier it runs twice: a reader runs a program again, and then the server has
the streams of the first run.
"""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

import jsclient
from jsclient.jetstream import JetStream
from jsclient.testing import NatsServer

HERE = Path(__file__).parent
USUAL = "nats://127.0.0.1:4222"
#: program -> the packages that it needs; the full tier installs them.
RECIPES = {
    "recipe_flask": "flask",
    "recipe_django": "django",
    "recipe_fastapi": "fastapi",
    "recipe_pandas": "pandas",
    "recipe_duckdb": "duckdb",
    "recipe_day": "duckdb",
}
#: Its settings are made once in a process, and all programs run in this one.
ONCE = ["recipe_django"]
#: They take a second or more.
SLOW = ["leaf_node", "scheduled_jobs"]
PROGRAMS = [
    pytest.param(
        path,
        marks=[pytest.mark.slow] if path.stem in RECIPES or path.stem in SLOW else [],
        id=path.stem,
    )
    for path in sorted(HERE.glob("*.py"))
    if not path.name.startswith(("test_", "pytest_"))
]


@pytest.mark.parametrize("path", PROGRAMS)
def test_it_runs(
    path: Path, server: NatsServer, tmp_path: Path, count: Callable[[int, int], int]
) -> None:
    needed = RECIPES.get(path.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed (extra `full`)")
    program = tmp_path / path.name
    program.write_text(
        path.read_text(encoding="utf-8").replace(USUAL, server.url), encoding="utf-8"
    )
    try:
        for _ in range(1 if path.stem in ONCE else count(2, 1)):
            runpy.run_path(str(program), run_name="__main__")
    finally:
        for connection in jsclient.live_connections():
            connection.close()
        with jsclient.connect(server.url) as nc:
            js = JetStream(nc)
            for name in list(js.stream_names()):
                js.delete_stream(name)
